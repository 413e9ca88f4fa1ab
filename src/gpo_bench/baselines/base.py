"""The interface of the baselines, layers that several of them use, and checks of their sizes.

Models on structured grids treat a field as an array: the position of a site is its grid index.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_origin, get_type_hints

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import pad

from gpo.execution.inputs import check_sites
from gpo.limits import check_depth, check_width
from gpo.model.problem import Problem, UnsupportedGeometryError

Sized = TypeVar("Sized", bound="AbstractSizedConfig")
DEPTHS = ("num_layers", "num_blocks", "num_cycles", "num_levels", "num_residuals",
          "num_bottleneck_residuals", "sweeps")  # fmt: skip
PLACES = {1: "on a line", 2: "in a plane", 3: "in space"}
WIDTHS = ("width", "widths", "lift_width")


class AbstractBaseline(nn.Module, ABC):
    """A model that maps a field on sites to a field on the same sites.

    A class declares the sites that it takes. Its constructor may refuse some of them for their number.
    """

    grid_axes: ClassVar[tuple[int, ...]] = (1, 2, 3)
    """Numbers of axes of the structured grids that the model takes."""
    point_dims: ClassVar[tuple[int, ...]] = (1, 2, 3)
    """Numbers of coordinates of the unstructured points that it takes; on the sphere it is 3."""
    limits: ClassVar[str] = ""
    """Why it takes no other sites that the paper has it on, from its publication."""
    unused: frozenset[str] = frozenset()
    """Names of parameters that the published model has but never uses; they get no gradient."""

    def __init__(self, problem: Problem) -> None:
        super().__init__()
        if not self.takes(problem):
            kinds = _alternatives(self.grid_axes, self.point_dims)
            reason = f"; {self.limits}" if self.limits else ""
            raise UnsupportedGeometryError(f"needs {kinds}{reason}")
        self.problem = problem

    @classmethod
    def takes(cls, problem: Problem) -> bool:
        """Returns whether the model is declared for sites of this kind."""
        if problem.grid_shape:
            return len(problem.grid_shape) in cls.grid_axes
        return problem.domain.dim in cls.point_dims

    def forward(
        self,
        values: Float[Tensor, "batch points in_channels"],
        coords: Float[Tensor, "*#batch points dim"],
        *,
        weights: Float[Tensor, "*#batch points"] | None = None,
    ) -> Float[Tensor, "batch points out_channels"]:
        """Returns the predicted field at the sites.

        Args:
            values: Input field at the sites.
            coords: Coordinates of the sites, shared by the batch or per sample.
            weights: Quadrature weights; a site of weight 0 is masked, and its values are ignored.
        """
        problem = self.problem
        dtype = next(part.dtype for part in self.parameters() if not part.is_complex())
        sites = check_sites(problem.in_channels, problem.domain, dtype, values, coords, weights)
        unit = problem.domain.local.to_unit(sites.coords)
        return self.predict(sites.values, unit, sites.is_active)

    @abstractmethod
    def predict(
        self,
        values: Float[Tensor, "batch points in_channels"],
        coords: Float[Tensor, "batch points dim"],
        is_active: Bool[Tensor, "batch points"],
    ) -> Float[Tensor, "batch points out_channels"]:
        """Returns the prediction for validated input.

        Args:
            values: Input field, zero at masked and padded sites.
            coords: Unit coordinates of the sites: $[0, 1]^d$ in a box, $[-1, 1]^3$ on the sphere.
            is_active: False at masked and padded sites.
        """


def _alternatives(grid_axes: tuple[int, ...], point_dims: tuple[int, ...]) -> str:
    """Returns the kinds of sites that a model takes, in words."""
    kinds = [f"points {PLACES[dim]}" for dim in point_dims]
    if len(grid_axes) == 1:
        kinds.insert(0, f"a {grid_axes[0]}-D grid")
    elif grid_axes:
        kinds.insert(0, f"a grid of {grid_axes[0]} to {grid_axes[-1]} axes")
    return " or ".join(kinds)


@dataclass(frozen=True, kw_only=True)
class AbstractSizedConfig(ABC):
    """Architecture of a baseline whose sizes have names; a number that is 0 is that of the named size."""

    SIZES: ClassVar[Mapping[str, Mapping[str, int]]]
    """The numbers of each named size."""

    size: Literal["small", "medium", "published"] = "published"
    """Named size, for all numbers that are 0: small, medium or published."""

    def __post_init__(self) -> None:
        if self.resolved is self:
            self.check()

    @property
    def resolved(self: Sized) -> Sized:
        """The same architecture with every number set."""
        numbers = self.SIZES[self.size]
        unset = {name: count for name, count in numbers.items() if getattr(self, name) == 0}
        return replace(self, **unset) if unset else self

    @abstractmethod
    def check(self) -> None:
        """Raises an error for numbers that nothing can be built with; all of them are set."""


class Perceptron(nn.Sequential):
    """Linear layers with GELU between them; `widths` lists the channels from input to output."""

    def __init__(self, *widths: int) -> None:
        first, *rest = (nn.Linear(*pair) for pair in pairwise(widths))
        super().__init__(first, *(part for layer in rest for part in (nn.GELU(), layer)))


class PointwiseLinear(nn.Conv1d):
    """A linear map of channels in channels-first layout, as a convolution of kernel size one."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels, kernel_size=1)

    def forward(
        self, input: Float[Tensor, "batch in_channels *grid"]
    ) -> Float[Tensor, "batch out_channels *grid"]:
        """Returns the output channels on the same grid."""
        return super().forward(input.flatten(2)).unflatten(2, input.shape[2:])


def to_grid(
    values: Float[Tensor, "batch points channels"], grid_shape: tuple[int, ...]
) -> Float[Tensor, "batch channels *grid"]:
    """Returns a field on a structured grid in channels-first layout."""
    return values.unflatten(1, grid_shape).movedim(-1, 1)


def from_grid(
    values: Float[Tensor, "batch channels *grid"],
) -> Float[Tensor, "batch points channels"]:
    """Returns a field as points with channels last; the inverse of `to_grid`."""
    return values.flatten(2).movedim(1, -1)


def index_coordinates(grid_shape: tuple[int, ...], like: Tensor) -> Float[Tensor, "1 axes *grid"]:
    """Returns the grid index of each site along each axis, scaled to [0, 1]."""
    axes = [torch.linspace(0, 1, size, dtype=like.dtype, device=like.device) for size in grid_shape]
    return torch.stack(torch.meshgrid(*axes, indexing="ij")).unsqueeze(0)


def with_index_coordinates(
    values: Float[Tensor, "batch points channels"], grid_shape: tuple[int, ...]
) -> Float[Tensor, "batch points more_channels"]:
    """Returns a field with the index coordinates of its sites appended as channels."""
    coords = from_grid(index_coordinates(grid_shape, like=values))
    return torch.cat([values, coords.expand(len(values), -1, -1)], dim=-1)


def pad_ends(
    values: Float[Tensor, "batch channels *grid"], num_sites: tuple[int, ...]
) -> Float[Tensor, "batch channels *padded"]:
    """Returns a field with `num_sites` zeros appended along each axis."""
    widths = [width for count in reversed(num_sites) for width in (0, count)]
    return pad(values, widths) if any(num_sites) else values


def crop_ends(
    values: Float[Tensor, "batch channels *padded"], grid_shape: tuple[int, ...]
) -> Float[Tensor, "batch channels *grid"]:
    """Returns the first `grid_shape` sites along each axis; the inverse of `pad_ends`."""
    for axis, size in enumerate(grid_shape, start=2):
        values = values.narrow(axis, 0, size)
    return values


def check_sizes(config: Any, **minimums: int) -> None:
    """Raises an error if an integer field, or an integer in a tuple, is too small or too large.

    Args:
        config: A configuration; fields of other types are not checked.
        **minimums: Smallest value by field; 1 by default.
    """
    for name, kind in get_type_hints(type(config)).items():
        value, parts = getattr(config, name), get_args(kind)
        numbers = value if isinstance(value, tuple) else (value,)
        if get_origin(kind) is tuple and ... not in parts and len(numbers) != len(parts):
            raise ValueError(f"`{name}` must be {len(parts)} numbers, got {value}.")
        smallest = minimums.get(name, 1)
        if any(type(number) is int and number < smallest for number in numbers):
            raise ValueError(f"`{name}` must be at least {smallest}, got {value}.")
        if name in DEPTHS:
            check_depth(name, max(numbers))
    for name in WIDTHS:
        width = getattr(config, name, ())
        numbers = width if isinstance(width, tuple) else (width,)
        check_width(name, max(numbers, default=1), getattr(config, "num_layers", 1))


def check_heads(width: int, num_heads: int, name: str = "num_heads") -> None:
    """Raises an error unless `width` is divisible by `num_heads`, the field `name`."""
    if width % num_heads:
        nearest = max(1, round(width / num_heads)) * num_heads
        raise ValueError(
            f"`width` must be a multiple of `{name}`, got width={width}, "
            f"{name}={num_heads}. Nearest valid width: {nearest}."
        )
