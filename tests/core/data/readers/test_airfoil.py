import numpy as np
import pytest

from gpo.data.dataset import DataError
from gpo.data.readers.base import ReadOptions
from gpo.data.readers.fno import AIRFOIL, AIRFOIL_FILES
from gpo_bench.solvers.published_files import write_airfoil
from tests.core.data.files import pair


def meshes(samples=3, rows=7, columns=5, dtype=np.float32):
    """Rings of different radius around the origin."""
    angle = np.linspace(0, 2 * np.pi, rows)[None, :, None]
    radius = np.linspace(1, 2, columns) * (1 + np.arange(samples)[:, None, None])
    flow = np.random.default_rng(0).normal(size=(samples, 6, rows, columns))
    return [part.astype(dtype) for part in (radius * np.cos(angle), radius * np.sin(angle), flow)]


def read(folder, **options):
    return AIRFOIL.read(folder, ReadOptions(**options))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_written_is_read_exactly(tmp_path, dtype):
    x, y, q = meshes(dtype=dtype)
    write_airfoil(tmp_path, x, y, q)
    maps = read(tmp_path)
    assert [variable.name for variable in maps.inputs + maps.outputs] == ["x", "y", "mach"]
    assert maps.num_samples == 3
    for sample in range(3):
        mesh, mach = pair(maps, sample)
        np.testing.assert_array_equal(mesh[:, 0].reshape(7, 5), x[sample])
        np.testing.assert_array_equal(mesh[:, 1].reshape(7, 5), y[sample])
        np.testing.assert_array_equal(mach[:, 0].reshape(7, 5), q[sample, 4])
        assert mach.dtype == dtype


def test_every_sample_has_its_own_mesh_in_one_common_domain(tmp_path):
    write_airfoil(tmp_path, *meshes())
    maps = read(tmp_path)
    assert len(maps.geometries) == 3
    for sample, geometry in enumerate(maps.geometries):
        np.testing.assert_array_equal(geometry.coords, pair(maps, sample)[0])
        assert geometry.grid_shape == (7, 5)
        assert geometry.weights.sum() == pytest.approx(1)
    assert {geometry.domain for geometry in maps.geometries} == {maps.geometry(0).domain}
    assert maps.geometry(0).domain.upper[0] == 6


def test_a_folder_and_each_of_its_three_files_are_recognised(tmp_path):
    write_airfoil(tmp_path, *meshes())
    (tmp_path / "other.npy").touch()
    assert all(
        AIRFOIL.recognises(path) for path in (tmp_path, *map(tmp_path.joinpath, AIRFOIL_FILES))
    )
    assert not AIRFOIL.recognises(tmp_path / "other.npy")
    assert read(tmp_path / AIRFOIL_FILES[1]).num_samples == 3
    (tmp_path / AIRFOIL_FILES[2]).unlink()
    assert not AIRFOIL.recognises(tmp_path)


def test_missing_values_stay_nan_and_their_sites_are_masked_in_that_sample(tmp_path):
    x, y, q = meshes()
    q[1, 4, 2, 3] = np.nan
    write_airfoil(tmp_path, x, y, q)
    maps = read(tmp_path)
    assert np.flatnonzero(maps.geometry(1).is_masked).tolist() == [2 * 5 + 3]
    assert np.isnan(pair(maps, 1)[1][2 * 5 + 3, 0])
    assert not maps.geometry(0).is_masked.any()
    assert maps.geometry(1).weights.sum() == pytest.approx(1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda x, y, q: (x[0], y, q),
            r"_X.npy` must have shape \(samples, rows, columns\).*\(7, 5\)",
        ),
        (lambda x, y, q: (x[:0], y[:0], q[:0]), "_X.npy"),
        (lambda x, y, q: (x, y[:, :-1], q), r"_Y.npy` must have shape \(3, 7, 5\)"),
        (lambda x, y, q: (x, y, q[:, :4]), r"_Q.npy` must have shape .*at least 5 channels"),
        (lambda x, y, q: (x, y, q[:2]), r"_Q.npy` must have shape \(3, at least"),
        (lambda x, y, q: (x, y, q[:, 4]), "_Q.npy` must have shape"),
        (
            lambda x, y, q: (x, x, q),
            "`x` and `y` must span an area",
        ),
        (lambda x, y, q: (np.where(x > 1, np.nan, x), y, q), "_X.npy` must be finite"),
        (lambda x, y, q: (x, y, q * np.nan), "mach of sample 0` holds no number"),
        (lambda x, y, q: (x, y, q.astype(object)), "_Q` cannot be read"),
        (lambda x, y, q: (x, y.astype(complex), q), "_Y` is complex"),
    ],
)
def test_broken_folders_are_refused_by_name(tmp_path, change, message):
    for name, values in zip(AIRFOIL_FILES, change(*meshes()), strict=True):
        np.save(tmp_path / name, values)
    with pytest.raises(DataError, match=message):
        read(tmp_path)


def test_truncated_and_missing_files_are_refused_by_name(tmp_path):
    write_airfoil(tmp_path, *meshes())
    target = tmp_path / AIRFOIL_FILES[2]
    target.write_bytes(target.read_bytes()[:-100])
    with pytest.raises(DataError, match="_Q` cannot be read"):
        read(tmp_path)
    target.unlink()
    with pytest.raises(DataError, match="_Q` cannot be read"):
        read(tmp_path)


def test_only_the_mach_number_can_be_selected(tmp_path):
    write_airfoil(tmp_path, *meshes())
    assert read(tmp_path, variables=("mach",)).num_samples == 3
    with pytest.raises(DataError, match="`pressure` is not in the file, which has mach"):
        read(tmp_path, variables=("pressure",))
