"""Byte ranges of values in files, by which the fuzzer explains undetectable damage."""

from dataclasses import replace

import h5py
import numpy as np
import pytest
import xarray as xr
from scipy.io import savemat

from tests.contracts.fuzz import Damage, Finding, IntactFile
from tests.contracts.stored_numbers import changes_outside, number_ranges
from tests.core.data.readers.gridded_files import write_grib

U, V = np.random.default_rng(5).normal(size=(2, 3, 4))


def hdf5(folder):
    with h5py.File(folder / "a.h5", "w", userblock_size=512) as file:
        file["group/u"] = U
        file.create_dataset("v", data=V, chunks=(1, 4))
        file["v"].attrs["scale"] = 2.0
    return folder / "a.h5", "<f8"


def classic(folder):
    data = xr.Dataset({"u": (("y", "x"), U), "v": (("y", "x"), V)}, attrs={"note": "text"})
    data.to_netcdf(folder / "a.nc", format="NETCDF3_CLASSIC")
    return folder / "a.nc", ">f8"


def records(folder):
    data = xr.Dataset({"u": (("t", "x"), U), "v": (("t", "x"), V)})
    data.to_netcdf(folder / "a.nc", format="NETCDF3_64BIT", unlimited_dims=["t"])
    return folder / "a.nc", ">f8"


def npy(folder):
    np.save(folder / "a.npy", np.stack([U, V]))
    return folder / "a.npy", "<f8"


def matlab_5(folder):
    savemat(folder / "a.mat", {"u": U.T, "v": V.T, "a_name_of_many_letters": np.zeros((1, 0))})
    return folder / "a.mat", "<f8"


@pytest.mark.parametrize("save", [hdf5, classic, records, npy, matlab_5])
def test_value_ranges_contain_all_values_and_nothing_else(tmp_path, save):
    path, kind = save(tmp_path)
    content = path.read_bytes()
    values_in_ranges = b"".join(content[start:stop] for start, stop in number_ranges(path))
    stored = np.frombuffer(values_in_ranges, kind)
    np.testing.assert_array_equal(np.sort(stored), np.sort(np.r_[U.ravel(), V.ravel()]))


def test_value_ranges_of_grib_are_the_ends_of_its_messages(tmp_path):
    hours = [("2t", "heightAboveGround", 2, hour, 280 + hour) for hour in (0, 1)]
    path = write_grib(tmp_path / "a.grib2", hours)
    content = path.read_bytes()
    ends = [content.index(b"7777"), len(content) - 4]
    ranges = number_ranges(path)
    assert [stop for _, stop in ranges] == ends
    for start, stop in ranges:
        # The values follow the length of the section and its number, 7.
        assert content[start - 5 : start] == (stop - start + 5).to_bytes(4, "big") + b"\7"


def test_value_ranges_of_zarr_are_chunks_without_their_header(tmp_path):
    for name, expected in ((".zarray", []), ("zarr.json", []), ("0.0", [(16, 40)])):
        (tmp_path / name).write_bytes(bytes(40))
        assert number_ranges(tmp_path / name) == expected


def test_changes_outside_of_values_are_distinguished_from_those_inside():
    assert changes_outside(b"head1234tail", b"head9999tail", [(4, 8)]) is None
    assert changes_outside(b"head1234tail", b"HeaD9999tail", [(4, 8)]) == b"HeaD1234tail"


@pytest.mark.parametrize(
    ("place", "met"), [("number", "numbers"), ("name", "declared"), ("both", "declared")]
)
def test_damage_is_classified_by_its_bytes(tmp_path, monkeypatch, place, met):
    path = tmp_path / "a.nc"
    axes = {"lat": [50.0, 51, 52], "lon": [1.0, 2, 3, 4]}
    series = np.stack([U, V])
    data = xr.Dataset({"t2m": (("time", "lat", "lon"), series)}, {**axes, "time": [0.0, 1]})
    data["t2m"].attrs["units"], data["time"].attrs["units"] = "K", "hours since 2020-01-01"
    data.to_netcdf(path, format="NETCDF3_CLASSIC")
    victim = IntactFile.of("a grid", path)
    (tmp_path / "work").mkdir()

    def spoil(_, content):
        changed = bytearray(content)
        if place in ("number", "both"):
            changed[content.index(series.astype(">f8").tobytes()) + 5] ^= 1
        if place in ("name", "both"):
            changed[content.index(b"hours since 2020") + 15] ^= 1
        return "flip", bytes(changed)

    monkeypatch.setattr(Damage, "apply", spoil)
    finding = Finding("a grid", 0, "flip", "a.nc", "values")
    assert victim.met(finding, 0, tmp_path / "work") == met
    assert replace(finding, met=met).reason == met
    with pytest.raises(ValueError, match="is not reproduced by the seed 0"):
        victim.met(Finding("a grid", 0, "zero", "a.nc", "values"), 0, tmp_path / "work")
