import h5py
import numpy as np
import pytest
import scipy.io

from gpo.data.dataset import DataError
from gpo.data.readers.fno import write_fno
from gpo.data.readers.registry import open_data
from tests.core.data.files import frames_of

TIMES = np.arange(1.0, 6.0)


@pytest.fixture
def arrays():
    generator = np.random.default_rng(0)
    a = generator.normal(size=(3, 8, 10)).astype(np.float32)
    u = generator.normal(size=(3, 8, 10, 5)).astype(np.float32)
    return a, u


@pytest.fixture
def file(arrays, tmp_path):
    a, u = arrays
    path = tmp_path / "ns.mat"
    write_fno(path, TIMES, [{"a": a[:2], "u": u[:2]}, {"a": a[2:], "u": u[2:]}], a.shape)
    return path


def expected(u):
    return np.moveaxis(u, -1, 1).reshape(3, 5, 80, 1)


def test_what_was_written_is_read_exactly(file, arrays):
    data = open_data(file)
    np.testing.assert_array_equal(frames_of(data), expected(arrays[1]))
    np.testing.assert_array_equal(data.time, TIMES)
    assert data.layout == "ns2d"
    assert data.geometry().domain.periodic == (True, True)
    assert data.geometry().grid_shape == (8, 10)
    np.testing.assert_array_equal(data.frames(1, slice(2, 4)), expected(arrays[1])[1, 2:4])


def test_other_clients_find_the_published_keys_and_shapes(file, arrays):
    _, u = arrays
    with h5py.File(file) as opened:
        assert {name: item.shape for name, item in opened.items()} == {
            "a": (10, 8, 3), "t": (5, 1), "u": (5, 10, 8, 3),
        }  # fmt: skip
        # As FNO's own loader does: read all, then reverse the axes.
        read = np.transpose(opened["u"][()], axes=range(3, -1, -1))
        np.testing.assert_array_equal(read, u)
        assert opened["u"].attrs["MATLAB_class"] == b"single"
    assert file.read_bytes()[:19] == b"MATLAB 7.3 MAT-file"
    assert file.read_bytes()[124:128] == b"\x00\x02IM"
    assert scipy.io.matlab.matfile_version(str(file))[0] == 2


def test_axes_in_python_order_and_version_5_files_are_read_too(arrays, tmp_path):
    a, u = arrays
    plain = tmp_path / "plain.mat"
    with h5py.File(plain, "w") as opened:
        opened["u"], opened["a"], opened["t"] = u, a, TIMES
    old = tmp_path / "old.mat"
    scipy.io.savemat(old, {"u": u, "a": a, "t": TIMES})
    for path in (plain, old):
        np.testing.assert_array_equal(frames_of(open_data(path)), expected(u))


def test_the_transposed_view_without_matlabs_marks_is_recognised_by_its_shapes(arrays, tmp_path):
    a, u = arrays
    path = tmp_path / "view.mat"
    with h5py.File(path, "w") as opened:
        opened["u"], opened["a"], opened["t"] = u.T, a.T, TIMES[:, None]
    np.testing.assert_array_equal(frames_of(open_data(path)), expected(u))


def test_a_file_is_recognised_by_its_content_not_its_suffix(file, arrays):
    other = file.rename(file.with_suffix(".h5"))
    assert open_data(other).layout == "ns2d"
    np.testing.assert_array_equal(frames_of(open_data(other)), expected(arrays[1]))


def test_the_same_call_gives_the_same_bytes(file, arrays, tmp_path):
    a, u = arrays
    again = tmp_path / "again.mat"
    write_fno(again, TIMES, [{"a": a, "u": u}], a.shape)
    assert again.read_bytes() == file.read_bytes()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"t": None}, "ns.mat: `t` is missing; / has a, u"),
        ({"t": TIMES[:3]}, "`t` must have 5 times as `u` has, got 3"),
        ({"t": TIMES[::-1] * 0}, "`t` must be distinct"),
        ({"t": np.array([1.0, 3, 2, 4, 5])}, "`t` must be sorted"),
        ({"t": np.array([1.0, np.nan, 2, 4, 5])}, "`t` must be finite"),
        ({"a": np.zeros((3, 8, 9))}, r"`a` must have shape \(3, 8, 10\)"),
        ({"u": np.full((3, 8, 10, 5), np.nan)}, "`vorticity` holds no number at all"),
        ({"u": np.zeros((3, 8, 10, 0)), "t": np.zeros(0)}, "`t` has length zero"),
        ({"a": np.zeros((3, 8)), "u": np.zeros((3, 8, 5))}, "file"),
    ],
)
def test_unusable_files_are_refused_by_field(arrays, tmp_path, changes, message):
    content = {"u": arrays[1], "a": arrays[0], "t": TIMES, **changes}
    path = tmp_path / "ns.mat"
    with h5py.File(path, "w") as opened:
        for name, value in content.items():
            if value is not None:
                opened[name] = value
    with pytest.raises(DataError, match=message):
        open_data(path, reader="ns2d" if "u" not in changes or np.ndim(changes["u"]) == 4 else None)
