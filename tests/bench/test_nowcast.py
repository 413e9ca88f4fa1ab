import numpy as np
import pytest

from gpo_bench.nowcast import SCORES, csi_parts, difference, mae_parts, relative_l2_parts, score


def test_csi_is_hits_over_hits_misses_and_false_alarms():
    truth = np.array([[[3.0, 3.0, 3.0, 0.1, 0.1, 2.0]]])
    forecast = np.array([[[2.0, 5.0, 1.9, 2.5, 0.0, 0.0]]])
    # Two hits, two misses, one false alarm; a cell at the threshold counts as rain.
    np.testing.assert_array_equal(csi_parts(forecast, truth, 2.0), [[[2, 5]]])
    assert score(csi_parts(forecast, truth, 2.0)) == pytest.approx(2 / 5)


def test_csi_counts_the_cells_of_all_starts_together():
    truth = np.zeros((3, 1, 10))
    truth[0] = 1.0
    truth[1, :, :2] = 1.0
    forecast = np.where(np.arange(10) < 5, truth, 0.0)
    # Five of ten hits, two of two, and a start without rain that does not count.
    assert score(csi_parts(forecast, truth, 0.5)) == pytest.approx(7 / 12)


def test_a_forecast_of_no_rain_where_there_is_none_is_perfect():
    dry = np.zeros((2, 1, 4))
    assert score(csi_parts(dry, dry, 0.5)) == pytest.approx(1)


def test_errors_are_means_over_starts_at_every_lead():
    truth = np.array([[[1.0, 2.0], [2.0, 2.0]], [[3.0, 4.0], [0.0, 1.0]]])
    forecast = truth + np.array([[[1.0, -1.0], [0.0, 2.0]], [[0.0, 5.0], [1.0, 0.0]]])
    np.testing.assert_allclose(score(mae_parts(forecast, truth)), [1.75, 0.75])
    expected = [(np.sqrt(2 / 5) + 1) / 2, (np.sqrt(4 / 8) + 1) / 2]
    np.testing.assert_allclose(score(relative_l2_parts(forecast, truth)), expected)


def test_the_best_forecast_at_a_lead_has_the_largest_csi_and_the_smallest_error():
    values = {"a": np.array([0.3, 0.5]), "b": np.array([0.4, 0.2])}
    assert SCORES["CSI at 2 mm/h"].best(values) == ["b", "a"]
    assert SCORES["MAE in mm/h"].best(values) == ["a", "b"]


def test_a_constant_difference_has_an_interval_without_width():
    errors = np.random.default_rng(0).random(30)
    model, reference = (np.stack([part, np.ones(30)], 1) for part in (errors, errors + 0.1))
    found = difference(model, reference)
    np.testing.assert_allclose([found.value, found.low, found.high], -0.1)
    assert found.is_significant


def test_a_difference_by_chance_is_not_significant():
    generator = np.random.default_rng(1)
    model, reference = (np.stack([generator.random(40), np.ones(40)], 1) for _ in range(2))
    found = difference(model, reference)
    assert found.low < found.value < found.high
    assert not found.is_significant


def test_correlated_starts_widen_the_interval():
    generator = np.random.default_rng(2)
    slow = np.repeat(generator.normal(size=8), 5)
    widths = []
    for values in (slow, generator.permutation(slow)):
        model = np.stack([1 + 0.1 * values, np.ones(40)], 1)
        found = difference(model, np.ones((40, 2)))
        widths.append(found.high - found.low)
    assert widths[0] > 1.4 * widths[1]
