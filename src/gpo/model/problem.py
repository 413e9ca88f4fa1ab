"""What a model is built for: channels, domain and kind of sites."""

import math
from dataclasses import dataclass, replace

from gpo.numerics.domain import Domain


@dataclass(frozen=True)
class Problem:
    """The data that a model is built for."""

    in_channels: int
    """Channels of the input field, coordinates not counted."""
    out_channels: int
    """Channels of the predicted field."""
    domain: Domain
    """Where the sites lie."""
    grid_shape: tuple[int, ...] = ()
    """Sites along every axis of a structured grid, last axis fastest; empty for unstructured points."""
    is_fitted: bool = False
    """Whether that grid is a body-fitted mesh, with coordinates of its own in every sample."""
    num_points: int | None = None
    """Number of unstructured points, where it is known."""

    def __post_init__(self) -> None:
        """Refuses what no model can be built for."""
        for name, least in (("in_channels", 0), ("out_channels", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise ValueError(
                    f"`{name}` must be a whole number, at least {least}, got {name}={value}."
                )
        object.__setattr__(self, "grid_shape", tuple(self.grid_shape))
        shape = self.grid_shape
        if self.is_fitted and not (len(shape) in (2, 3) and all(count >= 2 for count in shape)):
            raise ValueError(
                "`grid_shape` of a body-fitted mesh must be two or three counts, each at least 2, "
                f"got grid_shape={shape}."
            )

    @property
    def local(self) -> "Problem":
        """The same with coordinates counted from the corner of the domain."""
        return replace(self, domain=self.domain.local)

    @property
    def mesh_shape(self) -> tuple[int, ...]:
        """Nodes along the axes of a body-fitted mesh; empty for other sites."""
        return self.grid_shape if self.is_fitted else ()

    @property
    def num_axes(self) -> int:
        """Axes that waves run along: all of a mesh or a box, two of a sphere."""
        return len(self.mesh_shape) or self.domain.dim - self.domain.is_sphere

    @property
    def reach_unit(self) -> float:
        """Unit of the reach of particles: the length of an axis, or the side of a sphere's box."""
        domain = self.domain
        if not domain.is_sphere or self.is_fitted:
            return 1.0
        return max(high - low for low, high in zip(domain.lower, domain.upper, strict=True))

    @property
    def num_sites(self) -> int | None:
        """Number of sites, where it is known."""
        return math.prod(self.grid_shape) if self.grid_shape else self.num_points


class UnsupportedGeometryError(ValueError):
    """A model cannot take sites of this kind; the message is the reason, fit for a table."""
