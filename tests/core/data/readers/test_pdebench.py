import time as clock

import h5py
import numpy as np
import pytest

from gpo.data.dataset import DataError
from gpo.data.readers.base import ReadOptions
from gpo.data.readers.pdebench import READER
from gpo_bench.solvers.published_files import write_pdebench

NUM_SAMPLES, NUM_TIMES = 3, 4
AXES = [(np.arange(count) + 0.5) / 8 for count in (8, 4, 2)]
TIME = np.arange(NUM_TIMES) / 2
FIELDS = ("density", "pressure", "Vx", "Vy", "Vz")


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def write(path, dim=2, **changes):
    shape = (NUM_SAMPLES, NUM_TIMES, *(len(axis) for axis in AXES[:dim]))
    fields = {name: random(*shape, seed=seed) for seed, name in enumerate(FIELDS[: 2 + dim])}
    content = {"axes": AXES[:dim], "time": TIME, "fields": fields, **changes}
    write_pdebench(path, **content)
    return content["fields"]


def write_tensor(path, values, axis):
    """Writes a file as PDEBench has for advection, Burgers and other scalar equations."""
    with h5py.File(path, "w") as file:
        file["tensor"] = values
        file["x-coordinate"] = axis
        file["t-coordinate"] = np.arange(values.shape[1] + 1.0)
        file.attrs["Nu"] = 0.01


def write_groups(path, values, axes, time):
    """Writes a file as PDEBench has for shallow water: one group per sample."""
    with h5py.File(path, "w") as file:
        for sample, data in enumerate(values):
            file[f"{sample:04d}/data"] = data
            file[f"{sample:04d}/grid/t"] = time
            for name, axis in zip("xyz", axes, strict=False):
                file[f"{sample:04d}/grid/{name}"] = axis


def read(path, *variables):
    return READER.read(path, ReadOptions(variables=variables))


def names(data):
    return [variable.name for variable in data.variables]


def replace(path, name, values):
    with h5py.File(path, "r+") as file:
        del file[name]
        file[name] = values


@pytest.fixture
def path(tmp_path):
    return tmp_path / "2D_CFD_periodic_Train.hdf5"


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_what_was_written_is_read_exactly(path, dim):
    fields = write(path, dim)
    data = read(path)
    assert names(data) == list(FIELDS[: 2 + dim])
    assert (data.layout, data.num_samples, data.time_units) == ("pdebench", 3, "")
    np.testing.assert_array_equal(data.time, TIME)
    for sample in range(NUM_SAMPLES):
        expected = np.stack([values[sample] for values in fields.values()], -1)
        expected = expected.reshape(NUM_TIMES, -1, 2 + dim)
        np.testing.assert_array_equal(data.frames(sample), expected)


def test_points_are_listed_in_the_order_of_values(path):
    x, y = np.meshgrid(*AXES[:2], indexing="ij")
    ramp = np.broadcast_to(x + 10 * y, (NUM_SAMPLES, NUM_TIMES, *x.shape))
    write(path, fields=dict.fromkeys(FIELDS[:4], ramp))
    data = read(path, "Vy")
    coords = data.geometry().coords
    np.testing.assert_array_equal(data.frames(2)[1, :, 0], coords[:, 0] + 10 * coords[:, 1])


def test_frames_can_be_read_in_part(path):
    write(path)
    data = read(path, "Vy", "density")
    everything = data.frames(1)
    for times in (slice(1, 3), slice(0, 4, 2), slice(-1, None), slice(2, 2)):
        np.testing.assert_array_equal(data.frames(1, times), everything[times])


def test_flows_are_periodic_with_the_period_of_all_cells(path):
    write(path, 3)
    geometry = read(path).geometry()
    assert geometry.domain.periodic == (True, True, True)
    assert geometry.domain.lower == (0.0625, 0.0625, 0.0625)
    assert geometry.domain.upper == (1.0625, 0.5625, 0.3125)
    np.testing.assert_allclose(geometry.weights, 1 / 64)


def test_an_axis_of_uneven_spacing_is_open(path):
    uneven = np.array([0.0, 0.1, 0.5, 1.0])
    write(path, axes=[AXES[0], uneven])
    assert read(path).geometry().domain.periodic == (True, False)


def test_single_precision_does_not_make_an_axis_uneven(path):
    fine = (np.arange(1024) + 0.5) / 1024
    write_tensor(path, random(1, 2, 1024), fine.astype(np.float32))
    domain = read(path).geometry().domain
    assert domain.periodic == (True,)
    assert domain.upper[0] - domain.lower[0] == pytest.approx(1, rel=1e-6)


def test_transmissive_flows_are_not_periodic(tmp_path):
    path = tmp_path / "1D_CFD_Shock_trans_Train.hdf5"
    write(path, 1)
    assert read(path).geometry().domain.periodic == (False,)


def test_a_scalar_equation_is_one_variable(path):
    values = random(2, 5, 8)
    write_tensor(path, values, AXES[0])
    data = read(path)
    assert names(data) == ["tensor"]
    np.testing.assert_array_equal(data.frames(1)[..., 0], values[1])
    np.testing.assert_array_equal(data.time, np.arange(5))
    np.testing.assert_array_equal(data.parameters["Nu"], [0.01, 0.01])
    assert data.geometry().domain.periodic == (True,)


def test_times_may_have_as_many_entries_as_frames(path):
    write(path)
    replace(path, "t-coordinate", TIME)
    np.testing.assert_array_equal(read(path).time, TIME)


@pytest.mark.parametrize(("dim", "channels"), [(1, 1), (2, 1), (2, 2), (3, 2)])
def test_groups_of_samples_are_read_exactly(path, dim, channels):
    grid = [len(axis) for axis in AXES[:dim]]
    values = random(NUM_SAMPLES, NUM_TIMES, *grid, channels)
    write_groups(path, values, AXES[:dim], TIME)
    data = read(path)
    assert names(data) == (["data"] if channels == 1 else ["data_0", "data_1"])
    assert data.num_samples == NUM_SAMPLES
    assert data.geometry().grid_shape == tuple(grid)
    assert not any(data.geometry().domain.periodic)
    for sample in range(NUM_SAMPLES):
        expected = values[sample].reshape(NUM_TIMES, -1, channels)
        np.testing.assert_array_equal(data.frames(sample), expected)


def test_channels_of_groups_can_be_chosen_in_any_order(path):
    values = random(1, 4, 8, 3)
    write_groups(path, values, AXES[:1], TIME)
    frames = read(path, "data_2", "data_0").frames(0, slice(1, 3))
    np.testing.assert_array_equal(frames, values[0, 1:3][..., [2, 0]])


def test_missing_values_stay_missing(path):
    density = random(NUM_SAMPLES, NUM_TIMES, 8)
    density[0, 0], density[1, 2, 3] = np.nan, np.nan
    write(path, 1, fields=dict.fromkeys(FIELDS[:3], density))
    data = read(path, "density")
    for sample in range(NUM_SAMPLES):
        np.testing.assert_array_equal(data.frames(sample)[..., 0], density[sample])


def test_constants_of_the_flow_are_parameters(path):
    write(path, parameters={"eta": 0.1, "zeta": 0.2, "M": 1})
    with h5py.File(path, "r+") as file:
        file.attrs["config"] = "words are no numbers"
    parameters = read(path).parameters
    assert {name: values.tolist() for name, values in parameters.items()} == {
        "eta": [0.1] * 3, "zeta": [0.2] * 3, "M": [1.0] * 3,
    }  # fmt: skip


def test_published_keys_and_shapes_are_written(path):
    write(path, 3)
    with h5py.File(path) as file:
        shapes = {name: data.shape for name, data in file.items()}
        assert all(data.dtype == np.float32 for data in file.values())
        np.testing.assert_array_equal(file["t-coordinate"], [0, 0.5, 1, 1.5, 2])
    coordinates = {"x-coordinate": (8,), "y-coordinate": (4,), "z-coordinate": (2,)}
    fields = dict.fromkeys(FIELDS, (3, 4, 8, 4, 2))
    assert shapes == {**fields, **coordinates, "t-coordinate": (5,)}


def test_the_same_call_writes_the_same_bytes(tmp_path):
    write(tmp_path / "a.hdf5", parameters={"eta": 0.1})
    clock.sleep(1.1)  # HDF5 would stamp whole seconds
    write(tmp_path / "b.hdf5", parameters={"eta": 0.1})
    assert (tmp_path / "a.hdf5").read_bytes() == (tmp_path / "b.hdf5").read_bytes()


def test_only_this_layout_is_recognised(path, tmp_path):
    write(path)
    assert READER.recognises(path)
    write_groups(path, random(2, 4, 8, 1), AXES[:1], TIME)
    assert READER.recognises(path)
    with h5py.File(path, "w") as file:
        file["tensor"] = np.zeros((2, 1, 8, 8))  # Darcy flow has no time
        file.create_group("dimensions")
    assert not READER.recognises(path)
    path.write_text("no HDF5")
    assert not READER.recognises(path)
    assert not READER.recognises(tmp_path)


def test_a_variable_the_file_lacks_is_refused(path):
    write(path)
    with pytest.raises(DataError, match=r"`Vz` is not in the file, which has density, pressure"):
        read(path, "Vz")


@pytest.mark.parametrize("name", ["density", "Vy", "x-coordinate", "y-coordinate", "t-coordinate"])
def test_a_missing_data_set_is_refused(path, name):
    write(path)
    with h5py.File(path, "r+") as file:
        del file[name]
    with pytest.raises(DataError, match=rf"Train\.hdf5: `{name}` is missing"):
        read(path)


@pytest.mark.parametrize("name", ["density", "Vx"])
def test_a_group_in_place_of_a_data_set_is_refused(path, name):
    write(path)
    with h5py.File(path, "r+") as file:
        del file[name]
        file.create_group(name)
    with pytest.raises(DataError, match=rf"`{name}` must be a data set, not a group"):
        read(path)


@pytest.mark.parametrize("shape", [(3, 4), (3, 4, 8, 4, 2, 2)])
def test_a_wrong_rank_is_refused(path, shape):
    write(path)
    replace(path, "density", np.zeros(shape))
    with pytest.raises(
        DataError, match=r"`density` must have shape \(samples, times, 1 to 3 axes\)"
    ):
        read(path)


@pytest.mark.parametrize("shape", [(3, 4, 8), (3, 4, 8, 5), (2, 4, 8, 4)])
def test_shapes_that_disagree_are_refused(path, shape):
    write(path)
    replace(path, "pressure", np.zeros(shape))
    with pytest.raises(DataError, match=r"`pressure` must have shape \(3, 4, 8, 4\) as others"):
        read(path)


def test_fields_of_words_are_refused(path):
    write(path)
    replace(path, "density", np.full((3, 4, 8, 4), b"word"))
    with pytest.raises(DataError, match="`density` must hold numbers"):
        read(path)


@pytest.mark.parametrize(
    ("name", "values", "problem"),
    [
        ("y-coordinate", [0.0, 2.0, 1.0, 3.0], "`y-coordinate` must be sorted"),
        ("y-coordinate", [0.0, 1.0, 1.0, 3.0], "`y-coordinate` must be distinct"),
        ("y-coordinate", [0.0, 1.0, np.nan, 3.0], "`y-coordinate` must be finite"),
        ("y-coordinate", [3.0, 2.0, 1.0, 0.0], "`y-coordinate` must increase"),
        ("y-coordinate", [0.0, 1.0, 2.0], "`y-coordinate` must have 4 coordinates"),
        ("t-coordinate", [0.0, 2.0, 1.0, 3.0], "`t-coordinate` must be sorted"),
        ("t-coordinate", [0.0, 1.0, 1.0, 3.0], "`t-coordinate` must be distinct"),
        ("t-coordinate", [3.0, 2.0, 1.0, 0.0], "`time` must increase"),
        ("t-coordinate", [0.0, 1.0, 2.0], "`t-coordinate` must have 4 or 5 times"),
        ("t-coordinate", np.arange(6.0), "`t-coordinate` must have 4 or 5 times"),
    ],
)
def test_coordinates_must_fit_the_data_and_be_sorted(path, name, values, problem):
    write(path)
    replace(path, name, np.array(values))
    with pytest.raises(DataError, match=problem):
        read(path)


def test_a_file_without_frames_or_samples_is_refused(path):
    write_tensor(path, np.zeros((2, 0, 8)), AXES[0])
    with pytest.raises(DataError, match="`t-coordinate` has length zero"):
        read(path)
    write_tensor(path, np.zeros((0, 2, 8)), AXES[0])
    with pytest.raises(DataError, match="`tensor` must not be empty"):
        read(path)
    write_groups(path, np.zeros((2, 0, 8, 1)), AXES[:1], np.zeros(0))
    with pytest.raises(DataError, match="`0000/data` must not be empty"):
        read(path)


def test_a_variable_without_any_number_is_refused(path):
    write(path)
    replace(path, "Vx", np.full((3, 4, 8, 4), np.nan))
    with pytest.raises(DataError, match="`Vx` holds no number at all"):
        read(path)
    assert names(read(path, "density")) == ["density"]


def test_samples_of_groups_must_agree(path):
    values = random(3, 4, 8, 1)
    write_groups(path, values, AXES[:1], TIME)
    replace(path, "0002/grid/x", AXES[0] + 1)
    with pytest.raises(DataError, match="`0002/grid/x` must be as in 0000"):
        read(path)
    write_groups(path, values, AXES[:1], TIME)
    replace(path, "0001/data", values[1, :3])
    with pytest.raises(DataError, match=r"`0001/data` must have shape \(4, 8, 1\)"):
        read(path)


@pytest.mark.parametrize("name", ["0001/data", "0001/grid/x", "0000/grid/t", "0001/grid"])
def test_groups_with_a_part_missing_are_refused(path, name):
    write_groups(path, random(2, 4, 8, 1), AXES[:1], TIME)
    with h5py.File(path, "r+") as file:
        del file[name]
    with pytest.raises(DataError, match=rf"`{name}[/a-z]*` is missing"):
        read(path)


def test_groups_of_a_wrong_rank_are_refused(path):
    write_groups(path, random(2, 4, 8), AXES[:1], TIME)
    with pytest.raises(
        DataError, match=r"`0000/data` must have shape \(times, 1 to 3 axes, channels\)"
    ):
        read(path)


def test_a_truncated_file_is_refused(path):
    write(path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=r"Train\.hdf5: `file` cannot be read as HDF5"):
        read(path)


def test_only_complete_flows_are_written(path):
    with pytest.raises(ValueError, match="`fields` must be density, pressure, Vx, Vy, got density"):
        write(path, fields={"density": random(3, 4, 8, 4)})
    fields = dict.fromkeys(FIELDS[:4], random(3, 4, 8, 5))
    with pytest.raises(ValueError, match=r"`density` must have shape \(3, 4, 8, 4\)"):
        write(path, fields=fields)
