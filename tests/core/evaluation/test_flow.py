"""The velocity is identified by name, by CF standard name, from a vorticity, or as a user says."""

import numpy as np
import pytest
import torch

from gpo.data.forcings import Variable
from gpo.data.geometry import Geometry
from gpo.evaluation.flow import FlowVariables, velocity
from tests.core.interpretation.readings import TORUS

SQUARE = Geometry.unstructured(np.random.default_rng(0).random((30, 2)))
LATITUDE, LONGITUDE = np.linspace(-87.5, 87.5, 36), np.arange(0.0, 360.0, 5.0)
GLOBE = Geometry.latitude_longitude(LATITUDE, LONGITUDE)


def find_flow(geometry, variables, chosen=()):
    return FlowVariables(tuple(variables), chosen).on(geometry)


@pytest.mark.parametrize(
    "names",
    [
        ("U_star_x", "U_star_y", "p_star"),
        ("vx", "vy", "pressure"),
        ("velocity_x", "velocity_y", "p"),
        ("u10", "v10", "sst"),
    ],
)
def test_velocities_are_known_by_name(names):
    raw = np.random.default_rng(1).normal(size=(30, 3))
    np.testing.assert_array_equal(velocity(SQUARE, raw, names), raw[:, :2])
    np.testing.assert_array_equal(velocity(SQUARE, raw[:, ::-1], names[::-1]), raw[:, :2])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("eastward_wind", "northward_wind"),
        ("x_wind", "y_wind"),
        ("sea_water_x_velocity", "sea_water_y_velocity"),
        ("surface_geostrophic_eastward_sea_water_velocity",
         "surface_geostrophic_northward_sea_water_velocity"),
    ],
)  # fmt: skip
def test_velocities_are_known_by_their_cf_standard_names(first, second):
    names = [Variable("n", standard_name=second), Variable("t"), Variable("e", standard_name=first)]
    flow = find_flow(SQUARE, names)
    raw = np.arange(90.0).reshape(30, 3)
    np.testing.assert_array_equal(flow(raw), raw[:, [2, 0]])
    assert flow.known_by == "e, n (CF standard name)"
    stress = [Variable("a", standard_name="surface_downward_eastward_stress"),
              Variable("b", standard_name="surface_downward_northward_stress")]  # fmt: skip
    assert find_flow(SQUARE, stress) is None


def test_components_go_with_the_axes_that_they_are_along():
    axes = [np.linspace(0, 1, 5), np.linspace(0, 2, 6)]
    turned = Geometry.rectilinear(axes, names=("y", "x"))
    raw = np.random.default_rng(2).normal(size=(30, 2))
    np.testing.assert_array_equal(velocity(turned, raw, ("u", "v")), raw[:, ::-1])
    x, y = 2 * np.pi * TORUS.coords.T[::-1]
    vorticity = -4 * np.pi * np.cos(x) * np.cos(y)
    torus = Geometry.rectilinear(TORUS.axes, periodic=True, names=("y", "x"))
    expected = np.stack([-np.sin(x) * np.cos(y), np.cos(x) * np.sin(y)], -1)
    result = velocity(torus, vorticity[:, None], ("vorticity",))
    np.testing.assert_allclose(result, expected, atol=1e-12)


def test_a_chosen_velocity_is_taken_and_a_strange_one_refused():
    raw = np.random.default_rng(3).normal(size=(30, 3))
    variables = [Variable(name) for name in ("u", "v", "w")]
    flow = find_flow(SQUARE, variables, ("w", "u"))
    np.testing.assert_array_equal(flow(raw), raw[:, [2, 0]])
    for chosen in (("u",), ("u", "speed")):
        with pytest.raises(ValueError, match=r"--velocity must name 2 of .* There are u, v, w"):
            find_flow(SQUARE, variables, chosen)


def test_the_flow_of_a_vorticity_on_the_sphere_is_that_of_its_stream_function():
    r"""With $\psi=\cos^2\phi\sin\phi\cos2\lambda-\sin\phi$, two harmonics: the latter is a rotation."""
    longitude, latitude = torch.deg2rad(torch.from_numpy(GLOBE.geographic_degrees())).numpy().T
    sine, cosine = np.sin(latitude), np.cos(latitude)
    wave = cosine**2 * sine * np.cos(2 * longitude)
    vorticity = -12 * wave + 2 * sine
    east = -(cosine**3 - 2 * sine**2 * cosine) * np.cos(2 * longitude) + cosine
    north = -2 * cosine * sine * np.sin(2 * longitude)
    result = velocity(GLOBE, vorticity[:, None], ("vorticity",))
    np.testing.assert_allclose(result, np.stack([east, north], -1), atol=1e-9)
    flow = find_flow(GLOBE, [Variable("vo", "s-1", standard_name="atmosphere_relative_vorticity")])
    np.testing.assert_allclose(flow(vorticity[:, None]), result, atol=1e-12)
    assert flow.lengths_per_time("h") == pytest.approx(3600)
    westward = Geometry.latitude_longitude(LATITUDE[::-1], LONGITUDE[::-1])
    field = vorticity.reshape(GLOBE.grid_shape)[::-1, ::-1].reshape(-1, 1)
    again = velocity(westward, field, ("vorticity",)).reshape(*GLOBE.grid_shape, 2)[::-1, ::-1]
    np.testing.assert_allclose(again.reshape(-1, 2), result, atol=1e-9)


def test_a_vorticity_on_a_part_of_the_globe_determines_no_velocity():
    band = Geometry.latitude_longitude(LATITUDE[8:-8], LONGITUDE)
    assert velocity(band, np.ones((band.num_points, 1)), ("vorticity",)) is None


def test_units_determine_how_far_a_flow_goes():
    wind = (Variable("u10", "m s**-1"), Variable("v10", "m s**-1"))
    flow = find_flow(GLOBE, wind)
    assert flow.lengths_per_time("h") == pytest.approx(3600 / 6.371e6)
    assert flow.lengths_per_time("") is None
    assert find_flow(GLOBE, (Variable("u10"), Variable("v10"))).lengths_per_time("h") is None
    assert find_flow(SQUARE, (Variable("u"), Variable("v"))).lengths_per_time("") == 1
    assert find_flow(SQUARE, wind).lengths_per_time("h") is None
    km = Geometry.unstructured(SQUARE.coords, units=("km", "km"))
    assert find_flow(km, wind).lengths_per_time("h") == pytest.approx(3.6)
    assert find_flow(TORUS, (Variable("vorticity", "1/s"),)).lengths_per_time("min") == 60
