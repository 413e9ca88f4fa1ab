"""Forecasts as NetCDF with CF attributes, on a grid or on points; the file is complete or absent."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gpo.atomic_files import unwritten, whole_file
from gpo.data.dataset import Variable
from gpo.data.dates import TimeOrigin
from gpo.data.geometry import Geometry
from gpo.data.query_points import QueryPoints
from gpo.data.writers.layout import (
    ATTRIBUTES,
    AbstractForecastWriter,
    ForecastLayout,
)
from gpo.optional import require

if TYPE_CHECKING:
    import netCDF4


class _FileWriter(AbstractForecastWriter):
    """Writes into an open file."""

    def __init__(self, file: "netCDF4.Dataset", layout: ForecastLayout, path: Path) -> None:
        self._file, self._variables, self._path = file, layout.variables, path

    def write(self, index: tuple[int | slice, ...], values: np.ndarray) -> None:
        with _naming(self._path):
            for channel, variable in enumerate(self._variables):
                self._file[variable.name][index] = values[..., channel]


@contextmanager
def new_forecast_file(path: Path, layout: ForecastLayout) -> Iterator[AbstractForecastWriter]:
    """Opens a file to write forecasts into; it appears when all of them are written."""
    netcdf = require("netCDF4", "data", "Writing NetCDF")
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as partial:
        file = netcdf.Dataset(partial, "w")
        try:
            with _naming(path):
                _define(file, layout)
            yield _FileWriter(file, layout, path)
        finally:
            with _naming(path):
                file.close()


def _define(file: "netCDF4.Dataset", layout: ForecastLayout) -> None:
    """Writes all but the forecasts."""
    file.setncatts(ATTRIBUTES)
    for name, length in zip(layout.dims, layout.shape, strict=True):
        file.createDimension(name, length)
    for name, dims, numbers, attributes in layout.coordinates():
        coordinate = file.createVariable(name, numbers.dtype, dims)
        coordinate.setncatts(attributes)
        coordinate[...] = numbers
    for name, dims, numbers, attributes in layout.auxiliaries():
        for dim, length in zip(dims, numbers.shape, strict=True):
            if dim not in file.dimensions:
                file.createDimension(dim, length)
        auxiliary = file.createVariable(name, numbers.dtype, dims)
        auxiliary.setncatts(attributes)
        auxiliary[...] = numbers
    for variable in layout.variables:
        content = file.createVariable(
            variable.name, layout.number_type, layout.dims, fill_value=np.nan
        )
        content.setncatts(layout.attributes(variable))


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Names the file where its library fails: a full disk is `NetCDF: HDF error` to it."""
    try:
        yield
    except RuntimeError as error:
        raise unwritten(path, error) from error


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
        forecast: Trajectories by times by points by variables; samples by points by
            variables for static maps.
        geometry: The sites.
        variables: Names and units.
        times: Times of the frames; none for static maps.
        time_units: Units of these.
        origin: The date of time zero, where times are dates.
    """
    points = QueryPoints.of(geometry)
    layout = ForecastLayout(
        points, tuple(variables), len(forecast), times, time_units, origin,
        number_type="f8" if forecast.dtype == np.float64 else "f4",
    )  # fmt: skip
    with new_forecast_file(path, layout) as writer:
        whole = (slice(None),) * len(layout.shape)
        writer.write(whole, forecast.reshape(*layout.shape, len(variables)))
