"""Small files in the layouts of other models and programs, with their peculiarities.

Each contains a travelling wave, mostly on 8 x 10 sites in 30 frames.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import xarray as xr

from gpo.data.geometry import Geometry
from gpo.data.rotated_pole import RotatedPole

FRAMES, ROWS, COLUMNS = 30, 8, 10
NORTH, EAST = {"units": "degrees_north"}, {"units": "degrees_east"}


def wave(*places: np.ndarray, frames: int = FRAMES, mean: float = 280.0) -> np.ndarray:
    """Returns frames of a travelling wave of amplitude 5 at the sites."""
    phase = sum((0.4 + 0.3 * n) * place for n, place in enumerate(places))
    times = np.arange(frames).reshape(-1, *(1,) * np.ndim(phase))
    return (mean + 5 * np.sin(phase - 0.3 * times)).astype(np.float32)


def cordex(path: Path) -> None:
    """A rotated pole, packed integers, bounds, a 360-day calendar and a scalar height."""
    pole = RotatedPole(39.25, -162.0)
    up, along = np.linspace(-3, 3, ROWS), np.linspace(0, 4, COLUMNS)
    places = Geometry.latitude_longitude(up, along, pole=pole).geographic_degrees()
    longitude, latitude = places.T.reshape(2, ROWS, COLUMNS)
    days = np.arange(FRAMES) + 0.5
    where = ("rlat", "rlon")
    lon_attributes = {**EAST, "standard_name": "longitude", "bounds": "lon_vertices"}
    attributes = {
        **{"units": "K", "standard_name": "air_temperature", "cell_methods": "time: mean"},
        **{"grid_mapping": "rotated_pole", "coordinates": "lon lat height"},
    }
    dataset = xr.Dataset(
        {
            "rotated_pole": ((), b"", {
                "grid_mapping_name": "rotated_latitude_longitude",
                "grid_north_pole_latitude": 39.25, "grid_north_pole_longitude": -162.0,
            }),
            "time_bnds": (("time", "bnds"), np.stack([days - 0.5, days + 0.5], -1)),
            "lon_vertices": ((*where, "vertices"), np.repeat(longitude[..., None], 4, -1)),
            "tas": (("time", *where), wave(up[:, None], along), attributes),
        },
        {
            "time": ("time", days, {
                "units": "days since 1949-12-01 00:00:00", "calendar": "360_day",
                "bounds": "time_bnds", "axis": "T",
            }),
            "rlat": ("rlat", up, {"standard_name": "grid_latitude", "units": "degrees", "axis": "Y"}),
            "rlon": ("rlon", along, {"standard_name": "grid_longitude", "units": "degrees", "axis": "X"}),
            "lat": (where, latitude, {**NORTH, "standard_name": "latitude"}),
            "lon": (where, longitude, lon_attributes),
            "height": ((), 2.0, {"units": "m", "axis": "Z", "positive": "up", "standard_name": "height"}),
        },
    )  # fmt: skip
    packed = {"dtype": "int16", "scale_factor": 0.001, "add_offset": 280.0, "_FillValue": -32767}
    dataset.to_netcdf(path, encoding={"tas": packed})


def roms(path: Path) -> None:
    """A curvilinear grid, staggered rho, u and v points, s-levels, land, and seconds since a date."""
    east, north = np.arange(COLUMNS) / 5, np.arange(ROWS) / 5
    data: dict[str, Any] = {
        "h": (("eta_rho", "xi_rho"), np.full((ROWS, COLUMNS), 200.0), {"units": "meter"}),
        "Cs_r": ("s_rho", np.array([-0.9, -0.5, -0.1])),
        "theta_s": ((), 7.0),
    }
    for kind, (shift_y, shift_x) in {"rho": (0, 0), "u": (0, 1), "v": (1, 0)}.items():
        y, x = north[shift_y:] - 0.1 * shift_y, east[shift_x:] - 0.1 * shift_x
        dims = (f"eta_{kind}", f"xi_{kind}")
        latitude = 38 + y[:, None] + 0.1 * np.sin(x)
        longitude = -70 + x + 0.2 * y[:, None]
        data[f"lat_{kind}"] = (dims, latitude, {"units": "degree_north"})
        data[f"lon_{kind}"] = (dims, longitude, {"units": "degree_east"})
        sea = np.ones_like(latitude)
        sea[:2, :3] = 0
        data[f"mask_{kind}"] = (dims, sea, {"flag_values": [0.0, 1.0]})
        wet = np.where(sea > 0, 1.0, np.nan)
        values = wave(5 * y[:, None], 5 * x, mean=0) * wet
        if kind == "rho":
            data["zeta"] = (("ocean_time", *dims), values, {"units": "meter", "time": "ocean_time"})
        name = {"rho": "temp"}.get(kind, kind)
        layers = np.stack([values + level for level in range(3)], 1)
        data[name] = (("ocean_time", "s_rho", *dims), layers, {"time": "ocean_time"})
    seconds = 3600.0 * np.arange(FRAMES) + 3.6e9
    units = {"units": "seconds since 1900-01-01 00:00:00", "calendar": "gregorian"}
    coords = {
        "ocean_time": ("ocean_time", seconds, {**units, "field": "time, scalar, series"}),
        "s_rho": ("s_rho", [-0.8, -0.5, -0.2], {
            "standard_name": "ocean_s_coordinate_g2", "positive": "up",
        }),
    }  # fmt: skip
    filled = {name: {"_FillValue": 1e37} for name in ("zeta", "temp", "u", "v")}
    xr.Dataset(data, coords).to_netcdf(path, encoding=filled)


def nemo(path: Path) -> None:
    """Axes without coordinates, nav_lon and nav_lat, a depth, and two time variables with bounds."""
    y, x = np.arange(ROWS)[:, None] / 4, np.arange(COLUMNS) / 4
    values = wave(4 * y, 4 * x, mean=15.0)
    values[:, :2, :2] = np.nan
    seconds = 86400.0 * (np.arange(FRAMES) + 0.5)
    since = {"units": "seconds since 1950-01-01 00:00:00", "calendar": "noleap"}
    both = np.stack([seconds - 43200, seconds + 43200], -1)
    where = ("time_counter", "deptht", "y", "x")
    dataset = xr.Dataset(
        {
            "nav_lat": (("y", "x"), (40 + y + 0.1 * x).astype(np.float32), NORTH),
            "nav_lon": (("y", "x"), (-30 + x - 0.1 * y).astype(np.float32), EAST),
            "time_counter_bounds": (("time_counter", "axis_nbounds"), both),
            "deptht_bounds": (("deptht", "axis_nbounds"), np.array([[0.0, 1.0], [1.0, 3.0]])),
            "thetao": (where, np.stack([values, values - 1], 1), {
                "units": "degC", "coordinates": "time_centered nav_lat nav_lon",
            }),
            "zos": (("time_counter", "y", "x"), values / 20, {"units": "m"}),
        },
        {
            "time_counter": ("time_counter", seconds, {**since, "bounds": "time_counter_bounds"}),
            "time_centered": ("time_counter", seconds, since),
            "deptht": ("deptht", [0.5, 2.0], {
                "units": "m", "positive": "down", "axis": "Z", "bounds": "deptht_bounds",
            }),
        },
    )  # fmt: skip
    dataset.to_netcdf(path, encoding={name: {"_FillValue": 1e20} for name in ("thetao", "zos")})


def wrf(path: Path, start: str = "simulation start") -> None:
    """Dates as text, latitudes with a time axis, staggered wind and levels without coordinates."""
    y, x = np.arange(ROWS)[:, None] / 5, np.arange(COLUMNS) / 5
    where, still = ("Time", "south_north", "west_east"), (FRAMES, ROWS, COLUMNS)
    hours = np.datetime64("2000-01-24T12:00:00") + np.arange(FRAMES) * np.timedelta64(3600, "s")
    dates = np.char.replace(np.datetime_as_string(hours, "s"), "T", "_").astype("S19")
    north, east = {"units": "degree_north"}, {"units": "degree_east"}
    around = np.arange(COLUMNS + 1) / 5 - 0.1
    dataset = xr.Dataset(
        {
            "Times": ("Time", dates),
            "XTIME": ("Time", 60.0 * np.arange(FRAMES), {"units": f"minutes since {start}"}),
            "XLAT": (where, np.broadcast_to(30 + y + 0.05 * x, still).astype(np.float32), north),
            "XLONG": (where, np.broadcast_to(-90 + x - 0.1 * y, still).astype(np.float32), east),
            "T2": (where, wave(5 * y, 5 * x), {"units": "K", "coordinates": "XLONG XLAT XTIME", "stagger": ""}),
            "U": (("Time", "bottom_top", "south_north", "west_east_stag"),
                  np.stack([wave(5 * y, 5 * around, mean=0)] * 2, 1), {"units": "m s-1", "stagger": "X"}),
            "ZNU": (("Time", "bottom_top"), np.tile([0.9, 0.5], (FRAMES, 1))),
            "ITIMESTEP": ("Time", np.arange(FRAMES)),
        }
    )  # fmt: skip
    dataset["XTIME"].encoding["_FillValue"] = None
    dataset.to_netcdf(path, encoding={"Times": {"char_dim_name": "DateStrLen"}})


def _globe(count: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Returns longitudes and latitudes, in radians, of points evenly spread on the sphere."""
    number = np.arange(count)
    latitude = np.arcsin(1 - (2 * number + 1) / count)
    return (number * np.pi * (3 - np.sqrt(5))) % (2 * np.pi) - np.pi, latitude


def icon(path: Path) -> None:
    """Triangular cells with coordinates in radians and corners as bounds."""
    longitude, latitude = _globe()
    values = wave(latitude, longitude)
    rad = {"units": "radian"}
    cells = {
        "coordinates": "clat clon",
        "CDI_grid_type": "unstructured",
        "number_of_grid_in_reference": 1,
    }
    xr.Dataset(
        {
            "clon": ("ncells", longitude, {**rad, "standard_name": "longitude", "bounds": "clon_bnds"}),
            "clat": ("ncells", latitude, {**rad, "standard_name": "latitude", "bounds": "clat_bnds"}),
            "clon_bnds": (("ncells", "vertices"), longitude[:, None] + np.array([0, 0.1, -0.1]), rad),
            "clat_bnds": (("ncells", "vertices"), latitude[:, None] + np.array([0.1, 0, 0]), rad),
            "tas": (("time", "height", "ncells"), values[:, None], {"units": "K", **cells}),
        },
        {
            "time": ("time", np.arange(FRAMES) / 8 + 20200101.0, {
                "units": "day as %Y%m%d.%f", "calendar": "proleptic_gregorian", "axis": "T",
            }),
            "height": ("height", [2.0], {"units": "m", "axis": "Z", "positive": "up"}),
        },
    ).to_netcdf(path)  # fmt: skip


def mpas(path: Path) -> None:
    """Cells with coordinates in radians without units, and in space; levels are the last axis."""
    longitude, latitude = _globe()
    values = np.stack([wave(latitude, longitude, mean=mean) for mean in (280, 270)], -1)
    places = np.cos(latitude) * np.cos(longitude), np.cos(latitude) * np.sin(longitude), np.sin(latitude)  # fmt: skip
    dates = [f"0001-01-{1 + n:02d}_00:00:00".ljust(64) for n in range(FRAMES)]
    xr.Dataset(
        {
            **{f"{letter}Cell": ("nCells", 6.371e6 * place) for letter, place in zip("xyz", places, strict=True)},
            "latCell": ("nCells", latitude),
            "lonCell": ("nCells", longitude % (2 * np.pi)),
            "xtime": ("Time", np.array(dates, "S64")),
            "temperature": (("Time", "nCells", "nVertLevels"), values, {"units": "K"}),
        },
        attrs={"on_a_sphere": "YES", "config_calendar_type": "gregorian_noleap"},
    ).to_netcdf(path, encoding={"xtime": {"char_dim_name": "StrLen"}})  # fmt: skip


def ecmwf(path: Path) -> None:
    """North to south, longitudes from 0, packed integers, and `expver` of which half is missing."""
    latitude, longitude = np.linspace(52, 48, 9), np.arange(0, 360, 30.0)
    along = np.deg2rad(longitude)
    values = wave(latitude[:, None], np.cos(along), np.sin(along))
    both = np.stack([values, values], 1)
    both[FRAMES // 2 :, 0] = np.nan
    both[: FRAMES // 2, 1] = np.nan
    hours = np.int32(1_000_000) + 6 * np.arange(FRAMES, dtype=np.int32)
    dataset = xr.Dataset(
        {"t2m": (("time", "expver", "latitude", "longitude"), both, {
            "units": "K", "long_name": "2 metre temperature",
        })},
        {
            "time": ("time", hours, {"units": "hours since 1900-01-01 00:00:00.0", "calendar": "gregorian"}),
            "expver": ("expver", np.array([1, 5], np.int32), {"long_name": "expver"}),
            "latitude": ("latitude", latitude.astype(np.float32), NORTH),
            "longitude": ("longitude", longitude.astype(np.float32), EAST),
        },
    )  # fmt: skip
    packed = {"dtype": "int16", "scale_factor": 0.001, "add_offset": 280.0, "_FillValue": -32767}
    dataset.to_netcdf(path, encoding={"t2m": {**packed, "missing_value": np.int16(-32767)}})


def altimeter(path: Path) -> None:
    """Sea level by satellite: land, tracks that come and go, bounds of the grid, a grid mapping."""
    latitude, longitude = 30 + np.arange(ROWS) / 4, 2 + np.arange(COLUMNS) / 4
    values = wave(4 * latitude[:, None], 4 * longitude, mean=0) / 50
    values[:, :2, :3] = np.nan
    for frame in range(FRAMES):
        values[frame, :, (frame % COLUMNS)] = np.nan
    dataset = xr.Dataset(
        {
            "crs": ((), np.int32(-2147483647), {"grid_mapping_name": "latitude_longitude"}),
            "lat_bnds": (("latitude", "nv"), np.stack([latitude - 0.125, latitude + 0.125], -1)),
            "sla": (("time", "latitude", "longitude"), values, {"units": "m", "grid_mapping": "crs"}),
        },
        {
            "time": ("time", np.arange(20000.0, 20000 + FRAMES), {"units": "days since 1950-01-01 00:00:00"}),
            "latitude": ("latitude", latitude, {**NORTH, "bounds": "lat_bnds"}),
            "longitude": ("longitude", longitude, EAST),
            "nv": ("nv", [0, 1]),
        },
    )  # fmt: skip
    packed = {"dtype": "int32", "scale_factor": 1e-4, "_FillValue": -2147483647}
    dataset.to_netcdf(path, encoding={"sla": packed})


def spectral_series(
    linear: Callable[[np.ndarray], np.ndarray],
    react: Callable[[np.ndarray, np.ndarray], np.ndarray],
    first: Callable[[np.ndarray], np.ndarray],
    *,
    count: int = 128,
    frames: int = 41,
    spacing: float = 0.005,
    step: float = 2.5e-5,
) -> dict[str, np.ndarray]:
    r"""Returns $u_t = Lu + N(u)$ on $[-1,1)$ in the keys of PINN papers, by exponential Euler steps.

    Args:
        linear: Symbol of $L$ as a function of wave numbers.
        react: Spectrum of $N$ as a function of wave numbers and values.
        first: Initial values as a function of coordinates.
        count: Sites.
        frames: Frames.
        spacing: Time between them.
        step: Length of a step.
    """
    x = -1 + 2 * np.arange(count) / count
    waves = np.pi * np.fft.fftfreq(count, 1 / count)
    symbol = linear(waves)
    growth = np.exp(step * symbol)
    safe = np.where(symbol == 0, 1, symbol)
    weight = np.where(symbol == 0, step, (growth - 1) / safe)
    is_kept = np.abs(waves) < 2 / 3 * np.abs(waves).max()
    state, solution = np.fft.fft(first(x)), []
    for _ in range(frames):
        solution.append(np.fft.ifft(state).real)
        for _ in range(round(spacing / step)):
            values = np.fft.ifft(state).real
            state = (growth * state + weight * react(waves, values)) * is_kept
    times = spacing * np.arange(frames)
    return {"x": x[None], "tt": times[None], "uu": np.stack(solution, -1)}


def kdv(path: Path) -> None:
    """Korteweg-de Vries as in PINN papers: (x, t), periodic without stating it."""
    series = spectral_series(
        lambda k: 1j * 0.0025 * k**3,
        lambda k, u: -0.5j * k * np.fft.fft(u**2),
        lambda x: np.cos(np.pi * x),
    )
    scipy.io.savemat(path, series)


def allen_cahn(path: Path) -> None:
    """Allen-Cahn in the same layout, with zero slope at both ends."""
    series = spectral_series(
        lambda k: -1e-4 * k**2,
        lambda k, u: np.fft.fft(5 * u - 5 * u**3),
        lambda x: x**2 * np.cos(np.pi * x),
        step=2.5e-4,
    )
    scipy.io.savemat(path, {"x": series["x"], "t": series["tt"].T, "usol": series["uu"]})


def schroedinger(path: Path) -> None:
    """A complex field, as in `NLS.mat`."""
    x, t = np.linspace(-5, 5, 64)[None], np.linspace(0, 1, 21)[None]
    scipy.io.savemat(path, {"x": x, "tt": t, "uu": np.exp(1j * t) / np.cosh(x.T)})


def fenics(path: Path) -> None:
    """HDF5 of an XDMF file of FEniCS: groups for the mesh and for each frame."""
    import h5py

    with h5py.File(path, "w") as file:
        file["Mesh/mesh/geometry"] = np.random.default_rng(0).random((20, 2))
        file["Mesh/mesh/topology"] = np.arange(30).reshape(10, 3) % 20
        for frame in range(3):
            file[f"VisualisationVector/{frame}"] = np.full((20, 1), float(frame))


def paraview(path: Path) -> None:
    """A table as ParaView exports OpenFOAM: a row per point and time, vectors by component."""
    places = np.random.default_rng(0).random((40, 2))
    values = wave(3 * places[:, 0], 3 * places[:, 1], mean=0)
    lines = ['"Time","U:0","U:1","U:2","p","Points:0","Points:1","Points:2"']
    for frame in range(FRAMES):
        for (x, y), value in zip(places, values[frame], strict=True):
            lines.append(
                f"{0.1 * frame:.6g},{value:.6g},{-value:.6g},0,{value**2:.6g},{x:.9g},{y:.9g},0.05"
            )
    path.write_text("\n".join(lines) + "\n")
