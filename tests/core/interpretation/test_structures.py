"""Planted particles: on a front they are detected there, elsewhere they are not."""

import numpy as np
import pytest
import torch

from gpo import Domain, Particles
from gpo.data.geometry import Geometry
from gpo.evaluation.derivatives import LocalFits
from gpo.forecast.examples import Example
from gpo.interpretation.batches import Batch, make_batches
from gpo.interpretation.particle_fields import ParticleFields
from gpo.interpretation.structures import describe_structures
from tests.core.interpretation.readings import series, untrained

SIDE = 32
GRID = Geometry.rectilinear([np.arange(SIDE) / SIDE] * 2, periodic=True)


def front(place):
    """A field that changes quickly along two lines of constant x."""
    x = GRID.coords[:, 0]
    return np.tanh(20 * np.sin(2 * np.pi * (x - place)))


def particles(centers, scales=(0.05, 0.05)):
    count = len(GRID.coords)
    return Particles(
        torch.as_tensor(centers, dtype=torch.float32).reshape(1, count, 1, 2),
        torch.tensor(scales).expand(1, count, 1, 2).clone(),
        torch.ones(1, count, 1),
    )


def reading(planted, field, monkeypatch, variant="paper", names=("a",)):
    """What is said about planted particles in a given field."""
    forecaster, _ = untrained(series(names=names), variant=variant)
    frames = torch.from_numpy(field.reshape(1, 1, SIDE**2, -1)).float()
    example = Example(
        frames, frames, torch.from_numpy(GRID.coords[None]).float(),
        *[torch.from_numpy(GRID.weights[None]).float()] * 2, (GRID.num_points,),
    )  # fmt: skip
    monkeypatch.setattr(Batch, "particles", lambda *_: planted)
    return describe_structures(forecaster, [Batch(example, GRID)], np.random.default_rng(0))


def ring(middle):
    """A field that changes quickly on a circle, and how far every site is from that circle."""
    offset = GRID.domain.offset(torch.from_numpy(GRID.coords), torch.tensor(middle).double())
    way = 0.25 - offset.norm(dim=-1).numpy()
    return np.tanh(10 * way), way


def test_particles_on_a_front_are_found_there(monkeypatch):
    field, way = ring((0.3, 0.8))
    chance = 0.2 + np.exp(-((way / 0.1) ** 2))
    chosen = np.random.default_rng(0).choice(SIDE**2, SIDE**2, p=chance / chance.sum())
    planted = particles(GRID.coords[chosen])
    result = reading(planted, field, monkeypatch)["correlations"]
    elsewhere = reading(planted, ring((0.8, 0.3))[0], monkeypatch)["correlations"]
    for name in ("density", "footprints"):
        entry = result[name]["gradient"]
        assert entry["value"] > entry["high"]
        assert entry["value"] > 0.2
        assert entry["p"] < 0.05
        assert elsewhere[name]["gradient"]["value"] < entry["high"]


def test_particles_anywhere_are_not_found_on_fronts(monkeypatch):
    hits = 0
    for trial in range(8):
        centers = np.random.default_rng(trial).random((SIDE**2, 2))
        result = reading(particles(centers), front(0.3 + trial / 11), monkeypatch)
        hits += result["correlations"]["density"]["gradient"]["p"] < 0.05
    assert hits <= 1


def test_particles_long_along_fronts_align_with_minus_one(monkeypatch):
    along, across = (0.01, 0.1), (0.1, 0.01)
    values = []
    for scales in (along, across):
        planted = particles(GRID.coords, scales)
        values.append(reading(planted, front(0.3), monkeypatch)["alignment"]["value"])
    np.testing.assert_allclose(values, [-1, 1], atol=1e-3)
    # Shapes that are the same everywhere tell nothing about this front: the null says the same.
    planted = reading(particles(GRID.coords, along), front(0.3), monkeypatch)["alignment"]
    assert planted["low"] == pytest.approx(-1, abs=1e-3)
    assert planted["p"] == 1


def test_scales_count_where_particles_sit_not_where_they_belong(monkeypatch):
    shift = torch.tensor([0.25, 0.0])
    planted = particles((GRID.coords + shift.numpy()) % 1)
    x = torch.from_numpy(GRID.coords[:, 0]).float()
    planted.scales[0, :, 0] *= (1 + 0.5 * torch.cos(2 * torch.pi * x)).unsqueeze(-1)
    fits = LocalFits.of(GRID, np.ones(SIDE**2, dtype=bool))
    fields = ParticleFields.of(planted, 0, GRID, fits)
    expected = np.log(0.05 * (1 + 0.5 * np.cos(2 * np.pi * (GRID.coords[:, 0] - 0.25))))
    np.testing.assert_allclose(fields.scale, expected, atol=1e-5)
    np.testing.assert_allclose(fields.anisotropy, 0, atol=1e-6)
    np.testing.assert_allclose(fields.density, SIDE**2, rtol=1e-6)
    assert fields.fraction_outside == 0


def test_footprints_are_the_sum_of_all_gaussians_on_a_grid_and_off_it():
    planted = particles(np.random.default_rng(0).random((SIDE**2, 2)), (0.03, 0.2))
    cloud = Geometry.unstructured(GRID.coords, domain=GRID.domain)
    rows = []
    for geometry in (GRID, cloud):
        fits = LocalFits.of(geometry, np.ones(SIDE**2, dtype=bool))
        rows.append(ParticleFields.of(planted, 0, geometry, fits).footprints)
    np.testing.assert_allclose(rows[0], rows[1], rtol=1e-9)
    offset = GRID.domain.offset(torch.from_numpy(GRID.coords[:7, None]), planted.centers[0, None, :, 0].double())  # fmt: skip
    by_hand = torch.exp(-0.5 * (offset / torch.tensor([0.03, 0.2])).square().sum(-1)).sum(-1)
    np.testing.assert_allclose(rows[0][:7], by_hand / (0.03 * 0.2), rtol=1e-5)


def test_centers_beyond_open_ends_do_not_pile_up_there():
    square = Geometry.rectilinear([np.linspace(0, 1, SIDE)] * 2)
    fits = LocalFits.of(square, np.ones(SIDE**2, dtype=bool))
    away = particles(square.coords + np.where(square.coords[:, :1] > 0.5, 3.0, 0.0))
    fields = ParticleFields.of(away, 0, square, fits)
    assert fields.fraction_outside == pytest.approx(0.5)
    assert np.nansum(fields.density * square.weights) == pytest.approx(SIDE**2 / 2)


def test_on_the_sphere_a_footprint_is_cut_by_the_tangent_plane():
    """On the equator at longitude 0 east is y and north is z."""
    geometry = Geometry.on_sphere(np.linspace(-3, 3, 40), np.sin(np.arange(40.0)), Domain.sphere())
    fits = LocalFits.of(geometry, np.ones(40, dtype=bool))
    planted = Particles(
        torch.from_numpy(geometry.coords)[None, :, None], torch.tensor([9.0, 0.4, 0.1]).expand(1, 40, 1, 3).double(), torch.ones(1, 40, 1, dtype=torch.double)
    )  # fmt: skip
    fields = ParticleFields.of(planted, 0, geometry, fits)
    np.testing.assert_allclose(fields.anisotropy, np.log(4), atol=0.02)
    half = np.log(4) / 2
    np.testing.assert_allclose(fields.orientation, np.broadcast_to(np.diag([half, -half]), (40, 2, 2)), atol=0.03)  # fmt: skip


def test_a_particle_far_from_its_site_has_a_small_basis_there():
    fits = LocalFits.of(GRID, np.ones(SIDE**2, dtype=bool))
    near, far = (
        ParticleFields.of(particles((GRID.coords + shift) % 1), 0, GRID, fits).basis_at_site
        for shift in (0.0, 0.4)
    )
    assert near == pytest.approx(1, abs=1e-6)
    assert far < 1e-6


def moving(ways):
    """One particle for every site of the grid, displaced by so much."""
    return particles((GRID.coords - ways) % 1)


@pytest.mark.parametrize(("direction", "expected"), [((0.1, 0.0), 1), ((0.0, 0.1), -1)])
def test_displacements_across_a_front_align_with_one_and_along_it_with_minus_one(
    direction, expected, monkeypatch
):
    result = reading(moving(np.array(direction)), front(0.3), monkeypatch, "geometric")
    assert result["direction"] == "displacement"
    assert result["alignment"]["value"] == pytest.approx(expected, abs=1e-3)
    # Ways that are the same everywhere tell nothing about this front: the null says the same.
    assert result["alignment"]["p"] == 1


def test_displacements_that_grow_with_the_gradient_are_correlated_with_it(monkeypatch):
    field, way = ring((0.3, 0.8))
    steep = np.stack([0.02 + 0.1 * np.exp(-((way / 0.1) ** 2)), 0 * way], -1)
    result = reading(moving(steep), field, monkeypatch, "geometric")["correlations"]
    assert set(result) == {"density", "displacement"}
    entry = result["displacement"]["gradient"]
    assert entry["value"] > max(0.5, entry["high"])
    assert entry["p"] < 0.05
    elsewhere = reading(moving(steep), ring((0.8, 0.3))[0], monkeypatch, "geometric")
    assert elsewhere["correlations"]["displacement"]["gradient"]["value"] < entry["high"]


def whirl(middle):
    """The velocity around a point of the torus, and its vorticity."""
    x, y = 2 * np.pi * (GRID.coords - middle).T
    flow = np.stack([np.cos(x) * np.sin(y), -np.sin(x) * np.cos(y)], -1)
    return flow, -4 * np.pi * np.cos(x) * np.cos(y)


@pytest.mark.parametrize("names", [("u", "v"), ("vorticity",)])
def test_particles_displaced_along_the_flow_are_distinguished_from_others(names, monkeypatch):
    flow, vorticity = whirl((0.3, 0.6))
    field = flow if len(names) == 2 else vorticity
    result = reading(moving(0.05 * flow), field, monkeypatch, "geometric", names)["along_flow"]
    assert result["value"] == pytest.approx(1, abs=1e-3)
    assert result["value"] > result["high"]
    assert result["each"] == [pytest.approx(1, abs=1e-3)]
    against = reading(moving(-0.05 * flow), field, monkeypatch, "geometric", names)["along_flow"]
    assert against["value"] == pytest.approx(-1, abs=1e-3)
    other = reading(moving(0.05 * whirl((0.55, 0.6))[0]), field, monkeypatch, "geometric", names)
    assert abs(other["along_flow"]["value"]) < 1e-3


def test_diagnosis_stand_where_nothing_can_be_said():
    line = Geometry.rectilinear([np.arange(24) / 24], periodic=True)
    data = series(line)
    for variant in ("geometric", "paper"):
        forecaster, samples = untrained(data, variant=variant)
        result = describe_structures(
            forecaster, make_batches(data, samples[:2]), np.random.default_rng(0)
        )
        assert "on a line" in result["alignment"]["reason"]
        assert (
            "along every axis is known" in result["correlations"]["density"]["vorticity"]["reason"]
        )
        if variant == "paper":
            assert "on a line" in result["correlations"]["anisotropy"]["gradient"]["reason"]
        else:
            assert "along every axis is known" in result["along_flow"]["reason"]


@pytest.mark.parametrize(
    "changes", [{"num_transports": 0}, {"variant": "paper", "has_gaussian_field": False}]
)
def test_a_model_without_particles_says_so(changes):
    plain, samples = untrained(series(), **changes)
    result = describe_structures(
        plain, make_batches(series(), samples[:1]), np.random.default_rng(0)
    )
    assert "has no particles" in result["reason"]


def test_chance_is_the_same_chance_again():
    data = series()
    forecaster, samples = untrained(data)
    batches = make_batches(data, samples[:2])
    rows = [describe_structures(forecaster, batches, np.random.default_rng(7)) for _ in range(2)]
    assert rows[0] == rows[1]


def test_a_motion_that_is_the_same_in_all_fields_agrees_with_the_flow_of_other_examples(
    monkeypatch,
):
    """Two examples with opposite flows: particles follow their own, or always the first."""
    flow = whirl((0.3, 0.6))[0]
    forecaster, _ = untrained(series(names=("u", "v")))
    frames = torch.from_numpy(np.stack([flow, -flow])[:, None]).float()
    example = Example(
        frames, frames, torch.from_numpy(GRID.coords[None]).float().expand(2, -1, -1),
        *[torch.from_numpy(GRID.weights[None]).float().expand(2, -1)] * 2, (GRID.num_points,) * 2,
    )  # fmt: skip
    for signs, own, other in (((1, -1), 1, -1), ((1, 1), 0, 0)):
        both = [moving(0.05 * sign * flow) for sign in signs]
        planted = Particles(
            *(torch.cat([getattr(one, name) for one in both]) for name in ("centers", "scales", "weights"))
        )  # fmt: skip
        monkeypatch.setattr(Batch, "particles", lambda *_, result=planted: result)
        batches = [Batch(example, GRID)]
        result = describe_structures(forecaster, batches, np.random.default_rng(0))["along_flow"]
        assert result["value"] == pytest.approx(own, abs=1e-3)
        assert result["other_examples"] == pytest.approx(other, abs=1e-3)
