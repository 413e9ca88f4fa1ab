"""Forecasts as NetCDF with CF attributes, on a grid or on points."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import xarray as xr

from gpo.data.geometry import Geometry
from gpo.data.trajectories import Variable
from gpo.files import whole_file
from gpo.numerics.domain import longitude_latitude


def write_forecast(
    path: Path,
    forecast: np.ndarray,
    geometry: Geometry,
    variables: Sequence[Variable],
    times: np.ndarray | None = None,
    time_units: str = "",
) -> None:
    """Writes a forecast; the file is whole or not there.

    Args:
        path: The NetCDF file.
        forecast: Trajectories by times by points by variables; samples by points by
            variables for static maps.
        geometry: Where.
        variables: Names and units.
        times: Times of the frames; none for static maps.
        time_units: Units of these.
    """
    places: dict[str, tuple[tuple[str, ...], np.ndarray, dict[str, str]]] = {}
    if geometry.axes:
        dims, shape = geometry.axis_names, geometry.grid_shape
        for name, axis, units in zip(dims, geometry.axes, geometry.axis_units, strict=True):
            places[name] = ((name,), axis, {"units": units} if units else {})
    else:
        dims, shape = ("point",), (geometry.num_points,)
        for name, numbers, units in _columns(geometry):
            places[name] = (("point",), numbers, {"units": units} if units else {})
    before = ("sample",)
    if times is not None:
        before = ("trajectory", "time")
        places["time"] = (("time",), times, {"long_name": f"time in {time_units or 'frames'}"})
    content = {}
    for channel, variable in enumerate(variables):
        values = forecast[..., channel].reshape(*forecast.shape[:-2], *shape)
        attributes = {"units": variable.units} if variable.units else {}
        content[variable.name] = ((*before, *dims), values, attributes)
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as partial:
        dataset = xr.Dataset(content, places, {"Conventions": "CF-1.8"})
        dataset.to_netcdf(partial, engine="netcdf4")


def _columns(geometry: Geometry) -> list[tuple[str, np.ndarray, str]]:
    """Returns name, numbers and units of the coordinates of scattered points."""
    if geometry.domain.is_sphere:
        along, up = longitude_latitude(torch.from_numpy(geometry.coords))
        return [("longitude", along.numpy(), "degrees_east"), ("latitude", up.numpy(), "degrees_north")]  # fmt: skip
    names = ("x", "y", "z")[: geometry.coords.shape[1]]
    return [(f"coordinate_{name}", geometry.coords[:, n], "") for n, name in enumerate(names)]
