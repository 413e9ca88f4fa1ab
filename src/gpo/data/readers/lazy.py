"""Arrays of files that xarray reads in parts, and the attributes by which readers describe them.

A reader returns an `xr.Dataset` whose names and attributes follow the CF and UGRID conventions. What
they cannot state is in the attributes below, which any other data set may have too.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import xarray as xr
from xarray.backends import BackendArray
from xarray.core import indexing

SITE_DIMS = "gpo_site_dims"
"""Attribute of a data set: its dimensions of sites, in the order of points."""
INPUTS = "gpo_inputs"
"""Attribute of a data set of static maps: the names of the inputs."""
FIND_PERIODIC = "gpo_find_periodic"
"""Attribute of a data set: whether axes are periodic whose last site repeats the first."""
PERIODIC = "gpo_periodic"
"""Attribute of the coordinate of an axis: whether it is periodic."""
NAME = "gpo_name"
"""Attribute of a variable: its name, if a dimension or a coordinate has the same."""
PART_OF = "gpo_part_of"
"""Attribute of a variable: the array of which it is a component, or the variable of several levels."""
TIME_UNITS = "gpo_time_units"
"""Attribute of times: units to be kept as they are."""
REOPENED = "gpo_reopened"
"""Encoding of a data set: whether its file is closed after each read, and opened again."""
CELLS = "mesh_cells"
"""Name of the corners of the cells of a mesh."""
SITES = ("site_x", "site_y", "site_z")
"""Names of the coordinates of unstructured points in a box."""
DEGREES = ("longitude", "latitude")
"""Names of the coordinates of unstructured points on the sphere."""
TRAJECTORY = "trajectory"
"""Dimension of trajectories in layouts without names of dimensions."""

Key = tuple[int | slice, ...]


class LazyArray(BackendArray):
    """An array whose parts are read when they are needed; the file is opened for each part."""

    def __init__(
        self, shape: Sequence[int], dtype: np.dtype, read: Callable[[Key], np.ndarray]
    ) -> None:
        """Describes an array.

        Args:
            shape: Its shape.
            dtype: Type of its entries.
            read: Reads the part that an index or slice per axis selects; must be picklable.
        """
        self.shape, self.dtype, self.read = tuple(shape), np.dtype(dtype), read

    def __getitem__(self, key: indexing.ExplicitIndexer) -> np.typing.ArrayLike:
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.BASIC, self.read
        )


def lazy_variable(
    dims: Sequence[Hashable],
    shape: Sequence[int],
    dtype: np.dtype,
    read: Callable[[Key], np.ndarray],
    attributes: Mapping[str, Any] | None = None,
) -> xr.Variable:
    """Returns a variable that is read in parts, as described by `LazyArray`."""
    array = indexing.LazilyIndexedArray(LazyArray(shape, dtype, read))
    return xr.Variable(tuple(dims), array, attributes)


@dataclass(frozen=True)
class Stored:
    """An array of real numbers in a file."""

    shape: tuple[int, ...]
    dtype: np.dtype
    read: Callable[[Key], np.ndarray]
    """Reads the part selected by one index or slice per axis."""
    units: str = ""

    @property
    def is_vector(self) -> bool:
        """Whether at most one axis has more than one entry, as in vectors of MATLAB."""
        return sum(length != 1 for length in self.shape) <= 1

    @property
    def size(self) -> int:
        """Number of entries."""
        return math.prod(self.shape)

    def values(self) -> np.ndarray:
        """Reads the whole array."""
        return self.read((slice(None),) * len(self.shape))

    def arranged(
        self,
        order: Sequence[str],
        dims: Sequence[str],
        at: Mapping[str, int] = MappingProxyType({}),
        sizes: Mapping[str, int] = MappingProxyType({}),
    ) -> "Stored":
        """Returns the array with other axes.

        Args:
            order: Labels of the axes as stored.
            dims: Labels of the axes to return; along those that are not stored, values repeat.
            at: Index along stored axes that are not returned; 0 by default.
            sizes: Lengths of the axes that are not stored; 1 by default.
        """
        lengths = {**sizes, **dict(zip(order, self.shape, strict=True))}
        shape = tuple(lengths.get(dim, 1) for dim in dims)
        dtype = np.dtype(np.uint8) if self.dtype == bool else self.dtype
        read = partial(_read_arranged, self.read, tuple(order), tuple(dims), shape, dict(at))
        return Stored(shape, dtype, read, self.units)

    def variable(self, dims: Sequence[str]) -> xr.Variable:
        """Returns the array as a variable that is read in parts."""
        return lazy_variable(dims, self.shape, self.dtype, self.read, {"units": self.units})


def _read_arranged(
    read: Callable[[Key], np.ndarray],
    order: tuple[str, ...],
    dims: tuple[str, ...],
    shape: tuple[int, ...],
    at: Mapping[str, int],
    key: Key,
) -> np.ndarray:
    index = dict(zip(dims, key, strict=True))
    values = read(tuple(index.get(label, at.get(label, 0)) for label in order))
    kept = [label for label in order if isinstance(index.get(label), slice)]
    returned = {label: part for label, part in index.items() if isinstance(part, slice)}
    values = values.transpose([kept.index(label) for label in returned if label in kept])
    for axis, (label, part) in enumerate(returned.items()):
        if label not in kept:
            count = len(range(*part.indices(shape[dims.index(label)])))
            values = np.repeat(np.expand_dims(values, axis), count, axis)
    return values.astype(np.uint8) if values.dtype == bool else values


def joined(parts: Sequence[Stored]) -> Stored:
    """Returns arrays that follow one another along their first axis as one."""
    first = parts[0]
    shape = (sum(part.shape[0] for part in parts), *first.shape[1:])
    return replace(first, shape=shape, read=partial(_read_joined, tuple(parts)))


def _read_joined(parts: Sequence[Stored], key: Key) -> np.ndarray:
    selected, *others = key
    places = [(part, number) for part in parts for number in range(part.shape[0])]

    def one(number: int) -> np.ndarray:
        part, inside = places[number]
        return part.read((inside, *others))

    return read_each(selected, len(places), one)


def named_dataset(
    fields: Mapping[str, xr.Variable],
    coords: Mapping[str, xr.Variable],
    attributes: Mapping[str, Any],
    parameters: Mapping[str, xr.Variable] = MappingProxyType({}),
) -> xr.Dataset:
    """Returns a data set; variables with the name of a dimension or coordinate are renamed.

    Args:
        fields: Fields, and series that can be inputs.
        coords: Coordinates of sites and times.
        attributes: Attributes of the data set.
        parameters: Numbers of each trajectory or sample.
    """
    several = (fields, coords, parameters)
    taken = {*coords, *(dim for group in several for part in group.values() for dim in part.dims)}

    def renamed(group: Mapping[str, xr.Variable]) -> dict[str, xr.Variable]:
        result: dict[str, xr.Variable] = {}
        for name, part in group.items():
            if name in taken:
                part.attrs |= {NAME: name, PART_OF: part.attrs.get(PART_OF, name)}
                name += "_"
            result[name] = part
        return result

    return xr.Dataset(renamed(fields), {**coords, **renamed(parameters)}, attributes)


def read_each(selected: int | slice, count: int, read: Callable[[int], np.ndarray]) -> np.ndarray:
    """Reads the selected ones of several arrays, such as groups of a file, along a first axis.

    Args:
        selected: An index, which has no axis in the result, or a slice.
        count: Number of arrays.
        read: Reads the array of an index.
    """
    if not isinstance(selected, slice):
        return read(int(selected))
    numbers = range(count)[selected]
    return np.stack([read(number) for number in numbers]) if numbers else read(0)[None][:0]


def point_coordinates(
    dims: Sequence[str], values: np.ndarray, names: Sequence[str] = SITES
) -> dict[str, xr.Variable]:
    """Returns the coordinates of unstructured points, one variable per axis of space.

    Args:
        dims: Dimensions of each variable.
        values: Coordinates, with the axes of space last.
        names: Names of the variables; longitude and latitude are in degrees.
    """
    kinds = {"longitude": "degrees_east", "latitude": "degrees_north"}
    return {
        name: xr.Variable(dims, column, {"units": kinds[name]} if name in kinds else {"axis": axis})
        for name, axis, column in zip(names, "XYZ", np.moveaxis(values, -1, 0), strict=False)
    }


def mesh_variables(
    coordinates: Sequence[str],
    corners: np.ndarray,
    dims: Sequence[str] = ("cell", "corner"),
    *,
    is_volume: bool = False,
    faces: Sequence[str] = (),
) -> dict[str, xr.Variable]:
    """Returns the UGRID topology of a mesh: a variable that names the others, and the cells.

    Args:
        coordinates: Names of the coordinates of nodes.
        corners: Indices of the nodes of each cell, from zero, (..., cells, corners).
        dims: Dimensions of the corners.
        is_volume: Whether cells are tetrahedra.
        faces: Names of the coordinates of the faces, if the sites are faces.
    """
    kind = "volume" if is_volume else "face"
    topology = {
        "cf_role": "mesh_topology",
        "node_coordinates": " ".join(coordinates),
        f"{kind}_node_connectivity": CELLS,
        **({"face_coordinates": " ".join(faces)} if faces else {}),
    }
    return {
        "mesh": xr.Variable((), 0, topology),
        CELLS: xr.Variable(dims, corners, {"start_index": 0}),
    }
