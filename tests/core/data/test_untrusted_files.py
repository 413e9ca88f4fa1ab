"""Files crafted to run code, to read other files or to exhaust memory are refused."""

import io
import json
import os
import pickle
import shutil
import struct
import zipfile
import zlib

import h5py
import numpy as np
import pytest

from gpo.data.dataset import DataError
from gpo.data.readers.base import ReadOptions
from gpo.data.readers.hdf5 import check_hdf5
from gpo.data.readers.registry import open_data, read_parameters
from gpo.limits import MAX_BYTES
from tests.contracts.samples import SAMPLES
from tests.core.data.readers.gridded_files import grid, save

SECRET = b"root:x:0:0:secret" * 16


@pytest.fixture
def store(tmp_path):
    path = tmp_path / "a.zarr"
    grid().to_zarr(path, zarr_format=2, consolidated=False)
    return path


@pytest.fixture
def store_3(tmp_path):
    path = tmp_path / "a.zarr"
    grid().to_zarr(path, zarr_format=3, consolidated=False)
    return path


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "secret"
    path.write_bytes(SECRET)
    return path


def edit(file, **changes):
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


class Touch:
    """Creates a folder when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_a_zarr_store_of_pickles_runs_nothing(store, tmp_path, monkeypatch):
    monkeypatch.setattr("numcodecs.pickles.ALLOW_UNSAFE_PICKLE_DECODE", True, raising=False)
    edit(store / "lat/.zarray", dtype="|O", filters=[{"id": "pickle"}], compressor=None, fill_value=None)  # fmt: skip
    (store / "lat/0").write_bytes(pickle.dumps(Touch(tmp_path / "ran")))
    with pytest.raises(DataError, match=r"`lat` is written with the codec 'pickle'"):
        open_data(store)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dtype": "|O", "filters": None}, "Python objects"),
        ({"dtype": [["a", "|O"], ["b", "<f8"]]}, "Python objects"),
        ({"filters": [{"id": "pickle"}]}, "codec 'pickle'"),
        ({"filters": [{"id": "json2"}]}, "codec 'json2'"),
        ({"compressor": {"id": "mine"}}, "codec 'mine'"),
        ({"filters": [{"id": "astype", "encode_dtype": "|O", "decode_dtype": "<f8"}]}, "objects"),
        ({"chunks": [2, 10**6, 10**6]}, "would take 7.276 TiB of memory.*GPO_MAX_BYTES="),
        ({"shape": [2, 2000, 2000], "chunks": [1, 1, 1]}, "8000000 chunks of 4 bytes"),
        ({"chunks": [1, 2]}, "has chunks"),
        ({"chunks": [0, 3, 4]}, "has chunks"),
        ({"shape": 3}, "metadata that cannot be read"),
    ],
)
def test_a_zarr_array_of_format_2_is_validated_by_its_metadata(store, changes, message):
    edit(store / "t2m/.zarray", **changes)
    with pytest.raises(DataError, match=f"`t2m` .*{message}"):
        open_data(store)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data_type": {"name": "object"}}, "entries of type"),
        ({"data_type": "mine.object"}, "entries of type"),
        ({"codecs": [{"name": "numcodecs.pickle", "configuration": {}}]}, "codec 'numcodecs.pickle'"),
        ({"codecs": ["mine"]}, "codec 'mine'"),
        ({"storage_transformers": [{"name": "mine"}]}, "storage transformers"),
        ({"chunk_grid": {"name": "mine"}}, "must be regular"),
        (
            {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 10**6, 10**6]}}},
            "would take 7.276 TiB",
        ),
        (
            {"codecs": [{"name": "sharding_indexed", "configuration": {
                "chunk_shape": [1, 1, 1], "codecs": [{"name": "numcodecs.pickle"}]}}]},
            "codec 'numcodecs.pickle'",
        ),
    ],
)  # fmt: skip
def test_a_zarr_array_of_format_3_is_validated_by_its_metadata(store_3, changes, message):
    edit(store_3 / "t2m/zarr.json", **changes)
    with pytest.raises(DataError, match=f"`t2m` .*{message}"):
        open_data(store_3)


def test_long_zarr_text_of_format_3_is_validated_by_its_bytes(store_3):
    kind = {"name": "fixed_length_utf32", "configuration": {"length_bytes": 2**40}}
    edit(store_3 / "t2m/zarr.json", data_type=kind)
    with pytest.raises(DataError, match=r"`t2m` would take 24 TiB"):
        open_data(store_3)


def test_long_attributes_of_a_zarr_array_are_no_chunk(tmp_path):
    data = grid()
    data.t2m.attrs["history"] = "a" * 200_000
    for number in (2, 3):
        path = tmp_path / f"{number}.zarr"
        data.to_zarr(path, zarr_format=number, consolidated=False)
        assert open_data(path).num_samples == 1


def test_a_zarr_array_of_exabytes_is_refused(store):
    (store / "t2m/0.0.0").unlink()
    edit(store / "t2m/.zarray", shape=[10**6, 10**6, 10**6], chunks=[1, 1000, 1000])
    with pytest.raises(DataError, match=r"bytes on disk, and would take .* TiB of memory"):
        open_data(store)


@pytest.mark.parametrize(("number", "name"), [(2, "lat/.zarray"), (3, "t2m/zarr.json")])
def test_a_zarr_array_that_lost_its_metadata_is_not_left_out(tmp_path, number, name):
    path = tmp_path / "a.zarr"
    grid().to_zarr(path, zarr_format=number, consolidated=False)
    (path / name).unlink()
    with pytest.raises(DataError, match="is a chunk without array metadata"):
        open_data(path)


def test_zarr_metadata_nested_without_end_are_refused(store):
    (store / "t2m/.zarray").write_text("[" * 100_000)
    with pytest.raises(DataError, match="metadata that cannot be read"):
        open_data(store)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_zarr_text_and_the_usual_codecs_are_read(tmp_path, zarr_format):
    path = tmp_path / "text.zarr"
    data = grid().assign_coords(name=("lon", np.array(["a", "bb", "c", "d"], dtype=object)))
    data.to_zarr(path, zarr_format=zarr_format, consolidated=False)
    if zarr_format == 2:
        assert json.loads((path / "name/.zarray").read_text())["dtype"] == "|O"
    assert open_data(path).num_samples == 1


def test_shards_are_read(tmp_path):
    path = tmp_path / "shards.zarr"
    encoding = {"t2m": {"chunks": (1, 3, 2), "shards": (2, 3, 4)}}
    grid().to_zarr(path, zarr_format=3, consolidated=False, encoding=encoding)
    assert open_data(path).num_samples == 1


def test_a_zarr_chunk_that_links_outside_is_refused(store, secret):
    chunk = store / "t2m/0.0.0"
    chunk.unlink()
    chunk.symlink_to(secret)
    with pytest.raises(DataError, match=r"`t2m/0.0.0` is a link that leaves the folder"):
        open_data(store)


def test_a_zarr_array_that_links_outside_is_refused(store, tmp_path):
    shutil.move(store / "t2m", tmp_path / "elsewhere")
    (store / "t2m").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DataError, match=r"`t2m` is a link that leaves the folder"):
        open_data(store)


@pytest.mark.parametrize("target", ["0.0.0", "1.0.0", "not there"])
def test_a_zarr_chunk_with_a_circular_or_broken_link_is_refused(store, target):
    for name, other in (("0.0.0", target), ("1.0.0", "0.0.0")):
        (store / "t2m" / name).unlink(missing_ok=True)
        (store / "t2m" / name).symlink_to(other)
    with pytest.raises(DataError, match=r"`t2m/[01].0.0` is a link to a folder, or broken. Copy"):
        open_data(store)


def test_a_zarr_chunk_that_is_a_pipe_is_refused(store):
    (store / "t2m/0.0.0").unlink()
    os.mkfifo(store / "t2m/0.0.0")
    with pytest.raises(DataError, match=r"`t2m/0.0.0` is not a regular file"):
        open_data(store)


def test_a_zarr_chunk_with_more_than_it_declares_is_refused(store):
    (store / "t2m/0.0.0").write_bytes(zlib.compress(bytes(2**28)))
    with pytest.raises(DataError, match=r"`t2m` has a chunk of .* which may hold 96 at most"):
        open_data(store)


def test_a_zarr_store_is_read_by_the_validated_metadata(tmp_path):
    """Consolidated metadata may differ, and are ignored."""
    path = tmp_path / "a.zarr"
    grid().to_zarr(path, zarr_format=2, consolidated=True)
    whole = open_data(path).frames(0)
    stored = json.loads((path / ".zmetadata").read_text())
    stored["metadata"]["t2m/.zarray"].update(dtype="|O", filters=[{"id": "pickle"}])
    (path / ".zmetadata").write_text(json.dumps(stored))
    np.testing.assert_array_equal(open_data(path).frames(0), whole)


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_arrays_of_python_objects_run_nothing(tmp_path, name):
    objects = np.array([Touch(tmp_path / "ran")] * 3, dtype=object)
    save_objects = np.save if name == "a.npy" else np.savez
    save_objects(tmp_path / name, objects)
    with pytest.raises(DataError, match="cannot be read as an array"):
        open_data(tmp_path / name)
    assert not (tmp_path / "ran").exists()


def test_a_pickle_in_place_of_an_array_runs_nothing(tmp_path):
    for name in ("a.npy", "a.npz", "a.mat", "a.h5", "a.nc"):
        (tmp_path / name).write_bytes(pickle.dumps(Touch(tmp_path / "ran")))
        with pytest.raises(DataError):
            open_data(tmp_path / name)
    assert not (tmp_path / "ran").exists()


def test_a_null_data_set_is_accepted(tmp_path):
    path = arrays(tmp_path / "a.h5")
    with h5py.File(path, "r+") as file:
        file["nothing"] = h5py.Empty("f8")
    check_hdf5(path)


def arrays(path):
    with h5py.File(path, "w") as file:
        file["t"], file["x"] = np.arange(3.0), np.arange(16.0)
    return path


def outside_storage(file, secret):
    file.create_dataset("u", (3, 16), "u1", external=[(str(secret), 0, 48)])


def outside_link(file, secret):
    file["u"] = h5py.ExternalLink(str(secret), "/u")


def outside_link_in_group(file, secret):
    file["deep/er/u"] = h5py.ExternalLink(str(secret), "/u")


def outside_source(file, secret):
    layout = h5py.VirtualLayout((3, 16), "f8")
    layout[:] = h5py.VirtualSource(str(secret), "u", (3, 16))
    file.create_virtual_dataset("u", layout)


@pytest.mark.parametrize("suffix", [".h5", ".nc", ".mat", ".data"])
@pytest.mark.parametrize(
    "craft", [outside_storage, outside_link, outside_link_in_group, outside_source]
)
def test_hdf5_that_leads_to_another_file_is_refused(tmp_path, secret, craft, suffix):
    path = arrays(tmp_path / f"a{suffix}")
    with h5py.File(secret, "w") as file:
        file["u"] = np.ones((3, 16))
    with h5py.File(path, "r+") as file:
        craft(file, secret)
    with pytest.raises(DataError, match="another file"):
        open_data(path)
    with pytest.raises(DataError, match="another file"):
        open_data(path, reader="arrays")


def test_a_file_of_numbers_that_leads_to_another_file_is_refused(tmp_path, secret):
    path = arrays(tmp_path / "a.nc")
    with h5py.File(path, "r+") as file:
        outside_storage(file, secret)
    with pytest.raises(DataError, match="another file"):
        read_parameters(path, ["u"])


def test_a_well_folder_that_leads_to_another_file_is_refused(tmp_path, secret):
    folder = tmp_path / "split"
    folder.mkdir()
    path = SAMPLES["well"][1](tmp_path)
    shutil.move(path, folder / path.name)
    with h5py.File(folder / path.name, "r+") as file:
        outside_link(file["t0_fields"], secret)
    with pytest.raises(DataError, match="another file"):
        open_data(folder)


def test_links_and_virtual_data_inside_one_file_are_read(tmp_path):
    path = arrays(tmp_path / "a.h5")
    with h5py.File(path, "r+") as file:
        file["hidden/raw"] = np.ones((3, 16))
        file["u"] = h5py.SoftLink("/hidden/raw")
        layout = h5py.VirtualLayout((3, 16), "f8")
        layout[:] = h5py.VirtualSource(file["hidden/raw"])
        file.create_virtual_dataset("v", layout)
    data = open_data(path)
    assert [variable.name for variable in data.variables] == ["u", "v"]
    np.testing.assert_array_equal(data.frames(0, slice(0, 1)), np.ones((1, 16, 2)))


def huge_chunk(file):
    file.create_dataset("u", (3, 2**20, 2**20), "f4", chunks=(1, 2**14, 2**14), compression=1)


def tiny_chunks(file):
    file.create_dataset("u", (3, 2**10, 2**10), "f4", chunks=(1, 1, 1))


def huge_shape(file):
    file.create_dataset("u", (3, 2**20, 2**20), "f4", chunks=(1, 64, 64))


@pytest.mark.parametrize(
    ("craft", "message"),
    [
        (huge_chunk, "`u` would take 1 GiB of memory at once, more than 512 MiB.*GPO_MAX_BYTES="),
        (tiny_chunks, "`u` has 3145728 chunks of 4 bytes"),
        (huge_shape, "on disk, and would take 12 TiB of memory.*GPO_MAX_BYTES="),
    ],
)
@pytest.mark.parametrize("suffix", [".h5", ".nc"])
def test_hdf5_that_declares_more_than_the_machine_has_is_refused(
    tmp_path, craft, message, suffix, monkeypatch
):
    monkeypatch.setenv(MAX_BYTES, str(2**29))
    path = arrays(tmp_path / f"a{suffix}")
    with h5py.File(path, "r+") as file:
        craft(file)
    with pytest.raises(DataError, match=message):
        open_data(path)


def test_a_file_larger_than_memory_that_is_read_by_frames_opens(tmp_path, monkeypatch):
    path = save(tmp_path / "a.nc", grid(time=range(200)))
    monkeypatch.setenv(MAX_BYTES, "5000")
    assert open_data(path).time.shape == (200,)
    store = tmp_path / "a.zarr"
    grid(time=range(200)).to_zarr(
        store, consolidated=False, encoding={"t2m": {"chunks": (1, 3, 4)}}
    )
    assert open_data(store).time.shape == (200,)


def npz_of(path, declared):
    """Writes an archive of zeros with a compression ratio of 1000, block by block."""
    shape = (declared // 2**20, 2**17)
    header = {"descr": "<f8", "fortran_order": False, "shape": shape}
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("u.npy", "w", force_zip64=True) as entry,
    ):
        np.lib.format.write_array_header_1_0(entry, header)
        for _ in range(shape[0]):
            entry.write(bytes(2**20))
    return path


def test_an_npz_that_unpacks_beyond_the_limit_is_refused(tmp_path, monkeypatch):
    path = npz_of(tmp_path / "a.npz", 2**26)
    assert path.stat().st_size < 2**17
    monkeypatch.setenv(MAX_BYTES, str(2**25))
    with pytest.raises(DataError, match=r"`file` would take 64 MiB of memory.*GPO_MAX_BYTES=67"):
        open_data(path)


def test_an_npz_with_an_implausible_compression_ratio_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("gpo.limits.LARGE", 2**25)
    path = npz_of(tmp_path / "a.npz", 2**26)
    with pytest.raises(DataError, match=r"`file` would unpack .* KiB to 64 MiB.*GPO_MAX_BYTES="):
        open_data(path)


def matlab_5(path, size):
    """Writes an array of zeros as one compressed element, block by block."""
    packer, content = zlib.compressobj(9), io.BytesIO()
    head = struct.pack("<IIII", 6, 8, 9, 0) + struct.pack("<IIii", 5, 8, 1, size)
    head += struct.pack("<HHc3x", 1, 1, b"u") + struct.pack("<II", 2, size)
    content.write(packer.compress(struct.pack("<II", 14, len(head) + size) + head))
    for _ in range(size // 2**20):
        content.write(packer.compress(bytes(2**20)))
    content.write(packer.flush())
    body = content.getvalue()
    start = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM"
    path.write_bytes(start + struct.pack("<II", 15, len(body)) + body)
    return path


def test_a_matlab_file_that_unpacks_beyond_the_limit_is_refused(tmp_path, monkeypatch):
    path = matlab_5(tmp_path / "a.mat", 2**26)
    assert path.stat().st_size < 2**17
    monkeypatch.setenv(MAX_BYTES, str(2**25))
    with pytest.raises(DataError, match=r"`file` would take 64 MiB of memory.*GPO_MAX_BYTES=67"):
        open_data(path, reader="arrays")


def test_a_matlab_array_that_unpacks_to_more_than_stated_is_refused(tmp_path):
    body = zlib.compress(struct.pack("<II", 14, 64) + bytes(2**24))
    start = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM"
    (tmp_path / "a.mat").write_bytes(start + struct.pack("<II", 15, len(body)) + body)
    with pytest.raises(DataError, match="longer than stated"):
        open_data(tmp_path / "a.mat", reader="arrays")


def test_devices_and_pipes_are_refused(tmp_path):
    for name in ("a.nc", "a.npy", "a.mat", "a.npz", "a"):
        os.mkfifo(tmp_path / name)
        with pytest.raises(DataError, match="is not a regular file"):
            open_data(tmp_path / name)
    with pytest.raises(DataError, match="is not a regular file"):
        open_data("/dev/zero")
    with pytest.raises(DataError, match="is not a regular file"):
        open_data(tmp_path / "a.npy", ReadOptions(), reader="arrays")
    folder = tmp_path / "folder"
    folder.mkdir()
    os.mkfifo(folder / "u.npy")
    with pytest.raises(DataError, match="is not a regular file"):
        open_data(folder)


def test_a_sparse_file_without_content_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv(MAX_BYTES, str(2**30))
    path = tmp_path / "a.npy"
    with path.open("wb") as file:
        header = {"descr": "<f8", "fortran_order": False, "shape": (2**10, 2**24)}
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + 2**37)
    with pytest.raises(DataError, match="bytes on disk, and would take 128 GiB"):
        open_data(path)


def test_a_limit_that_is_no_number_is_refused(tmp_path, monkeypatch):
    np.savez(tmp_path / "a.npz", u=np.ones((3, 8)))
    monkeypatch.setenv(MAX_BYTES, "8G")
    with pytest.raises(ValueError, match="GPO_MAX_BYTES must be a number of bytes, got '8G'"):
        open_data(tmp_path / "a.npz")
