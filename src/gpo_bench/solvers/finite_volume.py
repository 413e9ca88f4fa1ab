r"""Finite volumes for compressible flow on a uniform grid in one, two or three dimensions.

The equations are $\partial_t U+\nabla\cdot F(U)=S$ for mass, momentum and energy of an ideal gas.
The tendency of a cell is the sum of the fluxes through its faces (`riemann.py`), viscous stress
(`Viscosity`) and cooling (`AbstractCooling`). Outflow through open boundaries and cooling losses
are accumulated from the same fluxes as the state, so budgets close to rounding error.
`runge_kutta.py` integrates in time.

Arrays have the axes channels, trajectories and grid. Conserved channels are density, momentum along
each axis and energy; primitive channels are density, velocity and pressure. Device and precision
follow the state.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gpo_bench.solvers.riemann import hllc, reconstruct, to_conserved, to_primitive


class AbstractCooling(ABC):
    """Radiative cooling of a gas."""

    @abstractmethod
    def loss(
        self, density: Float[Tensor, " batch *grid"], pressure: Float[Tensor, " batch *grid"]
    ) -> Float[Tensor, " batch *grid"]:
        """Returns the energy loss per volume and time."""

    @abstractmethod
    def max_rate(self) -> Float[Tensor, " batch"]:
        """Returns the largest cooling rate."""


@dataclass(frozen=True)
class Viscosity:
    r"""Viscous stress with constant coefficients, by central differences of second order.

    The stress is $\sigma=\eta(\nabla v+\nabla v^T-\frac23\nabla\cdot v)+\zeta\nabla\cdot v$.
    """

    shear: float
    """Shear viscosity eta."""
    bulk: float
    """Bulk viscosity zeta."""

    def max_rate(self, spacing: Sequence[float]) -> float:
        """Returns density times the decay rate of the shortest wave on the grid."""
        coefficient = 4 / 3 * self.shear + self.bulk
        return coefficient * sum(4 / length**2 for length in spacing)

    def stress(
        self, velocity: Float[Tensor, "dim batch *grid"], axis: int, spacing: Sequence[float]
    ) -> Float[Tensor, "forces batch *faces"]:
        r"""Returns the viscous flux of momentum and energy through faces normal to an axis.

        The momentum flux is $\sigma_{ai}$ for axis $a$, the energy flux its work $\sigma_{ai}v_i$.

        Args:
            velocity: All components, with one ghost cell on each side.
            axis: Axis normal to the faces.
            spacing: Cell size along each axis.
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
            sheared, stretched = _cross_slope(pair, axis, other) / (4 * spacing[other])
            forces[other].add_(sheared, alpha=self.shear)
            divergence += stretched
        forces[axis] *= 2
        forces[axis].add_(divergence, alpha=self.bulk - 2 / 3 * self.shear)
        before, after = _face_neighbours(normal, axis)
        torch.sum((before + after).mul_(forces), 0, out=work).mul_(0.5)
        return out


@dataclass(frozen=True)
class Losses:
    """Losses of each trajectory, or their rates, in double precision."""

    outflow: Float[Tensor, "channels batch"]
    """Outflow of mass, momenta and energy through open boundaries, with the work of pressure."""
    cooled: Float[Tensor, " batch"]
    """Energy lost by cooling."""

    def add(self, other: "Losses", weight: Float[Tensor, " batch"]) -> "Losses":
        """Returns the sum of these losses and `weight` times the others."""
        return Losses(self.outflow + weight * other.outflow, self.cooled + weight * other.cooled)

    def mean(self, other: "Losses") -> "Losses":
        """Returns the mean of these losses and the others."""
        outflow, cooled = self.outflow + other.outflow, self.cooled + other.cooled
        return Losses(outflow / 2, cooled / 2)


@dataclass(frozen=True, kw_only=True)
class Flow:
    """The spatial discretisation: gas, grid and boundary conditions."""

    spacing: tuple[float, ...]
    """Cell size along each axis."""
    periodic: tuple[bool, ...]
    """Whether each axis is periodic; the boundaries of other axes are open, with zero gradient."""
    gamma: float = 5 / 3
    """Ratio of specific heats."""
    viscosity: Viscosity | None = None
    """Viscosity; None for an inviscid gas."""
    cooling: AbstractCooling | None = None
    """Radiative cooling; None for an adiabatic gas."""

    def primitive(
        self, conserved: Float[Tensor, "channels batch *grid"]
    ) -> Float[Tensor, "channels batch *grid"]:
        """Returns density, velocity and pressure."""
        return to_primitive(conserved, self.gamma)

    def conserved(
        self, primitive: Float[Tensor, "channels batch *grid"]
    ) -> Float[Tensor, "channels batch *grid"]:
        """Returns density, momentum and energy per volume."""
        return to_conserved(primitive, self.gamma)

    def max_rate(self, primitive: Float[Tensor, "channels batch *grid"]) -> Float[Tensor, " batch"]:
        """Returns the largest rate that limits the time step, in cells crossed per time.

        Wave speeds are summed over axes; the rates of viscosity and cooling are added.
        """
        density = primitive[0]
        rates = (primitive[-1] / density).mul_(self.gamma).sqrt_()
        rates *= sum(1 / length for length in self.spacing)
        for velocity, length in zip(primitive[1:-1], self.spacing, strict=True):
            rates.add_(velocity.abs(), alpha=1 / length)
        if self.viscosity is not None:
            rates += self.viscosity.max_rate(self.spacing) / density
        largest = rates.flatten(1).amax(1).double()
        return largest if self.cooling is None else largest + self.cooling.max_rate()

    def tendency(
        self,
        primitive: Float[Tensor, "channels batch *grid"],
        is_troubled: Bool[Tensor, " batch *grid"] | None = None,
    ) -> tuple[Float[Tensor, "channels batch *grid"], Losses]:
        """Returns the rate of change of conserved variables, and the rates of loss.

        Args:
            primitive: The state.
            is_troubled: True in cells whose faces need the robust fluxes of first order.
        """
        rate = torch.zeros_like(primitive)
        num_channels, batch = primitive.shape[:2]
        outflow = primitive.new_zeros(num_channels, batch, dtype=torch.float64)
        cooled = primitive.new_zeros(batch, dtype=torch.float64)
        for axis, length in enumerate(self.spacing):
            flux, order = self._flux(primitive, axis, is_troubled)
            for row, channel in enumerate(order):
                along = rate[channel].movedim(1 + axis, 0)
                along.sub_(flux[row, 1:] - flux[row, :-1], alpha=1 / length)
            if not self.periodic[axis]:
                ends = flux[:, -1].double() - flux[:, 0].double()
                outflow[list(order)] += _sum_sites(ends) * (self.cell_volume / length)
        if self.viscosity is not None:
            velocity = pad_all_sides(primitive[1:-1], self.periodic)
            for axis, length in enumerate(self.spacing):
                stress = self.viscosity.stress(velocity, axis, self.spacing)
                rate[1:].add_(stress.diff(dim=2 + axis), alpha=1 / length)
                if not self.periodic[axis]:
                    first, last = (stress.select(2 + axis, end).double() for end in (0, -1))
                    outflow[1:] += _sum_sites(first - last) * (self.cell_volume / length)
        if self.cooling is not None:
            loss = self.cooling.loss(primitive[0], primitive[-1])
            rate[-1] -= loss
            cooled = loss.double().flatten(1).sum(1) * self.cell_volume
        return rate, Losses(outflow, cooled)

    @property
    def cell_volume(self) -> float:
        """Length, area or volume of a cell, depending on the dimension."""
        return math.prod(self.spacing)

    def total(
        self, conserved: Float[Tensor, "channels batch *grid"]
    ) -> Float[Tensor, "channels batch"]:
        """Returns total mass, momenta and energy, in double precision."""
        return _sum_sites(conserved.double()) * self.cell_volume

    def _flux(
        self, primitive: Tensor, axis: int, is_troubled: Tensor | None
    ) -> tuple[Float[Tensor, "channels faces *rest"], tuple[int, ...]]:
        """Returns fluxes through faces normal to an axis, and the channel of each row."""
        across = [1 + other for other in range(len(self.spacing)) if other != axis]
        order = (0, 1 + axis, *across, len(primitive) - 1)
        wraps = self.periodic[axis]
        padded = pad_ghost_cells([primitive[channel] for channel in order], axis, wraps)
        is_first_order = None
        if is_troubled is not None:
            around = pad_ghost_cells([is_troubled.to(primitive.dtype)], axis, wraps)[0]
            is_first_order = around.clone()
            is_first_order[1:-1] += around[2:] + around[:-2]
            is_first_order.clamp_(max=1)
        return hllc(reconstruct(padded, is_first_order), self.gamma), order


def pad_ghost_cells(
    fields: Sequence[Float[Tensor, " batch *grid"]], axis: int, wraps: bool
) -> Float[Tensor, "channels cells *rest"]:
    """Returns fields with a grid axis moved to the front and two ghost cells at each of its ends.

    Args:
        fields: One or more fields.
        axis: The grid axis.
        wraps: Whether the axis is periodic; otherwise the end cell is repeated.
    """
    moved = [field.movedim(1 + axis, 0) for field in fields]
    cells, *rest = moved[0].shape
    padded = moved[0].new_empty(len(moved), cells + 4, *rest)
    for row, field in enumerate(moved):
        padded[row, 2:-2] = field
    padded[:, :2] = padded[:, -4:-2] if wraps else padded[:, 2:3]
    padded[:, -2:] = padded[:, 2:4] if wraps else padded[:, -3:-2]
    return padded


def pad_all_sides(
    fields: Float[Tensor, "channels batch *grid"], periodic: Sequence[bool]
) -> Float[Tensor, "channels batch *larger"]:
    """Returns fields with one ghost cell on each side, including corners."""
    for dim, wraps in enumerate(periodic, start=2):
        first, last = fields.narrow(dim, 0, 1), fields.narrow(dim, fields.shape[dim] - 1, 1)
        ends = (last, first) if wraps else (first, last)
        fields = torch.cat([ends[0], fields, ends[1]], dim)
    return fields


def _inner(fields: Tensor, keep: int) -> Tensor:
    """Returns fields without the outermost cells along all axes except `keep`."""
    for axis in range(fields.ndim - 2):
        if axis != keep:
            fields = fields.narrow(2 + axis, 1, fields.shape[2 + axis] - 2)
    return fields


def _cross_slope(fields: Tensor, axis: int, other: int) -> Tensor:
    """Returns four spacings times the slope along `other`, at faces normal to `axis`."""
    for third in range(fields.ndim - 2):
        if third not in (axis, other):
            fields = fields.narrow(2 + third, 1, fields.shape[2 + third] - 2)
    before, after = _face_neighbours(fields, axis)
    mean = before + after
    cells = mean.shape[2 + other] - 2
    return mean.narrow(2 + other, 2, cells) - mean.narrow(2 + other, 0, cells)


def _face_neighbours(fields: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """Returns the cells before and after each face normal to an axis."""
    faces = fields.shape[2 + axis] - 1
    return fields.narrow(2 + axis, 0, faces), fields.narrow(2 + axis, 1, faces)


def _sum_sites(values: Float[Tensor, "channels batch *sites"]) -> Float[Tensor, "channels batch"]:
    return values.reshape(*values.shape[:2], -1).sum(2)
