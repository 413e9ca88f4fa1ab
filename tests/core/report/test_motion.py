"""Arrows of particle displacements on all kinds of sites."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt
from matplotlib.quiver import Quiver

from gpo import Domain, Particles
from gpo.data.geometry import Geometry
from gpo.interpretation.results import Interpretation
from gpo.numerics.domain import longitude_latitude
from gpo.numerics.footprints import tangent_frame
from gpo.report.captions import motion_caption
from gpo.report.motion import MAX_ARROWS, Motion, draw_heaviest, draw_motion
from tests.conftest import make_model, random_points
from tests.explore.sessions import KINDS, make_session


def body(reach=50.0):
    """A body-fitted mesh: rings around a body."""
    radius, angle = np.geomspace(0.5, reach, 16)[:, None], np.linspace(0, 2 * np.pi, 33)
    return Geometry.curvilinear(radius * np.cos(angle), radius * np.sin(angle))


def drawn(session, names=("test split",)):
    """The figure of an example, with a block for each name."""
    pair = session.example(0), session.plane(0).geometry
    return draw_motion(session.forecaster, dict.fromkeys(names, pair))


def quivers(figure):
    return [part for axes in figure.axes for part in axes.collections if isinstance(part, Quiver)]


def titles(figure):
    return [axes.get_title() for axes in figure.axes if axes.get_title()]


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [*KINDS, "body"])
def test_displacements_are_drawn_on_all_kinds_of_sites(kind, tmp_path):
    session = make_session(kind, geometry=body() if kind == "body" else None)
    figure = drawn(session)
    figure.savefig(tmp_path / "motion.png", dpi=40)
    first, *others = titles(figure)
    assert first == "test split: t2m"
    assert [title.split(":")[0] for title in others] == [f"particle {n + 1}" for n in range(4)]  # fmt: skip
    assert all("rms displacement" in title for title in others)
    if kind == "line":
        assert not quivers(figure)
        assert all(len(axes.lines) == 2 for axes in figure.axes[1:] if axes.axison)
        return
    assert len(quivers(figure)) == 4
    known = ~session.plane(0).geometry.is_masked
    for arrows in quivers(figure):
        assert 0 < len(arrows.U) <= min(MAX_ARROWS**2, known.sum())
        assert np.isfinite(arrows.U).all()


def displaced(geometry, vectors, weights=None):
    """The motion of particles with these displacements, in a box."""
    coords = torch.from_numpy(geometry.coords)
    centers = geometry.domain.wrap(coords[:, None] - torch.from_numpy(np.array(vectors)))
    weights = torch.ones(centers.shape[:2]) if weights is None else weights
    particles = Particles(centers[None], torch.ones_like(centers)[None], weights[None])
    return Motion.of(particles, coords[None], torch.from_numpy(geometry.weights)[None], geometry)


def test_arrows_point_from_centers_to_sites_across_periodic_boundaries():
    axes = [np.arange(60) / 20, np.arange(16) / 16]
    geometry = Geometry.rectilinear(axes, periodic=[True, False])
    vectors = np.random.default_rng(0).uniform(-0.4, 0.4, (960, 2, 2))
    motion = displaced(geometry, vectors)
    np.testing.assert_allclose(motion.displacement, vectors, atol=1e-12)
    _, panel = plt.subplots()
    motion.draw(panel, 1)
    arrows, _ = panel.collections
    assert len(motion.sites) == 20 * 16, "every third of 60"
    np.testing.assert_array_equal(arrows.XY, geometry.coords[motion.sites])
    np.testing.assert_allclose(np.stack([arrows.U, arrows.V], -1), vectors[motion.sites, 1])
    assert (arrows.pivot, arrows.angles, arrows.scale_units, arrows.scale) == ("tip", "xy", "xy", 1)


@pytest.mark.parametrize("kind", ["globe", "patch", "sites on the globe"])
def test_on_the_sphere_displacements_are_eastward_and_northward(kind):
    session = make_session(kind)
    example, geometry = session.example(0), session.plane(0).geometry
    with torch.no_grad():
        values = session.forecaster.normalised_input(example.frames)
        (particles,) = session.forecaster.model.particles(values, example.coords)
    motion = Motion.of(particles, example.coords, example.weights, geometry)
    coords = torch.from_numpy(geometry.coords)
    vectors = torch.from_numpy(np.deg2rad(motion.displacement))
    length = vectors.norm(dim=-1, keepdim=True)
    tangent = (vectors / length) @ tangent_frame(coords)
    centers = length.cos() * coords[:, None] - length.sin() * tangent
    torch.testing.assert_close(centers, particles.centers[0].double(), atol=1e-5, rtol=1e-5)


def test_on_a_map_arrows_start_at_the_longitude_of_their_centers():
    latitude, longitude = np.linspace(-75, 75, 11), np.arange(36) * 10.0
    geometry = Geometry.latitude_longitude(latitude, longitude)
    coords = torch.from_numpy(geometry.coords)
    east, _ = tangent_frame(coords).unbind(-2)
    centers = geometry.domain.wrap(coords - 0.01 * east)[None, :, None]
    particles = Particles(centers, torch.ones_like(centers), torch.ones(centers.shape[:3]))
    motion = Motion.of(particles, coords[None], torch.from_numpy(geometry.weights)[None], geometry)
    _, panel = plt.subplots()
    motion.draw(panel, 0)
    arrows, _ = panel.collections
    start, _ = longitude_latitude(centers[0, motion.sites, 0])
    eastward = (arrows.XY[:, 0] - start.numpy() + 180) % 360 - 180
    np.testing.assert_allclose(np.array(arrows.U), eastward, rtol=2e-3)


def test_masked_sites_get_no_arrow():
    session = make_session("masked")
    geometry = session.plane(0).geometry
    for arrows in quivers(drawn(session)):
        assert (arrows.XY[:, 0] > 0.3).all()
        assert len(arrows.U) == (~geometry.is_masked).sum()


def test_of_a_3d_grid_the_same_plane_is_shown_as_in_other_figures():
    geometry = Geometry.rectilinear([np.linspace(0, 1, n) for n in (5, 4, 6)])
    motion = displaced(geometry, np.full((120, 1, 3), 0.1))
    np.testing.assert_array_equal(geometry.coords[motion.sites, 2], geometry.axes[2][3])
    assert len(motion.sites) == 20


def test_of_many_sites_one_per_cell_of_a_raster_gets_an_arrow():
    geometry = Geometry.unstructured(np.random.default_rng(0).random((5000, 2)))
    motion = displaced(geometry, np.full((5000, 1, 2), 0.1))
    low, high = geometry.coords.min(0), geometry.coords.max(0)
    cells = np.floor(MAX_ARROWS * (geometry.coords[motion.sites] - low) / (high - low))
    assert len(np.unique(cells.clip(0, MAX_ARROWS - 1), axis=0)) == len(motion.sites)
    assert 600 < len(motion.sites) <= MAX_ARROWS**2


def test_around_a_body_only_visible_sites_are_averaged_and_drawn():
    geometry = body()
    distance = np.linalg.norm(geometry.coords, axis=-1)
    vectors = np.stack([np.where(distance < 10, 0.5, 20.0), 0 * distance], -1)
    motion = displaced(geometry, vectors[:, None])
    assert distance[motion.sites].max() < 10
    assert "rms displacement 0.5" in motion.title(0)


def test_short_arrows_are_lengthened_and_titles_give_the_factor():
    geometry = Geometry.rectilinear([np.arange(20) / 20] * 2, periodic=True)
    vectors = np.broadcast_to([0.003, 0.004], (400, 1, 2))
    motion = displaced(geometry, vectors)
    assert motion.title(0).endswith("rms displacement 0.005, arrows × 5")
    _, panel = plt.subplots()
    motion.draw(panel, 0)
    assert panel.collections[0].scale == 1 / 5
    np.testing.assert_allclose(panel.collections[0].U, 0.003, rtol=1e-9)
    assert displaced(geometry, 6 * vectors).factor == 1


def test_titles_give_mean_weight_and_root_mean_square_with_quadrature_weights():
    geometry = Geometry.rectilinear([np.array([0.0, 1.0]), np.array([0.0, 1.0, 4.0])], units=("m", "m"))  # fmt: skip
    rows = np.arange(6.0)
    vectors = np.stack([rows / 10, 0 * rows], -1)[:, None]
    weight = torch.from_numpy(rows / 5)
    motion = displaced(geometry, np.repeat(vectors, 2, 1), torch.stack([weight, 1 - weight], -1))
    mean, size = geometry.weights @ rows / 5, np.sqrt(geometry.weights @ (rows / 10) ** 2)
    np.testing.assert_allclose(motion.fractions, [mean, 1 - mean])
    title = f"particle 1: weight {mean:.0%}, scale 1 × 1 m\nrms displacement {size:.2g} m"
    assert motion.title(0) == title


def test_axes_have_units_and_lengths_of_different_units_are_not_added():
    geometry = Geometry.rectilinear([np.arange(4.0), np.arange(5.0)], names=("x", "depth"), units=("km", "m"))  # fmt: skip
    motion = displaced(geometry, np.broadcast_to([3.0, 0.4], (20, 1, 2)))
    assert motion.title(0).endswith("rms displacement 3 km, 0.4 m")
    _, panel = plt.subplots()
    motion.label(panel)
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("x (km)", "depth (m)")


def test_in_one_dimension_the_curve_is_the_displacement_with_a_gap_at_masked_sites():
    geometry = Geometry.rectilinear([np.arange(8) / 8], periodic=True, units=("m",))
    vectors = np.linspace(-0.4, 0.4, 8)
    motion = displaced(geometry.masked(np.arange(8) == 2), vectors[:, None, None])
    _, panel = plt.subplots()
    motion.draw(panel, 0)
    curve = panel.lines[-1]
    np.testing.assert_array_equal(curve.get_xdata(), geometry.coords[:, 0])
    np.testing.assert_allclose(curve.get_ydata(), np.where(np.arange(8) == 2, np.nan, vectors))


def test_each_layer_with_particles_and_each_data_set_has_its_panels():
    figure = drawn(make_session("grid", num_transports=2), ("test split", "other data"))
    first = [title for title in titles(figure) if "weight" not in title]
    assert first == ["test split: t2m, layer 1", "test split: t2m, layer 2", "other data: t2m, layer 1", "other data: t2m, layer 2"]  # fmt: skip
    assert len(quivers(figure)) == 2 * 2 * 4


def test_many_particles_take_several_rows():
    figure = drawn(make_session("grid", num_gaussians=7, hidden_dim=8))
    assert len(quivers(figure)) == 7
    assert sum(axes.axison for axes in figure.axes) == 1 + 7
    assert [len(axes.child_axes) for axes in figure.axes[:2]] == [1, 0], "the colours of the field"


@pytest.mark.parametrize(
    "settings",
    [{"variant": "paper"}, {"num_transports": 0}, {"model": "fno"}, {"variant": "paper", "phase": "field", "history": 1}],
)  # fmt: skip
def test_without_moving_particles_there_is_no_figure(settings):
    assert drawn(make_session("grid", **settings)) is None


def test_a_plane_without_active_sites_can_be_drawn():
    geometry = Geometry.rectilinear([np.linspace(0, 1, 3)] * 3)
    masked = geometry.masked(geometry.coords[:, 2] == 0.5)
    motion = displaced(masked, np.full((27, 1, 3), 0.1))
    _, panel = plt.subplots()
    motion.draw(panel, 0)
    assert motion.title(0) == "particle 1: no visible site"


@pytest.mark.parametrize("domain", [Domain.unit_box(1), Domain.unit_box(2, periodic=True), Domain.sphere()])  # fmt: skip
def test_the_particle_of_largest_weight_is_drawn_alone(domain):
    model = make_model(domain, variant="geometric")
    coords = random_points(domain, 30)
    with torch.no_grad():
        (particles,) = model.particles(torch.randn(1, 30, 2).double(), coords)
    weights = particles.weights.clone()
    weights[..., 2] = 1.0
    _, panel = plt.subplots()
    draw_heaviest(panel, replace(particles, weights=weights), coords, domain)
    assert panel.get_title().startswith("particle 3: weight 100%")


def test_the_caption_has_the_correlation_of_the_most_important_particle_and_its_null():
    row = {"layer": 3, "share": 0.1, "velocity_correlation": 0.2, "low": -0.3, "high": 0.4}
    most = {"layer": 3, "share": 0.9, "velocity_correlation": 0.953, "low": -0.71, "high": 0.64}
    motion = {
        "particles": [{"particle": 0, **row}, {"particle": 1, **most}],
        "best": {"layer": 3, "particle": 1},
    }
    results = Interpretation("geometric", 8, {}, {}, {}, motion=motion)
    sentence = "number 2, has a correlation of +0.95 with the velocity; 95 % of the null distribution are between -0.71 and +0.64."  # fmt: skip
    assert sentence in motion_caption(results)
    for row in motion["particles"]:
        row["velocity_correlation"] = None
    assert "gpo interpret)" not in motion_caption(results)
    assert motion_caption(None) == motion_caption(Interpretation("geometric", 8, {}, {}, {}))
