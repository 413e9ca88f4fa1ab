import h5py
import numpy as np
import pytest
import torch

from gpo.data.dataset import DataError
from gpo.data.readers.array_files import open_arrays
from gpo.data.readers.registry import open_data
from tests.core.data.readers.containers import SAVERS, save_hdf5, save_matlab_5
from tests.core.data.test_untrusted_files import Touch

X, T = np.linspace(0, 1, 8), np.linspace(0, 1, 7)
FIELD = np.random.default_rng(0).normal(size=(7, 8))


@pytest.mark.parametrize("save", SAVERS)
def test_truncated_files_are_refused(tmp_path, save):
    path = save(tmp_path, {"x": X, "t": T, "u": FIELD})
    target = path / "u.npy" if path.is_dir() else path
    target.write_bytes(target.read_bytes()[: target.stat().st_size // 2])
    with pytest.raises(DataError, match=r"(data|u)\.\w+: `(file|u)` (cannot be read|is damaged)"):
        open_arrays(path)


@pytest.mark.parametrize("suffix", [".npz", ".npy", ".mat", ".h5"])
@pytest.mark.parametrize("content", [b"", b"this is a text and no data at all\n" * 20])
def test_files_of_other_formats_are_refused(tmp_path, suffix, content):
    path = tmp_path / f"data{suffix}"
    path.write_bytes(content)
    with pytest.raises(
        DataError, match=r"data\.\w+: `(file|data)` (cannot be read|must be|is no MATLAB)"
    ):
        open_arrays(path)


def test_pickles_are_never_opened(tmp_path):
    np.save(tmp_path / "u.npy", np.array([{"a": 1}], dtype=object))
    for path in (tmp_path, tmp_path / "u.npy"):
        with pytest.raises(DataError, match="`u` cannot be read as an array"):
            open_arrays(path)


def test_tensors_of_torch_are_read_and_nothing_else_in_their_files_runs(tmp_path):
    fields = {"x": torch.rand(5, 8, 9), "y": torch.rand(5, 8, 9).bfloat16(), "epoch": 3}
    torch.save(fields, tmp_path / "maps.pt")
    arrays = open_arrays(tmp_path / "maps.pt")
    assert list(arrays) == ["x", "y"]
    np.testing.assert_array_equal(arrays["x"].values(), fields["x"])
    np.testing.assert_array_equal(arrays["y"].values(), fields["y"].float())
    data = open_data(tmp_path / "maps.pt")
    assert (data.num_samples, data.inputs[0].name, data.outputs[0].name) == (5, "x", "y")
    torch.save(fields["x"], tmp_path / "one.pt")
    assert list(open_arrays(tmp_path / "one.pt")) == ["one"]
    torch.save({"x": Touch(tmp_path / "ran")}, tmp_path / "code.pt")
    with pytest.raises(DataError, match="`file` cannot be read"):
        open_arrays(tmp_path / "code.pt")
    assert not (tmp_path / "ran").exists()
    torch.save({"x": torch.zeros(1).expand(2**45)}, tmp_path / "huge.pt")
    with pytest.raises(DataError, match="`x` "):
        open_arrays(tmp_path / "huge.pt")


def test_an_archive_and_a_single_array_need_their_own_suffix(tmp_path):
    np.savez(tmp_path / "data.npz", u=FIELD)
    np.save(tmp_path / "u.npy", FIELD)
    (tmp_path / "data.npz").rename(tmp_path / "one.npy")
    (tmp_path / "u.npy").rename(tmp_path / "two.npz")
    with pytest.raises(DataError, match="must be a single array, got an archive"):
        open_arrays(tmp_path / "one.npy")
    with pytest.raises(DataError, match="must be an archive, got a single array"):
        open_arrays(tmp_path / "two.npz")


def test_hdf5_without_arrays_in_its_root_is_refused(tmp_path):
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["group/u"] = FIELD
    with pytest.raises(DataError, match="holds no array of real numbers in its root"):
        open_arrays(tmp_path / "data.h5")


def test_units_of_hdf5_are_kept(tmp_path):
    path = save_hdf5(tmp_path, {"u": FIELD})
    with h5py.File(path, "a") as file:
        file["u"].attrs["units"] = "m/s"
    assert open_arrays(path)["u"].units == "m/s"


@pytest.mark.parametrize("save", SAVERS)
def test_parts_of_an_array_equal_numpy_indexing(tmp_path, save):
    cube = np.arange(24.0).reshape(2, 3, 4)
    stored = open_arrays(save(tmp_path, {"cube": cube}))["cube"]
    assert stored.shape == cube.shape
    np.testing.assert_array_equal(stored.values(), cube)
    key = (1, slice(None), slice(1, 3))
    np.testing.assert_array_equal(stored.read(key), cube[key])


def test_a_variable_that_scipy_replaces_by_an_error_text_is_refused(tmp_path, monkeypatch):
    path = save_matlab_5(tmp_path, {"u": FIELD})
    excuse = {"__version__": "1.0", "u": "Read error: damaged"}
    monkeypatch.setattr("scipy.io.loadmat", lambda path, **_: excuse)
    with pytest.raises(DataError, match="`u` cannot be read: Read error: damaged"):
        open_arrays(path)
