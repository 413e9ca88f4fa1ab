r"""Where a field lives: a box, some of whose axes may be periodic, or the unit sphere.

Every distance in the library is taken here, so that "minimum image" and "great-circle
chord" are decided once. A model works in *unit* coordinates, in which the box is
$[0, 1]^d$; a point on the sphere is a unit vector in $\mathbb{R}^3$, never a longitude
and a latitude.

A box far from zero, such as ten metres in coordinates of a map, has no room for its own
extent in single precision. So models count coordinates from its corner (`local`), and the
corner is subtracted in double precision.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

PLAIN_EXPONENTS = 20
"""Sides up to two to this power, or its inverse, are kept: their squares are plain numbers."""


@dataclass(frozen=True)
class Domain:
    """A box with open and periodic axes, or the unit sphere.

    Build one with `Domain.box`, `Domain.unit_box`, `Domain.around` or `Domain.sphere`.
    """

    lower: tuple[float, ...]
    """Lower end of every axis."""
    upper: tuple[float, ...]
    """Upper end of every axis; on a periodic axis the point that equals `lower`."""
    periodic: tuple[bool, ...]
    """Which axes are periodic."""
    is_sphere: bool = False
    """Whether points are unit vectors in three dimensions."""

    def __post_init__(self) -> None:
        """Refuses boxes that are empty, unbounded or of a dimension other than 1, 2, 3."""
        if not 1 <= len(self.lower) <= 3:
            raise ValueError(f"`lower` must have 1, 2 or 3 entries, got {len(self.lower)}.")
        if not len(self.lower) == len(self.upper) == len(self.periodic):
            raise ValueError(
                "`lower`, `upper` and `periodic` must have one entry per axis, got "
                f"{len(self.lower)}, {len(self.upper)} and {len(self.periodic)}."
            )
        for axis, (low, high) in enumerate(zip(self.lower, self.upper, strict=True)):
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise ValueError(
                    "`lower` must be finite and below `upper` on every axis, "
                    f"got [{low}, {high}] on axis {axis}."
                )
        if self.is_sphere and (self.dim != 3 or any(self.periodic)):
            raise ValueError("A sphere has three open axes: build it with Domain.sphere().")

    @classmethod
    def box(
        cls,
        lower: Sequence[float | int],
        upper: Sequence[float | int],
        periodic: bool | Sequence[bool] = False,
    ) -> "Domain":
        """Builds a box; `periodic` is one answer for all axes, or one per axis."""
        per_axis = [periodic] * len(lower) if isinstance(periodic, bool) else periodic
        return cls(
            tuple(float(value) for value in lower),
            tuple(float(value) for value in upper),
            tuple(bool(value) for value in per_axis),
        )

    @classmethod
    def unit_box(cls, dim: int, periodic: bool | Sequence[bool] = False) -> "Domain":
        """Builds $[0, 1]^d$."""
        return cls.box([0.0] * dim, [1.0] * dim, periodic)

    @classmethod
    def around(cls, coords: Float[Tensor, "*batch dim"]) -> "Domain":
        """Builds the smallest open box that holds all of `coords`."""
        points = coords.reshape(-1, coords.shape[-1])
        low, high = points.amin(0), points.amax(0)
        high = torch.where(high > low, high, low + 1)
        return cls.box(low.tolist(), high.tolist())

    @classmethod
    def sphere(cls, around: Float[Tensor, "*batch 3"] | None = None) -> "Domain":
        """Builds the unit sphere, whose points are unit vectors, or a patch of it.

        Args:
            around: Points that a patch shall hold. A patch is still curved; only what
                counts as length one shrinks with it, from the radius to half its extent.
        """
        if around is None:
            return cls((-1.0,) * 3, (1.0,) * 3, (False,) * 3, is_sphere=True)
        box = cls.around(around)
        return cls(box.lower, box.upper, box.periodic, is_sphere=True)

    @property
    def dim(self) -> int:
        """Number of coordinates of a point (three on the sphere)."""
        return len(self.lower)

    @property
    def embedding_dim(self) -> int:
        """Number of coordinates that `embed` returns."""
        return self.dim + sum(self.periodic)

    def unit_lengths(self, like: Tensor) -> Float[Tensor, " #dim"]:
        """Returns the unit of length along every axis; one entry where all are equal."""
        lengths = [high - low for low, high in zip(self.lower, self.upper, strict=True)]
        return _per_axis([max(lengths) / 2] if self.is_sphere else lengths, like)

    def to_unit(self, coords: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """Maps the box onto $[0, 1]^d$, and the sphere or its patch into $[-1, 1]^3$."""
        return (coords - self._origin(coords)) / self.unit_lengths(coords)

    def from_unit(self, coords: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """Inverts `to_unit`."""
        return coords * self.unit_lengths(coords) + self._origin(coords)

    @cached_property
    def local(self) -> "Domain":
        """The same box with its lower corner at zero; the sphere is its own.

        Sides that are very large or small are counted in a power of two, so that no square of
        a distance leaves the range of single precision.
        """
        if self.is_sphere or (self._local_unit == 1 and not any(self.lower)):
            return self
        sides = (high - low for low, high in zip(self.lower, self.upper, strict=True))
        upper = tuple(side / self._local_unit for side in sides)
        return Domain((0.0,) * self.dim, upper, self.periodic)

    def to_local(self, coords: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """Returns coordinates of `local` in double precision, or the same where it is this domain."""
        if self.local is self:
            return coords
        return (coords.double() - self._origin(coords.double())) / self._local_unit

    def from_local(self, coords: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """Inverts `to_local`."""
        if self.local is self:
            return coords
        return self.lengths_from_local(coords.double()) + self._origin(coords.double())

    def lengths_from_local(self, lengths: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """Returns lengths in coordinates of `local` in those of this domain."""
        return lengths * self._local_unit

    @cached_property
    def _local_unit(self) -> float:
        longest = max(high - low for low, high in zip(self.lower, self.upper, strict=True))
        exponent = math.frexp(longest)[1]
        return 1.0 if self.is_sphere or abs(exponent) <= PLAIN_EXPONENTS else 2.0**exponent

    def wrap(self, coords: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """Returns the representative of each point: inside the box where periodic, on the sphere."""
        if self.is_sphere:
            return torch.nn.functional.normalize(coords, dim=-1)
        if not any(self.periodic):
            return coords
        periods = torch.floor(self.to_unit(coords)) * self._periods(coords)
        wrapped = coords - periods
        # A point a rounding error below `lower` lands on `upper`, which is `lower` again.
        upper = torch.tensor(self.upper, dtype=coords.dtype, device=coords.device)
        at_end = self._is_periodic(coords) & (wrapped >= upper)
        return torch.where(at_end, wrapped - self._periods(coords), wrapped)

    def offset(
        self, coords: Float[Tensor, "*#batch dim"], origin: Float[Tensor, "*#batch dim"]
    ) -> Float[Tensor, "*batch dim"]:
        """Returns `coords - origin`: the shortest one on periodic axes, the chord on the sphere."""
        difference = coords - origin
        if not any(self.periodic):
            return difference
        return difference - self._whole_periods(difference)

    def nearest_image(
        self, coords: Float[Tensor, "*#batch dim"], anchor: Float[Tensor, "*#batch dim"]
    ) -> Float[Tensor, "*batch dim"]:
        """Moves points by whole periods to where they are closest to `anchor`."""
        if not any(self.periodic):
            return coords + torch.zeros_like(anchor)
        return coords - self._whole_periods(coords - anchor)

    def embed(self, coords: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch embedding"]:
        r"""Returns unit coordinates without a seam.

        An open axis stays what it is; a periodic one becomes a point on a circle,
        $(\cos 2\pi x, \sin 2\pi x)/2\pi$, whose arc length is $x$.
        """
        unit = self.to_unit(coords)
        if not any(self.periodic):
            return unit
        parts: list[Tensor] = []
        for axis, is_periodic in enumerate(self.periodic):
            along = unit[..., axis]
            if is_periodic:
                angle = 2 * math.pi * along
                parts += [torch.cos(angle) / (2 * math.pi), torch.sin(angle) / (2 * math.pi)]
            else:
                parts.append(along)
        return torch.stack(parts, dim=-1)

    def grid(self, *shape: int) -> tuple[Float[Tensor, "points dim"], Float[Tensor, " points"]]:
        """Returns the points of a tensor grid and their quadrature weights, which sum to one.

        Open axes hold both ends (trapezoid rule); periodic axes leave the upper end out
        (all weights equal). On the sphere, `shape` counts latitudes and longitudes: cell
        centers of an equiangular grid from north to south, weighted with the exact cell area.
        """
        num_axes = 2 if self.is_sphere else self.dim
        if len(shape) != num_axes or min(shape) < 1:
            raise ValueError(
                f"`shape` must be {num_axes} positive counts, one per axis, got {shape}."
            )
        if self.is_sphere:
            return self._sphere_grid(*shape)
        axes: list[Tensor] = []
        rules: list[Tensor] = []
        for count, low, high, is_periodic in zip(
            shape, self.lower, self.upper, self.periodic, strict=True
        ):
            ends = count + 1 if is_periodic else count
            axes.append(torch.linspace(low, high, ends, dtype=torch.float64)[:count])
            rule = torch.ones(count, dtype=torch.float64)
            if not is_periodic and count > 1:
                rule[0] = rule[-1] = 0.5
            rules.append(rule / rule.sum())
        coords = torch.cartesian_prod(*axes).reshape(-1, self.dim)
        weights = torch.cartesian_prod(*rules).reshape(-1, self.dim).prod(-1)
        dtype = torch.get_default_dtype()
        return coords.to(dtype), weights.to(dtype)

    def _sphere_grid(self, num_latitudes: int, num_longitudes: int) -> tuple[Tensor, Tensor]:
        edges = torch.linspace(90, -90, num_latitudes + 1, dtype=torch.float64).deg2rad()
        latitude = (edges[:-1] + edges[1:]) / 2
        longitude = torch.arange(num_longitudes, dtype=torch.float64) * (360 / num_longitudes)
        points = torch.cartesian_prod(latitude.rad2deg(), longitude)
        area = (edges[:-1].sin() - edges[1:].sin()) / (2 * num_longitudes)
        dtype = torch.get_default_dtype()
        coords = unit_vectors(points[:, 1], points[:, 0])
        return coords.to(dtype), area.repeat_interleave(num_longitudes).to(dtype)

    def _origin(self, like: Tensor) -> Tensor:
        """Returns the point that unit coordinates count from: a corner, or a patch's middle."""
        origin = self.lower
        if self.is_sphere:
            origin = [(low + high) / 2 for low, high in zip(self.lower, self.upper, strict=True)]
        return torch.tensor(origin, dtype=like.dtype, device=like.device)

    @torch.no_grad()
    def _whole_periods(self, difference: Tensor) -> Tensor:
        """Returns the multiples of the periods next to differences, which no small change changes."""
        turns = torch.round(difference / self.unit_lengths(difference))
        return turns * self._periods(difference)

    def _is_periodic(self, like: Tensor) -> Tensor:
        return torch.tensor(self.periodic, device=like.device)

    def _periods(self, like: Tensor) -> Tensor:
        """Returns the axis lengths, with zero on open axes; once where all are the same."""
        pairs = zip(self.lower, self.upper, self.periodic, strict=True)
        return _per_axis([(high - low) * is_periodic for low, high, is_periodic in pairs], like)


def _per_axis(numbers: list[float], like: Tensor) -> Tensor:
    """Returns one number per axis; a single one where all are equal, which is faster to spread."""
    if len(set(numbers)) == 1:
        numbers = numbers[:1]
    return torch.tensor(numbers, dtype=like.dtype, device=like.device)


def unit_vectors(
    longitude: Float[Tensor, "*batch"], latitude: Float[Tensor, "*batch"]
) -> Float[Tensor, "*batch 3"]:
    """Returns points of the unit sphere from longitude and latitude in degrees."""
    along, up = longitude.deg2rad(), latitude.deg2rad()
    return torch.stack(
        [torch.cos(up) * torch.cos(along), torch.cos(up) * torch.sin(along), torch.sin(up)], dim=-1
    )


def longitude_latitude(
    coords: Float[Tensor, "*batch 3"],
) -> tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch"]]:
    """Returns longitude in [-180, 180] and latitude of points on the sphere, in degrees."""
    x, y, z = coords.unbind(-1)
    return torch.atan2(y, x).rad2deg(), torch.atan2(z, torch.hypot(x, y)).rad2deg()
