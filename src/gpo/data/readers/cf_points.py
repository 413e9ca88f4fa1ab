"""Unstructured points of a CF file without a mesh: each coordinate is a 1D variable."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import xarray as xr

from gpo.data.dataset import DataError
from gpo.data.geometry import Geometry
from gpo.data.readers.base import check_latitudes, choose_variables
from gpo.data.readers.cf_attributes import area_along, is_latitude, is_longitude, units_of
from gpo.data.readers.coordinate_names import (
    column_groups,
    in_degrees,
    is_along_line,
    is_in_degrees,
    is_upwards,
)
from gpo.data.readers.sites import check_points, unstructured


def find_columns(path: Path, dataset: xr.Dataset, dims: Sequence[str]) -> tuple[str, ...]:
    """Returns names of the coordinates of sites along a dimension without a coordinate variable.

    Coordinates are recognised by name. If there are several unrecognised 1D variables, a
    `DataError` asks for the coordinates, since points in the plane would be read as a line.
    """
    if len(dims) != 1 or dims[0] in dataset.variables:
        return ()
    columns = _lists(dataset, dims[0])
    stated = {dataset[name].attrs.get("axis"): name for name in columns}
    if "X" in stated:
        return tuple(stated[axis] for axis in "XYZ" if axis in stated)
    # Longitude and latitude are preferred to Cartesian or projected coordinates.
    groups = sorted(column_groups(columns), key=lambda group: not is_in_degrees(group))
    if groups:
        return groups[0]
    if len(columns) > 1:
        example = " ".join(columns[:2])
        problem = (
            f"and other variables have one value per `{dims[0]}` and may be coordinates. Name the "
            f"coordinates: `--coords {example}`; or remove these variables if the sites are a line."
        )
        raise DataError(path, columns[0], problem)
    # A single coordinate places sites on a line.
    return tuple(name for name in columns if is_along_line(name))


def has_columns(dataset: xr.Dataset, dim: str) -> bool:
    """Returns whether 1D variables along a dimension are named as a group of coordinates."""
    return dim not in dataset.variables and bool(column_groups(_lists(dataset, dim)))


def _lists(dataset: xr.Dataset, dim: str) -> list[str]:
    """Returns names of all numeric 1D variables along a dimension, except areas."""
    areas = area_along(dataset, dim)
    area_name = None if areas is None else areas.name
    return [
        str(name)
        for name, variable in dataset.variables.items()
        if variable.dims == (dim,) and variable.dtype.kind in "iuf" and name != area_name
    ]


def listed_points(
    path: Path, dataset: xr.Dataset, dims: Sequence[str], names: Sequence[str]
) -> Geometry:
    """Returns unstructured points with the coordinates in these variables."""
    for name in choose_variables(path, names, [str(name) for name in dataset.variables]):
        if len(dims) != 1 or dataset[name].dims != tuple(dims):
            expected = ", ".join(dims)
            actual = ", ".join(str(dim) for dim in dataset[name].dims)
            problem = f"must have one value per site ({expected}), got dimensions ({actual})."
            raise DataError(path, name, problem)
    arrays = [dataset[name] for name in names]
    if len(arrays) == 2 and is_latitude(arrays[0]) and is_longitude(arrays[1]):
        arrays = arrays[::-1]
    is_stated = len(arrays) == 2 and is_longitude(arrays[0]) and is_latitude(arrays[1])
    coords = check_points(path, names[0], np.stack([array.values for array in arrays], -1))
    if not is_stated and not (len(names) == 2 and is_in_degrees(names)):
        return unstructured(path, coords, None)
    columns = list(coords.T)
    if not is_stated and is_upwards(names[0]):
        columns = columns[::-1]
    longitude, latitude = in_degrees(columns[0], columns[1], units_of(arrays[0]), names[0])
    check_latitudes(path, names[1], latitude)
    return Geometry.on_sphere(longitude, latitude)
