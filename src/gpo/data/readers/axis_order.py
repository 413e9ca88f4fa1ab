"""Which of the user's arrays are coordinates, and which axis of an array is which.

Coordinates are found by name. The axes of all other arrays are found by their lengths; where
more than one order fits, the array is refused instead of guessed.

An order of axes is a list of labels: `sample`, `time`, `component`, and those of the sites, which
are `points` of a cloud, some of `x`, `y`, `z` of a grid, or `row` and `column` of a grid whose
coordinates are two-dimensional.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import numpy as np

from gpo.data.dataset import DataError
from gpo.data.geometry import Geometry
from gpo.data.readers.array_files import Stored
from gpo.data.readers.base import check_axis
from gpo.data.readers.sites import check_cells, check_points, scattered

Order = tuple[str, ...]
SERIES = (
    "time sites", "time sites component", "time component sites",
    "sample time sites", "sample time sites component", "sample time component sites",
    "sites time", "sites component time", "sites time component",
    "sample sites time", "sample sites component time", "sample sites time component",
)  # fmt: skip
"""Orders of time series whose sites have coordinates."""
SAMPLES_LAST = ("sites time sample", "time sites sample")
"""Orders as MATLAB has them, where no other fits and both sites and times have coordinates."""
BARE_SERIES = (*SERIES[:6], "sites time", "sites component time")
"""Orders without coordinates: samples, if any, come first, and time right after them."""
BARE_MAPS = ("sample sites", "sample sites component", "sample component sites")
"""Orders of static maps without coordinates: samples come first."""
MAPS = (*BARE_MAPS, "sites")
"""Orders of static maps whose sites have coordinates; without an axis of samples there is one."""
BARE_SITES: tuple[Order, ...] = (("x",), ("x", "y"), ("x", "y", "z"))
SITE_LABELS = ("points", "x", "y", "z", "row", "column")
"""Labels of sites in the order in which sites are listed."""
POINTS = (
    "coords", "coordinates", "points", "pts", "pos", "mesh_pos", "nodes", "vertices", "x_star",
)  # fmt: skip
CELLS = ("cells", "triangles", "elements", "faces")
MOST_COMPONENTS = 10
SMALLEST_GRID = 5
"""Without coordinates a shorter axis is components, and none of this length or longer is."""


@dataclass(frozen=True)
class Sites:
    """The sites as far as the coordinates determine them, before any field is read."""

    orders: tuple[Order, ...]
    lengths: dict[str, int]
    used: tuple[str, ...]
    """Names of the arrays that hold coordinates and cells."""
    build: Callable[[Sequence[int]], Geometry]
    """Builds the sites from their lengths along every axis."""


def find(
    path: Path,
    arrays: Mapping[str, Stored],
    names: Sequence[str],
    suits: Callable[[Stored], bool] = lambda stored: True,
) -> str | None:
    """Returns the array that has one of the names; refuses two."""
    found = [name for name in arrays if name.lower() in names and suits(arrays[name])]
    if len(found) > 1:
        problem = f"and `{found[1]}` mean the same: keep one of them, rename the other."
        raise DataError(path, found[0], problem)
    return found[0] if found else None


def find_sites(path: Path, arrays: Mapping[str, Stored]) -> Sites:
    """Returns points, a grid or a body-fitted grid, or numbered axes where nothing is given."""
    points, cells = find(path, arrays, POINTS), find(path, arrays, CELLS)
    axes = {
        label: name
        for label in ("x", "y", "z")
        if (name := find(path, arrays, (label,), lambda one: one.is_vector and one.size > 1))
    }
    x, y = (find(path, arrays, (label,), lambda one: len(one.shape) == 2) for label in "xy")
    is_mesh = x and y and not axes and arrays[x].shape == arrays[y].shape
    if points and (axes or is_mesh):
        raise DataError(path, points, "and `x` are both coordinates: keep one of them.")
    if cells and not points:
        problem = f"needs points; name their coordinates one of {', '.join(POINTS)}."
        raise DataError(path, cells, problem)
    if points:
        return _cloud(path, arrays, points, cells)
    if axes:
        return _grid(path, arrays, axes)
    if x and y and is_mesh:
        return _body_fitted(path, arrays, x, y)
    return Sites(BARE_SITES, {}, (), lambda counts: Geometry.rectilinear([*map(np.arange, counts)]))


def _cloud(path: Path, arrays: Mapping[str, Stored], points: str, cells: str | None) -> Sites:
    values = arrays[points].values()
    coords = check_points(path, points, values[:, None] if values.ndim == 1 else values)
    corners = None
    if cells:
        corners = from_zero(path, cells, arrays[cells].values(), len(coords))
        corners = check_cells(path, cells, corners, coords)
    geometry = scattered(path, coords, corners)
    used = (points, cells) if cells else (points,)
    return Sites((("points",),), {"points": len(coords)}, used, lambda counts: geometry)


def from_zero(path: Path, name: str, cells: np.ndarray, num_points: int) -> np.ndarray:
    """Returns cells that count sites from zero; MATLAB's own count from one."""
    if path.suffix != ".mat" or cells.min() < 1 or cells.max() > num_points:
        return cells
    if cells.max() < num_points:
        problem = (
            f"names sites {cells.min():g} to {cells.max():g} of {num_points}, so that nothing "
            "tells whether it counts from zero or from one. Leave out sites without a cell."
        )
        raise DataError(path, name, problem)
    return cells - 1


def _grid(path: Path, arrays: Mapping[str, Stored], axes: Mapping[str, str]) -> Sites:
    values = [check_axis(path, name, np.ravel(arrays[name].values())) for name in axes.values()]
    geometry = Geometry.rectilinear(values, names=tuple(axes))
    lengths = {label: len(axis) for label, axis in zip(axes, values, strict=True)}
    orders = tuple(permutations(axes))
    return Sites(orders, lengths, tuple(axes.values()), lambda counts: geometry)


def _body_fitted(path: Path, arrays: Mapping[str, Stored], x: str, y: str) -> Sites:
    values = [arrays[name].values() for name in (x, y)]
    for name, coordinate in zip((x, y), values, strict=True):
        if not np.isfinite(coordinate).all():
            raise DataError(path, name, "must be finite, got NaN or infinity.")
    with np.errstate(invalid="ignore"):
        geometry = Geometry.curvilinear(*values)
    if not np.isfinite(geometry.weights).all():
        raise DataError(path, x, "and `y` cover no area: all points lie on a line.")
    rows, columns = arrays[x].shape
    lengths = {"row": rows, "column": columns}
    return Sites((("row", "column"),), lengths, (x, y), lambda counts: geometry)


@dataclass(frozen=True)
class Axes:
    """Constraints on the axes of fields, from coordinates, times and the user."""

    lengths: Mapping[str, int]
    """Lengths of the axes that have coordinates or times."""
    sites: tuple[Order, ...]
    """Orders in which the axes of the sites may come."""
    stated: Order = ()
    """The order of all axes where the user says it; `component` may be missing in an array."""

    @property
    def is_bare(self) -> bool:
        """True where sites have no coordinates."""
        return not any(label in self.lengths for label in self.sites[0])

    def orders(self, patterns: Sequence[str]) -> list[Order]:
        """Returns all orders that an array may have."""
        if self.stated:
            without = tuple(label for label in self.stated if label != "component")
            return [self.stated, without] if without != self.stated else [self.stated]
        return [
            tuple(pattern.replace("sites", " ".join(sites)).split())
            for pattern in patterns
            for sites in self.sites
        ]

    def fits(self, order: Order, shape: tuple[int, ...]) -> bool:
        """Returns whether an array of this shape may have this order of axes."""
        return len(order) == len(shape) and all(
            self._suits(label, length) for label, length in zip(order, shape, strict=True)
        )

    def _suits(self, label: str, length: int) -> bool:
        if label in self.lengths:
            return length == self.lengths[label]
        if label in ("sample", "time") or self.stated:
            return True
        if label == "component":
            return length < SMALLEST_GRID if self.is_bare else length <= MOST_COMPONENTS
        return length >= SMALLEST_GRID


def state_order(path: Path, text: str, axes: Axes, needed: Sequence[str]) -> Axes:
    """Returns axes in the order a user names, such as `time,y,x`.

    Args:
        path: The file, for messages.
        text: Labels with commas between them.
        axes: What is known of the axes.
        needed: Labels that must be there besides those of the sites.
    """
    stated = tuple(label.strip() for label in text.split(","))
    allowed = {"sample", "time", "component"} if "time" in needed else {"sample", "component"}
    sites = tuple(label for label in stated if label not in allowed)
    is_known = any(set(sites) == set(order) for order in axes.sites)
    if not is_known or len(set(stated)) < len(stated) or not set(needed) <= set(stated):
        choices = " or ".join(",".join(order) for order in axes.sites)
        problem = (
            f"must name each axis once: {', '.join([*needed, choices])}, and where there are any "
            f"{', '.join(sorted(allowed - set(needed)))}; got {text!r}."
        )
        raise DataError(path, "axes", problem)
    return Axes(axes.lengths, (sites,), stated)


@dataclass(frozen=True)
class Field:
    """An array all of whose axes are known."""

    name: str
    stored: Stored
    order: Order

    def length(self, label: str) -> int:
        """Returns the length of an axis, one where the array has no such axis."""
        return dict(zip(self.order, self.stored.shape, strict=True)).get(label, 1)

    @property
    def sites(self) -> Order:
        """Labels of the sites in the order in which sites are listed."""
        return tuple(label for label in SITE_LABELS if label in self.order)

    def read(self, **index: int | slice) -> np.ndarray:
        """Reads a part: times, if there is an axis of them, by points by components.

        Args:
            index: What to take of an axis, by label; all of an axis that is not named.
        """
        values = self.stored.read(tuple(index.get(label, slice(None)) for label in self.order))
        left = [label for label in self.order if not isinstance(index.get(label), int)]
        if "component" not in left:
            values, left = values[..., None], [*left, "component"]
        wanted = [label for label in ("time", *self.sites, "component") if label in left]
        values = values.transpose([left.index(label) for label in wanted])
        num_times = 1 if "time" in left else 0
        num_points = math.prod(values.shape[num_times:-1])
        return values.reshape(*values.shape[:num_times], num_points, values.shape[-1])


def match(path: Path, name: str, stored: Stored, axes: Axes, patterns: Sequence[str]) -> Field:
    """Returns an array with its axes; refuses where no order of them fits, or more than one."""
    found = [order for order in axes.orders(patterns) if axes.fits(order, stored.shape)]
    if not found and patterns == SERIES and "time" in axes.lengths and not axes.stated:
        found = [order for order in axes.orders(SAMPLES_LAST) if axes.fits(order, stored.shape)]
    if len(found) == 1:
        return Field(name, stored, found[0])
    known = ", ".join(f"{label} {length}" for label, length in axes.lengths.items()) or "none"
    stated = f" The axes were said to be {','.join(axes.stated)}." if axes.stated else ""
    if not found:
        problem = (
            f"has shape {stored.shape}, which fits no order of axes; known lengths are: {known}."
            f"{stated} Leave it out by naming the variables to read (--var), name the coordinates "
            "of its sites (--coords), or say what its axes are, such as `--select axes=time,y,x`."
        )
    else:
        fitting = " and ".join(f"({', '.join(order)})" for order in found)
        example = ",".join(found[0])
        problem = (
            f"has shape {stored.shape}, which fits {fitting}; known lengths are: {known}. "
            f"Say which it is: all axes in their order, for example `--select axes={example}`, or "
            "save coordinates and times whose lengths differ."
        )
    raise DataError(path, name, problem)


def match_maps(
    path: Path,
    wanted: Mapping[str, Stored],
    sites: Sites,
    stated: str | None,
    num_files: int,
) -> list[Field]:
    """Returns the arrays of static maps with their axes; refuses where these may be two things.

    Args:
        path: The file, for messages.
        wanted: The arrays.
        sites: What is known of their sites.
        stated: The order of axes as the user says it; without `sample` a file holds one.
        num_files: Files that are read as one.
    """
    axes = Axes(sites.lengths, sites.orders)
    if stated is not None:
        axes = state_order(path, stated, axes, [])
    for name, stored in wanted.items():
        if num_files > 1 and axes.is_bare and not axes.stated and len(stored.shape) == 2:
            problem = (
                f"has shape {stored.shape}: samples on a line, or one sample on a grid, in each of "
                f"{num_files} files. Say which: `--select axes=sample,x` or `--select axes=x,y`."
            )
            raise DataError(path, name, problem)
    patterns = BARE_MAPS if axes.is_bare else MAPS
    return [match(path, name, stored, axes, patterns) for name, stored in wanted.items()]


def common_length(path: Path, fields: Sequence[Field], label: str) -> int:
    """Returns the length of an axis, which must be the same in all arrays."""
    lengths = {field.length(label) for field in fields}
    if len(lengths) > 1:
        shapes = ", ".join(f"{field.name} {field.stored.shape}" for field in fields)
        problem = f"must have as many entries on axis {label} as the others, got shapes {shapes}."
        raise DataError(path, fields[0].name, problem)
    return lengths.pop()
