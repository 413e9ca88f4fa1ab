import numpy as np
import pytest

from gpo import Domain
from gpo.data.geometry import Geometry


def test_rectilinear_weights_are_the_trapezoid_rule_on_uneven_axes():
    axis = np.array([0.0, 0.1, 0.4, 1.0])
    geometry = Geometry.rectilinear([axis, np.linspace(0, 2, 5)])
    field = 3 * geometry.coords[:, 0] + geometry.coords[:, 1]
    assert (geometry.weights * field).sum() == pytest.approx(1.5 + 1)
    assert geometry.weights.sum() == pytest.approx(1)
    assert geometry.domain == Domain.box([0, 0], [1, 2])


def test_periodic_axes_are_one_spacing_longer_than_their_points():
    geometry = Geometry.rectilinear([np.arange(8) / 4], periodic=True)
    assert geometry.domain == Domain.box([0], [2], periodic=True)
    np.testing.assert_allclose(geometry.weights, 1 / 8)


def test_a_descending_axis_spans_the_same_domain():
    geometry = Geometry.rectilinear([np.arange(8)[::-1] / 4], periodic=True)
    assert geometry.domain == Domain.box([0], [2], periodic=True)
    assert geometry.coords[0, 0] == 1.75


def test_points_are_listed_with_the_last_axis_fastest():
    geometry = Geometry.rectilinear([np.arange(2.0), np.arange(3.0)])
    assert geometry.coords.tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]


def test_global_latitude_weights_are_cell_areas_down_to_the_poles():
    latitude, longitude = np.linspace(90, -90, 73), np.arange(0, 360, 5.0)
    geometry = Geometry.latitude_longitude(latitude, longitude)
    assert geometry.domain == Domain.sphere()
    rows = geometry.weights.reshape(73, 72)
    cells = np.diff(np.sin(np.deg2rad([-1.25, 1.25]))), np.diff(np.sin(np.deg2rad([28.75, 31.25])))
    np.testing.assert_allclose(rows[36, 0] / rows[24, 0], (cells[0] / cells[1]).item(), rtol=1e-9)
    assert rows[0, 0] > 0
    # The mean of z^2 over the sphere is 1/3.
    assert (geometry.weights * geometry.coords[:, 2] ** 2).sum() == pytest.approx(1 / 3, rel=1e-3)


def test_ascending_and_descending_latitudes_weigh_the_same():
    down = Geometry.latitude_longitude(np.linspace(60, 40, 9), np.linspace(-5, 5, 4))
    up = Geometry.latitude_longitude(np.linspace(40, 60, 9), np.linspace(-5, 5, 4))
    np.testing.assert_allclose(down.weights.reshape(9, 4)[::-1], up.weights.reshape(9, 4))
    assert down.domain.is_sphere
    assert down.domain != Domain.sphere()
    np.testing.assert_allclose(np.linalg.norm(down.coords, axis=1), 1)


def test_triangles_give_their_corners_a_third_each():
    coords = np.array([[0.0, 0], [1, 0], [1, 1], [0, 1]])
    geometry = Geometry.unstructured(coords, np.array([[0, 1, 2], [0, 2, 3]]))
    np.testing.assert_allclose(geometry.weights, [1 / 3, 1 / 6, 1 / 3, 1 / 6])


def test_tetrahedra_give_their_corners_a_quarter_each():
    coords = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, -2]])
    cells = np.array([[0, 1, 2, 3], [0, 1, 2, 4]])
    weights = Geometry.unstructured(coords, cells).weights
    np.testing.assert_allclose(weights, np.array([3, 3, 3, 1, 2]) / 12)


def test_a_body_fitted_grid_integrates_linear_fields_over_its_area():
    radius, angle = np.meshgrid(np.linspace(1, 2, 60), np.linspace(0, np.pi / 2, 80), indexing="ij")
    geometry = Geometry.curvilinear(radius * np.cos(angle), radius * np.sin(angle))
    mean = (geometry.weights * geometry.coords[:, 0]).sum()
    assert mean == pytest.approx((7 / 3) / (3 * np.pi / 4), rel=1e-3)
    assert geometry.grid_shape == (60, 80)


def test_a_curvilinear_grid_on_the_sphere_agrees_with_the_rectilinear_one():
    latitude, longitude = np.linspace(50, 70, 21), np.linspace(0, 40, 41)
    up, along = np.meshgrid(latitude, longitude, indexing="ij")
    curvilinear = Geometry.curvilinear_sphere(up, along)
    rectilinear = Geometry.latitude_longitude(latitude, longitude)
    np.testing.assert_allclose(curvilinear.coords, rectilinear.coords)
    inner = np.s_[1:-1, 1:-1]
    ratio = curvilinear.weights.reshape(21, 41)[inner] / rectilinear.weights.reshape(21, 41)[inner]
    assert np.ptp(ratio) < 1e-3 * ratio.mean()


def test_masking_all_sites_is_refused():
    geometry = Geometry.rectilinear([np.arange(4.0)])
    half = geometry.masked(np.array([True, False, False, True]))
    assert half.weights.sum() == pytest.approx(1)
    assert half.is_masked.tolist() == [True, False, False, True]
    with pytest.raises(ValueError, match="every site is missing"):
        geometry.masked(np.ones(4, dtype=bool))
