"""Points at which a model is queried: from a file, or a regular grid over the domain."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from gpo.data.dataset import DataError
from gpo.data.geometry import Geometry
from gpo.numerics.domain import Domain, longitude_latitude, unit_vectors

ROWS_AT_ONCE = 2**20
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
    attributes: tuple[Mapping[str, str], ...] = ()
    """CF attributes of every axis beside its units; empty where unknown."""
    curvilinear_shape: tuple[int, ...] = ()
    """Points along both axes of a curvilinear grid, whose columns are flattened."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of points along every axis."""
        lengths = tuple(len(numbers) for numbers in self.numbers)
        return lengths if self.is_grid else self.curvilinear_shape or lengths[:1]

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the dimensions: those of the grid, `y` and `x` of a curvilinear one, or `point`."""
        if self.is_grid:
            return self.names
        return ("y", "x") if self.curvilinear_shape else ("point",)

    @property
    def whole(self) -> Block:
        """The block of all points."""
        return (slice(None),) * len(self.shape)

    def coords(self, block: Block) -> np.ndarray:
        """Returns points by dim in domain coordinates: a block of the grid, or of the points."""
        if self.is_grid:
            axes = [numbers[part] for numbers, part in zip(self.numbers, block, strict=True)]
            columns = [part.ravel() for part in np.meshgrid(*axes, indexing="ij")]
        else:
            columns = [np.array(numbers[block[0]], np.float64) for numbers in self.numbers]
        if not self.domain.is_sphere:
            return np.stack(columns, -1)
        named = dict(zip(self.names, columns, strict=True))
        degrees = (torch.from_numpy(named[name]) for name in ("longitude", "latitude"))
        return unit_vectors(*degrees).numpy()

    @classmethod
    def of(cls, geometry: Geometry) -> "QueryPoints":
        """Returns the sites of a geometry as query points."""
        if geometry.axes:
            names, units = geometry.axis_names, geometry.axis_units
            attributes = geometry.axis_attributes
            return cls(geometry.domain, names, units, geometry.axes, True, attributes)
        if geometry.domain.is_sphere:
            degrees = longitude_latitude(torch.from_numpy(geometry.coords))
            points = _points(geometry.domain, tuple(part.numpy() for part in degrees))
            return replace(points, curvilinear_shape=geometry.grid_shape)
        return _points(geometry.domain, tuple(geometry.coords.T))


def read_query_points(path: Path, like: Geometry) -> QueryPoints:
    """Returns the points in a text file or a NumPy array, one row each; an array stays on disk.

    Args:
        path: Columns x, y, z as far as there are axes; longitude and latitude on the sphere.
            Separated by commas or blanks in a text file, where a first line of names may stand.
        like: The sites of the data; gives the domain.
    """
    try:
        if path.suffix == ".npy":
            rows = np.load(path, mmap_mode="r", allow_pickle=False)
            rows = rows if rows.dtype.itemsize >= 4 else rows.astype(np.float64)
        else:
            text = path.read_text(encoding="utf-8").replace(",", " ").splitlines()
            start = 0 if text and _are_numbers(text[0]) else 1
            rows = np.array(
                [[float(word) for word in line.split()] for line in text[start:] if line.split()]
            )
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
    return _points(domain, tuple(rows.T))


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
        return QueryPoints(domain, names, units, axes, True, like.axis_attributes)
    if domain.lower == (-1.0,) * 3:
        latitude = 90 - (np.arange(shape[0]) + 0.5) * 180 / shape[0]
        longitude = np.arange(shape[1]) * 360 / shape[1]
    else:
        latitude, longitude = _region(shape, like)
    names, units = ("latitude", "longitude"), ("degrees_north", "degrees_east")
    return QueryPoints(domain, names, units, (latitude, longitude), True)


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


def _points(domain: Domain, columns: tuple[np.ndarray, ...]) -> QueryPoints:
    if domain.is_sphere:
        names, units = ("longitude", "latitude"), ("degrees_east", "degrees_north")
    else:
        names = tuple(f"coordinate_{name}" for name in "xyz"[: domain.dim])
        units = ("",) * domain.dim
    return QueryPoints(domain, names, units, columns, False)


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
