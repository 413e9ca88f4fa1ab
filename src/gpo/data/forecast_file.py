"""Forecasts as NetCDF with CF attributes, on the grid or the points of their data."""

from pathlib import Path

import numpy as np
import xarray as xr

from gpo.data.trajectories import Trajectories
from gpo.files import whole_file


def write_forecast(path: Path, data: Trajectories, forecast: np.ndarray, times: np.ndarray) -> None:
    """Writes a forecast; the file is whole or not there.

    Args:
        path: The NetCDF file.
        data: What the forecast started from; gives names, units and places.
        forecast: Trajectories by times by points by variables.
        times: Times of the forecast frames, in the units of the data.
    """
    geometry = data.geometry()
    places: dict[str, tuple[tuple[str, ...], np.ndarray, dict[str, str]]] = {}
    if geometry.axes:
        dims, shape = geometry.axis_names, geometry.grid_shape
        for name, axis, units in zip(dims, geometry.axes, geometry.axis_units, strict=True):
            places[name] = ((name,), axis, {"units": units} if units else {})
    else:
        dims, shape = ("point",), (geometry.num_points,)
        for number, name in enumerate(("x", "y", "z")[: geometry.coords.shape[1]]):
            places[f"coordinate_{name}"] = (("point",), geometry.coords[:, number], {})
    places["time"] = (("time",), times, {"long_name": f"time in {data.time_units or 'frames'}"})
    variables = {}
    for channel, variable in enumerate(data.variables):
        values = forecast[..., channel].reshape(*forecast.shape[:2], *shape)
        attributes = {"units": variable.units} if variable.units else {}
        variables[variable.name] = (("trajectory", "time", *dims), values, attributes)
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as partial:
        dataset = xr.Dataset(variables, places, {"Conventions": "CF-1.8"})
        dataset.to_netcdf(partial, engine="netcdf4")
