"""The learning rate that a model can take: a short range test before training.

The rate rises step by step over two orders of magnitude. Where the loss leaves its smallest value
by far, the model takes no more; a third of that, but never more than the usual rate, is chosen.
"""

import copy
import math
from collections.abc import Callable, Iterable
from time import process_time

import torch
from torch import Tensor

from gpo.forecast.examples import Example
from gpo.forecast.forecaster import Forecaster

NUM_STEPS = 48
LOWEST, HIGHEST = 1 / 30, 4.0
"""Where the rate begins and ends, in usual ones."""
LEFT = 2.0
"""A mean loss of so many times the smallest is left for good."""
SMOOTH = 0.7
"""Weight of what came before in the mean loss."""
SAFE = 1 / 3
"""What is chosen of the rate at which the loss is left."""
FRACTION = 0.1
"""The part of a budget that a range test may take."""
LEAST = 30.0
"""CPU seconds of a budget that leaves time for one."""


def find_rate(
    forecaster: Forecaster,
    batches: Iterable[Example],
    loss_of: Callable[[Forecaster, Example], Tensor],
    *,
    usual: float,
    clip: float,
    seconds: float,
) -> tuple[float, str]:
    """Returns the learning rate, and in words how it was found.

    It depends on the model and the batches alone, unless the time does not suffice.

    Args:
        forecaster: The model, which stays as it is.
        batches: Examples to train on, at least one batch.
        loss_of: The loss that training minimises.
        usual: The rate that most data can take.
        clip: Largest gradient norm.
        seconds: CPU seconds that the test may take.
    """
    model, given = copy.deepcopy(forecaster), list(batches)
    optimizer = torch.optim.AdamW(model.parameters(), lr=usual)
    mean = least = math.nan
    started = process_time()
    for step in range(NUM_STEPS):
        rate = usual * LOWEST * (HIGHEST / LOWEST) ** (step / (NUM_STEPS - 1))
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = loss_of(model, given[step % len(given)])
        now = float(loss.detach())
        mean = now if step == 0 else SMOOTH * mean + (1 - SMOOTH) * now
        least = mean if step == 0 else min(least, mean)
        if not mean <= LEFT * least:
            chosen = min(usual, SAFE * rate)
            return chosen, f"learning rate {chosen:.3g}: the loss is left from {rate:.3g} on"
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        if step == 2 and (process_time() - started) / 3 * NUM_STEPS > seconds:
            return usual, f"learning rate {usual:.3g}, the usual: no time for a range test"
    return usual, f"learning rate {usual:.3g}, the usual: the loss stays up to {rate:.3g}"
