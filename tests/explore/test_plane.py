"""Where things are drawn."""

import numpy as np
import pytest

from gpo import Domain
from gpo.data.geometry import Geometry
from gpo_explore.plane import Plane
from tests.explore.sessions import KINDS, geometries, triangulated


@pytest.mark.parametrize("kind", KINDS)
def test_a_drawn_site_leads_back_to_itself(kind):
    geometry = geometries()[kind]
    plane = Plane(geometry)
    counted = np.flatnonzero(~geometry.is_masked)
    for site in counted[:: len(counted) // 5]:
        point = tuple(plane.positions[site].tolist())
        assert plane.nearest_site(point) == site
        np.testing.assert_allclose(plane.coords_of(point), geometry.coords[site], atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_all_sites_lie_in_the_drawn_box(kind):
    plane = Plane(geometries()[kind])
    metadata = plane.packet(np.ones(len(plane.positions), dtype=bool)).metadata
    assert (plane.positions >= np.array(metadata["lower"]) - 1e-9).all()
    assert (plane.positions <= np.array(metadata["upper"]) + 1e-9).all()


def test_longitudes_are_drawn_around_the_middle_of_a_patch():
    """The Pacific lies on both sides of the meridian where longitudes jump."""
    plane = Plane(Geometry.latitude_longitude(np.array([10.0, 0.0]), np.array([170.0, 180.0, 190.0])))  # fmt: skip
    assert sorted(set(plane.positions[:, 0].round(6))) == [170, 180, 190]
    beyond = plane.flat(plane.coords_of((-170.0, 5.0)))
    np.testing.assert_allclose(beyond, [190, 5])


def test_no_cell_is_drawn_across_the_seam_of_the_map():
    longitude, latitude = np.meshgrid(np.arange(0, 360, 30.0), [-20.0, 0.0, 20.0], indexing="ij")
    plane = Plane(Geometry.curvilinear_sphere(latitude, longitude))
    assert plane.cells is not None
    spans = np.ptp(plane.positions[plane.cells][..., 0], axis=1)
    assert spans.max() < 180
    assert plane.kind == "cells"


def test_cells_of_a_structured_mesh_cover_it_once():
    geometry = geometries()["fitted"]
    cells = Plane(geometry).cells
    assert cells is not None
    corners = geometry.coords[cells]
    first, second = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    area = np.abs(first[:, 0] * second[:, 1] - first[:, 1] * second[:, 0]).sum() / 2
    assert area == pytest.approx(2.0)


def test_how_sites_are_drawn_depends_on_what_is_known_of_them():
    made = {kind: Plane(geometry).kind for kind, geometry in geometries().items()}
    assert {kind for kind, how in made.items() if how == "axes"} == {"line", "grid", "masked", "globe", "patch", "cube"}  # fmt: skip
    assert {kind for kind, how in made.items() if how == "cells"} == {"mesh", "fitted"}
    assert {kind for kind, how in made.items() if how == "points"} == {"scattered", "sites on the globe", "cloud"}  # fmt: skip


def test_the_nearest_site_is_found_across_a_periodic_seam_and_is_never_masked():
    axis = np.arange(8) / 8
    plane = Plane(Geometry.rectilinear([axis], periodic=True, bounds=[(0.0, 1.0)]))
    assert plane.nearest_site((0.97,)) == 0
    geometry = Geometry.rectilinear([axis], bounds=[(0.0, 1.0)])
    assert Plane(geometry.masked(axis < 0.2)).nearest_site((0.0,)) == 2


def test_a_mesh_that_reaches_far_is_shown_where_its_sites_crowd():
    geometry = triangulated()
    everything = Plane(geometry).packet(np.ones(49, dtype=bool)).metadata
    np.testing.assert_allclose(everything["home"], [geometry.coords.min(0), geometry.coords.max(0)])
    far = np.concatenate([geometry.coords, [[60.0, 60.0], [-60.0, -60.0]]])
    domain = Domain.box([-60, -60], [60, 60])
    wide = Geometry.unstructured(far, np.concatenate([geometry.triangles, [[48, 49, 50]]]), domain=domain)  # fmt: skip
    home = np.array(Plane(wide).packet(np.ones(51, dtype=bool)).metadata["home"])
    assert np.ptp(home, axis=0).max() < 3
