"""Geographic coordinates of a map projection that a file states by a CF grid mapping.

Only the numbers of the grid mapping are used. Text of other standards, such as WKT, may name files
on this machine, which a data file must not.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from importlib.util import find_spec

import numpy as np
import xarray as xr

from gpo.data.geometry import Geometry
from gpo.data.readers.cf_attributes import units_of
from gpo.optional import MissingPackageError

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
