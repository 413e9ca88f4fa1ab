"""Rotated and projected grids of CF files, which are rectilinear in their own coordinates.

A rotated grid has latitudes and longitudes relative to a rotated pole; a projected grid is a box in
the plane of a map projection. Both keep the geographic coordinates of their sites. Only the numbers
of a grid mapping are used. Text of other standards, such as WKT, may name files on this machine,
which a data file must not.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import xarray as xr

from gpo.data.dataset import DataError
from gpo.data.geometry import Geometry, sphere_coords
from gpo.data.readers.base import check_axis, check_latitudes
from gpo.data.readers.names import coordinate_along, standard_name, units_of
from gpo.data.rotated_pole import RotatedPole
from gpo.optional import MissingPackageError

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


UNPROJECTED = ("latitude_longitude", "rotated_latitude_longitude")
TIMEOUT = 120
"""Seconds to wait for pyproj."""
SCRIPT = """
import json, sys
import numpy, pyproj
settings = json.loads(sys.stdin.buffer.readline())
x, y = numpy.frombuffer(sys.stdin.buffer.read()).reshape(2, -1)
plane = pyproj.CRS.from_cf(settings)
transform = pyproj.Transformer.from_crs(plane, plane.geodetic_crs, always_xy=True)
sys.stdout.buffer.write(numpy.stack(transform.transform(x, y), -1).tobytes())
"""
"""Runs in a process of its own: packages of eccodes bring another PROJ, and both crash together."""
NUM_METRES = {"k": 1000.0}
"""Metres of a unit of length, by its first letter; 1 for others."""


def with_projection(dataset: xr.Dataset, dims: Sequence[str], geometry: Geometry) -> Geometry:
    """Returns the grid with longitudes and latitudes by its stated projection, or why it has none.

    Args:
        dataset: The open file, whose fields name their grid mapping.
        dims: Names of both axes of the grid.
        geometry: The grid in the plane.
    """
    mapping = _mapping(dataset, dims)
    if mapping is None:
        return geometry
    name = str(mapping.attrs["grid_mapping_name"])
    try:
        degrees = _degrees(mapping, dataset, dims, geometry)
    except MissingPackageError:
        problem = "which need the package pyproj: pip install 'gpo[maps]'"
    except Exception as error:
        # Parameters may be missing, or text in place of numbers.
        problem = f"which do not follow from its parameters: {error}"
    else:
        if np.isfinite(degrees).all():
            return replace(geometry, projected_from=degrees)
        problem = "which do not exist at all sites: some lie outside of the Earth"
    note = f"the projection {name} of the file gives longitudes and latitudes, {problem}"
    return replace(geometry, projection_note=note)


def _mapping(dataset: xr.Dataset, dims: Sequence[str]) -> xr.Variable | None:
    """Returns the grid mapping of the fields on these axes; None without one, or with several."""
    names = {
        str(array.attrs.get("grid_mapping", array.encoding.get("grid_mapping", ""))).split(":")[0]
        for array in dataset.data_vars.values()
        if {*dims} <= {*array.dims}
    }
    mappings = [dataset.variables[name] for name in names if name in dataset.variables]
    kinds = [part.attrs.get("grid_mapping_name", "latitude_longitude") for part in mappings]
    return mappings[0] if len(kinds) == 1 and kinds[0] not in UNPROJECTED else None


def _degrees(
    mapping: xr.Variable, dataset: xr.Dataset, dims: Sequence[str], geometry: Geometry
) -> np.ndarray:
    """Returns longitude and latitude of all sites, (points, 2)."""
    numbers = {
        key: np.asarray(value).tolist()
        for key, value in mapping.attrs.items()
        if np.asarray(value).dtype.kind in "iuf"
    }
    kind = str(mapping.attrs["grid_mapping_name"])
    axis = str(mapping.attrs.get("sweep_angle_axis", "y"))
    sweep = {"sweep_angle_axis": axis} if axis in ("x", "y") else {}
    settings = json.dumps({**numbers, **sweep, "grid_mapping_name": kind}, sort_keys=True)
    columns = []
    for dim, column in zip(dims, geometry.coords.T, strict=True):
        units = units_of(dataset[dim])
        is_angle = units.startswith("rad")
        scale = numbers["perspective_point_height"] if is_angle else NUM_METRES.get(units[:1], 1.0)
        columns.append(column * scale)
    x, y = (columns[number] for number in geometry.plot_axes)
    return _transformed(settings, x.tobytes(), y.tobytes())


@lru_cache(maxsize=4)
def _transformed(settings: str, x: bytes, y: bytes) -> np.ndarray:
    """Returns longitude and latitude of points of the plane, (points, 2), by pyproj.

    Args:
        settings: The grid mapping as JSON.
        x: Numbers along x in metres.
        y: Numbers along y.
    """
    if find_spec("pyproj") is None:
        raise MissingPackageError("Map projections need the package pyproj.", name="pyproj")
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=settings.encode() + b"\n" + x + y,
        capture_output=True,
        timeout=TIMEOUT,
    )
    if result.returncode:
        lines = result.stderr.decode(errors="replace").splitlines()
        raise ValueError(lines[-1] if lines else f"exit code {result.returncode}")
    return np.frombuffer(result.stdout).reshape(-1, 2)
