"""Panels of a contact sheet on all kinds of sites."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib import pyplot as plt

from gpo.data.geometry import Geometry, focus_box
from gpo.data.rotated_pole import RotatedPole
from gpo.numerics.domain import Domain
from gpo.report.contact_sheet import draw_values, map_coords, panel_height


def _around_a_body(reach: float) -> Geometry:
    """Returns rings around a body of length one, whose radii grow geometrically."""
    radius = np.geomspace(0.5, reach, 24)[:, None]
    angle = 2 * np.pi * np.arange(48) / 48
    coords = np.stack([radius * np.cos(angle), radius * np.sin(angle)], -1).reshape(-1, 2)
    weights = np.repeat(radius[:, 0] ** 2, 48)
    domain = Domain.box([-reach, -reach], [reach, reach])
    return Geometry(coords, weights / weights.sum(), domain, ("x", "y"), ("", ""))


def test_a_far_boundary_does_not_make_the_body_a_dot() -> None:
    low, high = focus_box(_around_a_body(reach=50.0))
    assert min(*-low, *high) > 0.5, "the body is visible"
    assert max(*-low, *high) < 12, "and is more than a dot"


def test_everything_is_shown_where_no_part_is_much_denser() -> None:
    geometry = _around_a_body(reach=1.5)
    np.testing.assert_allclose(focus_box(geometry), [[-1.5, -1.5], [1.5, 1.5]])
    assert panel_height(geometry) == 3.0, "a square panel and its title"


def test_a_curve_does_not_touch_the_frame() -> None:
    line = Geometry.rectilinear([np.linspace(0, 1, 5)])
    _, axes = plt.subplots()
    draw_values(axes, line, np.array([0.0, 1, 2, 1, 0]), (0.0, 2.0))
    low, high = axes.get_ylim()
    assert low < 0
    assert high > 2
    plt.close("all")


def test_a_plane_whose_file_lists_y_first_is_drawn_upright() -> None:
    y, x = np.array([0.0, 1]), np.array([10.0, 20, 30])
    plane = Geometry.rectilinear([y, x], names=("y", "x"))
    _, axes = plt.subplots()
    draw_values(axes, plane, np.arange(6.0), (0.0, 5.0))
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("x", "y")
    assert axes.get_xlim() == (5, 35)
    plt.close("all")


def test_a_rotated_grid_is_drawn_on_the_map() -> None:
    axes_of_grid = np.linspace(-1, 1, 3), np.linspace(0, 3, 4)
    rotated = Geometry.latitude_longitude(*axes_of_grid, pole=RotatedPole(39.25, -162.0))
    _, (true, own) = plt.subplots(1, 2)
    draw_values(true, rotated, np.arange(12.0), (0.0, 11.0))
    draw_values(own, rotated, np.arange(12.0), (0.0, 11.0), along_grid_axes=True)
    assert 48 < true.get_ylim()[0] < true.get_ylim()[1] < 53
    assert own.get_ylim()[0] == -1.5
    plt.close("all")


@pytest.mark.parametrize("west", [-20.0, 170.0, 350.0, 530.0])
def test_longitudes_of_a_region_are_continuous_across_all_meridians(west: float) -> None:
    up, along = np.meshgrid([50.0, 51, 52], west + np.array([0.0, 8, 16, 24]), indexing="ij")
    longitude = map_coords(Geometry.curvilinear_sphere(up, along))[:, 0]
    assert np.ptp(longitude) == pytest.approx(24)
    np.testing.assert_allclose((longitude - along.ravel() + 180) % 360, 180, atol=1e-9)


@pytest.mark.parametrize("coast", [slice(None, 1), slice(3, None)])
@pytest.mark.parametrize("west", [-20.0, 170.0])
def test_masked_land_stays_next_to_the_sea_on_either_side(west: float, coast: slice) -> None:
    up, along = np.meshgrid([50.0, 51, 52], west + np.array([0.0, 8, 16, 24]), indexing="ij")
    is_land = np.zeros(up.shape, dtype=bool)
    is_land[:, coast] = True
    geometry = Geometry.curvilinear_sphere(up, along)
    masked = replace(geometry, weights=np.where(is_land.ravel(), 0.0, geometry.weights))
    assert masked.is_masked.sum() == 3
    longitude = map_coords(masked)[:, 0].reshape(up.shape)
    np.testing.assert_allclose(np.diff(longitude, axis=1), 8, atol=1e-9)
