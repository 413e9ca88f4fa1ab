"""Rank correlations, and what chance would give."""

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter
from scipy.stats import spearmanr

from gpo.data.geometry import Geometry
from gpo.interpretation.correlations import Comparison, Null, rank_test, spearman

AXIS = np.arange(24) / 24
TORUS = Geometry.rectilinear([AXIS, AXIS], periodic=True)
SQUARE = Geometry.rectilinear([AXIS, AXIS])
CLOUD = Geometry.unstructured(TORUS.coords)
EVERYWHERE = np.ones(24 * 24, dtype=bool)


def smooth(random):
    return gaussian_filter(random.normal(size=(24, 24)), 3, mode="wrap").ravel()


def draw(geometry, seed=0, is_used=EVERYWHERE):
    return Null.of(geometry, is_used, np.random.default_rng(seed))


def test_the_correlation_is_spearmans_where_both_are_known():
    random = np.random.default_rng(0)
    first, second = random.normal(size=(2, 300)).round(1)
    second += first
    first[:40] = np.nan
    expected = spearmanr(first[40:], second[40:]).statistic
    assert spearman(first, second) == pytest.approx(expected, abs=1e-12)
    assert spearman(first, np.ones(300)) is None


def test_moved_fields_are_the_same_fields_elsewhere():
    null = draw(TORUS)
    assert null.kind == "translation"
    field = np.random.default_rng(1).normal(size=(24, 24))
    for order in null.orders[:5]:
        moved = field.ravel()[order].reshape(24, 24)
        np.testing.assert_allclose(np.abs(np.fft.fft2(moved)), np.abs(np.fft.fft2(field)))


def test_only_closed_axes_are_moved_along_where_there_are_some():
    channel = Geometry.rectilinear([AXIS, AXIS], periodic=[True, False])
    null = draw(channel)
    height = channel.coords[:, 1]
    np.testing.assert_array_equal(height[null.orders], np.broadcast_to(height, null.orders.shape))
    assert draw(SQUARE).kind == "wrapped translation"


def test_sites_without_a_grid_or_behind_a_mask_are_shuffled():
    assert draw(CLOUD).kind == "permutation"
    is_used = np.arange(576) % 5 > 0
    null = draw(TORUS, is_used=is_used)
    assert null.kind == "permutation"
    assert is_used[null.orders[:, is_used]].all()
    np.testing.assert_array_equal(np.sort(null.orders[0]), np.arange(576))


def test_unrelated_smooth_fields_are_seldom_significant_when_moved_but_often_when_shuffled():
    random = np.random.default_rng(2)
    hits = {"translation": 0, "permutation": 0}
    for trial in range(60):
        first, second = smooth(random), smooth(random)
        for geometry in (TORUS, CLOUD):
            null = draw(geometry, trial)
            hits[null.kind] += rank_test([first], [second], [null]).p < 0.05
    assert hits["translation"] <= 9
    assert hits["permutation"] >= 30


def test_related_fields_are_significant():
    random = np.random.default_rng(3)
    first = smooth(random)
    second = first + 0.5 * smooth(random)
    result = rank_test([first], [second], [draw(TORUS)])
    assert result.value > result.high
    assert result.p < 0.05


def test_what_is_tied_to_a_place_is_no_news_in_the_second_example():
    """The same pair of unrelated fields eight times is no more significant than once."""
    random = np.random.default_rng(4)
    first, second, null = smooth(random), smooth(random), draw(TORUS)
    once, often = (rank_test(n * [first], n * [second], n * [null]) for n in (1, 8))
    assert often.p == once.p
    assert often.high == pytest.approx(once.high)


def test_a_band_and_its_p_agree():
    draws = np.linspace(-1, 1, 199)
    inside, outside = (Comparison.of(value, draws) for value in (0.9, 0.99))
    assert inside.p > 0.05
    assert inside.value < inside.high
    assert outside.p < 0.05
    assert outside.value > outside.high
    assert Comparison.of(7.0, draws).p == pytest.approx(2 / 200)


def test_empty_sites_drop_out_of_both():
    random = np.random.default_rng(5)
    first, second = smooth(random), smooth(random)
    first[100:400] = np.nan
    null = draw(TORUS)
    result = rank_test([first], [second], [null])
    by_hand = [spearman(first, second[order]) for order in null.orders]
    assert result.low == pytest.approx(np.quantile(by_hand, 0.025))
