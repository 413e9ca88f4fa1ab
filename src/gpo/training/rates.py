"""The learning rate that a model can take: a short range test before training.

The rate rises step by step from a tenth to three times the usual one, on a few batches again and
again. Where their losses leave the smallest values they had, the model takes no more: a sixth of
that rate is chosen, between a tenth of the usual one and the usual one. What goes wrong within a few
steps at one rate goes wrong within a hundred at a third of it (measured on Darcy maps), so it is a
sixth.
"""

import copy
import math
from collections.abc import Callable, Iterable
from itertools import islice
from time import process_time
from typing import Any

import torch
from torch import Tensor, nn

NUM_STEPS = 32
LOWEST, HIGHEST = 1 / 10, 3.0
"""Where the rate begins and ends, in usual ones."""
NUM_BATCHES = 4
"""Few, so that every one is seen often: a loss is compared with those of the same batch."""
LEFT = 2.0
"""Losses of so many times the smallest of their batch, in the mean, are left for good."""
SMOOTH = 0.7
"""Weight of what came before in that mean."""
SAFE, SMALLEST = 1 / 6, 1 / 10
"""What is chosen of the rate at which the loss is left, and at least of the usual one."""
FRACTION = 0.1
"""The part of a budget that a range test may take."""
LEAST = 30.0
"""CPU seconds of a budget that leaves time for one."""


def find_rate(
    model: nn.Module,
    batches: Iterable[Any],
    loss_of: Callable[[Any, Any], Tensor],
    *,
    usual: float,
    clip: float,
    seconds: float,
) -> tuple[float, str]:
    """Returns the learning rate, and in words how it was found.

    It depends on the model and the batches alone, unless the time does not suffice.

    Args:
        model: The model, which stays as it is.
        batches: Examples to train on, at least one batch.
        loss_of: The loss of a model and a batch, which training minimises.
        usual: The rate that most data can take.
        clip: Largest gradient norm.
        seconds: CPU seconds that the test may take.
    """
    model, given = copy.deepcopy(model), list(islice(batches, NUM_BATCHES))
    optimizer = torch.optim.AdamW(model.parameters(), lr=usual)
    least, mean, rate = [math.inf] * len(given), 1.0, usual
    started = process_time()
    for step in range(NUM_STEPS):
        rate = usual * LOWEST * (HIGHEST / LOWEST) ** (step / (NUM_STEPS - 1))
        for group in optimizer.param_groups:
            group["lr"] = rate
        number = step % len(given)
        loss = loss_of(model, given[number])
        now = float(loss.detach())
        least[number] = min(least[number], now)
        mean = SMOOTH * mean + (1 - SMOOTH) * now / (least[number] or 1.0)
        if not mean <= LEFT:
            chosen = min(usual, max(SAFE * rate, SMALLEST * usual))
            return chosen, f"learning rate {chosen:.3g}: the loss is left from {rate:.3g} on"
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        if step == 2 and (process_time() - started) / 3 * NUM_STEPS > seconds:
            return usual, f"learning rate {usual:.3g}, the usual: no time for a range test"
    return usual, f"learning rate {usual:.3g}, the usual: the loss stays up to {rate:.3g}"
