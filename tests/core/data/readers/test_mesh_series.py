from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from gpo.data.dataset import DataError, FieldData, Variable
from gpo.data.geometry import Geometry
from gpo.data.readers.base import ReadOptions
from gpo.data.readers.mesh_series import READER
from gpo.numerics.domain import Domain
from gpo_bench.solvers.published_files import write_mesh_series

TIMES, POINTS = 5, 9


def mesh(side=3):
    """A square of side x side points, each cell of which is split into two triangles."""
    coords = np.stack(np.meshgrid(*[np.linspace(0, 1, side)] * 2, indexing="ij"), -1)
    corner = np.arange(side * side).reshape(side, side)[:-1, :-1].ravel()
    upper = np.stack([corner, corner + side, corner + side + 1], -1)
    lower = np.stack([corner, corner + side + 1, corner + 1], -1)
    return coords.reshape(-1, 2), np.concatenate([upper, lower])


def group(side=3, seed=0):
    coords, cells = mesh(side)
    random = np.random.default_rng(seed)
    return {
        "mesh_pos": coords,
        "cells": cells.astype(np.int32),
        "node_type": np.zeros((side * side, 1), np.int32),
        "density": random.normal(size=(TIMES, side * side, 1)),
        "pressure": random.normal(size=(TIMES, side * side)),
        "velocity": random.normal(size=(TIMES, side * side, 2)),
        "time": np.linspace(0, 1, TIMES),
    }


def save(path, **groups):
    """Writes groups; the group `root` is the root itself."""
    with h5py.File(path, "w") as file:
        for label, arrays in groups.items():
            for name, values in arrays.items():
                file[f"{'' if label == 'root' else label}/{name}"] = values
    return path


def read(path, **options):
    return READER.read(path, ReadOptions(**options))


def test_fields_in_the_root_are_one_trajectory(tmp_path):
    arrays = group()
    path = save(tmp_path / "one.h5", root=arrays)
    assert READER.recognises(path)
    series = read(path)
    names = [variable.name for variable in series.variables]
    assert names == ["density", "pressure", "velocity_x", "velocity_y"]
    frames = series.frames(0)
    np.testing.assert_array_equal(frames[..., 0], arrays["density"][..., 0])
    np.testing.assert_array_equal(frames[..., 1], arrays["pressure"])
    np.testing.assert_array_equal(frames[..., 2:], arrays["velocity"])
    np.testing.assert_array_equal(series.time, arrays["time"])
    np.testing.assert_array_equal(series.frames(0, slice(1, 4)), frames[1:4])
    assert len(series.frames(0, slice(2, 2))) == 0


def test_weights_are_a_third_of_the_adjacent_triangles(tmp_path):
    geometry = read(save(tmp_path / "one.h5", root=group())).geometry()
    counts = np.bincount(mesh()[1].ravel())
    np.testing.assert_allclose(geometry.weights, counts / counts.sum(), rtol=1e-12)


def test_trajectories_may_have_different_numbers_of_points(tmp_path):
    groups = {str(number): group(side, number) for number, side in ((2, 3), (9, 4), (10, 5))}
    series = read(save(tmp_path / "many.h5", **groups))
    assert [geometry.num_points for geometry in series.geometries] == [9, 16, 25]
    assert {geometry.domain for geometry in series.geometries} == {Domain.unit_box(2)}
    for trajectory, arrays in enumerate(groups.values()):
        np.testing.assert_array_equal(series.frames(trajectory)[..., 0], arrays["density"][..., 0])


def test_trajectories_on_one_mesh_share_its_geometry(tmp_path):
    series = read(save(tmp_path / "many.h5", a=group(seed=1), b=group(seed=2)))
    assert series.num_samples == 2
    assert len(series.geometries) == 1


@pytest.mark.parametrize("length", [1, TIMES])
def test_positions_and_cells_may_repeat_in_time(tmp_path, length):
    arrays = group()
    arrays["pos"] = np.repeat(arrays.pop("mesh_pos")[None], length, 0)
    arrays["cells"] = np.repeat(arrays["cells"][None], length, 0)
    geometry = read(save(tmp_path / "one.h5", root=arrays)).geometry()
    np.testing.assert_array_equal(geometry.coords, mesh()[0])
    np.testing.assert_array_equal(geometry.triangles, mesh()[1])


def test_without_times_frames_are_numbered(tmp_path):
    arrays = group()
    del arrays["time"]
    series = read(save(tmp_path / "one.h5", root=arrays))
    assert series.time.tolist() == [0, 1, 2, 3, 4]
    assert series.time_units == ""


def test_quadrilaterals_are_cut_into_triangles_and_tetrahedra_are_not(tmp_path):
    arrays = group(2)
    arrays["cells"] = np.array([[0, 1, 3, 2]])
    geometry = read(save(tmp_path / "plane.h5", root=arrays)).geometry()
    assert geometry.triangles.tolist() == [[0, 1, 3], [0, 3, 2]]
    arrays["mesh_pos"] = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1.0]])
    geometry = read(save(tmp_path / "space.h5", root=arrays)).geometry()
    assert geometry.triangles.tolist() == [[0, 1, 3, 2]]
    np.testing.assert_allclose(geometry.weights, 0.25)


def test_variables_can_be_chosen_by_component_or_as_a_whole_vector(tmp_path):
    path = save(tmp_path / "one.h5", root=group())
    for requested, names in (
        (("velocity_y", "density"), ["velocity_y", "density"]),
        (("velocity",), ["velocity_x", "velocity_y"]),
    ):
        series = read(path, variables=requested)
        assert [variable.name for variable in series.variables] == names
        assert series.frames(0).shape == (TIMES, POINTS, 2)
    with pytest.raises(DataError, match="`entropy` is not in the file, which has density"):
        read(path, variables=("entropy",))


def test_single_numbers_are_parameters_of_their_trajectory(tmp_path):
    first, second = {**group(), "viscosity": 0.1}, {**group(4), "viscosity": 0.2}
    series = read(save(tmp_path / "many.h5", a=first, b=second))
    np.testing.assert_array_equal(series.parameters["viscosity"], [0.1, 0.2])


def test_what_is_written_is_read_exactly(tmp_path):
    names = ("density", "velocity_x", "velocity_y")
    geometries = tuple(Geometry.unstructured(*mesh(side)) for side in (3, 4))
    values = [np.random.default_rng(0).normal(size=(70, side**2, 3)) for side in (3, 4)]
    written = FieldData(
        layout="test",
        source=Path("none"),
        variables=tuple(Variable(name, "m/s") for name in names),
        geometries=geometries,
        time=np.linspace(0, 2, 70),
        time_units="s",
        num_samples=2,
        fetch=lambda trajectory, times: values[trajectory][times],
        parameters={"mach": np.array([0.3, 0.8])},
    )
    path = tmp_path / "written.h5"
    write_mesh_series(path, written)
    with h5py.File(path) as file:
        assert file["1/velocity"].shape == (70, 16, 2)
    series = read(path)
    assert series.variables == written.variables
    assert series.time_units == "s"
    np.testing.assert_array_equal(series.time, written.time)
    np.testing.assert_array_equal(series.parameters["mach"], [0.3, 0.8])
    for trajectory, geometry in enumerate(geometries):
        np.testing.assert_array_equal(series.frames(trajectory), values[trajectory])
        np.testing.assert_array_equal(series.geometry(trajectory).coords, geometry.coords)
        np.testing.assert_array_equal(series.geometry(trajectory).weights, geometry.weights)
    cloud = replace(geometries[0], triangles=None)
    with pytest.raises(ValueError, match="must have triangles"):
        write_mesh_series(path, replace(written, geometries=(cloud,)))


def test_sites_that_are_always_missing_are_masked_and_stay_nan(tmp_path):
    arrays = group()
    arrays["density"][:, 4] = np.nan
    arrays["density"][:3, 5] = np.nan
    series = read(save(tmp_path / "one.h5", root=arrays))
    assert np.flatnonzero(series.geometry().is_masked).tolist() == [4]
    np.testing.assert_array_equal(series.frames(0)[..., 0], arrays["density"][..., 0])


def changed(**changes):
    arrays = {**group(), **changes}
    return {name: values for name, values in arrays.items() if values is not None}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (changed(mesh_pos=None), "`mesh_pos` is missing, and `pos` too"),
        (changed(cells=None), "`cells` is missing"),
        (
            changed(cells=np.full((2, 3), POINTS)),
            "/cells` must be indices from 0 to 8 of 9 sites, got 9 to 9",
        ),
        (
            changed(cells=np.full((2, 3), -1)),
            "/cells` must be indices from 0 to 8 of 9 sites, got -1 to -1",
        ),
        (changed(cells=np.full((2, 3), 0.5)), "/cells` must be integers"),
        (changed(cells=np.zeros((2, 3), int)), "`cells` must have an area"),
        (changed(cells=np.zeros((2, 2), int)), r"/cells` must have shape \(cells, 3 or 4\)"),
        (changed(cells=np.zeros((0, 3), int)), "/cells` must not be empty"),
        (
            changed(mesh_pos=np.zeros((POINTS, 4))),
            r"/mesh_pos` must have shape \(points, 1, 2 or 3\)",
        ),
        (changed(mesh_pos=np.full((POINTS, 2), np.nan)), "/mesh_pos` must be finite"),
        (
            changed(mesh_pos=np.random.default_rng(0).random((TIMES, POINTS, 2))),
            "/mesh_pos` must not change in time",
        ),
        (changed(density=np.zeros((TIMES, POINTS + 1, 1))), r"/density` must have shape \(T, 9"),
        (changed(density=np.zeros((TIMES + 1, POINTS, 1))), r"` must have shape \(T, 9"),
        (changed(density=np.zeros(TIMES)), "/density` must have shape"),
        (changed(density=np.full((TIMES, POINTS), np.nan)), "`density` holds no number at all"),
        (changed(time=np.arange(TIMES)[::-1]), "`time` must increase"),
        (changed(time=np.array([0, 2, 1, 3, 4])), "`time` must be sorted"),
        (changed(time=np.array([0, 1, 1, 3, 4])), "`time` must be distinct"),
        (changed(time=np.arange(TIMES + 1)), "time` must have 5 times"),
        (changed(time=np.arange(0)), "time` must have 5 times"),
        (changed(density=None, pressure=None, velocity=None), "holds no field"),
        (
            changed(
                density=np.zeros((0, POINTS)),
                pressure=None,
                velocity=None,
                time=np.zeros(0),
            ),
            "/density` must have shape .* not zero",
        ),
    ],
)
def test_broken_files_are_refused_by_name(tmp_path, arrays, message):
    with pytest.raises(DataError, match=message):
        read(save(tmp_path / "broken.h5", root=arrays))


def test_trajectories_that_differ_in_fields_or_times_are_refused(tmp_path):
    fewer = group()
    del fewer["pressure"]
    with pytest.raises(DataError, match="`/b` must have the fields of /a"):
        read(save(tmp_path / "fields.h5", a=group(), b=fewer))
    later = {**group(), "time": np.arange(TIMES)}
    with pytest.raises(DataError, match="`/b/time` must be the same as in /a"):
        read(save(tmp_path / "times.h5", a=group(), b=later))


def test_truncated_files_and_other_formats_are_refused(tmp_path):
    path = save(tmp_path / "cut.h5", root=group())
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(DataError, match="`file` cannot be read as HDF5"):
        read(path)
    foreign = tmp_path / "text.h5"
    foreign.write_text("no data")
    assert not READER.recognises(foreign)
    assert not READER.recognises(tmp_path)
    with pytest.raises(DataError, match="`file` cannot be read as HDF5"):
        read(foreign)
    assert not READER.recognises(save(tmp_path / "other.h5", root={"u": np.zeros(3)}))
