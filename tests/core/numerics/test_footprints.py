"""Ellipses and ellipsoids around Gaussians."""

import math

import pytest
import torch

from gpo import Domain, Footprints, longitude_latitude, unit_vectors
from gpo.numerics.gaussian import gaussian
from tests.conftest import DOMAINS, random_points

SPHERE = DOMAINS["sphere"]


def random_footprints(domain, size=0.2, count=6, reach=1.0):
    centers = random_points(domain, count)
    scales = size * (torch.rand(count, domain.dim).double() + 0.3)
    return Footprints.of(centers, scales, domain, reach), centers, scales


def degrees(*numbers):
    return torch.tensor(numbers).double()


@pytest.mark.parametrize("name", ["line", "torus", "cube"])
def test_in_a_box_half_axes_are_scales_along_the_axes(name):
    footprints, _, scales = random_footprints(DOMAINS[name], reach=1.5)
    torch.testing.assert_close(footprints.semi_axes, 1.5 * scales)
    torch.testing.assert_close(footprints.tensors, torch.diag_embed(1.5 * scales))


@pytest.mark.parametrize(("name", "size"), [("square", 0.5), ("torus", 0.2), ("sphere", 1e-4)])
def test_the_gaussian_is_the_same_all_along_an_outline(name, size):
    """On the sphere to first order in the size."""
    domain, reach = DOMAINS[name], 1.7
    footprints, centers, scales = random_footprints(domain, size, reach=reach)
    outlines = footprints.outlines(16)
    offset = outlines - centers.unsqueeze(1)
    values = gaussian(offset, scales.unsqueeze(1))
    expected = torch.full_like(values, math.exp(-(reach**2) / 2))
    tolerance = 20 * size if domain.is_sphere else 1e-10
    torch.testing.assert_close(values, expected, rtol=tolerance, atol=0)


@pytest.mark.parametrize("scale", [0.01, 0.5, 1.0])
def test_the_outline_of_a_round_gaussian_on_the_sphere_is_exact(scale):
    centers = random_points(SPHERE, 5)
    footprints = Footprints.of(centers, torch.full((5, 3), scale).double(), SPHERE)
    offset = footprints.outlines(8) - centers.unsqueeze(1)
    torch.testing.assert_close(offset.norm(dim=-1), torch.full((5, 8), scale).double())
    torch.testing.assert_close(footprints.semi_axes, torch.full((5, 2), scale).double())


def test_ellipses_on_the_sphere_lie_in_the_tangent_plane_the_longer_axis_first():
    footprints, centers, _ = random_footprints(SPHERE, 0.3)
    directions = footprints.directions
    torch.testing.assert_close(directions @ centers.unsqueeze(-1), torch.zeros(6, 2, 1).double())
    torch.testing.assert_close(directions @ directions.mT, torch.eye(2).double().expand(6, 2, 2))
    assert (footprints.semi_axes[:, 0] >= footprints.semi_axes[:, 1]).all()
    turned = torch.linalg.cross(directions[:, 0], directions[:, 1])
    torch.testing.assert_close(turned, centers)


def test_tensors_have_the_half_axes_as_eigenvalues_and_none_along_the_normal():
    footprints, centers, _ = random_footprints(SPHERE, 0.3)
    values = torch.linalg.eigvalsh(footprints.tensors)
    expected = torch.cat([torch.zeros(6, 1).double(), footprints.semi_axes.flip(-1)], -1)
    torch.testing.assert_close(values, expected)
    flat = footprints.tensors @ centers.unsqueeze(-1)
    torch.testing.assert_close(flat, torch.zeros_like(flat))


def test_a_gaussian_on_the_equator_reaches_east_by_y_and_north_by_z():
    center = unit_vectors(degrees(0.0), degrees(0.0))
    footprints = Footprints.of(center, degrees(9.0, 0.2, 0.1).unsqueeze(0), SPHERE)
    torch.testing.assert_close(footprints.semi_axes, degrees(0.2, 0.1).unsqueeze(0))
    torch.testing.assert_close(footprints.directions[0, 0].abs(), degrees(0.0, 1.0, 0.0))


def test_an_outline_on_a_map_is_closed_and_does_not_jump_at_the_date_line():
    center = unit_vectors(degrees(179.0, -179.0), degrees(10.0, -50.0))
    outlines = Footprints.of(center, torch.full((2, 3), 0.1).double(), SPHERE).map_outlines(32)
    assert outlines.shape == (2, 35, 2)
    torch.testing.assert_close(outlines[:, 0], outlines[:, -1])
    assert outlines[..., 0].diff(dim=1).abs().max() < 10
    assert outlines[0, :, 0].max() > 180
    assert outlines[1, :, 0].min() < -180
    middle = outlines[:, :32].mean(1)
    torch.testing.assert_close(middle[:, 0], degrees(179.0, -179.0), rtol=0, atol=1e-6)


@pytest.mark.parametrize("pole", [90.0, -90.0])
def test_an_outline_around_a_pole_holds_the_pole(pole):
    center = unit_vectors(degrees(30.0), degrees(0.97 * pole))
    (outline,) = Footprints.of(center, torch.full((1, 3), 0.2).double(), SPHERE).map_outlines(64)
    assert outline[:, 0].max() - outline[:, 0].min() == pytest.approx(360)
    assert outline[-1].tolist() == [pytest.approx(outline[0, 0].item()), pole]
    assert outline[-2].tolist() == [pytest.approx(outline[-3, 0].item()), pole]
    # The area on the map, by the shoelace formula, is that above the outline and positive.
    x, y = outline.unbind(-1)
    area = (x * y.roll(-1) - x.roll(-1) * y).sum().item() / 2
    assert area == pytest.approx(360 * 11.5, rel=0.1)


def test_points_of_a_map_outline_are_those_of_the_outline():
    footprints, _, _ = random_footprints(SPHERE, 0.2)
    longitude, latitude = footprints.map_outlines(12)[:, :12].unbind(-1)
    torch.testing.assert_close(unit_vectors(longitude, latitude), footprints.outlines(12))


def test_outlines_of_huge_gaussians_end_a_quarter_turn_away():
    centers = random_points(SPHERE, 3)
    huge = Footprints.of(centers, torch.full((3, 3), 50.0).double(), SPHERE)
    corners = huge.outlines(8)
    torch.testing.assert_close(corners.norm(dim=-1), torch.ones(3, 8).double())
    cosines = (corners * centers.unsqueeze(1)).sum(-1)
    torch.testing.assert_close(cosines, torch.zeros(3, 8).double())


def test_degrees_of_a_small_circle_are_its_radius():
    center = unit_vectors(degrees(20.0), degrees(0.0))
    (outline,) = Footprints.of(center, torch.full((1, 3), 0.01).double(), SPHERE).map_outlines(4)
    longitude, latitude = longitude_latitude(center)
    reach = (outline[:4] - torch.stack([longitude, latitude], -1)).norm(dim=-1)
    torch.testing.assert_close(reach, torch.full((4,), math.degrees(0.01)).double(), rtol=1e-4, atol=0)  # fmt: skip


@pytest.mark.parametrize("name", ["line", "cube"])
def test_outlines_are_for_ellipses(name):
    footprints, _, _ = random_footprints(DOMAINS[name])
    with pytest.raises(ValueError, match=r"ellipses.*Use `semi_axes`"):
        footprints.outlines()


def test_a_box_has_no_map():
    footprints, _, _ = random_footprints(Domain.unit_box(2))
    with pytest.raises(ValueError, match="longitudes and latitudes: use `outlines`"):
        footprints.map_outlines()
    with pytest.raises(ValueError, match="`num_vertices` must be at least 3, got 2"):
        footprints.outlines(2)
