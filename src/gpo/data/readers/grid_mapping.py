"""Rotated and projected grids of CF files, which are rectilinear in their own coordinates.

A rotated grid has latitudes and longitudes relative to a rotated pole; a projected grid is a box in
the plane of a map projection. Both keep the geographic coordinates of their sites.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import xarray as xr

from gpo.data.dataset import DataError
from gpo.data.geometry import Geometry, sphere_coords
from gpo.data.readers.base import check_axis, check_latitudes
from gpo.data.readers.cf_attributes import coordinate_along, standard_name, units_of
from gpo.data.rotated_pole import RotatedPole

LENGTHS = ("m", "metre", "meter", "metres", "meters", "km", "kilometre", "kilometer",
           "kilometres", "kilometers")  # fmt: skip
PROJECTED = {
    "x": ("projection_x_coordinate", "projection_x_angular_coordinate"),
    "y": ("projection_y_coordinate", "projection_y_angular_coordinate"),
}
CLOSE = np.deg2rad(0.02)
"""Tolerance between stored and rotated coordinates, for single precision."""


def rotated_axes(
    dataset: xr.Dataset, dims: Sequence[str]
) -> tuple[xr.DataArray, xr.DataArray] | None:
    """Returns latitude and longitude of a rotated grid along these dimensions; None if other."""
    axes: dict[str, xr.DataArray] = {}
    for dim in dims:
        coordinate = coordinate_along(dataset, dim)
        if coordinate is not None:
            axes[standard_name(coordinate) or dim.lower()] = coordinate
    latitude = axes.get("grid_latitude", axes.get("rlat"))
    longitude = axes.get("grid_longitude", axes.get("rlon"))
    return None if latitude is None or longitude is None else (latitude, longitude)


def projected_axes(dataset: xr.Dataset, dims: Sequence[str]) -> tuple[str, str] | None:
    """Returns the dimensions of a map projection in the order of the file; None if other."""
    directions = {dim: _projected_direction(dataset, dim) for dim in dims}
    axes = [dim for dim, direction in directions.items() if direction]
    is_pair = len(axes) == 2 and directions[axes[0]] != directions[axes[1]]
    return (axes[0], axes[1]) if is_pair else None


def rotated_grid(
    path: Path,
    dataset: xr.Dataset,
    axes: tuple[xr.DataArray, xr.DataArray],
    true: tuple[np.ndarray, np.ndarray] | None,
) -> Geometry | None:
    """Returns a rotated grid; None if the geographic coordinates do not result from a rotation.

    Args:
        path: The file, for error messages.
        dataset: The open file, which may have a grid mapping with the pole.
        axes: Rotated latitudes and longitudes.
        true: Geographic latitudes and longitudes of the sites, if the file has them.
    """
    rows, columns = (check_axis(path, str(axis.name), axis.values) for axis in axes)
    names = str(axes[0].name), str(axes[1].name)
    check_latitudes(path, names[0], rows)
    stated = _stated_pole(dataset)
    if true is None:
        if stated is None:
            raise DataError(
                path,
                names[0],
                "belongs to a rotated grid: the file must have geographic latitudes and longitudes, "
                "or a grid mapping with grid_north_pole_latitude and grid_north_pole_longitude.",
            )
        return Geometry.latitude_longitude(rows, columns, pole=stated, names=names)
    rotated = Geometry.latitude_longitude(rows, columns).coords
    latitude, longitude = (part.ravel() for part in true)
    geographic = sphere_coords(longitude, latitude)
    for pole in (stated, RotatedPole.fitted(rotated, geographic)):
        if pole is not None and np.abs(pole.to_true(rotated) - geographic).max() < CLOSE:
            return Geometry.latitude_longitude(rows, columns, pole=pole, names=names)
    return None


def _projected_direction(dataset: xr.Dataset, dim: str) -> str | None:
    """Returns x or y if a dimension is an axis of a map projection."""
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
        attributes = variable.attrs
        if attributes.get("grid_mapping_name") == "rotated_latitude_longitude":
            names = ("grid_north_pole_latitude", "grid_north_pole_longitude")
            if all(name in attributes for name in names):
                latitude, longitude = (float(attributes[name]) for name in names)
                last = float(attributes.get("north_pole_grid_longitude", 0))
                return RotatedPole(latitude, longitude, last)
    return None
