"""One small batch on every kind of domain, and the loop that overfits it."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gpo import Domain, relative_l2


@dataclass(frozen=True)
class Batch:
    """Two smooth random fields and, as the target, what one step of a simple dynamic makes of them."""

    domain: Domain
    values: Tensor
    coords: Tensor
    target: Tensor
    weights: Tensor


def make_batch(domain: Domain, *shape: int, is_masked: bool = False) -> Batch:
    """Draws two fields of a few plane waves; the target is shifted, sharpened and offset."""
    coords, weights = domain.grid(*shape)
    # Unit vectors reach from -1 to 1: halved, the sphere carries as many waves as a box.
    unit = coords / 2 if domain.is_sphere else domain.to_unit(coords)
    generator = torch.Generator().manual_seed(1)
    waves = torch.randint(-2, 3, (2, 6, domain.dim), generator=generator).float()
    phases = 2 * math.pi * torch.rand(2, 6, 1, generator=generator)

    def field(shift: float) -> Tensor:
        angles = 2 * math.pi * torch.einsum("bkd,nd->bkn", waves, unit + shift) + phases
        return angles.sin().mean(1).unsqueeze(-1)

    values, target = field(0.0), field(0.1) + 0.5 * field(0.1).square()
    if is_masked:
        is_land = (unit - 0.5).norm(dim=-1) < 0.25
        weights = weights.masked_fill(is_land, 0)
        values, target = values.clone(), target.clone()
        values[:, is_land] = target[:, is_land] = float("nan")
    return Batch(domain, values, coords, target, weights)


BATCHES = {
    "1-D": lambda: make_batch(Domain.unit_box(1, periodic=True), 64),
    "2-D": lambda: make_batch(Domain.unit_box(2), 12, 12),
    "3-D": lambda: make_batch(Domain.unit_box(3, periodic=True), 5, 5, 5),
    "sphere": lambda: make_batch(Domain.sphere(), 9, 16),
    "masked": lambda: make_batch(Domain.unit_box(2, periodic=True), 12, 12, is_masked=True),
}


def fit(
    model: nn.Module,
    loss: Callable[[], Tensor],
    error: Callable[[], Tensor],
    goal: float,
    num_steps: int,
) -> float:
    """Minimises until the error is below the goal or the steps are used up; returns the error."""
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=num_steps)
    for step in range(num_steps):
        optimizer.zero_grad()
        loss().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 50 == 49:
            with torch.no_grad():
                if error().item() < goal:
                    break
    with torch.no_grad():
        return error().item()


def fit_to_target(
    model: nn.Module, batch: Batch, target: Tensor, goal: float, num_steps: int
) -> float:
    """Fits `target`, from the values of the batch."""

    def error() -> Tensor:
        prediction = model(batch.values, batch.coords, weights=batch.weights)
        return relative_l2(prediction, target, batch.weights.unsqueeze(0))

    return fit(model, error, error, goal, num_steps)
