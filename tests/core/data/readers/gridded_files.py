"""Small gridded files for tests, and how they are read."""

import eccodes
import numpy as np
import xarray as xr

from gpo.data.readers.base import ReadOptions
from gpo.data.readers.gridded import READER

HOURLY = {"units": "hours since 2020-01-01"}
NORTH, EAST = {"units": "degrees_north"}, {"units": "degrees_east"}


def read(path, *variables, **select):
    return READER.read(path, ReadOptions(variables=variables, select=select))


def table(*shape):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def save(path, dataset, **settings):
    dataset.to_netcdf(path, engine="netcdf4", **settings)
    return path


def grid(latitude=(50, 51, 52), longitude=(0, 1, 2, 3), time=(0, 1), **more):
    """A field on latitudes and longitudes, and further variables."""
    shape = (len(time), len(latitude), len(longitude))
    return xr.Dataset(
        {"t2m": (("time", "lat", "lon"), table(*shape), {"units": "K"}), **more},
        {
            "time": ("time", np.array(time), HOURLY),
            "lat": ("lat", np.array(latitude, dtype=float), NORTH),
            "lon": ("lon", np.array(longitude, dtype=float), EAST),
        },
    )


def flat(dims, shape, **coords):
    data = {"q": (("time", *dims), table(2, *shape))}
    return xr.Dataset(data, {"time": ("time", [0.0, 0.5]), **coords})


def write_grib(path, messages):
    """Writes messages of (short name, level type, level, date, value) on a 3 by 4 grid."""
    with open(path, "wb") as file:
        for name, kind, level, hour, value in messages:
            message = eccodes.codes_grib_new_from_samples("regular_ll_sfc_grib2")
            keys = {
                **{"Ni": 4, "Nj": 3, "dataDate": 20200101, "dataTime": 100 * hour},
                **{
                    "latitudeOfFirstGridPointInDegrees": 52,
                    "longitudeOfFirstGridPointInDegrees": 0,
                },
                **{"latitudeOfLastGridPointInDegrees": 50, "longitudeOfLastGridPointInDegrees": 3},
                **{"iDirectionIncrementInDegrees": 1, "jDirectionIncrementInDegrees": 1},
                **{"typeOfLevel": kind, "level": level, "shortName": name},
            }
            for key, setting in keys.items():
                eccodes.codes_set(message, key, setting)
            eccodes.codes_set_values(message, value + np.arange(12.0))
            eccodes.codes_write(message, file)
            eccodes.codes_release(message)
    return path
