"""Learning rate range test before training.

The rate rises from a tenth to three times the default, on a few batches in turn. The test diverges
when losses rise well above their minimum; the result is a sixth of that rate, at least a tenth of
the default and at most the default. A rate that diverges within a few steps diverges within a
hundred at a third of it (measured on Darcy maps), hence a sixth.
"""

import copy
import math
from collections.abc import Callable, Iterable
from itertools import islice
from time import process_time
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

NUM_STEPS = 32
LOWEST, HIGHEST = 1 / 10, 3.0
"""First and last rate, as multiples of the default."""
NUM_BATCHES = 4
"""Few, so that each is repeated: a loss is compared with earlier ones of the same batch."""
DIVERGENCE_RATIO = 2.0
"""Smoothed ratio of a loss to the minimum of its batch that counts as divergence."""
SMOOTHING = 0.7
"""Smoothing factor of that ratio."""
SAFETY, SMALLEST = 1 / 6, 1 / 10
"""Result as a fraction of the diverging rate, and its minimum as a fraction of the default."""
FRACTION = 0.1
"""Maximum fraction of the budget for a range test."""
MIN_BUDGET = 30.0
"""Minimum budget, in CPU seconds, for a range test."""


def find_rate(
    model: nn.Module,
    batches: Iterable[Any],
    loss_of: Callable[[Any, Any], Tensor],
    optimizer_of: Callable[[Any], Optimizer],
    *,
    usual: float,
    clip: float,
    seconds: float,
) -> tuple[float, str]:
    """Returns the learning rate and an explanation.

    It depends only on the model and the batches, unless time runs out.

    Args:
        model: The model, which is not changed.
        batches: Training batches, at least one.
        loss_of: Returns the training loss of a model on a batch.
        optimizer_of: Returns the optimizer of a model.
        usual: The default rate.
        clip: Maximum gradient norm.
        seconds: Maximum CPU seconds of the test.
    """
    model, repeated = copy.deepcopy(model), list(islice(batches, NUM_BATCHES))
    optimizer = optimizer_of(model)
    least, mean, rate = [math.inf] * len(repeated), 1.0, usual
    started = process_time()
    for step in range(NUM_STEPS):
        rate = usual * LOWEST * (HIGHEST / LOWEST) ** (step / (NUM_STEPS - 1))
        for group in optimizer.param_groups:
            group["lr"] = rate
        number = step % len(repeated)
        loss = loss_of(model, repeated[number])
        now = float(loss.detach())
        least[number] = min(least[number], now)
        mean = SMOOTHING * mean + (1 - SMOOTHING) * now / (least[number] or 1.0)
        if not mean <= DIVERGENCE_RATIO:
            chosen = min(usual, max(SAFETY * rate, SMALLEST * usual))
            return chosen, f"learning rate {chosen:.3g}: the loss diverges at {rate:.3g}"
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        if step == 2 and (process_time() - started) / 3 * NUM_STEPS > seconds:
            return usual, f"learning rate {usual:.3g} (default): no time for a range test"
    return usual, f"learning rate {usual:.3g} (default): the loss is stable up to {rate:.3g}"
