"""A small valid file of each layout, for the contract of all readers."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.io

from gpo.data.readers.fno import write_fno
from gpo_bench.solvers.published_files import write_airfoil, write_pdebench
from gpo_bench.solvers.well_files import write_well
from tests.core.data.readers.synthetic_weather import write_carra, write_era5, write_weatherbench

random = np.random.default_rng(0)


def ns2d(folder: Path) -> Path:
    path = folder / "ns.mat"
    a, u = random.normal(size=(4, 8, 8)), random.normal(size=(4, 8, 8, 6))
    write_fno(path, np.arange(1.0, 7.0), [{"a": a, "u": u}], (4, 8, 8))
    return path


def well(folder: Path) -> Path:
    path = folder / "well.hdf5"
    write_well(
        path, name="toy", axes={"x": np.arange(6) / 6, "y": np.linspace(0, 1, 5)}, periodic=(True, False),
        time=np.arange(4.0), t0={"density": random.normal(size=(3, 4, 6, 5))},
        t1={"velocity": random.normal(size=(3, 4, 6, 5, 2))}, parameters={"tcool": 0.1},
    )  # fmt: skip
    return path


def pdebench(folder: Path) -> Path:
    path = folder / "cfd.hdf5"
    names = ("density", "pressure", "Vx", "Vy")
    write_pdebench(
        path, axes=[(np.arange(6) + 0.5) / 6, (np.arange(4) + 0.5) / 4], time=np.arange(5.0),
        fields={name: random.normal(size=(2, 5, 6, 4)) for name in names},
    )  # fmt: skip
    return path


def airfoil(folder: Path) -> Path:
    path = folder / "naca"
    x, y = np.meshgrid(np.linspace(0, 1, 9), np.linspace(0, 2, 7), indexing="ij")
    shift = random.normal(size=(3, 1, 1)) / 10
    write_airfoil(path, x + shift, y - shift, random.normal(size=(3, 5, 9, 7)))
    return path


def era5_netcdf(folder: Path) -> Path:
    write_era5(folder / "era5.nc")
    return folder / "era5.nc"


def era5_zarr(folder: Path) -> Path:
    write_weatherbench(folder / "weather.zarr")
    return folder / "weather.zarr"


def carra(folder: Path) -> Path:
    write_carra(folder / "carra.nc")
    return folder / "carra.nc"


def npz(folder: Path) -> Path:
    path = folder / "points.npz"
    np.savez(
        path, coords=random.random((20, 2)), time=np.arange(7.0), u=random.normal(size=(7, 20)),
        v=random.normal(size=(7, 20)),
    )  # fmt: skip
    return path


def mat5(folder: Path, do_compression: bool) -> Path:
    path = folder / "my.mat"
    fields = {"u": random.normal(size=(7, 20)), "v": random.normal(size=(7, 20))}
    content = {"coords": random.random((20, 2)), "time": np.arange(7.0), "note": "text", **fields}
    scipy.io.savemat(path, content, do_compression=do_compression)
    return path


def npy_folder(folder: Path) -> Path:
    path = folder / "arrays"
    path.mkdir()
    np.save(path / "x.npy", np.arange(6.0))
    np.save(path / "y.npy", np.arange(5.0))
    np.save(path / "u.npy", random.normal(size=(7, 6, 5)))
    return path


def table(folder: Path) -> Path:
    path = folder / "table.csv"
    places, values = random.random((12, 2)), random.normal(size=(5, 12, 2))
    lines = ["time,x,y,u,v"]
    for time, frame in enumerate(values):
        for (x, y), (u, v) in zip(places, frame, strict=True):
            lines.append(f"{time},{x:.9g},{y:.9g},{u:.7g},{v:.7g}")
    path.write_text("\n".join(lines) + "\n")
    return path


SAMPLES: dict[str, tuple[str, Callable[[Path], Path]]] = {
    "ns2d": ("ns2d", ns2d),
    "well": ("well", well),
    "pdebench": ("pdebench", pdebench),
    "airfoil": ("airfoil", airfoil),
    "era5 as NetCDF": ("gridded", era5_netcdf),
    "era5 as Zarr": ("gridded", era5_zarr),
    "carra": ("gridded", carra),
    "arrays": ("arrays", npz),
    "arrays of MATLAB 5": ("arrays", lambda folder: mat5(folder, False)),
    "arrays of MATLAB 5, compressed": ("arrays", lambda folder: mat5(folder, True)),
    "a folder of arrays": ("arrays", npy_folder),
    "a table": ("table", table),
}
