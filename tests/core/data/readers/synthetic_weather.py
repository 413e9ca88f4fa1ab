r"""Small synthetic weather in the layouts of ERA5 and CARRA.

A wave travels eastwards around the globe, warm at the equator and cold at the poles:
$T = 288 - 40\sin^2\varphi + 5\cos\varphi\,\cos(3\lambda - \omega t)$, with the wind in step.
"""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import xarray as xr

EARTH_RADIUS = 6371229.0
CARRA_ORIGIN = (72.0, -36.0)
"""Latitude and longitude of the projection origin of the western CARRA domain, in degrees."""


def waves(hours: np.ndarray, latitude: np.ndarray, longitude: np.ndarray) -> dict[str, np.ndarray]:
    """Returns 2 m temperature (K) and 10 m wind (m/s) at all times and sites.

    Args:
        hours: Times, in hours.
        latitude: Latitudes of the sites on their grid, in degrees.
        longitude: Longitudes of the same sites.
    """
    up, along = np.deg2rad(latitude), np.deg2rad(longitude)
    phase = 3 * along - 2 * np.pi / 48 * hours.reshape(-1, *(1,) * along.ndim)
    fields = {
        "t2m": 288 - 40 * np.sin(up) ** 2 + 5 * np.cos(up) * np.cos(phase),
        "u10": 8 * np.cos(up) + 3 * np.cos(up) * np.sin(phase),
        "v10": 4 * np.cos(up) * np.cos(phase),
    }
    return {name: values.astype(np.float32) for name, values in fields.items()}


def write_era5(
    path: Path,
    *,
    num_times: int = 6,
    shape: tuple[int, int] = (13, 24),
    time_name: Literal["valid_time", "time"] = "valid_time",
) -> None:
    """Writes hourly NetCDF as the Climate Data Store gives it, from north to south.

    Args:
        path: The file.
        num_times: Number of frames.
        shape: Number of latitudes, poles included, and of longitudes.
        time_name: Name of the time: `valid_time` since 2024, `time` before.
    """
    fields, coords = _globe(num_times, shape)
    data = {
        "t2m": _variable(fields["t2m"], time_name, "K", "2 metre temperature"),
        "u10": _variable(fields["u10"], time_name, "m s**-1", "10 metre U wind component"),
    }
    seconds = coords.pop("hours") * 3600
    units = {"units": "seconds since 1970-01-01", "calendar": "proleptic_gregorian"}
    times = (time_name, seconds, {**units, "standard_name": "time", "long_name": "time"})
    number = ((), 0, {"units": "1", "standard_name": "realization"})
    dataset = xr.Dataset(data, {time_name: times, "number": number, **coords})
    dataset.assign_attrs(Conventions="CF-1.7").to_netcdf(path, engine="netcdf4")


def write_weatherbench(
    path: Path, *, num_times: int = 6, shape: tuple[int, int] = (13, 24)
) -> None:
    """Writes the same weather as `write_era5` as Zarr, with the long names of ARCO-ERA5.

    Args:
        path: The folder.
        num_times: Number of frames.
        shape: Number of latitudes, poles included, and of longitudes.
    """
    fields, coords = _globe(num_times, shape)
    data = {
        "2m_temperature": _variable(fields["t2m"], "time", "K", "2 metre temperature"),
        "10m_u_component_of_wind": _variable(fields["u10"], "time", "m s**-1", "U wind at 10 m"),
    }
    units = {"units": "hours since 1970-01-01", "calendar": "proleptic_gregorian"}
    times = ("time", coords.pop("hours"), units)
    dataset = xr.Dataset(data, {"time": times, **coords})
    dataset.to_zarr(path, zarr_format=2, consolidated=True)


def write_carra(
    path: Path,
    *,
    num_times: int = 4,
    shape: tuple[int, int] = (12, 16),
    land: Literal["nan", "mask"] = "nan",
) -> None:
    """Writes three-hourly wind as NetCDF on a Lambert grid with 2-D latitudes and longitudes.

    Args:
        path: The file.
        num_times: Number of frames.
        shape: Number of rows and columns, 50 km apart (20 times the spacing of CARRA).
        land: Whether land is NaN in the wind itself, or 1 in a variable of its own.
    """
    y, x = (50_000.0 * (np.arange(count) - (count - 1) / 2) for count in shape)
    latitude, longitude = lambert_to_true(x[None, :], y[:, None])
    hours = 3 * np.arange(num_times)
    is_land = longitude < CARRA_ORIGIN[1] - 5
    wind = waves(hours, latitude, longitude)["v10"]
    if land == "nan":
        wind = np.where(is_land, np.float32(np.nan), wind)
    attributes = {
        "units": "m s**-1",
        "grid_mapping": "projection",
        "coordinates": "latitude longitude",
    }
    data: dict[str, Any] = {
        "v10": (("time", "y", "x"), wind, {**attributes, "long_name": "10 metre V wind component"}),
        "projection": ((), 0, _lambert_attributes()),
        "latitude": (("y", "x"), latitude, _place("latitude", "degrees_north")),
        "longitude": (("y", "x"), longitude, _place("longitude", "degrees_east")),
        "time": ("time", hours, {"units": "hours since 2020-01-01", "standard_name": "time"}),
        "y": ("y", y, _place("projection_y_coordinate", "m")),
        "x": ("x", x, _place("projection_x_coordinate", "m")),
    }
    if land == "mask":
        data["lsm"] = (("y", "x"), is_land.astype(np.float32), _place("land_binary_mask", "1"))
    dataset = xr.Dataset(data, attrs={"Conventions": "CF-1.8"})
    dataset.to_netcdf(path, engine="netcdf4")


def lambert_to_true(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    r"""Returns latitude and longitude of points of the Lambert conformal plane, in degrees.

    With one standard parallel $\varphi_0$, $n = \sin\varphi_0$, $\rho_0 = R\cot\varphi_0$:
    $\rho e^{i n(\lambda-\lambda_0)} = \rho_0 - y + i x$ and
    $\tan(\pi/4 + \varphi/2) = \tan(\pi/4 + \varphi_0/2)\,(\rho_0/\rho)^{1/n}$.

    Args:
        x: Metres east of the origin.
        y: Metres north of it; broadcast against `x`.
    """
    origin, meridian = np.deg2rad(CARRA_ORIGIN)
    cone = np.sin(origin)
    apex = EARTH_RADIUS / np.tan(origin)
    ratio = (apex / np.hypot(x, apex - y)) ** (1 / cone)
    latitude = 2 * np.arctan(np.tan(np.pi / 4 + origin / 2) * ratio) - np.pi / 2
    longitude = meridian + np.arctan2(x, apex - y) / cone
    return np.rad2deg(latitude), np.rad2deg(longitude)


def _globe(num_times: int, shape: tuple[int, int]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    latitude = np.linspace(90, -90, shape[0])
    longitude = np.arange(shape[1]) * 360 / shape[1]
    # Hours from 1970 to 2020-01-01 00:00.
    hours = 438288 + np.arange(num_times)
    up, along = np.meshgrid(latitude, longitude, indexing="ij")
    coords: dict[str, Any] = {
        "hours": hours,
        "latitude": ("latitude", latitude, _place("latitude", "degrees_north")),
        "longitude": ("longitude", longitude, _place("longitude", "degrees_east")),
    }
    return waves(hours, up, along), coords


def _variable(values: np.ndarray, time: str, units: str, name: str) -> tuple[Any, ...]:
    return (time, "latitude", "longitude"), values, {"units": units, "long_name": name}


def _place(name: str, units: str) -> dict[str, str]:
    return {"standard_name": name, "units": units}


def _lambert_attributes() -> dict[str, Any]:
    latitude, longitude = CARRA_ORIGIN
    return {
        "grid_mapping_name": "lambert_conformal_conic",
        "standard_parallel": latitude,
        "latitude_of_projection_origin": latitude,
        "longitude_of_central_meridian": longitude,
        "earth_radius": EARTH_RADIUS,
    }
