"""Files with lost bytes, messages or names are refused, not read as wrong values."""

import json
import shutil
import struct
from pathlib import Path

import eccodes
import h5py
import netCDF4
import numcodecs
import numpy as np
import pytest
import xarray as xr
from zarr.codecs import BloscCodec

from gpo.cli.describe import describe
from gpo.data.dataset import DataError
from gpo.data.geometry import Geometry
from gpo.data.query_points import read_query_points
from gpo.data.readers.base import ReadOptions
from gpo.data.readers.hdf5 import check_hdf5
from gpo.data.readers.lengths import _messages, check_length
from gpo.data.readers.registry import open_data
from gpo.data.summary import value_notes
from tests.contracts.samples import SAMPLES
from tests.core.data.readers.gridded_files import grid, write_grib

MED = Path(__file__).parents[4] / "shared/data/era5/era5_u10v10sst_med_daily12z_2022-01.nc"
T, X = np.arange(5.0), np.arange(16.0) / 7


@pytest.mark.parametrize("format", ["NETCDF3_CLASSIC", "NETCDF3_64BIT", "NETCDF3_64BIT_DATA"])
@pytest.mark.parametrize("records", [[], ["a"], ["a", "b"]])
def test_a_classic_file_with_a_byte_less_or_more_is_refused(tmp_path, format, records):
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w", format=format) as file:
        file.createDimension("time", None)
        for name, length in (("t", 3), ("lat", 3), ("lon", 5)):
            file.createDimension(name, length)
        file.title = "odd"
        for name in ("a", "b"):
            dims = ("time" if name in records else "t", "lat", "lon")
            file.createVariable(name, "i2", dims)[:] = np.arange(45).reshape(3, 3, 5)
        for name, units in (("lat", "degrees_north"), ("lon", "degrees_east")):
            axis = file.createVariable(name, "f4", (name,))
            axis.units, axis[:] = units, np.arange(len(file.dimensions[name]))
        for name in ("time", "t"):
            if name == "t" or records:
                axis = file.createVariable(name, "i4", (name,))
                axis.units, axis[:] = "hours since 2020-01-01", np.arange(3)
    variable = (records or ["a"])[0]
    options = ReadOptions(variables=(variable,))
    content = path.read_bytes()
    open_data(path, options)
    for other in (content[:-1], content[:-9] + content[-8:], content + b"\0"):
        path.write_bytes(other)
        with pytest.raises(DataError, match=f"has {len(other)} bytes, its header says"):
            open_data(path, options)


def test_a_lone_series_of_records_has_no_padding(tmp_path):
    path = tmp_path / "a.nc"
    data = xr.Dataset({"u": (("time", "x"), np.arange(9, dtype="i1").reshape(3, 3))})
    data.to_netcdf(path, format="NETCDF3_CLASSIC", unlimited_dims=["time"])
    assert path.stat().st_size % 4
    content = path.read_bytes()
    np.testing.assert_array_equal(open_data(path).frames(0, slice(0, 3)).ravel(), np.arange(9))
    path.write_bytes(content[:-1])
    with pytest.raises(DataError, match="its header says"):
        open_data(path)


@pytest.mark.skipif(not MED.exists(), reason="the Mediterranean file is not beside the project")
def test_the_mediterranean_file_with_a_byte_lost_is_refused(tmp_path):
    content = MED.read_bytes()
    for cut in (len(content) - 1, len(content) // 3):
        (tmp_path / "a.nc").write_bytes(content[:cut] + content[cut + 1 :])
        with pytest.raises(DataError, match="has 1936451 bytes, its header says 1936452"):
            open_data(tmp_path / "a.nc", ReadOptions(variables=("sst",)))


@pytest.mark.parametrize("number", [2, 2**31 - 1])
def test_a_classic_header_with_negative_sizes_is_refused_in_finite_time(tmp_path, number):
    path = tmp_path / "a.nc"
    # Attributes of negative size, so that the parser would not advance.
    counts = (0, 0, 0, 12, number, 0, 4, -3)
    path.write_bytes(b"CDF\x01" + struct.pack(">8i", *counts) + bytes(64))
    with pytest.raises(DataError, match="cannot be opened as NetCDF by its header"):
        open_data(path)


@pytest.mark.parametrize("number", [10**5, 10**5 + 1])
def test_a_classic_header_is_walked_up_to_a_number_of_entries(tmp_path, number):
    """A sparse file, which takes no space, could claim any number of dimensions."""
    path = tmp_path / "a.nc"
    path.write_bytes(b"CDF\x01" + struct.pack(">3i", 0, 10, number) + bytes(8 * number + 16))
    if number == 10**5:
        check_length(path)
        return
    with pytest.raises(DataError, match="cannot be opened as NetCDF by its header"):
        check_length(path)


def hours(*times):
    return [("2t", "heightAboveGround", 2, hour, 280 + hour) for hour in times]


def test_a_grib_file_whose_message_is_not_found_is_refused(tmp_path):
    path = write_grib(tmp_path / "a.grib2", hours(0, 1, 2))
    content = path.read_bytes()
    second = content.index(b"GRIB", 4)
    path.write_bytes(content[:second] + b"GRIC" + content[second + 4 :])
    with pytest.raises(DataError):
        open_data(path)
    path.write_bytes(content[: second - 4] + b"7776" + content[second:])
    with pytest.raises(DataError):
        open_data(path)


def test_a_grib_message_without_a_length_is_refused_and_not_counted_for_ever(tmp_path):
    path = write_grib(tmp_path / "a.grib2", hours(0, 1, 2))
    content = path.read_bytes()
    third = content.index(b"GRIB", content.index(b"GRIB", 4) + 4)
    for length in (0, 4, 8):
        path.write_bytes(content[: third + 8] + length.to_bytes(8, "big") + content[third + 16 :])
        with pytest.raises(DataError, match="no message ends and none begins"):
            list(_messages(path))


@pytest.mark.parametrize("length", [0, 4, 5, 22, 1000, 2**32 - 1])
def test_a_grib_section_of_another_length_is_refused_before_the_library_sees_it(tmp_path, length):
    path = write_grib(tmp_path / "a.grib2", hours(0, 1))
    content = path.read_bytes()
    path.write_bytes(content[:16] + length.to_bytes(4, "big") + content[20:])
    with pytest.raises(DataError, match="a section of the wrong length"):
        open_data(path)


@pytest.mark.parametrize("kept", [1, 2, 3, 4, 7, 8, 15, 16, 40])
def test_a_grib_file_cut_in_the_first_bytes_of_a_message_is_refused(tmp_path, kept):
    path = write_grib(tmp_path / "a.grib2", hours(0, 1, 2))
    content = path.read_bytes()
    third = content.index(b"GRIB", content.index(b"GRIB", 4) + 4)
    path.write_bytes(content[: third + kept])
    with pytest.raises(DataError):
        open_data(path)


def test_grib_messages_above_8_mib_are_counted_as_well(tmp_path):
    path = tmp_path / "a.grib"
    with path.open("wb") as file:
        for hour in (0, 1):
            message = eccodes.codes_grib_new_from_samples("regular_ll_sfc_grib1")
            for key, value in {"Ni": 2100, "Nj": 2100, "dataTime": 100 * hour}.items():
                eccodes.codes_set(message, key, value)
            eccodes.codes_set(message, "bitsPerValue", 16)
            eccodes.codes_set_values(message, np.linspace(0, 1, 2100 * 2100))
            eccodes.codes_write(message, file)
            eccodes.codes_release(message)
    content = path.read_bytes()
    assert content[4] & 0x80
    assert list(_messages(path)) == [0, len(content) // 2]
    path.write_bytes(content[:-1])
    with pytest.raises(DataError, match="no message ends"):
        list(_messages(path))


def test_a_grib_file_with_a_repeated_time_is_refused(tmp_path):
    path = write_grib(tmp_path / "a.grib2", hours(0, 1, 1, 2))
    with pytest.raises(DataError, match=r"`t2m` has 2 messages of one time and level"):
        open_data(path)


def test_a_grib_file_of_bulletins_is_read(tmp_path):
    content = write_grib(tmp_path / "a.grib2", hours(0, 1, 2)).read_bytes()
    bulletins = content.replace(b"GRIB", b"\r\nTEMP01 ECMF 010000\r\r\nGRIB")
    (tmp_path / "b.grib2").write_bytes(bulletins + bytes(2000))
    assert len(open_data(tmp_path / "b.grib2").time) == 3


def test_a_well_file_that_leaves_out_a_variable_is_refused(tmp_path):
    path = SAMPLES["well"][1](tmp_path)
    with h5py.File(path, "r+") as file:
        fields = file["t0_fields"]
        lost, *rest = fields.attrs["field_names"]
        fields.attrs["field_names"] = rest
    with pytest.raises(DataError, match=f"`{lost}` is in /t0_fields, but its `field_names`"):
        open_data(path)


@pytest.mark.parametrize("place", ["before", "within", "behind"])
@pytest.mark.parametrize("name", ["x.npy", "u.npy"])
def test_inserted_bytes_in_an_array_are_detected_by_its_length(tmp_path, name, place):
    folder = SAMPLES["a folder of arrays"][1](tmp_path)
    content = (folder / name).read_bytes()
    at = {"before": 128, "within": len(content) - 16, "behind": len(content)}[place]
    (folder / name).write_bytes(content[:at] + content[128:136] + content[at:])
    with pytest.raises(DataError, match=f"has {len(content) + 8} bytes, its header says {len(content)}"):  # fmt: skip
        open_data(folder)


def test_query_points_with_inserted_bytes_are_refused(tmp_path):
    path, rows = tmp_path / "points.npy", np.random.default_rng(0).random((5, 2))
    np.save(path, rows)
    geometry = Geometry.unstructured(np.random.default_rng(1).random((9, 2)) * 2 - 0.5)
    assert read_query_points(path, geometry).shape == (5,)
    with path.open("ab") as file:
        np.save(file, rows)
    with pytest.raises(DataError, match="other arrays follow the first"):
        read_query_points(path, geometry)


@pytest.mark.parametrize("library", ["earliest", "latest"])
@pytest.mark.parametrize("user_block", [0, 512])
def test_inserted_bytes_in_hdf5_are_detected_by_its_length(tmp_path, library, user_block):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver=library, userblock_size=user_block) as file:
        for name, values in {"t": T, "x": X, "u": T[:, None] + X}.items():
            file[name] = values
    content = path.read_bytes()
    np.testing.assert_array_equal(open_data(path).frames(0)[..., 0], T[:, None] + X)
    at = content.index((T[:, None] + X).tobytes())
    path.write_bytes(content[:at] + bytes(8) + content[at:])
    message = f"has {len(content) + 8} bytes, its header says {len(content)}.*truncate -s {len(content)} "  # fmt: skip
    with pytest.raises(DataError, match=message):
        open_data(path)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("damage", [lambda c: c[:-8], lambda c: c + c[-8:], lambda c: c[:4]])
def test_a_chunk_of_blosc_that_is_cut_or_longer_is_refused(tmp_path, zarr_format, damage):
    packed = {2: numcodecs.Blosc(), 3: BloscCodec(typesize=8, shuffle="shuffle")}[zarr_format]
    path, name = tmp_path / "a.zarr", {2: "t2m/0.0.0", 3: "t2m/c/0/0/0"}[zarr_format]
    grid().to_zarr(
        path, zarr_format=zarr_format, consolidated=False, encoding={"t2m": {"compressors": packed}}
    )
    assert open_data(path).num_samples == 1
    content = (path / name).read_bytes()
    (path / name).write_bytes(damage(content))
    with pytest.raises(DataError, match=rf"`{name}` is a chunk of {len(damage(content))} bytes"):
        open_data(path)


def test_a_chunk_of_blosc_that_would_unpack_to_more_is_refused(tmp_path):
    path = tmp_path / "a.zarr"
    packed = {"t2m": {"compressors": numcodecs.Blosc()}}
    grid().to_zarr(path, zarr_format=2, consolidated=False, encoding=packed)
    (path / "t2m/0.0.0").write_bytes(numcodecs.Blosc().encode(bytes(2**20)))
    with pytest.raises(DataError, match="unpacks to 1048576, not "):
        open_data(path)


HEAP = b"GCOL\x01\0\0\0"


def test_a_heap_whose_free_space_has_no_length_is_refused_before_the_library_walks_it(tmp_path):
    path = SAMPLES["carra"][1](tmp_path)
    path = path[0] if isinstance(path, tuple) else path
    content = bytearray(path.read_bytes())
    begin = content.index(HEAP)
    check_hdf5(path)
    # Turn the first object into free space, whose size includes its header of 16 bytes.
    content[begin + 16 : begin + 18] = bytes(2)
    for length in (0, 8, 15):
        content[begin + 24 : begin + 32] = length.to_bytes(8, "little")
        path.write_bytes(content)
        with pytest.raises(DataError, match=f"heap at byte {begin} has free space shorter than"):
            check_hdf5(path)


@pytest.mark.parametrize("userblock_size", [0, 512])
@pytest.mark.parametrize("chunks", [None, (100,)])
def test_values_that_resemble_a_heap_are_accepted(tmp_path, chunks, userblock_size):
    path = tmp_path / "a.h5"
    values = np.frombuffer(HEAP + (4096).to_bytes(8, "little") + bytes(984), "u1")
    with h5py.File(path, "w", userblock_size=userblock_size) as file:
        file.create_dataset("u", data=values, chunks=chunks)
    assert HEAP in path.read_bytes()
    check_hdf5(path)


def test_heaps_with_space_that_became_free_are_whole(tmp_path):
    path, text = tmp_path / "a.h5", h5py.string_dtype()
    with h5py.File(path, "w") as file:
        file.create_dataset("names", data=["n" * length for length in range(999)], dtype=text)
        for turn in range(5):
            file["names"][turn::3] = "m" * (7 * turn)
            file.attrs["note"] = "a note" * turn
        del file.attrs["note"]
    assert path.read_bytes().count(HEAP) > 5
    check_hdf5(path)
    with h5py.File(path) as file:
        assert file["names"][998] == b"m" * 14
        assert file["names"][3] == b"m" * 21


def zarr_of_frames(path, zarr_format, *, consolidated=False):
    """Writes a chunk per frame, with NaN where chunks are not stored."""
    data = grid()
    data["t2m"].encoding["_FillValue"] = np.float32(np.nan)
    chunks = {"t2m": {"chunks": (1, *data["t2m"].shape[1:])}}
    data.to_zarr(path, zarr_format=zarr_format, consolidated=consolidated, encoding=chunks)
    return path, path / {2: "t2m/1.0.0", 3: "t2m/c/1/0/0"}[zarr_format]


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("name", ["x", "9.0.0", "1.0.0x", "0x1.0.0"])
def test_a_chunk_of_another_name_does_not_read_as_missing(tmp_path, zarr_format, name):
    path, chunk = zarr_of_frames(tmp_path / "a.zarr", zarr_format)
    whole = open_data(path).frames(0)
    chunk.rename(chunk.with_name(name))
    with pytest.raises(DataError, match=f"{name}` is no chunk of `t2m`, which lacks 1 of them"):
        open_data(path)
    # Frames without any value are not stored, and other files may lie beside whole arrays.
    chunk.with_name(name).unlink()
    data = open_data(path)
    assert np.isnan(data.frames(0)).sum() == whole[0].size
    (note,) = (note for note in value_notes(data) if "chunks" in note)
    assert note == "1 of 2 chunks of t2m are not in the store; they are read as missing"
    assert any(note in text for _, text in describe(data))
    (path / "lat/note.txt").write_text("hand-made")
    open_data(path)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part")
def test_an_array_that_only_the_consolidated_metadata_have_is_missed(tmp_path, zarr_format):
    path, _ = zarr_of_frames(tmp_path / "a.zarr", zarr_format, consolidated=True)
    open_data(path)
    shutil.rmtree(path / "t2m")
    with pytest.raises(DataError, match="`t2m` is listed in the consolidated metadata, but not"):
        open_data(path)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_variable_whose_dimensions_are_misspelt_is_not_left_out(tmp_path, zarr_format):
    path = tmp_path / "a.zarr"
    data = grid()
    data.assign(u=data["t2m"] + 1).to_zarr(path, zarr_format=zarr_format, consolidated=False)
    file = path / {2: "u/.zattrs", 3: "u/zarr.json"}[zarr_format]
    key = {2: "_ARRAY_DIMENSIONS", 3: "dimension_names"}[zarr_format]
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, key: ["tine", *content[key][1:]]}))
    with pytest.raises(DataError, match=r"`u` has dimensions \(tine, .* others .* have \(time, "):
        open_data(path)
    assert open_data(path, ReadOptions(variables=("t2m",))).variables[0].name == "t2m"
