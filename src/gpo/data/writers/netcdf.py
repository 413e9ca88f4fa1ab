"""Writes forecasts as NetCDF with CF attributes; the file is complete or absent."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gpo.atomic_files import atomic_file, write_error
from gpo.data.dataset import Variable
from gpo.data.dates import TimeOrigin
from gpo.data.geometry import Geometry
from gpo.data.query_points import QueryPoints
from gpo.data.writers.layout import ATTRIBUTES, AbstractForecastWriter, ForecastLayout
from gpo.optional import require

if TYPE_CHECKING:
    import netCDF4


class _FileWriter(AbstractForecastWriter):
    """Writes forecasts into an open file."""

    def __init__(self, file: "netCDF4.Dataset", layout: ForecastLayout, path: Path) -> None:
        self._file, self._names, self._path = file, layout.names, path

    def write(self, index: tuple[int | slice, ...], values: np.ndarray) -> None:
        with _naming(self._path):
            for channel, name in enumerate(self._names):
                self._file[name][index] = values[..., channel]


@contextmanager
def new_forecast_file(path: Path, layout: ForecastLayout) -> Iterator[AbstractForecastWriter]:
    """Opens a file for writing, which is renamed to `path` when all forecasts are written."""
    netcdf = require("netCDF4", "data", "Writing NetCDF")
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as partial:
        file = netcdf.Dataset(partial, "w")
        try:
            with _naming(path):
                _define(file, layout)
            yield _FileWriter(file, layout, path)
        finally:
            with _naming(path):
                file.close()


def _define(file: "netCDF4.Dataset", layout: ForecastLayout) -> None:
    """Writes everything except the forecasts."""
    file.setncatts(ATTRIBUTES)
    for name, length in zip(layout.dims, layout.shape, strict=True):
        file.createDimension(name, length)
    for name, dims, values, attributes in (*layout.coordinates(), *layout.auxiliaries()):
        for dim, length in zip(dims, values.shape, strict=True):
            if dim not in file.dimensions:
                file.createDimension(dim, length)
        coordinate = file.createVariable(name, values.dtype, dims)
        coordinate.setncatts(attributes)
        coordinate[...] = values
    for name, variable in zip(layout.names, layout.variables, strict=True):
        field = file.createVariable(name, layout.number_type, layout.dims, fill_value=np.nan)
        field.setncatts(layout.attributes(variable))


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Names the file in errors of the library, which reports a full disk as an HDF error."""
    try:
        yield
    except RuntimeError as error:
        raise write_error(path, error) from error


def write_forecast(
    path: Path,
    forecast: np.ndarray,
    geometry: Geometry,
    variables: Sequence[Variable],
    times: np.ndarray | None = None,
    time_units: str = "",
    origin: TimeOrigin | None = None,
) -> None:
    """Writes complete forecasts at the sites of a geometry.

    Args:
        path: The NetCDF file.
        forecast: Values of shape (trajectories, times, points, variables), or (samples, points,
            variables) for static maps.
        geometry: The sites.
        variables: Names and units.
        times: Times of the frames; None for static maps.
        time_units: Units of the times.
        origin: Date of time zero, if frames have dates.
    """
    points = QueryPoints.of(geometry)
    layout = ForecastLayout(
        points, tuple(variables), len(forecast), times, time_units, origin,
        number_type="f8" if forecast.dtype == np.float64 else "f4",
        case_dim="sample" if times is None else "trajectory" if len(forecast) > 1 else "",
    )  # fmt: skip
    with new_forecast_file(path, layout) as writer:
        whole = (slice(None),) * len(layout.shape)
        writer.write(whole, forecast.reshape(*layout.shape, len(variables)))
