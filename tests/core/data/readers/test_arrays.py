import numpy as np
import pytest
import scipy.io

from gpo import Domain
from gpo.data.dataset import DataError
from gpo.data.readers.arrays import READER
from gpo.data.readers.base import ReadOptions
from gpo.data.readers.registry import open_data
from tests.core.data.files import pair, real_file
from tests.core.data.readers.containers import SAVERS, save_matlab_5, save_npz

SAMPLES, TIMES, POINTS, NX, NY, NZ = 6, 7, 30, 8, 9, 11
RANDOM = np.random.default_rng(0)
T, X, Y, Z = (np.linspace(0, 1, count) for count in (TIMES, NX, NY, NZ))
PTS = RANDOM.random((POINTS, 2))


def values(*shape):
    return RANDOM.normal(size=shape)


def read(path, **options):
    return READER.read(path, ReadOptions(**options))


def read_arrays(path, *, options=None, **arrays):
    return read(save_npz(path, arrays), **(options or {}))


@pytest.mark.parametrize("save", SAVERS)
def test_every_container_gives_the_same_series(tmp_path, save):
    u, velocity = values(POINTS, TIMES), values(POINTS, 2, TIMES)
    path = save(tmp_path, {"pts": PTS, "t": T, "u": u, "velocity": velocity, "nu": 0.1})
    assert READER.recognises(path)
    series = read(path)
    assert series.has_time
    assert [variable.name for variable in series.variables] == ["u", "velocity_x", "velocity_y"]
    np.testing.assert_array_equal(series.time, T)
    np.testing.assert_array_equal(series.geometry().coords, PTS)
    np.testing.assert_array_equal(series.frames(0)[..., 0], u.T)
    np.testing.assert_array_equal(series.frames(0)[..., 1:], velocity.transpose(2, 0, 1))
    np.testing.assert_array_equal(series.frames(0, slice(2, 5)), series.frames(0)[2:5])
    assert len(series.frames(0, slice(2, 2))) == 0
    np.testing.assert_array_equal(series.parameters["nu"], [0.1])


@pytest.mark.parametrize("save", SAVERS)
def test_every_container_gives_the_same_maps(tmp_path, save):
    coeff, sol = values(SAMPLES, NX, NY), values(SAMPLES, NX, NY)
    maps = read(save(tmp_path, {"coeff": coeff, "sol": sol, "Kcoeff": coeff}))
    assert not maps.has_time
    assert (maps.inputs[0].name, maps.outputs[0].name) == ("coeff", "sol")
    assert maps.num_samples == SAMPLES
    assert maps.geometry().grid_shape == (NX, NY)
    for sample in range(SAMPLES):
        inputs, outputs = pair(maps, sample)
        np.testing.assert_array_equal(inputs, coeff[sample].reshape(-1, 1))
        np.testing.assert_array_equal(outputs, sol[sample].reshape(-1, 1))


LENGTHS = {
    "sample": SAMPLES, "time": TIMES, "points": POINTS,
    "x": NX, "y": NY, "z": NZ, "component": 3, "row": NX, "column": NY,
}  # fmt: skip
CLOUD, LINE, PLANE, SPACE = {"pts": PTS}, {"x": X}, {"x": X, "y": Y}, {"x": X, "y": Y, "z": Z}
MESH = dict(zip("XY", np.meshgrid(X, Y, indexing="ij"), strict=True))
LAYOUTS = [
    (CLOUD, "time points"), (CLOUD, "points time"), (CLOUD, "time points component"),
    (CLOUD, "time component points"), (CLOUD, "points component time"),
    (CLOUD, "points time component"), (CLOUD, "sample time points"),
    (CLOUD, "sample time points component"), (CLOUD, "sample points time"),
    (LINE, "time x"), (LINE, "x time"), (LINE, "sample time x"), (LINE, "time x component"),
    (PLANE, "time x y"), (PLANE, "time y x"), (PLANE, "x y time"), (PLANE, "y x time"),
    (PLANE, "sample time x y"), (PLANE, "sample time y x component"),
    (PLANE, "sample x y time"), (SPACE, "time x y z"), (SPACE, "z y x time"),
    (SPACE, "sample time z x y component"), (MESH, "time row column"),
    (MESH, "row column component time"), (MESH, "sample time row column"),
    ({}, "time x"), ({}, "x time"), ({}, "time x y"), ({}, "x y time"), ({}, "time x y z"),
    ({}, "time x y component"), ({}, "time component x y"), ({}, "x y component time"),
    ({}, "sample time x"), ({}, "sample time x y"), ({}, "sample time x y z component"),
]  # fmt: skip


@pytest.mark.parametrize(("coordinates", "order"), LAYOUTS, ids=lambda part: str(part)[:40])
def test_axes_are_found_by_their_lengths(tmp_path, coordinates, order):
    labels = order.split()
    field = values(*(LENGTHS[label] for label in labels))
    series = read_arrays(tmp_path, **coordinates, t=T, u=field)
    target_order = [label for label in LENGTHS if label in labels and label != "component"]
    target_order += ["component"] if "component" in labels else []
    expected = field.transpose([labels.index(label) for label in target_order])
    expected = expected.reshape(series.num_samples, TIMES, -1, len(series.variables))
    assert series.num_samples == (SAMPLES if "sample" in labels else 1)
    assert len(series.variables) == (3 if "component" in labels else 1)
    for trajectory, frames in enumerate(expected):
        np.testing.assert_array_equal(series.frames(trajectory), frames)


@pytest.mark.parametrize("order", ["x time sample", "time x sample"])
def test_samples_may_be_the_last_axis_if_no_other_order_fits(tmp_path, order):
    lengths = {"x": NX, "time": TIMES, "sample": 12}
    labels = order.split()
    field = values(*(lengths[label] for label in labels))
    series = read_arrays(tmp_path, x=X, t=T, u=field)
    assert series.num_samples == 12
    expected = field.transpose([labels.index(label) for label in ("sample", "time", "x")])
    for number in range(12):
        np.testing.assert_array_equal(series.frames(number)[..., 0], expected[number])


def test_without_times_samples_cannot_be_the_last_axis(tmp_path):
    with pytest.raises(DataError, match="fits no order of axes"):
        read_arrays(tmp_path, x=X, u=values(NX, 11, 12))


def test_rectilinear_axes_become_the_coordinates_of_an_open_box(tmp_path):
    geometry = read_arrays(tmp_path, x=X, y=2 * Y, t=T, u=values(TIMES, NY, NX)).geometry()
    assert geometry.grid_shape == (NX, NY)
    np.testing.assert_array_equal(geometry.coords[:NY, 1], 2 * Y)
    np.testing.assert_array_equal(geometry.coords[::NY, 0], X)
    assert geometry.domain.upper == (1, 2)
    assert geometry.domain.periodic == (False, False)


def test_axes_may_descend(tmp_path):
    field = values(TIMES, NX)
    series = read_arrays(tmp_path, x=X[::-1], t=T, u=field)
    np.testing.assert_array_equal(series.geometry().coords[:, 0], X[::-1])
    np.testing.assert_array_equal(series.frames(0)[..., 0], field)
    assert (series.geometry().weights > 0).all()


def test_without_coordinates_sites_are_numbered(tmp_path):
    geometry = read_arrays(tmp_path, t=T, u=values(TIMES, NX, NY)).geometry()
    assert geometry.coords[-1].tolist() == [NX - 1, NY - 1]


def test_without_times_the_only_axis_left_is_time(tmp_path):
    series = read_arrays(tmp_path, pts=PTS, u=values(POINTS, 4))
    assert series.time.tolist() == [0, 1, 2, 3]


def test_names_of_coordinates_and_times_may_be_in_capitals_but_fields_keep_theirs(tmp_path):
    series = read_arrays(tmp_path, X=X, Time=T, T=values(TIMES, NX))
    assert [variable.name for variable in series.variables] == ["T"]
    assert series.geometry().grid_shape == (NX,)


def test_a_constant_third_coordinate_is_dropped(tmp_path):
    flat = np.concatenate([PTS, np.full((POINTS, 1), 2.0)], 1)
    series = read_arrays(tmp_path, points=flat, t=T, u=values(TIMES, POINTS))
    np.testing.assert_array_equal(series.geometry().coords, PTS)


@pytest.mark.parametrize(("first", "save"), [(0, save_npz), (0, save_matlab_5), (1, save_matlab_5)])
def test_triangles_define_weights_and_may_be_one_based_in_matlab(tmp_path, first, save):
    square = np.array([[0, 0], [1, 0], [1, 1], [0, 1.0]])
    cells = np.array([[0, 1, 2], [0, 2, 3]])
    arrays = {"pts": square, "cells": cells + first, "t": T, "u": values(TIMES, 4)}
    geometry = read(save(tmp_path, arrays)).geometry()
    np.testing.assert_array_equal(geometry.triangles, cells)
    np.testing.assert_allclose(geometry.weights, np.array([2, 1, 2, 1]) / 6)


def test_vectors_with_one_entry_per_sample_are_parameters(tmp_path):
    viscosity = np.arange(SAMPLES) + 1.0
    u = values(SAMPLES, TIMES, NX)
    series = read_arrays(tmp_path, x=X, t=T, u=u, nu=viscosity, length=3.0)
    np.testing.assert_array_equal(series.parameters["nu"], viscosity)
    np.testing.assert_array_equal(series.parameters["length"], np.full(SAMPLES, 3.0))


def test_variables_restrict_what_must_fit(tmp_path):
    arrays = {"pts": PTS, "t": T, "u": values(POINTS, 2, TIMES), "p": values(POINTS, TIMES)}
    path = save_npz(tmp_path, {**arrays, "basis": values(POINTS, 50)})
    with pytest.raises(DataError, match=r"`basis` has shape \(30, 50\), which fits no order"):
        read(path)
    series = read(path, variables=("p", "u_y"))
    assert [variable.name for variable in series.variables] == ["p", "u_y"]
    np.testing.assert_array_equal(series.frames(0)[..., 1], arrays["u"][:, 1].T)
    with pytest.raises(DataError, match="`vorticity` is not in the file, which has u, p, basis"):
        read(path, variables=("vorticity",))


@pytest.mark.parametrize("names", [("input", "output"), ("a", "u"), ("x", "y"), ("X", "Y")])
@pytest.mark.parametrize("components", [(), (2,)])
def test_static_maps_are_recognised_by_their_names(tmp_path, names, components):
    inputs, outputs = values(SAMPLES, NX, NY, *components), values(SAMPLES, NX, NY)
    maps = read_arrays(tmp_path, **dict(zip(names, (inputs, outputs), strict=True)))
    assert not maps.has_time
    assert len(maps.inputs) == (2 if components else 1)
    np.testing.assert_array_equal(pair(maps, 2)[0], inputs[2].reshape(NX * NY, -1))
    np.testing.assert_array_equal(pair(maps, 2)[1], outputs[2].reshape(NX * NY, 1))


def test_static_maps_may_have_points_and_components_before_them(tmp_path):
    inputs, outputs = values(SAMPLES, 2, POINTS), values(SAMPLES, POINTS)
    maps = read_arrays(tmp_path, coords=PTS, input=inputs, output=outputs, t=1.0)
    np.testing.assert_array_equal(maps.geometry().coords, PTS)
    np.testing.assert_array_equal(pair(maps, 1)[0], inputs[1].T)
    assert maps.parameters["t"].tolist() == [1] * SAMPLES


def test_a_map_needs_both_of_its_sides(tmp_path):
    arrays = {"input": values(SAMPLES, NX), "output": values(SAMPLES, NX)}
    with pytest.raises(DataError, match="`output` must be among the variables"):
        read_arrays(tmp_path, **arrays, options={"variables": ("input",)})


@pytest.mark.parametrize(
    ("arrays", "fits"),
    [
        ({"x": T, "t": T, "u": values(TIMES, TIMES)}, r"\(time, x\) and \(x, time\)"),
        ({"x": X, "y": X, "t": T, "u": values(TIMES, NX, NX)}, r"\(time, x, y\) and \(time, y, x"),
        ({"t": T, "u": values(TIMES, TIMES)}, r"\(time, x\) and \(x, time\)"),
        (
            {"pts": PTS, "t": T, "u": values(TIMES, TIMES, POINTS)},
            r"\(time, component, points\) and \(sample, time, points\)",
        ),
        ({"pts": PTS, "u": values(20, POINTS, 3)}, r"\(time, points, component\) and"),
        ({"u": values(NX, NY), "v": values(NX, NY)}, r"\(time, x\) and \(x, time\)"),
    ],
)
def test_lengths_that_fit_twice_are_refused_with_both_answers(tmp_path, arrays, fits):
    with pytest.raises(DataError, match=rf"`u` has shape \(.*\), which fits {fits}.*select axes="):
        read_arrays(tmp_path, **arrays)


@pytest.mark.parametrize("axes", ["time,x,y", "time,y,x", "x, y, time"])
def test_users_can_state_the_order_of_axes(tmp_path, axes):
    field = values(NX, NX, NX)
    options = {"select": {"axes": axes}}
    series = read_arrays(tmp_path, x=X, y=X, t=X, u=field, options=options)
    labels = axes.replace(" ", "").split(",")
    expected = field.transpose([labels.index(label) for label in ("time", "x", "y")])
    np.testing.assert_array_equal(series.frames(0), expected.reshape(NX, -1, 1))


@pytest.mark.parametrize("axes", ["x,y", "time,x", "time,x,x,y", "time,x,y,colour"])
def test_labels_of_axes_that_make_no_sense_are_refused(tmp_path, axes):
    options = {"select": {"axes": axes}}
    with pytest.raises(DataError, match="`axes` must name each axis once: time, x,y or y,x"):
        read_arrays(tmp_path, x=X, y=X, t=T, u=values(TIMES, NX, NX), options=options)


def test_a_single_npy_file_has_time_first(tmp_path):
    for shape in ((6, 20), (6, 20, 10)):
        field = values(*shape)
        np.save(tmp_path / "u.npy", field)
        series = read(tmp_path / "u.npy")
        assert series.geometry().grid_shape == shape[1:]
        np.testing.assert_array_equal(series.frames(0)[..., 0], field.reshape(6, -1))
    for shape in ((6, 20, 10, 30), (6, 20, 3)):
        np.save(tmp_path / "u.npy", values(*shape))
        with pytest.raises(DataError, match=r"`u` has shape .*, which fits \(time, x"):
            read(tmp_path / "u.npy")
    np.save(tmp_path / "u.npy", values(20))
    with pytest.raises(DataError, match=r"`u` has shape \(20,\), which fits no order of axes"):
        read(tmp_path / "u.npy")


def test_sites_that_are_always_missing_are_masked_and_stay_nan(tmp_path):
    field = values(SAMPLES, TIMES, NX)
    field[..., 3] = np.nan
    field[:2, :, 5] = np.nan
    series = read_arrays(tmp_path, x=X, t=T, u=field)
    assert np.flatnonzero(series.geometry().is_masked).tolist() == [3]
    for trajectory in range(SAMPLES):
        np.testing.assert_array_equal(series.frames(trajectory)[..., 0], field[trajectory])


FIELD = values(TIMES, NX)
CELLS = np.array([[0, 1, 2]])


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": X[[0, 2, 1, 3, 4, 5, 6, 7]], "t": T, "u": FIELD}, "`x` must be sorted"),
        ({"x": X.round(), "t": T, "u": FIELD}, "`x` must be distinct"),
        ({"x": X * np.nan, "t": T, "u": FIELD}, "`x` must be finite"),
        ({"x": X, "t": T[::-1], "u": FIELD}, "`time` must increase"),
        ({"x": X, "t": T[[1, 0, 2, 3, 4, 5, 6]], "u": FIELD}, "`t` must be sorted"),
        ({"x": X, "t": T[:0], "u": FIELD[:0]}, "`t` has length zero"),
        ({"x": X, "t": T, "u": FIELD[:, :0]}, "`u` has length zero"),
        ({"x": X, "t": T, "u": FIELD * np.nan}, "`u` holds no number at all"),
        ({"x": X, "t": T, "u": FIELD[:, :-1]}, r"`u` has shape \(7, 7\), which fits no order"),
        ({"x": X, "t": T, "u": values(2, 2, 2, 2, 2, 2)}, "`u` has shape .* fits no order"),
        ({"x": X, "t": T, "u": FIELD, "v": values(3, TIMES, NX)}, "axis sample as the others"),
        ({"t": T, "u": FIELD, "v": values(TIMES, NY)}, "axis x as the others"),
        ({"x": X, "t": T, "u": FIELD, "w": values(3)}, r"`w` has shape \(3,\), which is neither"),
        ({"x": X, "t": T, "time": T, "u": FIELD}, "`t` and `time` mean the same"),
        ({"x": X, "pts": PTS, "t": T, "u": FIELD}, "`pts` and `x` are both coordinates"),
        ({"x": X, "t": T}, "`variables` are none"),
        ({"x": X, "t": T, "u": FIELD, "cells": CELLS}, "`cells` needs points"),
        ({"pts": values(5, 5), "t": T, "u": FIELD}, r"`pts` must have shape \(points, 1, 2 or 3\)"),
        (
            {"pts": PTS, "cells": CELLS + POINTS, "t": T},
            "`cells` must be indices from 0 to 29 of 30 sites, got 30",
        ),
        ({"pts": PTS, "cells": CELLS + 0.5, "t": T}, "`cells` must be integers"),
        ({"x": X, "t": T, "u": FIELD + 1j}, "`u` is complex"),
        ({"x": X, "t": T, "u": FIELD.astype(object)}, "`u` cannot be read as an array: Object"),
        ({"x": X, "t": T.astype("datetime64[s]"), "u": FIELD}, "`t` must hold real numbers"),
        ({"input": values(6, NX), "output": values(5, NX)}, "axis sample as the others"),
        ({"input": values(6, NX), "output": values(6, NY)}, "axis x as the others"),
        ({"X": values(4, 4) * np.nan, "Y": values(4, 4), "u": values(9, 4, 4)}, "`X` must be fin"),
        ({"X": np.eye(4), "Y": np.eye(4), "u": values(9, 4, 4)}, "`X` and `Y` must span an area"),
    ],
)
def test_broken_arrays_are_refused_by_name(tmp_path, arrays, message):
    with pytest.raises(DataError, match=message):
        read_arrays(tmp_path, **arrays)


def test_ambiguous_zero_or_one_based_cells_of_matlab_are_refused(tmp_path):
    arrays = {"pts": PTS, "cells": CELLS + 1, "t": T, "u": values(TIMES, POINTS)}
    with pytest.raises(
        DataError, match="`cells` names sites 1 to 3 of 30, so it may be zero-based"
    ):
        read(save_matlab_5(tmp_path, arrays))


def test_extra_dimensions_cannot_be_selected(tmp_path):
    with pytest.raises(DataError, match="`level` cannot be selected here"):
        read_arrays(tmp_path, x=X, t=T, u=FIELD, options={"select": {"level": "500"}})


def test_only_arrays_are_recognised(tmp_path):
    assert not READER.recognises(tmp_path)
    assert not READER.recognises(tmp_path / "data.nc")
    assert READER.recognises(tmp_path / "data.hdf5")


def test_the_cylinder_wake_is_three_variables_on_unstructured_points():
    path = real_file("cylinder_wake", "cylinder_nektar_wake.mat")
    series, raw = read(path), scipy.io.loadmat(path)
    assert [variable.name for variable in series.variables] == ["U_star_x", "U_star_y", "p_star"]
    assert series.num_samples == 1
    np.testing.assert_array_equal(series.time, raw["t"].ravel())
    frames = series.frames(0)
    np.testing.assert_array_equal(frames[..., :2], raw["U_star"].transpose(2, 0, 1))
    np.testing.assert_array_equal(frames[..., 2], raw["p_star"].T)
    np.testing.assert_array_equal(series.geometry().coords, raw["X_star"])
    np.testing.assert_array_equal(series.geometry().weights, 1 / 5000)


def test_the_channel_is_a_mesh_of_triangles_in_the_plane():
    folder = real_file("cylinder_channel")
    series = read(folder, variables=("vx", "vy", "pressure"))
    geometry = series.geometry()
    points, cells = np.load(folder / "pts.npy"), np.load(folder / "cells.npy")
    np.testing.assert_array_equal(geometry.coords, points[:, :2])
    np.testing.assert_array_equal(geometry.triangles, cells)
    first, second = (points[cells[:, corner]] - points[cells[:, 0]] for corner in (1, 2))
    area = np.abs(first[:, 0] * second[:, 1] - first[:, 1] * second[:, 0])
    expected = np.bincount(cells.ravel(), np.repeat(area, 3))
    np.testing.assert_allclose(geometry.weights, expected / expected.sum(), rtol=1e-10)
    assert series.time.tolist() == list(range(59))
    for column, name in enumerate(("vx", "vy", "pressure")):
        raw = np.load(folder / f"snapshots_{name}.npy")
        np.testing.assert_array_equal(series.frames(0)[..., column], raw)


@pytest.mark.parametrize(
    ("file", "time", "field"), [("KS.mat", "tt", "uu"), ("burgers_shock.mat", "t", "usol")]
)
def test_one_dimensional_equations_are_time_series_on_a_line(file, time, field):
    path = real_file("small_pde", file)
    series, raw = read(path), scipy.io.loadmat(path)
    assert [variable.name for variable in series.variables] == [field]
    np.testing.assert_array_equal(series.time, raw[time].ravel())
    np.testing.assert_array_equal(series.geometry().coords[:, 0], raw["x"].ravel())
    np.testing.assert_array_equal(series.frames(0)[..., 0], raw[field].T)


def moving_wave(x, num_times=7):
    return np.sin(np.pi * (x[None, :] - 0.1 * np.arange(num_times)[:, None]))


def test_an_axis_whose_last_site_repeats_the_first_is_periodic(tmp_path):
    x = np.linspace(-1, 1, 33)
    np.savez(tmp_path / "closed.npz", x=x, t=np.arange(7.0), u=moving_wave(x))
    domain = open_data(tmp_path / "closed.npz").geometry().domain
    assert domain == Domain.box([-1], [1], periodic=True)


def test_equal_values_at_two_walls_do_not_make_an_axis_periodic(tmp_path):
    x = np.linspace(-1, 1, 33)
    walls = (1 - x**2)[None, :] * np.arange(1, 8)[:, None]
    np.savez(tmp_path / "walls.npz", x=x, t=np.arange(7.0), u=walls)
    assert open_data(tmp_path / "walls.npz").geometry().domain.periodic == (False,)


def test_an_axis_without_its_end_point_stays_open(tmp_path):
    x = np.linspace(-1, 1, 33)[:-1]
    np.savez(tmp_path / "open.npz", x=x, t=np.arange(7.0), u=moving_wave(x))
    assert open_data(tmp_path / "open.npz").geometry().domain.periodic == (False,)


@pytest.mark.parametrize("name", ["KS.mat", "burgers_shock.mat"])
def test_the_real_one_dimensional_series_are_periodic(name):
    domain = open_data(real_file("small_pde", name)).geometry().domain
    assert domain == Domain.box([-1], [1], periodic=True)


# Coordinates by names of the user's own

PLACES = np.random.default_rng(1).random((20, 2))
SERIES_ON_POINTS = np.random.default_rng(2).normal(size=(7, 20))


@pytest.mark.parametrize(
    "coordinates",
    [
        {"elem_xy": PLACES},
        {"nodeCoords": PLACES.T},
        {"node_x": PLACES[:, 0], "node_y": PLACES[:, 1]},
        {"x": PLACES[:, 0], "y": PLACES[:, 1]},
    ],
)
@pytest.mark.parametrize("variables", [(), ("u",)])
def test_recognised_names_are_coordinates_for_any_selection_of_variables(
    tmp_path, coordinates, variables
):
    np.savez(tmp_path / "a.npz", u=SERIES_ON_POINTS, **coordinates)
    data = READER.read(tmp_path / "a.npz", ReadOptions(variables=variables))
    np.testing.assert_array_equal(data.geometry().coords, PLACES)
    np.testing.assert_array_equal(data.frames(0)[..., 0], SERIES_ON_POINTS)


def test_longitudes_and_latitudes_of_cells_lie_on_the_sphere(tmp_path):
    degrees = {"lonCell": 300 * PLACES[:, 0], "latCell": 100 * PLACES[:, 1] - 50}
    np.savez(tmp_path / "a.npz", u=SERIES_ON_POINTS, **degrees)
    geometry = READER.read(tmp_path / "a.npz", ReadOptions()).geometry()
    assert geometry.domain.is_sphere
    np.testing.assert_allclose(geometry.geographic_degrees()[:, 1], degrees["latCell"], atol=1e-9)


def test_unrecognised_coordinates_are_refused_with_the_flag_to_add(tmp_path):
    np.savez(tmp_path / "a.npz", u=SERIES_ON_POINTS, blob=PLACES, t=np.arange(7.0))
    for variables in ((), ("u",)):
        with pytest.raises(DataError, match=r"`blob` .*coordinates of .*20 sites.*--coords blob"):
            READER.read(tmp_path / "a.npz", ReadOptions(variables=variables))
    stated = READER.read(tmp_path / "a.npz", ReadOptions(coords=("blob",)))
    np.testing.assert_array_equal(stated.geometry().coords, PLACES)
    line = ReadOptions(variables=("u",), select={"axes": "time,x"})
    assert READER.read(tmp_path / "a.npz", line).geometry().grid_shape == (20,)
    with pytest.raises(DataError, match="`q` is not in the file, which has u, blob"):
        READER.read(tmp_path / "a.npz", ReadOptions(coords=("q",)))


def test_sites_at_element_centres_are_weighted_by_element_areas(tmp_path):
    nodes = np.array([[0, 0], [1, 0], [1, 1], [0, 1], [3, 0.5], [-1, 0.5]])
    elements = np.array([[0, 1, 2], [0, 2, 3], [1, 4, 2], [3, 5, 0], [0, 1, 3], [1, 2, 3]])
    middles = nodes[elements].mean(1)
    np.savez(
        tmp_path / "a.npz", node_xy=nodes, elem_xy=middles[:6], elements=elements,
        u=np.zeros((9, 6)), t=np.arange(9.0),
    )  # fmt: skip
    data = READER.read(tmp_path / "a.npz", ReadOptions(coords=("elem_xy",)))
    areas = np.array([0.5, 0.5, 1, 0.5, 0.5, 0.5])
    np.testing.assert_allclose(data.geometry().weights, areas / areas.sum())
