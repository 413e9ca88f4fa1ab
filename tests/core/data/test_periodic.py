import numpy as np
import pytest

from gpo.data.dataset import DataError
from gpo.data.periodic import looks_periodic
from gpo.data.readers.base import ReadOptions
from gpo.data.readers.registry import open_data

TIME = np.arange(12.0)


def write(path, x, field):
    np.savez(path, x=x, t=TIME, u=np.stack([field(x, t) for t in TIME]))
    return path


def wave(x, t):
    return np.sin(2 * np.pi * (x - 0.1 * t)) + 0.3 * np.cos(4 * np.pi * x)


@pytest.mark.parametrize("ends", [False, True])
def test_a_named_axis_is_periodic_with_or_without_its_end_point(tmp_path, ends):
    path = write(tmp_path / "a.npz", np.linspace(0, 1, 33 if ends else 32, endpoint=ends), wave)
    geometry = open_data(path, ReadOptions(periodic=("x",))).geometry()
    assert geometry.domain.periodic == (True,)
    assert (geometry.domain.lower, geometry.domain.upper) == ((0,), (pytest.approx(1),))
    assert geometry.weights.sum() == pytest.approx(1)


def test_only_axes_with_smooth_ends_are_reported_as_periodic(tmp_path):
    x = np.linspace(0, 1, 32, endpoint=False)
    assert looks_periodic(open_data(write(tmp_path / "a.npz", x, wave))) == ["x"]
    assert (
        looks_periodic(open_data(write(tmp_path / "b.npz", x, lambda x, t: x * wave(x, t)))) == []
    )
    walls = write(tmp_path / "c.npz", np.linspace(0, 1, 33), lambda x, t: np.sin(np.pi * x) * t)
    assert looks_periodic(open_data(walls)) == []
    periodic = open_data(tmp_path / "a.npz", ReadOptions(periodic=("x",)))
    assert looks_periodic(periodic) == []


def test_an_unknown_axis_cannot_be_periodic(tmp_path):
    path = write(tmp_path / "a.npz", np.arange(16) / 16, wave)
    with pytest.raises(DataError, match="`periodic` must be one of x, got 'z'"):
        open_data(path, ReadOptions(periodic=("z",)))
