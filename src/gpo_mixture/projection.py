r"""Variable projection: a ridge solve for the amplitudes inside a nonlinear fit of the shapes.

For fixed Gaussians $\varphi_k$ the amplitudes minimise
$F=\sum_jq_j|u(x_j)-b-\sum_ka_k\varphi_k(x_j)|^2+\lambda\sum_k|a_k|^2$, and $F$ at these amplitudes
depends on centers and covariances alone. By the envelope theorem its gradient needs no derivative
of the solve. Steps are Levenberg-Marquardt with Kaufman's Jacobian: derivatives of the Gaussians
times their amplitudes, projected onto the complement of what a change of amplitudes can represent.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gpo_mixture.shapes import AbstractShapes
from gpo_mixture.target import Target

RIDGE = 1e-7
"""Penalty of squared amplitudes, relative to the variance of the field."""
MAX_DOUBLE_ENTRIES = 2**20
"""Number of derivatives up to which steps are computed in double precision."""
MIN_DAMPING, MAX_DAMPING = 1e-6, 1e6
"""Bounds of the Levenberg-Marquardt damping."""
NUM_TRIALS = 6
"""Values of the damping that are tried in a step."""

StopCondition = Callable[[], bool]
"""Called before every step; the fit stops early once it returns True."""


def never_stop() -> bool:
    """The stop condition of a fit that runs to its end."""
    return False


@dataclass(frozen=True)
class Solution:
    """Gaussians with their optimal amplitudes."""

    shapes: AbstractShapes
    amplitudes: Float[Tensor, "particles channels"]
    offset: Float[Tensor, " channels"]
    loss: float
    """F, including the ridge."""
    covariance: Float[Tensor, "columns columns"]
    r"""$(\Phi^\top Q\Phi+\lambda)^{-1}$ with the constant as the last column."""

    def removal_costs(self) -> Float[Tensor, " particles"]:
        """Returns the increase of the loss if each Gaussian is removed and the others refitted."""
        variances = self.covariance.diagonal()[: len(self.shapes)]
        return self.amplitudes.square().sum(-1) / variances

    def without_cheapest(self, count: int) -> Tensor:
        """Returns the rows, in order, of all but the `count` Gaussians with least removal costs."""
        return self.removal_costs().argsort(descending=True)[:-count].sort().values

    def residual(self, target: Target) -> Float[Tensor, "points channels"]:
        """Returns the field minus the mixture."""
        parts = [
            part.values - self.offset - self.shapes.basis(part.points).mT @ self.amplitudes
            for part in target.chunks()
        ]
        return torch.cat(parts)


def solve(shapes: AbstractShapes, target: Target) -> Solution:
    """Returns the Gaussians with the amplitudes that minimise the loss."""
    count, channels = len(shapes), target.values.shape[1]
    gram = target.points.new_zeros(count + 1, count + 1)
    moments = target.points.new_zeros(count + 1, channels)
    for part in target.chunks():
        basis = shapes.basis(part.points)
        columns = torch.cat([basis, basis.new_ones(1, basis.shape[1])])
        weighted = columns * part.weights
        gram += weighted @ columns.mT
        moments += weighted @ part.values
    ridge = torch.full_like(gram.diagonal(), RIDGE)
    # The constant is not penalised, so that a constant field is exact.
    ridge[-1] = 0
    covariance = torch.cholesky_inverse(torch.linalg.cholesky(gram + torch.diag(ridge)))
    coefficients = covariance @ moments
    norm = (target.weights @ target.values.square()).sum()
    # At the optimum the loss is the norm of the field minus the explained part.
    loss = float(norm - (moments * coefficients).sum())
    return Solution(shapes, coefficients[:-1], coefficients[-1], loss, covariance)


def improve(
    solution: Solution,
    target: Target,
    num_steps: int,
    tolerance: float = 1e-3,
    *,
    should_stop: StopCondition = never_stop,
) -> Solution:
    """Returns the solution after Levenberg-Marquardt steps, none of which increases the loss.

    Args:
        solution: Initial Gaussians and amplitudes.
        target: The field to fit.
        num_steps: Largest number of steps.
        tolerance: Stop when a step reduces the loss by less than this fraction.
        should_stop: Called before every step; stop once it returns True.
    """
    damping = 1e-2
    for _ in range(num_steps):
        if not len(solution.shapes) or should_stop():
            break
        descent, hessian = _quadratic_model(solution, target)
        scale = _damping_scale(hessian, solution.shapes)
        previous_loss = solution.loss
        for _ in range(NUM_TRIALS):
            ridge = damping * (scale + 1e-2 * scale.mean() + 1e-30)
            factor, failed = torch.linalg.cholesky_ex(hessian + torch.diag(ridge))
            if not int(failed):
                step = torch.cholesky_solve(descent.unsqueeze(-1), factor)
                shapes = solution.shapes.stepped(step.reshape(len(solution.shapes), -1))
                trial = solve(target.clamp(shapes), target)
                if trial.loss < previous_loss:
                    solution, damping = trial, max(damping / 4, MIN_DAMPING)
                    break
            damping = min(damping * 5, MAX_DAMPING)
        if previous_loss - solution.loss <= tolerance * previous_loss:
            break
    return solution


def _damping_scale(hessian: Tensor, shapes: AbstractShapes) -> Tensor:
    """Returns the mean diagonal of the Hessian over each center and each covariance.

    The mean makes the damping independent of the orientation of the axes.
    """
    diagonal = hessian.diagonal().reshape(len(shapes), -1)
    parts = diagonal[:, : shapes.num_axes], diagonal[:, shapes.num_axes :]
    return torch.cat([part.mean(-1, keepdim=True).expand_as(part) for part in parts], -1).flatten()


def _quadratic_model(solution: Solution, target: Target) -> tuple[Tensor, Tensor]:
    """Returns the negative gradient and the Gauss-Newton Hessian of half the loss."""
    shapes, amplitudes = solution.shapes, solution.amplitudes
    count, free = len(shapes), shapes.num_free
    descent = amplitudes.new_zeros(count, free)
    # Costly steps may be inexact, because `improve` evaluates the result in double precision.
    is_small = count * free * len(target.points) <= MAX_DOUBLE_ENTRIES
    dtype = torch.float64 if is_small else torch.float32
    hessian = torch.zeros(count * free, count * free, dtype=dtype)
    overlap = torch.zeros(count * free, count + 1, dtype=dtype)
    heights = amplitudes.to(dtype)
    for part in target.chunks():
        basis, tangents = shapes.tangents(part.points, dtype)
        residual = (part.values - solution.offset).to(dtype) - basis.mT @ heights
        forces = heights @ (residual * part.weights.to(dtype).unsqueeze(-1)).mT
        descent += (tangents @ forces.unsqueeze(-1)).squeeze(-1)
        root = part.weights.sqrt().to(dtype)
        flat = tangents.flatten(0, 1) * root
        columns = torch.cat([basis, basis.new_ones(1, basis.shape[1])]) * root
        hessian += flat @ flat.mT
        overlap += flat @ columns.mT
    hessian, overlap = hessian.to(amplitudes), overlap.to(amplitudes)
    hessian = hessian - overlap @ solution.covariance @ overlap.mT
    products = (amplitudes @ amplitudes.mT).repeat_interleave(free, 0).repeat_interleave(free, 1)
    return descent.flatten(), hessian * products
