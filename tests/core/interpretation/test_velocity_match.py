"""Displacements that are the velocity correlate with it by one, others as much as by chance."""

import numpy as np
import pytest

from gpo.data.geometry import Geometry
from gpo.interpretation.correlations import VelocityMatch, correlations
from tests.core.interpretation.readings import TORUS

GLOBE = Geometry.latitude_longitude(np.linspace(-80, 80, 9), np.arange(0.0, 360.0, 5.0))
POINTS = Geometry.unstructured(np.random.default_rng(0).random((80, 2)))
SITES = {"torus": TORUS, "globe": GLOBE, "points": POINTS}


def smooth(geometry, random):
    """A flow of a few waves, of any place and phase: even along all axes, or along longitudes."""
    places = 2 * np.pi * geometry.coords
    if geometry.domain.is_sphere:
        turn = np.arctan2(geometry.coords[:, 1], geometry.coords[:, 0])
        places = np.stack([turn, 0 * turn], -1)
    waves = random.integers(-2, 3, (4, 2, 2)) if geometry.axes else random.normal(size=(4, 2, 2))
    phases, sizes = random.uniform(0, 2 * np.pi, (4, 2)), random.normal(size=(4, 2))
    return (sizes * np.sin(np.einsum("nd,wad->nwa", places[:, :2], waves) + phases)).sum(1)


def matched(geometry, ways, flows):
    match = VelocityMatch()
    for way, flow in zip(ways, flows, strict=True):
        match.add(way, flow, geometry.weights, geometry)
    return match


@pytest.mark.parametrize("kind", SITES)
def test_a_displacement_along_the_velocity_has_correlation_one_and_lies_outside_its_band(kind):
    geometry, random = SITES[kind], np.random.default_rng(1)
    flows = [smooth(geometry, random) for _ in range(6)]
    ways = [np.stack([0.1 * flow, -3 * flow, random.normal(size=flow.shape)], 1) for flow in flows]
    told, rows = matched(geometry, ways, flows).describe(np.random.default_rng(0))
    values = [row["velocity_correlation"] for row in rows]
    assert values[:2] == pytest.approx([1, -1])
    assert rows[0]["high"] < 1 - 1e-3
    assert abs(values[2]) < 0.3
    assert rows[0]["p"] < 0.05
    assert abs(rows[0]["other_examples"]) < 0.6
    expected = {"torus": "translation", "globe": "translation", "points": "other examples"}
    assert told["null"] == expected[kind]


@pytest.mark.thorough
@pytest.mark.parametrize("kind", SITES)
def test_the_band_holds_a_random_field_at_its_nominal_rate(kind):
    """At 95 %, of 200 fields 190 lie inside on average, with a standard deviation of 3."""
    geometry, random, inside = SITES[kind], np.random.default_rng(2), 0
    for _ in range(200):
        flows = [smooth(geometry, random) for _ in range(6)]
        ways = [smooth(geometry, random)[:, None] for _ in range(6)]
        _, (row,) = matched(geometry, ways, flows).describe(random)
        inside += row["low"] <= row["velocity_correlation"] <= row["high"]
    assert 178 <= inside <= 199


def test_sites_without_a_velocity_do_not_count():
    random = np.random.default_rng(3)
    flows = [smooth(POINTS, random) for _ in range(5)]
    ways = [flow[:, None].copy() for flow in flows]
    for flow, way in zip(flows, ways, strict=True):
        flow[:10] = np.nan
        way[:10] = 100.0
    _, (row,) = matched(POINTS, ways, flows).describe(random)
    assert row["velocity_correlation"] == pytest.approx(1)


def test_one_example_on_unstructured_points_is_compared_with_permuted_sites():
    random = np.random.default_rng(4)
    flow = smooth(POINTS, random)
    told, (row,) = matched(POINTS, [flow[:, None]], [flow]).describe(random)
    assert told["null"] == "permutation"
    assert row["other_examples"] is None


def test_a_correlation_is_weighted_by_area():
    way = np.array([[[1.0, 0.0]], [[0.0, 1.0]]])
    flow = np.array([[[1.0, 0.0], [0.0, -1.0]]])
    result = correlations(way, flow, np.array([3.0, 1.0]))
    assert result.item() == pytest.approx(0.5)
