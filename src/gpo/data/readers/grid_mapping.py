"""Rotated and projected grids of CF files: tensor grids in their own coordinates.

A rotated grid is one of latitudes and longitudes on a sphere that was turned; a projected one is
a box in the plane of its map. Both keep the true longitudes and latitudes of their sites.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import xarray as xr

from gpo.data.dataset import DataError
from gpo.data.geometry import Geometry
from gpo.data.readers.base import check_axis
from gpo.data.readers.cf_attributes import coordinate_along, standard_name, units_of
from gpo.data.rotated_pole import RotatedPole
from gpo.numerics.domain import unit_vectors

LENGTHS = ("m", "metre", "meter", "metres", "meters", "km", "kilometre", "kilometer",
           "kilometres", "kilometers")  # fmt: skip
PROJECTED = {
    "x": ("projection_x_coordinate", "projection_x_angular_coordinate"),
    "y": ("projection_y_coordinate", "projection_y_angular_coordinate"),
}
CLOSE = np.deg2rad(0.02)
"""How far true places may be from those of a rotation, as stored in single precision."""


def rotated_axes(
    dataset: xr.Dataset, dims: Sequence[str]
) -> tuple[xr.DataArray, xr.DataArray] | None:
    """Returns latitude and longitude of a rotated grid along some of the dimensions, or nothing."""
    found: dict[str, xr.DataArray] = {}
    for dim in dims:
        coordinate = coordinate_along(dataset, dim)
        if coordinate is not None:
            found[standard_name(coordinate) or dim.lower()] = coordinate
    latitude = found.get("grid_latitude", found.get("rlat"))
    longitude = found.get("grid_longitude", found.get("rlon"))
    return None if latitude is None or longitude is None else (latitude, longitude)


def projected_axes(dataset: xr.Dataset, dims: Sequence[str]) -> tuple[str, str] | None:
    """Returns the dimensions of a map's plane in the file's order, or nothing."""
    found = [dim for dim in dims if _projected_direction(dataset, dim)]
    directions = {_projected_direction(dataset, dim) for dim in found}
    return (found[0], found[1]) if len(found) == 2 and len(directions) == 2 else None


def rotated_grid(
    path: Path,
    dataset: xr.Dataset,
    axes: tuple[xr.DataArray, xr.DataArray],
    true: tuple[np.ndarray, np.ndarray] | None,
) -> Geometry | None:
    """Returns a rotated grid; nothing where true places are there that no rotation gives.

    Args:
        path: The file, for messages.
        dataset: Its content; a grid mapping may say where the pole is.
        axes: Rotated latitudes and longitudes.
        true: True latitudes and longitudes of the sites, latitudes first, where the file has them.
    """
    up, along = (check_axis(path, str(axis.name), axis.values) for axis in axes)
    names = str(axes[0].name), str(axes[1].name)
    if np.abs(up).max() > 90.001:
        problem = f"must lie within -90 and 90 degrees, got {np.abs(up).max():g}."
        raise DataError(path, names[0], problem)
    stated = _stated_pole(dataset)
    if true is None:
        if stated is None:
            raise DataError(
                path,
                names[0],
                "belongs to a rotated grid, for which the file must have true latitudes and "
                "longitudes or a grid mapping with grid_north_pole_latitude and "
                "grid_north_pole_longitude.",
            )
        return Geometry.latitude_longitude(up, along, pole=stated, names=names)
    rotated = Geometry.latitude_longitude(up, along).coords
    latitude, longitude = (torch.from_numpy(part.ravel()) for part in true)
    wanted = unit_vectors(longitude, latitude).numpy()
    for pole in (stated, RotatedPole.fitted(rotated, wanted)):
        if pole is not None and np.abs(pole.to_true(rotated) - wanted).max() < CLOSE:
            return Geometry.latitude_longitude(up, along, pole=pole, names=names)
    return None


def _projected_direction(dataset: xr.Dataset, dim: str) -> str | None:
    """Returns x or y where a dimension is an axis of a map's plane."""
    coordinate = coordinate_along(dataset, dim)
    if coordinate is None:
        return None
    for direction, names in PROJECTED.items():
        axis = str(coordinate.attrs.get("axis", "")).lower()
        is_named = axis == direction or dim.lower() in (direction, f"{direction}c")
        if standard_name(coordinate) in names or (is_named and units_of(coordinate) in LENGTHS):
            return direction
    return None


def _stated_pole(dataset: xr.Dataset) -> RotatedPole | None:
    for variable in dataset.variables.values():
        given = variable.attrs
        if given.get("grid_mapping_name") == "rotated_latitude_longitude":
            names = ("grid_north_pole_latitude", "grid_north_pole_longitude")
            if all(name in given for name in names):
                turn = float(given.get("north_pole_grid_longitude", 0))
                return RotatedPole(float(given[names[0]]), float(given[names[1]]), turn)
    return None
