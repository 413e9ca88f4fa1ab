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
from gpo.data.readers.npy import map_npy
from gpo.data.rotated_pole import RotatedPole
from gpo.numerics.domain import Domain, longitude_latitude, unit_vectors

ROWS_AT_ONCE = 2**20
OUTSIDE, OUTSIDE_PATCH = 1e-6, 0.05
"""How far out of the domain a point may be, in lengths of its side: by rounding; on a patch of the
sphere, whose box is around the sites alone, by what bulges between them."""
MAX_PLACED = 2**22
"""Points of a new rotated grid, up to which all get their true longitudes and latitudes."""
Block = tuple[slice, ...]
"""A range along every axis."""


@dataclass(frozen=True)
class QueryPoints:
    """Points of a grid or scattered ones; coordinates are computed block by block."""

    domain: Domain
    names: tuple[str, ...]
    """Names of the axes of the grid, or of the columns of the points."""
    units: tuple[str, ...]
    numbers: tuple[np.ndarray, ...]
    """Coordinates along every axis of the grid, or one column each; degrees on the sphere."""
    is_grid: bool
    pole: RotatedPole | None = None
    """Of a rotated grid, whose axes are in its own frame; single points are true degrees always."""
    true_degrees: np.ndarray | None = None
    """True longitude and latitude of every point of a grid whose axes are others, where known."""
    placed: np.ndarray | None = None
    """Domain coordinates of the points of a curvilinear grid, whose axes only count sites."""
    cells: np.ndarray | None = None
    """Corners of the cells of a mesh, which the points are the nodes of."""
    areas: np.ndarray | None = None
    """Area that every listed point stands for, of all; none where all are alike, 0 where masked."""
    attributes: tuple[Mapping[str, str], ...] = ()
    """CF attributes of every axis beside its units; empty where unknown."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of points along every axis."""
        lengths = tuple(len(numbers) for numbers in self.numbers)
        return lengths if self.is_grid else lengths[:1]

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the dimensions: those of the grid, or `point`."""
        return self.names if self.is_grid else ("point",)

    @property
    def whole(self) -> Block:
        """The block of all points."""
        return (slice(None),) * len(self.shape)

    def coords(self, block: Block) -> np.ndarray:
        """Returns points by dim in domain coordinates: a block of the grid, or of the points."""
        if self.placed is not None:
            return self.placed.reshape(*self.shape, -1)[block].reshape(-1, self.domain.dim)
        if self.is_grid:
            axes = [numbers[part] for numbers, part in zip(self.numbers, block, strict=True)]
            columns = [part.ravel() for part in np.meshgrid(*axes, indexing="ij")]
        else:
            columns = [np.array(numbers[block[0]], np.float64) for numbers in self.numbers]
        if not self.domain.is_sphere:
            return np.stack(columns, -1)
        # A grid lists latitudes first, points longitudes.
        degrees = (torch.from_numpy(column) for column in columns[:: -1 if self.is_grid else 1])
        vectors = unit_vectors(*degrees).numpy()
        if self.pole is None or self.is_grid:
            return vectors
        return self.pole.to_rotated(vectors)

    @classmethod
    def of(cls, geometry: Geometry) -> "QueryPoints":
        """Returns the sites of a geometry as query points."""
        if geometry.axes:
            names, units = geometry.axis_names, geometry.axis_units
            is_true = geometry.domain.is_sphere and geometry.pole is None
            known = None if is_true else geometry.true_degrees()
            return cls(
                geometry.domain, names, units, geometry.axes, True, geometry.pole, known,
                attributes=geometry.axis_attributes,
            )  # fmt: skip
        if geometry.domain.is_sphere and len(geometry.grid_shape) == 2:
            counts = tuple(np.arange(count) for count in geometry.grid_shape)
            names, known, placed = ("y", "x"), geometry.true_degrees(), geometry.coords
            return cls(geometry.domain, names, ("", ""), counts, True, None, known, placed)
        return cls.listed(geometry)

    @classmethod
    def listed(cls, geometry: Geometry) -> "QueryPoints":
        """Returns the sites of a geometry one by one, whatever grid or mesh they form."""
        degrees = geometry.true_degrees() if geometry.domain.is_sphere else None
        found = _points(geometry, tuple((geometry.coords if degrees is None else degrees).T))
        counted = geometry.weights[~geometry.is_masked]
        areas = geometry.weights if np.ptp(counted) > 0 else None
        return replace(found, cells=geometry.triangles, areas=areas)


def read_query_points(path: Path, like: Geometry) -> QueryPoints:
    """Returns the points in a text file or a NumPy array, one row each; an array stays on disk.

    Args:
        path: Columns x, y, z as far as there are axes; longitude and latitude on the sphere.
            Separated by commas or blanks in a text file, where a first line of names may stand.
        like: The sites of the data; gives the domain.
    """
    problem = file_problem(path)
    if problem is not None and path.exists():
        raise DataError(path, "queries", problem)
    try:
        if path.suffix == ".npy":
            rows = map_npy(path)
            rows = rows if rows.dtype.itemsize >= 4 else rows.astype(np.float64)
        else:
            # Spreadsheets write a byte-order mark, which is no part of the first number.
            lines = path.read_text(encoding="utf-8-sig").replace(",", " ").splitlines()
            text = [line for line in lines if line.split()]
            start = 0 if text and _are_numbers(text[0]) else 1
            rows = np.array([[float(word) for word in line.split()] for line in text[start:]])
    except (OSError, ValueError) as error:
        raise DataError(path, "queries", f"cannot be read: {error}") from error
    domain = like.domain
    columns = 2 if domain.is_sphere else domain.dim
    if rows.ndim != 2 or rows.shape[1] != columns or not len(rows):
        what = "longitude and latitude" if domain.is_sphere else ", ".join("xyz"[:columns])
        problem = f"must be rows of {columns} numbers ({what}), got shape {rows.shape}."
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
    """Returns a regular grid over the domain, or over the region of the sphere that sites cover."""
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
        names, units = ("latitude", "longitude"), ("degrees_north", "degrees_east")
        return QueryPoints(domain, names, units, (latitude, longitude), True)
    names = (like.axis_names[0], like.axis_names[1]) if like.axes else ("rlat", "rlon")
    units, axes = ("degrees", "degrees"), (latitude, longitude)
    if shape[0] * shape[1] > MAX_PLACED:
        return QueryPoints(domain, names, units, axes, True, like.pole)
    turned = Geometry.latitude_longitude(latitude, longitude, pole=like.pole, names=names)
    return replace(QueryPoints.of(turned), domain=domain)


def _check_inside(points: QueryPoints, path: Path) -> None:
    """Refuses points out of the domain, where a model would make up what it never saw."""
    domain = points.domain
    lower, upper = np.array(domain.lower), np.array(domain.upper)
    allowed = (OUTSIDE_PATCH if domain.is_sphere else OUTSIDE) * (upper - lower)
    is_open = ~np.array(domain.periodic)
    for (block,) in blocks(points.shape, (ROWS_AT_ONCE,)):
        coords = points.coords((block,))
        is_out = (((coords < lower - allowed) | (coords > upper + allowed)) & is_open).any(-1)
        where = "near the sites of the data"
        if domain.is_sphere:
            is_wrong = np.abs(np.asarray(points.numbers[1][block])) > 90
            where = "at latitudes from -90 to 90" if is_wrong.any() else where
            is_out = is_wrong if is_wrong.any() else is_out
        else:
            ends = zip("xyz", domain.lower, domain.upper, domain.periodic, strict=False)
            spans = [f"{n} from {low:g} to {high:g}" for n, low, high, wraps in ends if not wraps]
            where = f"in the domain of the data, {', '.join(spans)}"
        if is_out.any():
            row = int(np.flatnonzero(is_out)[0]) + block.start
            numbers = " ".join(f"{float(column[row]):g}" for column in points.numbers)
            raise DataError(path, "queries", f"must lie {where}; point {row + 1} is {numbers}.")


def block_shape(shape: Sequence[int], most: int) -> tuple[int, ...]:
    """Returns the shape of blocks of at most `most` neighbouring sites in grid order.

    Args:
        shape: Sites along every axis of the grid.
        most: Sites of a block, at most.
    """
    if most < 1:
        raise ValueError(f"`most` must be at least 1, got {most}.")
    block: list[int] = []
    for length in reversed(shape):
        block.insert(0, max(1, min(length, most)))
        most //= length
    return tuple(block)


def blocks(shape: Sequence[int], block: Sequence[int]) -> list[Block]:
    """Returns the blocks of a grid in its order; those at the ends may be smaller."""
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
    """Returns latitudes and longitudes over the region that sites cover."""
    longitude, latitude = longitude_latitude(torch.from_numpy(like.coords))
    # Around the middle of the region, which may lie on the meridian where longitudes jump.
    middle = like.coords.mean(0)
    center = float(np.rad2deg(np.arctan2(middle[1], middle[0])))
    along = (longitude.numpy() - center + 180) % 360 - 180 + center
    return (
        np.linspace(float(latitude.max()), float(latitude.min()), shape[0]),
        np.linspace(along.min(), along.max(), shape[1]),
    )


def _are_numbers(line: str) -> bool:
    try:
        [float(word) for word in line.split()]
    except ValueError:
        return False
    return True
