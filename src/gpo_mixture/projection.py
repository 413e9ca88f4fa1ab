r"""Variable projection: amplitudes by a ridge solve inside the loss, places and shapes by its steps.

For given Gaussians $\varphi_k$ the amplitudes minimise
$F=\sum_jq_j|u(x_j)-b-\sum_ka_k\varphi_k(x_j)|^2+\lambda\sum_k|a_k|^2$, and $F$ at these amplitudes
depends on centers and shapes alone. Its gradient needs no derivative of the solve (envelope
theorem). A step is Levenberg and Marquardt's with Kaufman's Jacobian: derivatives of the Gaussians
times their amplitudes, less what other amplitudes could take over.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gpo_mixture.shapes import AbstractShapes
from gpo_mixture.target import Target

RIDGE = 1e-7
"""What large amplitudes cost beside the variance of the field."""
SMALL = 2**20
"""Derivatives up to which steps are in double precision, too."""
FLATTEST, STEEPEST = 1e-6, 1e6
"""Bounds of the damping."""

Stop = Callable[[], bool]
"""Asked before every step; once true, no other follows."""


def never() -> bool:
    """Lets a fit go on to its end."""
    return False


@dataclass(frozen=True)
class Solved:
    """The best amplitudes of given Gaussians."""

    shapes: AbstractShapes
    amplitudes: Float[Tensor, "particles channels"]
    offset: Float[Tensor, " channels"]
    loss: float
    """F, the ridge included."""
    covariance: Float[Tensor, "columns columns"]
    r"""$(\Phi^\top Q\Phi+\lambda)^{-1}$ with the constant as the last column."""

    def needs(self) -> Float[Tensor, " particles"]:
        """Returns how much the loss would grow without each particle, all others fitted anew."""
        spread = self.covariance.diagonal()[: len(self.shapes)]
        return self.amplitudes.square().sum(-1) / spread

    def left(self, target: Target) -> Float[Tensor, "points channels"]:
        """Returns what is left unexplained."""
        parts = [
            part.values - self.offset - self.shapes.basis(part.points).mT @ self.amplitudes
            for part in target.chunks()
        ]
        return torch.cat(parts)


def solve(shapes: AbstractShapes, target: Target) -> Solved:
    """Returns the amplitudes that explain a field best."""
    count, channels = len(shapes), target.values.shape[1]
    gram = target.points.new_zeros(count + 1, count + 1)
    moment = target.points.new_zeros(count + 1, channels)
    for part in target.chunks():
        basis = shapes.basis(part.points)
        columns = torch.cat([basis, basis.new_ones(1, basis.shape[1])])
        weighted = columns * part.weights
        gram += weighted @ columns.mT
        moment += weighted @ part.values
    ridge = torch.full_like(gram.diagonal(), RIDGE)
    # The constant is free: a constant field is met exactly.
    ridge[-1] = 0
    covariance = torch.cholesky_inverse(torch.linalg.cholesky(gram + torch.diag(ridge)))
    found = covariance @ moment
    size = (target.weights @ target.values.square()).sum()
    # At the optimum F is what the field has less what is explained.
    loss = float(size - (moment * found).sum())
    return Solved(shapes, found[:-1], found[-1], loss, covariance)


def improve(
    solved: Solved,
    target: Target,
    num_steps: int,
    tolerance: float = 1e-3,
    *,
    should_stop: Stop = never,
) -> Solved:
    """Returns Gaussians after some steps, none of which makes the loss larger.

    Args:
        solved: Where to begin.
        target: What is fitted.
        num_steps: Steps at most.
        tolerance: Ends when a step lowers the loss by less than this fraction.
        should_stop: Asked before every step; once true, no other follows.
    """
    damping = 1e-2
    for _ in range(num_steps):
        if not len(solved.shapes) or should_stop():
            break
        slope, bend = _quadratic(solved, target)
        size = _sizes(bend, solved.shapes)
        before = solved.loss
        for _ in range(6):
            scale = damping * (size + 1e-2 * size.mean() + 1e-30)
            step, failed = torch.linalg.cholesky_ex(bend + torch.diag(scale))
            if not int(failed):
                way = torch.cholesky_solve(slope.unsqueeze(-1), step).reshape(
                    len(solved.shapes), -1
                )
                moved = solved.shapes.moved(way)
                tried = solve(target.bounded(moved), target)
                if tried.loss < before:
                    solved, damping = tried, max(damping / 4, FLATTEST)
                    break
            damping = min(damping * 5, STEEPEST)
        if before - solved.loss <= tolerance * before:
            break
    return solved


def _sizes(bend: Tensor, shapes: AbstractShapes) -> Tensor:
    """Returns how bent the loss is by every particle's place and shape, the same in any direction."""
    each = bend.diagonal().reshape(len(shapes), -1)
    parts = each[:, : shapes.num_axes], each[:, shapes.num_axes :]
    return torch.cat([part.mean(-1, keepdim=True).expand_as(part) for part in parts], -1).flatten()


def _quadratic(solved: Solved, target: Target) -> tuple[Tensor, Tensor]:
    """Returns minus the slope of half the loss along a step, and its bend."""
    shapes, amplitudes = solved.shapes, solved.amplitudes
    count, free = len(shapes), shapes.num_free
    slope = amplitudes.new_zeros(count, free)
    # A step may be inexact where it is costly: what it leads to is judged in double precision.
    is_small = count * free * len(target.points) <= SMALL
    dtype = torch.float64 if is_small else torch.float32
    bend = torch.zeros(count * free, count * free, dtype=dtype)
    overlap = torch.zeros(count * free, count + 1, dtype=dtype)
    heights = amplitudes.to(dtype)
    for part in target.chunks():
        basis, tangents = shapes.tangents(part.points, dtype)
        left = (part.values - solved.offset).to(dtype) - basis.mT @ heights
        pulls = heights @ (left * part.weights.to(dtype).unsqueeze(-1)).mT
        slope += (tangents @ pulls.unsqueeze(-1)).squeeze(-1)
        root = part.weights.sqrt().to(dtype)
        flat = tangents.flatten(0, 1) * root
        columns = torch.cat([basis, basis.new_ones(1, basis.shape[1])]) * root
        bend += flat @ flat.mT
        overlap += flat @ columns.mT
    bend, overlap = bend.to(amplitudes), overlap.to(amplitudes)
    bend = bend - overlap @ solved.covariance @ overlap.mT
    alike = (amplitudes @ amplitudes.mT).repeat_interleave(free, 0).repeat_interleave(free, 1)
    return slope.flatten(), bend * alike
