"""Scattered sites of a CF file without a mesh: one coordinate per variable, one number per site."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import xarray as xr

from gpo.data.dataset import DataError
from gpo.data.geometry import Geometry, sphere_domain
from gpo.data.readers.cf_attributes import area_along, is_latitude, is_longitude, units_of
from gpo.data.readers.coordinate_names import (
    column_groups,
    in_degrees,
    is_along_line,
    is_in_degrees,
    is_upwards,
)
from gpo.data.readers.sites import check_points, scattered
from gpo.numerics.domain import unit_vectors


def find_columns(path: Path, dataset: xr.Dataset, dims: Sequence[str]) -> tuple[str, ...]:
    """Returns names of the coordinates of sites along a dimension that has no numbers of its own.

    Names decide; where they say nothing but several lists have one number per site, the file is
    refused, since sites in the plane would become a line.
    """
    if len(dims) != 1 or dims[0] in dataset.variables:
        return ()
    lists = _lists(dataset, dims[0])
    # Places on the sphere go before those of its embedding, or of a map's plane.
    groups = sorted(column_groups(lists), key=lambda group: not is_in_degrees(group))
    if groups:
        return groups[0]
    if len(lists) > 1:
        example = " ".join(lists[:2])
        problem = (
            f"and other lists have one number per `{dims[0]}`, as if they were coordinates. Say "
            f"which are: `--coords {example}`; or remove them where the sites are a line."
        )
        raise DataError(path, lists[0], problem)
    # One list places sites on a line where it has the name of a coordinate.
    return tuple(name for name in lists if is_along_line(name))


def has_columns(dataset: xr.Dataset, dim: str) -> bool:
    """Returns whether lists along a dimension have names of coordinates that belong together."""
    return dim not in dataset.variables and bool(column_groups(_lists(dataset, dim)))


def _lists(dataset: xr.Dataset, dim: str) -> list[str]:
    """Returns names of all lists with one number per site of a dimension, but for areas."""
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
    """Returns scattered sites whose coordinates are in these variables."""
    for name in names:
        if name not in dataset.variables:
            there = ", ".join(str(name) for name in dataset.variables)
            raise DataError(path, name, f"is not in the file, which has {there}.")
        if len(dims) != 1 or dataset[name].dims != tuple(dims):
            sites, found = ", ".join(dims), ", ".join(str(dim) for dim in dataset[name].dims)
            problem = f"must have one number per site ({sites}), but has dimensions ({found})."
            raise DataError(path, name, problem)
    arrays = [dataset[name] for name in names]
    if len(arrays) == 2 and is_latitude(arrays[0]) and is_longitude(arrays[1]):
        arrays = arrays[::-1]
    is_stated = len(arrays) == 2 and is_longitude(arrays[0]) and is_latitude(arrays[1])
    coords = check_points(path, names[0], np.stack([array.values for array in arrays], -1))
    if not is_stated and not (len(names) == 2 and is_in_degrees(names)):
        return scattered(path, coords, None)
    columns = list(coords.T)
    if not is_stated and is_upwards(names[0]):
        columns = columns[::-1]
    longitude, latitude = in_degrees(columns[0], columns[1], units_of(arrays[0]), names[0])
    if np.abs(latitude).max() > 90.001:
        problem = f"must lie within -90 and 90 degrees, got {np.abs(latitude).max():g}."
        raise DataError(path, names[1], problem)
    vectors = unit_vectors(torch.from_numpy(longitude), torch.from_numpy(latitude)).numpy()
    return scattered(path, vectors, None, sphere_domain(vectors))
