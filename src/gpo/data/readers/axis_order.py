"""Finds coordinates among named arrays, and the order of axes of all other arrays.

Coordinates are found by name. The axes of other arrays are found by their lengths; if more than one
order fits, an error asks for the order.

An order of axes is a tuple of labels: `sample`, `time`, `component`, and those of the sites, which
are `points` (unstructured), some of `x`, `y`, `z` (rectilinear), or `row` and `column` (curvilinear).
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from pathlib import Path

import numpy as np
import xarray as xr

from gpo.data.dataset import DataError
from gpo.data.readers.base import check_axis
from gpo.data.readers.lazy import (
    DEGREES,
    SITES,
    Stored,
    mesh_variables,
    point_coordinates,
)
from gpo.data.readers.names import LATITUDE_NAMES, LONGITUDE_NAMES
from gpo.data.readers.sites import check_cells, check_points

Order = tuple[str, ...]
SERIES = (
    "time sites", "time sites component", "time component sites",
    "sample time sites", "sample time sites component", "sample time component sites",
    "sites time", "sites component time", "sites time component",
    "sample sites time", "sample sites component time", "sample sites time component",
)  # fmt: skip
"""Orders of time series on sites with coordinates."""
SAMPLES_LAST = ("sites time sample", "time sites sample")
"""Orders as in MATLAB, tried last, and only if both sites and times have coordinates."""
BARE_SERIES = (*SERIES[:6], "sites time", "sites component time")
"""Orders of time series without coordinates: samples, if any, come first, then time."""
BARE_MAPS = ("sample sites", "sample sites component", "sample component sites")
"""Orders of static maps without coordinates: samples come first."""
MAPS = (*BARE_MAPS, "sites")
"""Orders of static maps on sites with coordinates; without a sample axis, there is one sample."""
BARE_SITES: tuple[Order, ...] = (("x",), ("x", "y"), ("x", "y", "z"))
SITE_LABELS = ("points", "x", "y", "z", "row", "column")
"""Labels of site axes in the order in which sites are flattened."""
POINTS = (
    "coords", "coordinates", "points", "pts", "pos", "mesh_pos", "nodes", "vertices", "x_star",
)  # fmt: skip
CELLS = ("cells", "triangles", "elements", "faces")
MAX_COMPONENTS = 10
SMALLEST_GRID = 5
"""Minimum length of a grid axis without coordinates; shorter axes are components."""


@dataclass(frozen=True)
class Sites:
    """The sites as far as the coordinates determine them."""

    orders: tuple[Order, ...]
    lengths: dict[str, int]
    used: tuple[str, ...]
    """Names of the arrays of coordinates and cells."""
    coords: dict[str, xr.Variable] = field(default_factory=dict)
    """Coordinates and meshes; grids of indices have none."""
    dim: int = 0
    """Number of coordinates of a site; 0 for as many as a field has axes."""


def find(
    path: Path,
    arrays: Mapping[str, Stored],
    names: Sequence[str],
    suits: Callable[[Stored], bool] = lambda stored: True,
) -> str | None:
    """Returns the array that has one of the names; None if there is none."""
    matches = [name for name in arrays if name.lower() in names and suits(arrays[name])]
    if len(matches) > 1:
        problem = f"and `{matches[1]}` mean the same: keep one of them, rename the other."
        raise DataError(path, matches[0], problem)
    return matches[0] if matches else None


def find_sites(path: Path, arrays: Mapping[str, Stored]) -> Sites:
    """Returns unstructured, rectilinear or curvilinear sites; grids of indices without coordinates."""
    points, cells = find(path, arrays, POINTS), find(path, arrays, CELLS)
    axes = {
        label: name
        for label in ("x", "y", "z")
        if (name := find(path, arrays, (label,), lambda array: array.is_vector and array.size > 1))
    }
    x, y = (find(path, arrays, (label,), lambda array: len(array.shape) == 2) for label in "xy")
    is_mesh = x and y and not axes and arrays[x].shape == arrays[y].shape
    if points and (axes or is_mesh):
        raise DataError(path, points, "and `x` are both coordinates: keep one of them.")
    if cells and not points:
        problem = f"needs points; name their coordinates one of {', '.join(POINTS)}."
        raise DataError(path, cells, problem)
    if points:
        return _unstructured(path, arrays, points, cells)
    if axes:
        return _grid(path, arrays, axes)
    degrees = _longitude_latitude_grid(path, arrays)
    if degrees is not None:
        return degrees
    if x and y and is_mesh:
        return _curvilinear(path, arrays, x, y)
    return Sites(BARE_SITES, {}, ())


def _unstructured(
    path: Path, arrays: Mapping[str, Stored], points: str, cells: str | None
) -> Sites:
    values = arrays[points].values()
    coords = check_points(path, points, values[:, None] if values.ndim == 1 else values)
    corners = None
    if cells:
        corners = from_zero(path, cells, arrays[cells].values(), len(coords))
        corners = check_cells(path, cells, corners, coords)
    return points_sites(coords, corners, (points, cells) if cells else (points,))


def points_sites(
    coords: np.ndarray,
    corners: np.ndarray | None,
    used: tuple[str, ...],
    names: Sequence[str] = SITES,
) -> Sites:
    """Returns unstructured points, or the nodes of a mesh.

    Args:
        coords: Coordinates, (points, dim), in degrees on the sphere.
        corners: Indices of the nodes of each cell.
        used: Names of the arrays of coordinates and cells.
        names: Names of the coordinates, which say whether they are degrees.
    """
    variables = point_coordinates(("points",), coords, names)
    dim = 3 if names == DEGREES else coords.shape[1]
    if corners is not None:
        is_volume = corners.shape[1] == 4 and dim == 3
        variables |= mesh_variables(tuple(variables), corners, is_volume=is_volume)
    return Sites((("points",),), {"points": len(coords)}, used, variables, dim)


def from_zero(path: Path, name: str, cells: np.ndarray, num_points: int) -> np.ndarray:
    """Returns zero-based cells; those of MATLAB files may be one-based."""
    if path.suffix != ".mat" or cells.min() < 1 or cells.max() > num_points:
        return cells
    if cells.max() < num_points:
        problem = (
            f"names sites {cells.min():g} to {cells.max():g} of {num_points}, so it may be zero-based "
            "or one-based. Remove sites without a cell."
        )
        raise DataError(path, name, problem)
    return cells - 1


def _grid(path: Path, arrays: Mapping[str, Stored], axes: Mapping[str, str]) -> Sites:
    values = [check_axis(path, name, np.ravel(arrays[name].values())) for name in axes.values()]
    lengths = {label: len(axis) for label, axis in zip(axes, values, strict=True)}
    coords = {label: xr.Variable(label, axis) for label, axis in zip(axes, values, strict=True)}
    return Sites(tuple(permutations(axes)), lengths, tuple(axes.values()), coords, len(axes))


def _longitude_latitude_grid(path: Path, arrays: Mapping[str, Stored]) -> Sites | None:
    """Returns a grid on the sphere if axes are named and range like degrees; None otherwise."""
    vectors = {name: stored for name, stored in arrays.items() if stored.is_vector}
    latitude, longitude = (
        find(path, vectors, names, lambda array: array.size > 1)
        for names in (LATITUDE_NAMES, LONGITUDE_NAMES)
    )
    if latitude is None or longitude is None:
        return None
    rows, columns = (
        np.ravel(arrays[name].values()).astype(float) for name in (latitude, longitude)
    )
    others = [Counter(stored.shape) for stored in arrays.values() if not stored.is_vector]
    # Vectors of the same length may be those of points.
    is_grid = any(not Counter((len(rows), len(columns))) - shape for shape in others)
    if not is_grid or np.abs(rows).max() > 90 or np.ptp(columns) > 360:
        return None
    rows, columns = check_axis(path, latitude, rows), check_axis(path, longitude, columns)
    lengths = {"row": len(rows), "column": len(columns)}
    orders = (("row", "column"), ("column", "row"))
    coords = {
        "latitude": xr.Variable("row", rows, {"units": "degrees_north"}),
        "longitude": xr.Variable("column", columns, {"units": "degrees_east"}),
    }
    return Sites(orders, lengths, (latitude, longitude), coords, 3)


def _curvilinear(path: Path, arrays: Mapping[str, Stored], x: str, y: str) -> Sites:
    dims = ("row", "column")
    coords = {
        name: xr.Variable(dims, arrays[name].values(), {"axis": axis})
        for name, axis in ((x, "X"), (y, "Y"))
    }
    return Sites((dims,), dict(zip(dims, arrays[x].shape, strict=True)), (x, y), coords, 2)


@dataclass(frozen=True)
class Axes:
    """Constraints on the axes of fields, from coordinates, times and the user."""

    lengths: Mapping[str, int]
    """Lengths of the axes that have coordinates or times."""
    sites: tuple[Order, ...]
    """Possible orders of the site axes."""
    stated: Order = ()
    """The order of all axes, if the user states it; an array may lack `component`."""

    @property
    def is_bare(self) -> bool:
        """Whether sites have no coordinates."""
        return not any(label in self.lengths for label in self.sites[0])

    def orders(self, patterns: Sequence[str]) -> list[Order]:
        """Returns all possible orders of axes of an array."""
        if self.stated:
            without = tuple(label for label in self.stated if label != "component")
            return [self.stated, without] if without != self.stated else [self.stated]
        return [
            tuple(pattern.replace("sites", " ".join(sites)).split())
            for pattern in patterns
            for sites in self.sites
        ]

    def fits(self, order: Order, shape: tuple[int, ...]) -> bool:
        """Returns whether an array of this shape can have this order of axes."""
        return len(order) == len(shape) and all(
            self._suits(label, length) for label, length in zip(order, shape, strict=True)
        )

    def _suits(self, label: str, length: int) -> bool:
        if label in self.lengths:
            return length == self.lengths[label]
        if label in ("sample", "time") or self.stated:
            return True
        if label == "component":
            return length < SMALLEST_GRID if self.is_bare else length <= MAX_COMPONENTS
        return length >= SMALLEST_GRID


def state_order(path: Path, text: str, axes: Axes, needed: Sequence[str]) -> Axes:
    """Returns axes in the order that the user states, such as `time,y,x`.

    Args:
        path: The file, for error messages.
        text: Labels separated by commas.
        axes: The constraints on the axes.
        needed: Labels that are required besides those of the sites.
    """
    stated = tuple(label.strip() for label in text.split(","))
    allowed = {"sample", "time", "component"} if "time" in needed else {"sample", "component"}
    sites = tuple(label for label in stated if label not in allowed)
    is_known = any(set(sites) == set(order) for order in axes.sites)
    if not is_known or len(set(stated)) < len(stated) or not set(needed) <= set(stated):
        choices = " or ".join(",".join(order) for order in axes.sites)
        problem = (
            f"must name each axis once: {', '.join([*needed, choices])}, and if there are any, "
            f"{', '.join(sorted(allowed - set(needed)))}; got {text!r}."
        )
        raise DataError(path, "axes", problem)
    return Axes(axes.lengths, (sites,), stated)


@dataclass(frozen=True)
class Field:
    """An array with labelled axes."""

    name: str
    stored: Stored
    order: Order

    def length(self, label: str) -> int:
        """Returns the length of an axis; 1 if the array does not have it."""
        return dict(zip(self.order, self.stored.shape, strict=True)).get(label, 1)

    @property
    def sites(self) -> Order:
        """Labels of the site axes in the order in which sites are flattened."""
        return tuple(label for label in SITE_LABELS if label in self.order)

    def variable(self, dims: Order, component: int | None = None) -> xr.Variable:
        """Returns a component of the array with axes in this order; it is read in parts."""
        return self.stored.arranged(self.order, dims, {"component": component or 0}).variable(dims)


def match(path: Path, name: str, stored: Stored, axes: Axes, patterns: Sequence[str]) -> Field:
    """Returns an array with its axes; raises a `DataError` unless exactly one order fits."""
    orders = [order for order in axes.orders(patterns) if axes.fits(order, stored.shape)]
    if not orders and patterns == SERIES and "time" in axes.lengths and not axes.stated:
        orders = [order for order in axes.orders(SAMPLES_LAST) if axes.fits(order, stored.shape)]
    if len(orders) == 1:
        return Field(name, stored, orders[0])
    lengths = ", ".join(f"{label} {length}" for label, length in axes.lengths.items()) or "none"
    stated = f" The stated axes are {','.join(axes.stated)}." if axes.stated else ""
    if not orders:
        problem = (
            f"has shape {stored.shape}, which fits no order of axes; known lengths are: {lengths}."
            f"{stated} Leave it out by naming the variables to read (--var), name the coordinates "
            "of its sites (--coords), or state its axes, for example `--select axes=time,y,x`."
        )
    else:
        fitting = " and ".join(f"({', '.join(order)})" for order in orders)
        example = ",".join(orders[0])
        problem = (
            f"has shape {stored.shape}, which fits {fitting}; known lengths are: {lengths}. "
            f"State the order of all axes, for example `--select axes={example}`, or save "
            "coordinates and times of different lengths."
        )
    raise DataError(path, name, problem)


def match_maps(
    path: Path,
    arrays: Mapping[str, Stored],
    sites: Sites,
    stated: str | None,
    num_files: int,
) -> list[Field]:
    """Returns the arrays of static maps with their axes; raises a `DataError` if ambiguous.

    Args:
        path: The file, for error messages.
        arrays: The arrays by name.
        sites: The sites as far as known.
        stated: The order of axes, if the user states it; without `sample`, there is one sample.
        num_files: Number of files that are joined.
    """
    axes = Axes(sites.lengths, sites.orders)
    if stated is not None:
        axes = state_order(path, stated, axes, [])
    for name, stored in arrays.items():
        if num_files > 1 and axes.is_bare and not axes.stated and len(stored.shape) == 2:
            problem = (
                f"has shape {stored.shape}: samples on a line, or one sample on a grid, in each of "
                f"{num_files} files. State which: `--select axes=sample,x` or `--select axes=x,y`."
            )
            raise DataError(path, name, problem)
    patterns = BARE_MAPS if axes.is_bare else MAPS
    return [match(path, name, stored, axes, patterns) for name, stored in arrays.items()]


def common_length(path: Path, fields: Sequence[Field], label: str) -> int:
    """Returns the length of an axis, which must be the same in all arrays."""
    lengths = {field.length(label) for field in fields}
    if len(lengths) > 1:
        shapes = ", ".join(f"{field.name} {field.stored.shape}" for field in fields)
        problem = f"must have as many entries on axis {label} as the others, got shapes {shapes}."
        raise DataError(path, fields[0].name, problem)
    return lengths.pop()
