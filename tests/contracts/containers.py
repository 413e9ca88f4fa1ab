"""A small field in each container format, with checksums if the format has them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from tests.core.data.readers.gridded_files import grid, save

random = np.random.default_rng(2)


def weather(num_times: int = 4) -> Any:
    """A random field, so that no two blocks are the same."""
    data = grid(latitude=range(40, 48), longitude=range(10), time=range(num_times))
    return data.assign(t2m=data.t2m.copy(data=random.normal(280, 5, data.t2m.shape)))


def classic(folder: Path) -> Path:
    path = folder / "classic.nc"
    weather().to_netcdf(path, engine="netcdf4", format="NETCDF3_CLASSIC")
    return path


def records(folder: Path) -> Path:
    path = folder / "records.nc"
    weather().to_netcdf(path, engine="netcdf4", format="NETCDF3_64BIT", unlimited_dims=["time"])
    return path


def checked_netcdf(folder: Path) -> Path:
    data = weather()
    checked = {"fletcher32": True, "zlib": True}
    encoding = {name: dict(checked) for name in (*data.data_vars, *data.coords)}
    return save(folder / "checked.nc", data, encoding=encoding)


def checked_hdf5(folder: Path) -> Path:
    """Checksums of the structure, as in new HDF5 files, and of all values."""
    path = folder / "checked.h5"
    with h5py.File(path, "w", libver="latest") as file:
        content = {"x": np.arange(8.0), "t": np.arange(5.0), "u": random.normal(size=(5, 8))}
        for name, values in content.items():
            file.create_dataset(name, data=values, chunks=values.shape, fletcher32=True)
    return path


def zarr_2(folder: Path) -> Path:
    import numcodecs

    path = folder / "second.zarr"
    data = weather()
    packed = {"compressors": numcodecs.Zlib(), "filters": [numcodecs.CRC32()]}
    encoding = {name: dict(packed) for name in (*data.data_vars, *data.coords)}
    data.to_zarr(path, zarr_format=2, consolidated=False, encoding=encoding)
    return path


def zarr_3(folder: Path) -> Path:
    from zarr.codecs import BytesCodec, Crc32cCodec

    path = folder / "third.zarr"
    data = weather()
    encoding = {
        name: {"serializer": BytesCodec(), "compressors": (Crc32cCodec(),)}
        for name in (*data.data_vars, *data.coords)
    }
    data.to_zarr(path, zarr_format=3, consolidated=False, encoding=encoding)
    return path


def packed_npz(folder: Path) -> Path:
    path = folder / "packed.npz"
    np.savez_compressed(
        path, x=np.arange(6.0), y=np.arange(5.0), t=np.arange(4.0), u=random.normal(size=(4, 6, 5))
    )
    return path


CONTAINERS: dict[str, Callable[[Path], Path]] = {
    "classic NetCDF": classic,
    "classic NetCDF, records": records,
    "NetCDF 4, checksums": checked_netcdf,
    "HDF5, checksums": checked_hdf5,
    "Zarr 2, checksums": zarr_2,
    "Zarr 3, checksums": zarr_3,
    "npz, compressed": packed_npz,
}
