import time as clock

import h5py
import numpy as np
import pytest

from gpo.data.dataset import DataError
from gpo.data.readers.base import ReadOptions
from gpo.data.readers.well import READER
from gpo_bench.solvers.well_files import write_well

NUM_SAMPLES, NUM_TIMES = 3, 4
AXES = {
    "x": np.arange(6) / 8,
    "y": np.array([-1.0, -0.5, 0.25, 1.0]),
    "z": 2 + np.arange(5) / 4,
}
TIME = np.arange(NUM_TIMES) / 2


def random_field(dim, order=0, seed=0):
    grid = [len(axis) for axis in list(AXES.values())[:dim]]
    shape = (NUM_SAMPLES, NUM_TIMES, *grid, *[dim] * order)
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def write(path, dim=2, **changes):
    content = {
        "name": "example",
        "axes": dict(list(AXES.items())[:dim]),
        "periodic": (True, False, True)[:dim],
        "time": TIME,
        "t0": {"density": random_field(dim), "pressure": random_field(dim, seed=1)},
        "t1": {"velocity": random_field(dim, order=1, seed=2)},
        "parameters": {"tcool": 0.03},
    }
    write_well(path, **{**content, **changes})
    return {**content, **changes}


def read(path, *variables):
    return READER.read(path, ReadOptions(variables=variables))


def flat(values):
    return values.reshape(*values.shape[:2], -1)


def add_field(path, group, name, values, **flags):
    """Adds a field as other writers of the layout would, by hand."""
    with h5py.File(path, "r+") as file:
        names = [*file[group].attrs["field_names"], name]
        file[group].attrs["field_names"] = names
        file[group].create_dataset(name, data=values)
        file[group][name].attrs.update({"sample_varying": True, "time_varying": True, **flags})


def replace(path, name, values, **attributes):
    """Overwrites a data set and keeps its attributes."""
    with h5py.File(path, "r+") as file:
        kept = dict(file[name].attrs)
        del file[name]
        file[name] = values
        file[name].attrs.update({**kept, **attributes})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "example.hdf5"


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_what_was_written_is_read_exactly(path, dim):
    content = write(path, dim)
    data = read(path)
    names = ["density", "pressure", *(f"velocity_{axis}" for axis in "xyz"[:dim])]
    assert [variable.name for variable in data.variables] == names
    assert (data.layout, data.source, data.num_samples) == ("well", path, NUM_SAMPLES)
    np.testing.assert_array_equal(data.time, TIME)
    for sample in range(NUM_SAMPLES):
        frames = data.frames(sample)
        np.testing.assert_array_equal(frames[..., 0], flat(content["t0"]["density"])[sample])
        for entry in range(dim):
            component = flat(content["t1"]["velocity"][..., entry])
            np.testing.assert_array_equal(frames[..., 2 + entry], component[sample])


def test_points_are_listed_in_the_order_of_values(path):
    x, y = np.meshgrid(AXES["x"], AXES["y"], indexing="ij")
    ramp = np.broadcast_to(x + 10 * y, (NUM_SAMPLES, NUM_TIMES, *x.shape))
    write(path, t0={"ramp": ramp}, t1={})
    data = read(path)
    coords = data.geometry().coords
    np.testing.assert_array_equal(data.frames(1)[2, :, 0], coords[:, 0] + 10 * coords[:, 1])
    assert data.geometry().grid_shape == (6, 4)
    assert data.geometry().axis_names == ("x", "y")


def test_frames_can_be_read_in_part(path):
    write(path)
    data = read(path, "velocity_y", "density")
    everything = data.frames(2)
    for times in (slice(1, 3), slice(0, 4, 2), slice(-1, None), slice(2, 2)):
        np.testing.assert_array_equal(data.frames(2, times), everything[times])


def test_a_periodic_axis_ends_one_spacing_after_its_last_point(path):
    write(path, 3)
    domain = read(path).geometry().domain
    assert domain.periodic == (True, False, True)
    assert domain.lower == (0.0, -1.0, 2.0)
    assert domain.upper == (0.75, 1.0, 3.25)


def test_axes_with_walls_are_not_periodic_and_case_is_ignored(path):
    write(path)
    with h5py.File(path, "r+") as file:
        file["boundary_conditions/x_periodic"].attrs["bc_type"] = "WALL"
        file["boundary_conditions/y_open"].attrs["bc_type"] = "periodic"
    assert read(path).geometry().domain.periodic == (False, True)


def test_tensors_become_one_variable_per_entry(path):
    write(path)
    stress = random_field(2, order=2)
    add_field(path, "t2_fields", "stress", stress, dim_varying=[True, True], symmetric=False)
    data = read(path, "stress_xx", "stress_xy", "stress_yx", "stress_yy")
    np.testing.assert_array_equal(data.frames(1), stress[1].reshape(NUM_TIMES, -1, 4))


def test_fields_constant_in_time_are_repeated(path):
    write(path)
    mask = random_field(2)[:, 0]
    add_field(path, "t0_fields", "mask", mask, time_varying=False, dim_varying=[True, True])
    frames = read(path, "density", "mask").frames(2, slice(1, 4))
    assert frames.shape == (3, 24, 2)
    for frame in frames:
        np.testing.assert_array_equal(frame[:, 1], mask[2].ravel())


def test_fields_equal_in_all_samples_are_repeated(path):
    write(path)
    bed = random_field(2)[0, 0]
    flags = {"sample_varying": False, "time_varying": False, "dim_varying": [True, True]}
    add_field(path, "t0_fields", "bed", bed, **flags)
    data = read(path, "bed")
    for sample in range(NUM_SAMPLES):
        np.testing.assert_array_equal(data.frames(sample)[1, :, 0], bed.ravel())


@pytest.mark.parametrize("is_dropped", [True, False])
def test_fields_constant_along_an_axis_are_repeated(path, is_dropped):
    write(path)
    profile = random_field(2)[..., :1, :]
    stored = profile[..., 0, :] if is_dropped else profile
    add_field(path, "t0_fields", "profile", stored, dim_varying=[False, True])
    frames = read(path, "profile").frames(0)
    expected = np.repeat(profile[0], 6, axis=1).reshape(NUM_TIMES, -1)
    np.testing.assert_array_equal(frames[..., 0], expected)


def test_missing_values_stay_missing(path):
    density = random_field(2)
    density[0, 0] = np.nan
    density[1, 2, 3, 1] = np.nan
    write(path, t0={"density": density}, t1={})
    data = read(path)
    for sample in range(NUM_SAMPLES):
        np.testing.assert_array_equal(data.frames(sample)[..., 0], flat(density)[sample])


def test_parameters_are_one_number_per_trajectory(path):
    viscosity = np.array([0.5, 0.25, 0.125])
    write(path, parameters={"tcool": 0.03, "viscosity": viscosity})
    with h5py.File(path, "r+") as file:
        file.attrs["simulation_parameters"] = ["tcool", "viscosity", "setup", "absent"]
        file.attrs["setup"] = "words are no numbers"
        file.attrs["viscosity"] = 9.0  # what varies between samples is the better answer
    parameters = read(path).parameters
    assert set(parameters) == {"tcool", "viscosity"}
    np.testing.assert_array_equal(parameters["tcool"], [0.03] * 3)
    np.testing.assert_array_equal(parameters["viscosity"], viscosity)


def test_scalars_that_change_in_time_are_no_parameters(path):
    write(path)
    with h5py.File(path, "r+") as file:
        file["scalars"].attrs["field_names"] = ["tcool", "clock"]
        file["scalars"].create_dataset("clock", data=TIME)
        file["scalars/clock"].attrs.update({"sample_varying": False, "time_varying": True})
    assert set(read(path).parameters) == {"tcool"}


def test_units_are_read_where_they_are_stated(path):
    write(path, units={"density": "kg m-3", "time": "s", "x": "m"})
    data = read(path)
    assert [variable.units for variable in data.variables] == ["kg m-3", "", "", ""]
    assert data.time_units == "s"
    assert data.geometry().axis_units == ("m", "")
    write(path)
    assert read(path).time_units == ""


def sphere(path, theta, phi, **changes):
    field = np.broadcast_to(np.cos(theta)[:, None], (1, 2, len(theta), len(phi)))
    axes = {"theta": theta, "phi": phi}
    options = {"axes": axes, "periodic": (False, True), "grid_type": "equiangular", **changes}
    options = {"t0": {"height": field}, **options}
    write_well(path, name="planet", time=np.arange(2.0), **options)


def test_polar_angles_become_points_of_the_sphere(path):
    theta, phi = (np.arange(8)[::-1] + 0.5) * np.pi / 8, np.arange(16) * np.pi / 8
    sphere(path, theta, phi)
    data = read(path)
    geometry = data.geometry()
    assert geometry.domain.is_sphere
    assert geometry.axis_names == ("latitude", "longitude")
    np.testing.assert_allclose(geometry.axes[0], 90 - np.rad2deg(theta), atol=1e-4)
    np.testing.assert_allclose(geometry.axes[1], np.rad2deg(phi), atol=1e-4)
    # The height is cos θ, which is the third coordinate of a point.
    np.testing.assert_allclose(data.frames(0)[1, :, 0], geometry.coords[:, 2], atol=1e-6)


def test_weights_on_the_sphere_are_cell_areas(path):
    theta, phi = (np.arange(8) + 0.5) * np.pi / 8, np.arange(16) * np.pi / 8
    sphere(path, theta, phi)
    weights = read(path).geometry().weights.reshape(8, 16)
    bands = -np.diff(np.cos(np.arange(9) * np.pi / 8)) / 2
    np.testing.assert_allclose(weights, np.repeat(bands[:, None] / 16, 16, 1), rtol=1e-5)


def test_latitudes_are_distinguished_from_polar_angles(path):
    latitude, phi = (np.arange(8) - 3.5) * np.pi / 8, np.arange(16) * np.pi / 8
    sphere(path, latitude, phi)
    np.testing.assert_allclose(read(path).geometry().axes[0], np.rad2deg(latitude), atol=1e-4)


def test_poles_rounded_to_single_precision_stay_on_the_sphere(path):
    sphere(path, np.linspace(0, np.pi, 9), np.arange(16) * np.pi / 8)
    latitude = read(path).geometry().axes[0]
    assert latitude[0] == 90
    assert latitude[-1] == -90


def test_a_folder_is_read_as_one_list_of_trajectories(tmp_path):
    shifted = TIME + 100.0
    first = write(tmp_path / "a.hdf5", parameters={"tcool": 1.0})
    second = write(
        tmp_path / "b.h5", t0={"density": random_field(2, seed=7), "pressure": random_field(2)},
        time=shifted, parameters={"tcool": 2.0},
    )  # fmt: skip
    (tmp_path / "stats.yaml").write_text("mean: 0")
    assert READER.recognises(tmp_path)
    data = read(tmp_path, "density")
    assert data.num_samples == 2 * NUM_SAMPLES
    np.testing.assert_array_equal(data.time, TIME)
    np.testing.assert_array_equal(data.parameters["tcool"], [1, 1, 1, 2, 2, 2])
    both = np.concatenate([flat(part["t0"]["density"]) for part in (first, second)])
    for sample in range(2 * NUM_SAMPLES):
        np.testing.assert_array_equal(data.frames(sample)[..., 0], both[sample])


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"axes": {"x": AXES["x"] + 1, "y": AXES["y"]}}, "x"),
        ({"axes": {"x": AXES["x"], "q": AXES["y"]}}, "spatial_dims"),
        ({"time": 2 * TIME}, "time"),
        ({"periodic": (True, True)}, "boundary_conditions"),
        ({"t0": {"salt": random_field(2)}}, "field_names"),
        ({"parameters": {"gamma": 1.0}}, "simulation_parameters"),
    ],
)
def test_files_of_one_folder_must_agree(tmp_path, changes, field):
    write(tmp_path / "a.h5", t1={})
    write(tmp_path / "b.h5", t1={}, **changes)
    with pytest.raises(DataError, match=rf"b\.h5: `{field}` must be as in a\.h5"):
        read(tmp_path)


def test_published_keys_shapes_and_attributes_are_written(path):
    write(path)
    with h5py.File(path) as file:
        assert set(file) == {
            "boundary_conditions", "dimensions", "scalars", "t0_fields", "t1_fields", "t2_fields",
        }  # fmt: skip
        assert file.attrs["dataset_name"] == "example"
        assert file.attrs["grid_type"] == "cartesian"
        assert file.attrs["n_spatial_dims"] == 2
        assert file.attrs["n_trajectories"] == NUM_SAMPLES
        assert list(file.attrs["simulation_parameters"]) == ["tcool"]
        assert file.attrs["tcool"] == 0.03
        assert list(file["dimensions"].attrs["spatial_dims"]) == ["x", "y"]
        assert file["dimensions/time"].shape == (4,)
        for name in ("dimensions/x", "dimensions/y", "scalars/tcool"):
            assert not file[name].attrs["sample_varying"]
            assert not file[name].attrs["time_varying"]
        boundary = file["boundary_conditions/x_periodic"]
        assert boundary.attrs["bc_type"] == "PERIODIC"
        assert list(boundary.attrs["associated_dims"]) == ["x"]
        assert boundary["mask"][:].tolist() == [True, *[False] * 4, True]
        assert boundary["values"].shape == (2,)
        velocity = file["t1_fields/velocity"]
        assert (velocity.shape, velocity.dtype) == ((3, 4, 6, 4, 2), np.float32)
        assert velocity.attrs["dim_varying"].tolist() == [True, True]
        assert velocity.attrs["sample_varying"]
        assert velocity.attrs["time_varying"]
        assert list(file["t0_fields"].attrs["field_names"]) == ["density", "pressure"]
        assert list(file["t2_fields"].attrs["field_names"]) == []


def test_the_same_call_writes_the_same_bytes(tmp_path):
    write(tmp_path / "a.h5")
    clock.sleep(1.1)  # HDF5 would stamp whole seconds
    write(tmp_path / "b.h5")
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_the_wells_own_loader_reads_what_we_write(path, dim):
    well = pytest.importorskip("the_well.data")
    write(path, dim)
    official = well.WellDataset(
        path=str(path.parent), use_normalization=False, full_trajectory_mode=True
    )
    data = read(path)
    names = official.metadata.field_names
    assert [*names[0], *names[1]] == [variable.name for variable in data.variables]
    assert len(official) == data.num_samples
    for sample in range(len(official)):
        reference = official[sample]
        frames = np.concatenate([reference["input_fields"], reference["output_fields"]])
        np.testing.assert_array_equal(data.frames(sample), frames.reshape(NUM_TIMES, -1, 2 + dim))
        coords = reference["space_grid"].reshape(-1, dim)
        np.testing.assert_array_equal(data.geometry().coords, coords)
        assert reference["constant_scalars"].item() == pytest.approx(0.03)
        boundaries = [[2, 2] if wraps else [1, 1] for wraps in (True, False, True)[:dim]]
        assert reference["boundary_conditions"].tolist() == boundaries


def test_dummy_data_of_the_well_can_be_read(path):
    dummy = pytest.importorskip("the_well.utils.dummy_data")
    dummy.write_dummy_data(str(path))
    assert READER.recognises(path)
    data = read(path)
    names = [variable.name for variable in data.variables]
    assert names == ["constant_field", "field_x", "field_y"]
    with h5py.File(path) as file:
        constant, field = file["t0_fields/constant_field"][1], file["t1_fields/field"][1]
    np.testing.assert_array_equal(data.frames(1)[..., 1:], field.reshape(10, -1, 2))
    np.testing.assert_array_equal(data.frames(1)[7, :, 0], constant.ravel())
    assert data.parameters["a"].tolist() == [0.25, 0.25]
    assert data.geometry().domain.periodic == (True, True)


def test_only_this_layout_is_recognised(path, tmp_path):
    write(path)
    assert READER.recognises(path)
    other = tmp_path / "other.h5"
    with h5py.File(other, "w") as file:
        file["t0_fields"] = np.zeros(3)
        file.create_group("dimensions")
    assert not READER.recognises(other)
    (tmp_path / "text.h5").write_text("no HDF5")
    assert not READER.recognises(tmp_path / "text.h5")
    (tmp_path / "empty").mkdir()
    assert not READER.recognises(tmp_path / "empty")
    with pytest.raises(DataError, match=r"`file` must be a folder with \.h5"):
        read(tmp_path / "empty")


def test_a_variable_the_file_lacks_is_refused(path):
    write(path, t1={})
    with pytest.raises(DataError, match=r"`salt` is not in the file, which has density, pressure"):
        read(path, "salt")


@pytest.mark.parametrize("name", ["t0_fields/density", "dimensions/x", "dimensions/time"])
def test_a_missing_data_set_is_refused(path, name):
    write(path)
    with h5py.File(path, "r+") as file:
        del file[name]
    with pytest.raises(DataError, match=rf"example\.hdf5: `{name.split('/')[1]}` is missing"):
        read(path)


@pytest.mark.parametrize("name", ["dimensions", "t0_fields", "t1_fields", "boundary_conditions"])
def test_a_missing_group_is_refused(path, name):
    write(path)
    with h5py.File(path, "r+") as file:
        del file[name]
    with pytest.raises(DataError, match=rf"`{name}` must be a group"):
        read(path)


def test_a_group_in_place_of_a_data_set_is_refused(path):
    write(path)
    with h5py.File(path, "r+") as file:
        del file["t0_fields/density"]
        file.create_group("t0_fields/density")
    with pytest.raises(DataError, match=r"`density` must be a data set, not a group"):
        read(path)


@pytest.mark.parametrize("shape", [(3, 4, 6), (3, 4, 6, 5), (3, 3, 6, 4), (2, 4, 6, 4)])
def test_a_field_of_another_shape_is_refused(path, shape):
    write(path)
    replace(path, "t0_fields/density", np.zeros(shape))
    with pytest.raises(DataError, match=r"`density` must have shape \[3, 4, 6, 4\], got"):
        read(path)


def test_a_field_of_words_is_refused(path):
    write(path)
    replace(path, "t0_fields/density", np.full((3, 4, 6, 4), b"word"))
    with pytest.raises(DataError, match=r"`density` must hold numbers"):
        read(path)


def test_a_field_named_as_a_component_is_refused(path):
    write(path, t0={"velocity_x": random_field(2)})
    with pytest.raises(DataError, match=r"`velocity_x` must be unique"):
        read(path)


@pytest.mark.parametrize(
    ("name", "values", "problem"),
    [
        ("dimensions/y", [0.0, 2.0, 1.0, 3.0], "`y` must be sorted"),
        ("dimensions/y", [0.0, 1.0, 1.0, 3.0], "`y` must be distinct"),
        ("dimensions/y", [0.0, 1.0, np.nan, 3.0], "`y` must be finite"),
        ("dimensions/y", [3.0, 2.0, 1.0, 0.0], "`y` must increase"),
        ("dimensions/y", [[0.0, 1.0], [2.0, 3.0]], "`y` must be a list"),
        ("dimensions/time", [0.0, 2.0, 1.0, 3.0], "`time` must be sorted"),
        ("dimensions/time", [3.0, 2.0, 1.0, 0.0], "`time` must increase"),
        ("dimensions/time", [0.0, 1.0, 1.0, 3.0], "`time` must be distinct"),
        ("dimensions/time", np.zeros(0), "`time` has length zero"),
    ],
)
def test_coordinates_must_be_sorted_distinct_and_finite(path, name, values, problem):
    write(path)
    replace(path, name, np.array(values))
    with pytest.raises(DataError, match=problem):
        read(path)


def test_times_of_samples_may_be_repeated_but_not_differ(path):
    write(path)
    times = np.tile(TIME, (NUM_SAMPLES, 1))
    replace(path, "dimensions/time", times, sample_varying=True)
    np.testing.assert_array_equal(read(path).time, TIME)
    times[1] += 1
    replace(path, "dimensions/time", times, sample_varying=True)
    with pytest.raises(DataError, match="`time` must be the same in every sample"):
        read(path)


def test_a_variable_without_any_number_is_refused(path):
    write(path)
    replace(path, "t0_fields/pressure", np.full((3, 4, 6, 4), np.nan))
    with pytest.raises(DataError, match="`pressure` holds no number at all"):
        read(path)
    assert len(read(path, "density").variables) == 1


def test_a_file_without_variables_or_trajectories_is_refused(path):
    write(path)
    with h5py.File(path, "r+") as file:
        for kind in ("t0_fields", "t1_fields"):
            file[kind].attrs["field_names"] = []
            file[kind].clear()
    with pytest.raises(DataError, match="`variables` are none"):
        read(path)
    with h5py.File(path, "r+") as file:
        del file.attrs["n_trajectories"]
    with pytest.raises(DataError, match="`n_trajectories` must be a positive number"):
        read(path)


def test_a_wrong_number_of_axes_or_parameters_is_refused(path):
    write(path, parameters={"nu": np.ones(2)})
    with pytest.raises(DataError, match="`nu` must be one number per sample, got 2"):
        read(path)
    with h5py.File(path, "r+") as file:
        file["dimensions"].attrs["spatial_dims"] = []
    with pytest.raises(DataError, match="`spatial_dims` must name 1, 2 or 3 axes"):
        read(path)


def test_a_truncated_file_is_refused(path):
    write(path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=r"example\.hdf5: `file` cannot be read as HDF5"):
        read(path)


def test_angles_in_degrees_or_in_another_order_are_refused(path):
    theta, phi = np.linspace(0, 180, 8), np.arange(16) * np.pi / 8
    sphere(path, theta, phi)
    with pytest.raises(DataError, match="`theta` must lie in"):
        read(path)
    field = np.zeros((1, 2, 16, 8))
    sphere(path, theta, phi, axes={"phi": phi, "theta": theta}, t0={"height": field})
    with pytest.raises(DataError, match="`spatial_dims` must be theta, phi"):
        read(path)


def test_fields_of_another_shape_are_not_written(path):
    with pytest.raises(ValueError, match=r"`velocity` must have shape \(3, 4, 6, 4, 2\)"):
        write(path, t1={"velocity": random_field(2)})
