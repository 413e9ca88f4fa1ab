"""What arrays are, by their names and shapes: parameters, axes on the sphere, cells."""

import numpy as np
import pytest
from scipy.spatial import Delaunay

from gpo.data.dataset import DataError
from gpo.data.forcing_config import ForcingConfig
from gpo.data.geometry import Geometry
from gpo.data.inputs import open_with_forcings
from gpo.data.readers.base import ReadOptions
from gpo.data.readers.registry import open_data


def test_a_row_of_parameters_for_each_trajectory_is_no_field(tmp_path):
    values, t = np.random.default_rng(0).normal(size=(6, 20, 32)), np.arange(20.0)
    params = np.arange(12.0).reshape(6, 2)
    np.savez(tmp_path / "a.npz", u=values, params=params, t=t)
    data = open_data(tmp_path / "a.npz")
    assert (data.num_samples, [v.name for v in data.variables]) == (6, ["u"])
    np.testing.assert_array_equal(data.parameters["params"], params)
    chosen = ForcingConfig(parameters=("params",))
    forced = open_with_forcings(tmp_path / "a.npz", ReadOptions(), chosen)
    assert [variable.name for variable in forced.forcings] == ["params_0", "params_1"]
    np.testing.assert_array_equal(forced.forcing_frames(3, np.array([7]))[0, 5], params[3])
    np.savez(tmp_path / "b.npz", u=values, params=params[:5], t=t)
    with pytest.raises(DataError, match=r"`params` has shape \(5, 2\)"):
        open_data(tmp_path / "b.npz")


@pytest.mark.parametrize("order", [("lat", "lon"), ("lon", "lat")])
def test_axes_that_are_named_and_range_like_degrees_are_on_the_sphere(tmp_path, order):
    axes = {"lat": np.linspace(60, 30, 8), "lon": np.linspace(-5, 10, 9)}
    shape = [len(axes[name]) for name in order]
    values = np.random.default_rng(0).normal(size=(20, *shape))
    np.savez(tmp_path / "a.npz", u=values, **axes, t=np.arange(20.0))
    data = open_data(tmp_path / "a.npz")
    expected = Geometry.latitude_longitude(axes["lat"], axes["lon"])
    np.testing.assert_array_equal(data.geometry().weights, expected.weights)
    np.testing.assert_array_equal(data.geometry().coords, expected.coords)
    by_lat = values if order[0] == "lat" else values.transpose(0, 2, 1)
    np.testing.assert_array_equal(data.frames(0)[..., 0], by_lat.reshape(20, 72))


def test_triangles_give_the_areas_of_points_in_degrees(tmp_path):
    generator = np.random.default_rng(0)
    lon, lat = 30 * generator.random(60), 20 + 40 * generator.random(60)
    cells = Delaunay(np.stack([lon, lat], -1)).simplices
    values = generator.normal(size=(20, 60))
    np.savez(tmp_path / "a.npz", u=values, lon=lon, lat=lat, triangles=cells)
    geometry = open_data(tmp_path / "a.npz").geometry()
    assert geometry.domain.is_sphere
    np.testing.assert_allclose(np.bincount(cells.ravel()) > 0, geometry.weights > 0)
    assert np.ptp(geometry.weights) > 0.1 * geometry.weights.mean()


@pytest.mark.parametrize("axes", [{}, {"x": np.linspace(0, 1, 16), "y": np.linspace(0, 1, 17)}])
@pytest.mark.parametrize("variables", [(), ("u",)])
def test_frames_without_times_beside_a_vector_of_parameters_are_asked_for(
    tmp_path, axes, variables
):
    values, mu = np.random.default_rng(0).normal(size=(50, 16, 17)), np.linspace(0, 1, 50)
    if not axes:
        values = values[..., :16]
    np.savez(tmp_path / "a.npz", u=values, mu=mu, **axes)
    with pytest.raises(DataError, match="are samples: `--inputs mu`"):
        open_data(tmp_path / "a.npz", ReadOptions(variables=variables))
    maps = open_data(tmp_path / "a.npz", ReadOptions(variables=variables, inputs=("mu",)))
    assert (maps.num_samples, maps.inputs[0].name) == (50, "mu")
    stated = ReadOptions(variables=("u",), select={"axes": "time,x,y"})
    assert len(open_data(tmp_path / "a.npz", stated).time) == 50
