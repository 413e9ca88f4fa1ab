r"""Friction of a compressible gas: $\sigma=\eta(\nabla v+\nabla v^T-\frac23\nabla\cdot v)+\zeta\nabla\cdot v$."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Viscosity:
    """Constant coefficients; stresses by central differences, of second order."""

    shear: float
    """Shear viscosity eta."""
    bulk: float
    """Bulk viscosity zeta."""

    def fastest(self, spacing: Sequence[float]) -> float:
        """Returns density times the largest rate at which a pattern of cells decays."""
        strongest = 4 / 3 * self.shear + self.bulk
        return strongest * sum(4 / length**2 for length in spacing)

    def stress(
        self, velocity: Float[Tensor, "dim batch *grid"], axis: int, spacing: Sequence[float]
    ) -> Float[Tensor, "forces batch *faces"]:
        r"""Returns what crosses the faces of inner cells against an axis: momenta, energy.

        Momentum is $\sigma_{ai}$ for axis $a$, energy is its work $\sigma_{ai}v_i$.

        Args:
            velocity: All components, with one cell more on every side.
            axis: Which faces.
            spacing: Length of a cell along every axis.
        """
        normal = _inner(velocity, keep=axis)
        slopes = normal.diff(dim=2 + axis).div_(spacing[axis])
        out = velocity.new_empty(len(velocity) + 1, *slopes.shape[1:])
        forces, work = out[:-1], out[-1]
        torch.mul(slopes, self.shear, out=forces)
        divergence = slopes[axis]
        for other in range(len(velocity)):
            if other == axis:
                continue
            pair = torch.stack([velocity[axis], velocity[other]])
            sheared, stretched = _across(pair, axis, other) / (4 * spacing[other])
            forces[other].add_(sheared, alpha=self.shear)
            divergence += stretched
        forces[axis] *= 2
        forces[axis].add_(divergence, alpha=self.bulk - 2 / 3 * self.shear)
        before, after = _ends(normal, axis)
        torch.sum((before + after).mul_(forces), 0, out=work).mul_(0.5)
        return out


def _inner(fields: Tensor, keep: int) -> Tensor:
    """Returns fields without the outermost cells along all axes but one."""
    for axis in range(fields.ndim - 2):
        if axis != keep:
            fields = fields.narrow(2 + axis, 1, fields.shape[2 + axis] - 2)
    return fields


def _ends(fields: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """Returns the cells before and after every face across an axis."""
    faces = fields.shape[2 + axis] - 1
    return fields.narrow(2 + axis, 0, faces), fields.narrow(2 + axis, 1, faces)


def _across(fields: Tensor, axis: int, other: int) -> Tensor:
    """Returns at faces across `axis` four spacings times the slope along `other`."""
    for third in range(fields.ndim - 2):
        if third not in (axis, other):
            fields = fields.narrow(2 + third, 1, fields.shape[2 + third] - 2)
    before, after = _ends(fields, axis)
    mean = before + after
    cells = mean.shape[2 + other] - 2
    return mean.narrow(2 + other, 2, cells) - mean.narrow(2 + other, 0, cells)
