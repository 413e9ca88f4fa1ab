"""Arrays of files that xarray reads in parts, and the attributes by which readers describe them.

A reader returns an `xr.Dataset` whose names and attributes follow the CF and UGRID conventions. What
they cannot state is in the attributes below, which any other data set may have too.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
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
