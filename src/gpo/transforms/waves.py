r"""Test functions with geometry: $\psi_k(x)=e^{2\pi i\,k\cdot x/P}$ for a set of wave vectors $k$.

A window of the paper depends on the field at a site, not on its position. The projection onto a
wave depends on positions relative to each other, which transport needs. Waves live on the unit
coordinates of a box, on latitude and longitude of a sphere, or on the indices of a body-fitted
mesh. Along an open axis the period is longer than the axis, so that a field need not be equal at
both ends.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gpo.numerics.domain import Domain, longitude_latitude
from gpo.parallel.shard import SINGLE_PROCESS, SpatialShard
from gpo.transforms.axis_basis import AxisBasis

OPEN_PERIOD = 1.5
"""Period of waves along an open axis, in lengths of the axis."""

MAX_WAVES = {1: 32, 2: 16, 3: 4}
"""Largest wave number along an axis of a grid, by the number of its axes: more cost more than they gain."""

DEFAULT_WAVES = {1: 32, 2: 8, 3: 4}
"""Largest wave number along an axis where there is no grid, by the number of axes."""


@dataclass(frozen=True)
class Waves:
    """A set of waves, and the positions of points along their axes."""

    domain: Domain
    mesh_shape: tuple[int, ...]
    """Nodes along the axes of a body-fitted mesh; empty where coordinates place the waves."""
    limits: tuple[int, ...]
    """Largest wave number along every axis."""
    periods: tuple[float, ...]
    """Period along every axis; 1 where it is periodic."""

    @classmethod
    def on(
        cls, domain: Domain, limits: tuple[int, ...], mesh_shape: tuple[int, ...] = ()
    ) -> "Waves":
        """Returns the waves up to `limits` on a domain, or on a body-fitted mesh."""
        periods = (OPEN_PERIOD,) * len(mesh_shape) if mesh_shape else _periods(domain)
        return cls(domain, mesh_shape, limits, periods)

    @cached_property
    def bases(self) -> tuple[AxisBasis, ...]:
        """Orthonormal functions along every axis, onto which fields are projected."""
        pairs = zip(self.limits, self.periods, strict=True)
        return tuple(AxisBasis.of(limit, period) for limit, period in pairs)

    @property
    def roughness(self) -> Float[Tensor, " functions"]:
        """Roughness of the products of functions: the sum over the axes."""
        roughness = torch.zeros(1, dtype=torch.double)
        for basis in self.bases:
            roughness = (roughness.unsqueeze(-1) + basis.roughness).flatten()
        return roughness

    @property
    def num_modes(self) -> int:
        """Number of modes: one of every pair of opposite wave vectors, both on the last axis' zero."""
        return math.prod(self.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """How many wave numbers there are along every axis."""
        return tuple(len(numbers) for numbers in self.numbers)

    @property
    def numbers(self) -> tuple[Int[Tensor, " waves"], ...]:
        """Wave numbers along every axis; a real field needs the last axis from zero on."""
        *others, last = self.limits
        return (*(torch.arange(-limit, limit + 1) for limit in others), torch.arange(last + 1))

    @property
    def vectors(self) -> Float[Tensor, "modes axes"]:
        """The wave vectors of all modes, in turns per unit length."""
        vectors = torch.cartesian_prod(*self.numbers).reshape(-1, len(self.limits))
        return vectors / torch.tensor(self.periods, dtype=torch.double)

    @property
    def multiplicities(self) -> Float[Tensor, " modes"]:
        """Number of waves of a real field that a mode represents: two, or one where the conjugate is a mode too."""
        return torch.where(self.vectors[:, -1] == 0, 1.0, 2.0)

    def at(self, coords: Float[Tensor, "points dim"], mode: int) -> Float[Tensor, " points"]:
        """Evaluates the real part of one wave, to be drawn."""
        positions = self.positions(coords.unsqueeze(0))[0].double()
        return torch.cos(2 * math.pi * positions @ self.vectors[mode].to(positions)).to(coords)

    def positions(
        self, coords: Float[Tensor, "*batch points dim"], shard: SpatialShard = SINGLE_PROCESS
    ) -> Float[Tensor, "*batch points axes"]:
        """Returns where points lie along the axes of the waves; the domain is from 0 to 1.

        Args:
            coords: The points.
            shard: Which part they are of the nodes of a mesh.
        """
        if self.mesh_shape:
            return self._mesh_positions(coords, shard)
        if not self.domain.is_sphere:
            return self.domain.to_unit(coords)
        region, (longitude, latitude) = Region.of(self.domain), longitude_latitude(coords)
        down = (region.north - latitude) / (region.north - region.south)
        east = torch.remainder(longitude - region.middle + 180, 360) - 180
        return torch.stack([down, 0.5 + east / region.width], dim=-1)

    def _mesh_positions(self, coords: Tensor, shard: SpatialShard) -> Tensor:
        starts = shard.starts(coords.shape[-2])
        if starts[-1] != math.prod(self.mesh_shape):
            raise ValueError(
                f"`coords` must be the {' x '.join(map(str, self.mesh_shape))} nodes of the mesh "
                f"that the model was built for, got {starts[-1]} sites."
            )
        axes = [torch.linspace(0, 1, n, dtype=torch.double).to(coords) for n in self.mesh_shape]
        positions = torch.cartesian_prod(*axes).reshape(-1, len(axes))
        positions = positions[starts[shard.rank] : starts[shard.rank + 1]]
        return positions.expand(*coords.shape[:-2], -1, -1)


def wave_limits(
    domain: Domain,
    num_waves: int | tuple[int, ...] | None,
    grid_shape: tuple[int, ...] = (),
    mesh_shape: tuple[int, ...] = (),
) -> tuple[int, ...]:
    """Returns the largest wave number along every axis.

    Args:
        domain: Where the waves live.
        num_waves: For all axes or for each; chosen where None. A grid resolves two sites per wave,
            and three quarters of that are taken: the product of two fields has shorter waves than
            either. Without a grid there are as many as `DEFAULT_WAVES`.
        grid_shape: Sites along every axis of a structured grid, if any.
        mesh_shape: Nodes along the axes of a body-fitted mesh, if any.
    """
    num_axes = len(mesh_shape) or domain.dim - domain.is_sphere
    if num_waves is None and grid_shape and not mesh_shape:
        most = MAX_WAVES[num_axes]
        return tuple(
            max(1, min(most, int(0.375 * count * period)))
            for count, period in zip(grid_shape, _periods(domain), strict=True)
        )
    if not isinstance(num_waves, tuple):
        num_waves = (num_waves or DEFAULT_WAVES[num_axes],) * num_axes
    if len(num_waves) != num_axes:
        raise ValueError(
            f"`num_waves` must be a number, or one for each of the {num_axes} axes, got {num_waves}."
        )
    return num_waves


def _periods(domain: Domain) -> tuple[float, ...]:
    periodic = (False, Region.of(domain).is_round) if domain.is_sphere else domain.periodic
    return tuple(1.0 if is_periodic else OPEN_PERIOD for is_periodic in periodic)


@dataclass(frozen=True)
class Region:
    """The ranges of latitude and longitude of a spherical domain, in degrees."""

    south: float
    north: float
    middle: float
    """Longitude halfway between its ends."""
    width: float
    """In longitude; 360 for a full circle."""

    @property
    def is_round(self) -> bool:
        """Whether it is a full circle of longitudes."""
        return self.width == 360

    def has_pole(self, *, north: bool) -> bool:
        """Returns whether it goes all the way round up to a pole."""
        latitude = self.north if north else -self.south
        return self.is_round and latitude > 90 - 1e-3

    @classmethod
    def of(cls, domain: Domain) -> "Region":
        """Returns the region of a spherical domain, from the box around its points."""
        south, north = (
            math.degrees(math.asin(min(max(end[2], -1.0), 1.0)))
            for end in (domain.lower, domain.upper)
        )
        sides = [(domain.lower[axis], domain.upper[axis]) for axis in (0, 1)]
        if all(low <= 0 <= high for low, high in sides):
            return cls(south, north, 0.0, 360.0)
        middle = math.atan2(sum(sides[1]) / 2, sum(sides[0]) / 2)
        turns = [
            math.remainder(math.atan2(y, x) - middle, 2 * math.pi)
            for x in sides[0]
            for y in sides[1]
        ]
        middle, width = middle + (min(turns) + max(turns)) / 2, max(turns) - min(turns)
        return cls(south, north, math.degrees(middle), math.degrees(width))
