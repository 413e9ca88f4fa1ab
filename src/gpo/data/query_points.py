"""Points at which a model is queried: from a file, or a regular grid over the domain."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from gpo.atomic_files import file_problem
from gpo.data.dataset import DataError
from gpo.data.geometry import Geometry
from gpo.data.readers.array_files import map_npy
from gpo.data.rotated_pole import RotatedPole
from gpo.numerics.domain import Domain, longitude_latitude, unit_vectors

ROWS_AT_ONCE = 2**20
TOLERANCE, PATCH_TOLERANCE = 1e-6, 0.05
"""Allowed distance outside the domain, relative to its sides: for rounding, and on a patch of the
sphere, which is a box around the sites only, for the curvature between them."""
MAX_GEOGRAPHIC = 2**22
"""Largest rotated grid for which geographic longitudes and latitudes are computed."""
Block = tuple[slice, ...]
"""A slice along each axis."""


@dataclass(frozen=True)
class QueryPoints:
    """Points of a grid or unstructured points; coordinates are computed block by block."""

    domain: Domain
    names: tuple[str, ...]
    """Names of the axes of the grid, or of the columns of the points."""
    units: tuple[str, ...]
    numbers: tuple[np.ndarray, ...]
    """Coordinates along each grid axis, or columns of point coordinates; degrees on the sphere."""
    is_grid: bool
    pole: RotatedPole | None = None
    """Pole of a rotated grid, whose axes are in the rotated frame; listed points are geographic."""
    geographic_degrees: np.ndarray | None = None
    """Geographic longitude and latitude of grid points with other axes, if known."""
    placed: np.ndarray | None = None
    """Domain coordinates of the points of a curvilinear grid, whose axes are indices."""
    cells: np.ndarray | None = None
    """Corners of mesh cells as indices of the points."""
    areas: np.ndarray | None = None
    """Area fraction of each listed point, 0 where masked; None if all are equal."""
    attributes: tuple[Mapping[str, str], ...] = ()
    """CF attributes of each axis except its units; empty if unknown."""
    list_dim: str = "point"
    """Name of the dimension of listed points."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of points along each axis."""
        lengths = tuple(len(numbers) for numbers in self.numbers)
        return lengths if self.is_grid else lengths[:1]

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the dimensions: the grid axes, or that of a list."""
        return self.names if self.is_grid else (self.list_dim,)

    @property
    def whole(self) -> Block:
        """The block of all points."""
        return (slice(None),) * len(self.shape)

    def coords(self, block: Block) -> np.ndarray:
        """Returns the domain coordinates of a block, (points, dim)."""
        if self.placed is not None:
            return self.placed.reshape(*self.shape, -1)[block].reshape(-1, self.domain.dim)
        if self.is_grid:
            axes = [numbers[part] for numbers, part in zip(self.numbers, block, strict=True)]
            columns = [part.ravel() for part in np.meshgrid(*axes, indexing="ij")]
        else:
            columns = [np.array(numbers[block[0]], np.float64) for numbers in self.numbers]
        if not self.domain.is_sphere:
            return np.stack(columns, -1)
        # Grids have latitudes first, listed points longitudes.
        degrees = (torch.from_numpy(column) for column in columns[:: -1 if self.is_grid else 1])
        vectors = unit_vectors(*degrees).numpy()
        if self.pole is None or self.is_grid:
            return vectors
        return self.pole.to_rotated(vectors)

    @classmethod
    def of(cls, geometry: Geometry) -> "QueryPoints":
        """Returns the sites of a geometry as query points, with the dimensions of their file."""
        file_names, file_numbers = (
            zip(*geometry.file_axes, strict=True) if geometry.file_axes else ((), ())
        )
        if geometry.axes:
            names, units = file_names or geometry.axis_names, geometry.axis_units
            is_geographic = geometry.domain.is_sphere and geometry.pole is None
            degrees = None if is_geographic else geometry.geographic_degrees()
            return cls(
                geometry.domain, names, units, file_numbers or geometry.axes, True, geometry.pole, degrees,
                attributes=geometry.axis_attributes,
            )  # fmt: skip
        if geometry.domain.is_sphere and len(geometry.grid_shape) == 2:
            counts = file_numbers or tuple(np.arange(count) for count in geometry.grid_shape)
            names, degrees, coords = (
                file_names or ("y", "x"),
                geometry.geographic_degrees(),
                geometry.coords,
            )
            return cls(geometry.domain, names, ("", ""), counts, True, None, degrees, coords)
        return cls.listed(geometry)

    @classmethod
    def listed(cls, geometry: Geometry) -> "QueryPoints":
        """Returns the sites of any geometry as a list of points."""
        degrees = geometry.geographic_degrees() if geometry.domain.is_sphere else None
        points = _points(geometry, tuple((geometry.coords if degrees is None else degrees).T))
        active = geometry.weights[~geometry.is_masked]
        areas = geometry.weights if np.ptp(active) > 0 else None
        dim = geometry.file_axes[0][0] if len(geometry.file_axes) == 1 else points.list_dim
        return replace(points, cells=geometry.triangles, areas=areas, list_dim=dim)


def read_query_points(path: Path, like: Geometry) -> QueryPoints:
    """Returns points from the rows of a text file or a NumPy array, which is memory-mapped.

    Args:
        path: File with columns x, y, z, or longitude and latitude on the sphere. A text file is
            separated by commas or blanks and may begin with a line of names.
        like: The sites of the data, which define the domain.
    """
    problem = file_problem(path)
    if problem is not None and path.exists():
        raise DataError(path, "queries", problem)
    try:
        if path.suffix == ".npy":
            rows = map_npy(path)
            rows = rows if rows.dtype.itemsize >= 4 else rows.astype(np.float64)
        else:
            # Spreadsheets may write a byte-order mark before the first number.
            lines = path.read_text(encoding="utf-8-sig").replace(",", " ").splitlines()
            text = [line for line in lines if line.split()]
            start = 0 if text and _are_numbers(text[0]) else 1
            rows = np.array([[float(word) for word in line.split()] for line in text[start:]])
    except (OSError, ValueError) as error:
        raise DataError(path, "queries", f"cannot be read: {error}") from error
    domain = like.domain
    columns = 2 if domain.is_sphere else domain.dim
    if rows.ndim != 2 or rows.shape[1] != columns or not len(rows):
        names = "longitude and latitude" if domain.is_sphere else ", ".join("xyz"[:columns])
        problem = f"must be rows of {columns} numbers ({names}), got shape {rows.shape}."
        raise DataError(path, "queries", problem)
    if rows.dtype.kind not in "fiu":
        raise DataError(path, "queries", f"must be numbers, got {rows.dtype}.")
    for start in range(0, len(rows), ROWS_AT_ONCE):
        if not np.isfinite(rows[start : start + ROWS_AT_ONCE]).all():
            raise DataError(path, "queries", "must be finite.")
    points = _points(like, tuple(rows.T))
    _check_inside(points, path)
    return points


def regular_query_points(shape: tuple[int, ...], like: Geometry) -> QueryPoints:
    """Returns a regular grid over the domain, or over the region of the sphere with sites."""
    domain = like.domain
    num_axes = 2 if domain.is_sphere else domain.dim
    if len(shape) != num_axes or min(shape) < 2:
        raise ValueError(f"--grid takes {num_axes} counts of at least 2, got {shape}.")
    if not domain.is_sphere:
        axes = tuple(
            np.linspace(low, high, count, endpoint=not wraps)
            for low, high, count, wraps in zip(
                domain.lower, domain.upper, shape, domain.periodic, strict=True
            )
        )
        names = like.axis_names if like.axes else ("x", "y", "z")[:num_axes]
        units = like.axis_units if like.axes else ("",) * num_axes
        return QueryPoints(domain, names, units, axes, True, attributes=like.axis_attributes)
    if domain.lower == (-1.0,) * 3:
        latitude = 90 - (np.arange(shape[0]) + 0.5) * 180 / shape[0]
        longitude = np.arange(shape[1]) * 360 / shape[1]
    else:
        latitude, longitude = _region(shape, like)
    if like.pole is None:
        names = tuple(name for name, _ in like.file_axes if like.axes) or ("latitude", "longitude")
        units = ("degrees_north", "degrees_east")
        return QueryPoints(domain, names, units, (latitude, longitude), True)
    names = (like.axis_names[0], like.axis_names[1]) if like.axes else ("rlat", "rlon")
    units, axes = ("degrees", "degrees"), (latitude, longitude)
    if shape[0] * shape[1] > MAX_GEOGRAPHIC:
        return QueryPoints(domain, names, units, axes, True, like.pole)
    rotated = Geometry.latitude_longitude(latitude, longitude, pole=like.pole, names=names)
    return replace(QueryPoints.of(rotated), domain=domain)


def _check_inside(points: QueryPoints, path: Path) -> None:
    """Raises a `DataError` for points outside the domain, where a model would extrapolate."""
    domain = points.domain
    lower, upper = np.array(domain.lower), np.array(domain.upper)
    allowed = (PATCH_TOLERANCE if domain.is_sphere else TOLERANCE) * (upper - lower)
    is_open = ~np.array(domain.periodic)
    for (block,) in blocks(points.shape, (ROWS_AT_ONCE,)):
        coords = points.coords((block,))
        is_outside = (((coords < lower - allowed) | (coords > upper + allowed)) & is_open).any(-1)
        where = "near the sites of the data"
        if domain.is_sphere:
            is_invalid = np.abs(np.asarray(points.numbers[1][block])) > 90
            where = "at latitudes from -90 to 90" if is_invalid.any() else where
            is_outside = is_invalid if is_invalid.any() else is_outside
        else:
            ends = zip("xyz", domain.lower, domain.upper, domain.periodic, strict=False)
            spans = [f"{n} from {low:g} to {high:g}" for n, low, high, wraps in ends if not wraps]
            where = f"in the domain of the data, {', '.join(spans)}"
        if is_outside.any():
            row = int(np.flatnonzero(is_outside)[0]) + block.start
            numbers = " ".join(f"{float(column[row]):g}" for column in points.numbers)
            raise DataError(path, "queries", f"must lie {where}; point {row + 1} is {numbers}.")


def block_shape(shape: Sequence[int], most: int) -> tuple[int, ...]:
    """Returns the shape of blocks of at most `most` neighbouring sites in grid order.

    Args:
        shape: Sites along each grid axis.
        most: Maximum number of sites in a block.
    """
    if most < 1:
        raise ValueError(f"`most` must be at least 1, got {most}.")
    block: list[int] = []
    for length in reversed(shape):
        block.insert(0, max(1, min(length, most)))
        most //= length
    return tuple(block)


def blocks(shape: Sequence[int], block: Sequence[int]) -> list[Block]:
    """Returns the blocks of a grid in grid order; blocks at the ends may be smaller."""
    ranges = [
        [slice(start, min(start + size, length)) for start in range(0, length, size)]
        for length, size in zip(shape, block, strict=True)
    ]
    return list(itertools.product(*ranges))


def _points(like: Geometry, columns: tuple[np.ndarray, ...]) -> QueryPoints:
    domain = like.domain
    if domain.is_sphere:
        names, units = ("longitude", "latitude"), ("degrees_east", "degrees_north")
    else:
        names = tuple(f"coordinate_{name}" for name in "xyz"[: domain.dim])
        units = ("",) * domain.dim
    return QueryPoints(domain, names, units, columns, False, like.pole)


def _region(shape: tuple[int, ...], like: Geometry) -> tuple[np.ndarray, np.ndarray]:
    """Returns latitudes and longitudes over the region with sites."""
    longitude, latitude = longitude_latitude(torch.from_numpy(like.coords))
    # Relative to the centre, because the region may contain the meridian where longitudes jump.
    mean = like.coords.mean(0)
    center = float(np.rad2deg(np.arctan2(mean[1], mean[0])))
    degrees = (longitude.numpy() - center + 180) % 360 - 180 + center
    return (
        np.linspace(float(latitude.max()), float(latitude.min()), shape[0]),
        np.linspace(degrees.min(), degrees.max(), shape[1]),
    )


def _are_numbers(line: str) -> bool:
    try:
        [float(word) for word in line.split()]
    except ValueError:
        return False
    return True
