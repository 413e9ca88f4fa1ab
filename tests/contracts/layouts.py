"""Further files in addition to `samples.py`: variants of how layouts store their sites."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from gpo_bench.solvers.well_files import write_well
from tests.contracts.samples import SAMPLES
from tests.core.data.readers.containers import SAVERS
from tests.core.data.readers.gridded_files import flat, grid, save, write_grib
from tests.core.data.readers.test_mesh_series import group
from tests.core.data.readers.test_mesh_series import save as save_meshes

random = np.random.default_rng(1)


def mesh_series(folder: Path) -> Path:
    return save_meshes(folder / "mesh.h5", a=group(3), b=group(4, seed=1))


def turned(folder: Path) -> Path:
    return save(folder / "turned.nc", grid().transpose("lon", "time", "lat"))


def flat_cube(folder: Path) -> tuple[Path, dict[str, str]]:
    return save(folder / "cube.nc", flat(("z", "y", "x"), (3, 4, 5))), {"z": "all"}


def stations(folder: Path) -> Path:
    places = {"lat": ("s", [50.0, 51, 53, 54, 55]), "lon": ("s", [1.0, 2, 3, 4, 7])}
    return save(folder / "stations.nc", flat(("s",), (5,), **places))


def grib(folder: Path) -> Path:
    hours = [("2t", "heightAboveGround", 2, hour, 280 + hour) for hour in (0, 1, 2)]
    return write_grib(folder / "a.grib2", hours)


def published_order(folder: Path) -> Path:
    path = folder / "ns.h5"
    with h5py.File(path, "w") as file:
        file["u"], file["a"] = random.normal(size=(2, 6, 5, 4)), random.normal(size=(2, 6, 5))
        file["t"] = np.arange(4.0)
    return path


def pdebench_groups(folder: Path) -> Path:
    path = folder / "groups.h5"
    with h5py.File(path, "w") as file:
        for name in ("0000", "0001"):
            file[f"{name}/data"] = random.normal(size=(3, 6, 4, 2))
            for key, length in (("t", 3), ("x", 6), ("y", 4)):
                file[f"{name}/grid/{key}"] = np.arange(float(length))
    return path


def well_with_constants(folder: Path) -> Path:
    """One field does not depend on the first axis, another not on the second, nor on time."""
    path = folder / "well.h5"
    axes = {"x": np.arange(6) / 6, "y": np.linspace(0, 1, 5)}
    full = random.normal(size=(2, 3, 6, 5))
    write_well(
        path, name="toy", axes=axes, periodic=(True, False), time=np.arange(3.0), t0={"full": full}
    )
    with h5py.File(path, "r+") as file:
        fields = file["t0_fields"]
        fields.attrs["field_names"] = ["full", "along_y", "along_x"]
        for name, shape, varying in (
            ("along_y", (2, 3, 1, 5), (False, True)),
            ("along_x", (2, 6), (True, False)),
        ):
            fields[name] = random.normal(size=shape)
            fields[name].attrs["dim_varying"] = varying
            fields[name].attrs["sample_varying"] = True
            fields[name].attrs["time_varying"] = len(shape) == 4
    return path


def saved_grid(saver: Callable[[Path, Any], Path], folder: Path) -> Path:
    axes = {"x": np.arange(6.0), "y": np.arange(5.0), "t": np.arange(7.0)}
    return saver(folder, {**axes, "u": random.normal(size=(7, 6, 5)), "v": random.normal(size=(7, 6, 5, 2))})  # fmt: skip


LAYOUTS: dict[str, Callable[[Path], Any]] = {
    **{name: make for name, (_, make) in SAMPLES.items()},
    "mesh series": mesh_series,
    "longitudes first": turned,
    "a cube": flat_cube,
    "stations": stations,
    "grib": grib,
    "ns2d in the published order": published_order,
    "pdebench by groups": pdebench_groups,
    "well with constants": well_with_constants,
    **{f"a grid, {saver.__name__}": partial(saved_grid, saver) for saver in SAVERS},
}
