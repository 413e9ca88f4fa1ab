"""Derivatives by local fits, against fields whose derivatives are known."""

import numpy as np
import pytest

from gpo import Domain
from gpo.data.geometry import Geometry
from gpo.evaluation.derivatives import LocalFits
from gpo.evaluation.flow import FlowVariables, vorticity

random = np.random.default_rng(0)


def everywhere(geometry):
    return LocalFits.of(geometry, ~geometry.is_masked)


OPEN = {
    "uneven grid": Geometry.rectilinear([np.sort(random.random(9)), np.sort(random.random(7))]),
    "fitted mesh": Geometry.curvilinear(*np.meshgrid(np.linspace(0, 1, 8) ** 2, np.linspace(0, 3, 6))),
    "points": Geometry.unstructured(random.random((60, 2))),
    "points in space": Geometry.unstructured(random.random((150, 3))),
    "line": Geometry.rectilinear([np.sort(random.random(12))]),
}  # fmt: skip


@pytest.mark.parametrize("geometry", OPEN.values(), ids=OPEN)
def test_a_quadratic_has_its_exact_derivatives_anywhere(geometry):
    x, dim = geometry.coords, geometry.domain.dim
    slope, curve = np.arange(1.0, dim + 1), random.normal(size=(dim, dim))
    curve = curve + curve.T
    values = (2 + x @ slope + 0.5 * np.einsum("na,ab,nb->n", x, curve, x))[:, None]
    fits = everywhere(geometry)
    np.testing.assert_allclose(fits.gradient(values)[..., 0], slope + x @ curve, atol=1e-4)
    np.testing.assert_allclose(fits.laplacian(values)[:, 0], np.trace(curve), atol=1e-2)


def test_derivatives_go_round_closed_axes():
    axis = np.arange(32) / 32
    geometry = Geometry.rectilinear([axis, axis], periodic=True)
    x = geometry.coords[:, 0]
    fits = everywhere(geometry)
    wave = np.sin(2 * np.pi * x)[:, None]
    expected = 2 * np.pi * np.cos(2 * np.pi * x)
    np.testing.assert_allclose(fits.gradient(wave)[:, 0, 0], expected, atol=0.05)
    np.testing.assert_allclose(fits.gradient(wave)[:, 1, 0], 0, atol=1e-6)
    np.testing.assert_allclose(
        fits.laplacian(wave)[:, 0], -((2 * np.pi) ** 2) * wave[:, 0], atol=0.2
    )


@pytest.mark.parametrize("kind", ["grid", "points"])
def test_on_the_sphere_derivatives_are_those_of_the_tangent_plane(kind):
    if kind == "grid":
        geometry = Geometry.latitude_longitude(np.linspace(-88, 88, 45), np.arange(0, 360, 4.0))
    else:
        z, turn = random.uniform(-1, 1, 4000), random.uniform(0, 360, 4000)
        geometry = Geometry.on_sphere(turn, np.rad2deg(np.arcsin(z)), Domain.sphere())
    height = geometry.coords[:, 2]
    fits = everywhere(geometry)
    gradient = fits.gradient(height[:, None])[..., 0]
    np.testing.assert_allclose(gradient[:, 0], 0, atol=0.02)
    np.testing.assert_allclose(gradient[:, 1], np.sqrt(1 - height**2), atol=0.02)
    np.testing.assert_allclose(fits.laplacian(height[:, None])[:, 0], -2 * height, atol=0.1)


def test_what_masked_sites_hold_does_not_matter():
    axis = np.linspace(0, 1, 12)
    geometry = Geometry.rectilinear([axis, axis])
    is_missing = (np.abs(geometry.coords - 0.5) < 0.2).all(1)
    values = geometry.coords @ np.array([[1.0], [2.0]])
    values[is_missing] = 1e6
    fits = LocalFits.of(geometry, ~is_missing)
    assert not fits.is_fitted[is_missing].any()
    assert fits.is_fitted.sum() > 0.7 * len(values)
    gradient = fits.gradient(values)[fits.is_fitted, :, 0]
    np.testing.assert_allclose(gradient, np.broadcast_to([1.0, 2.0], gradient.shape), atol=1e-3)


def found_vorticity(geometry, raw, names):
    """The vorticity of variables of which nothing but the names is known."""
    flow = FlowVariables.named(names).on(geometry)
    return vorticity(everywhere(geometry), flow, raw, names)


def test_solid_rotation_has_twice_its_rate_as_vorticity():
    axis = np.linspace(-1, 1, 9)
    plane = Geometry.rectilinear([axis, axis])
    x, y = plane.coords.T
    names = ("Vx", "density", "Vy")
    result = found_vorticity(plane, np.stack([-3 * y, x, 3 * x], -1), names)
    np.testing.assert_allclose(result, 6, rtol=1e-5)
    sphere = Geometry.latitude_longitude(np.linspace(-60, 60, 31), np.arange(0, 360, 5.0))
    up = sphere.coords[:, 2]
    wind = np.stack([np.sqrt(1 - up**2), np.zeros_like(up)], -1)
    result = found_vorticity(sphere, wind, ("u10", "v10"))
    np.testing.assert_allclose(result, 2 * np.abs(up), atol=0.02)


def test_without_a_velocity_there_is_no_vorticity_unless_it_is_given():
    cube = OPEN["points in space"]
    assert found_vorticity(cube, np.ones((150, 2)), ("u", "v")) is None
    assert found_vorticity(cube, np.ones((150, 1)), ("temperature",)) is None
    plane = OPEN["points"]
    given = found_vorticity(plane, np.full((60, 1), -2.0), ("vorticity",))
    np.testing.assert_array_equal(given, np.full(60, 2.0))
