import math

import pytest
import torch

from gpo import linf, mae, nrmse, relative_l2, rmse, vrmse
from gpo.numerics.norms import anomaly_scores, scaled_rmse

NORMS = [relative_l2, rmse, mae, nrmse, vrmse, linf]


def fields(batch=3, points=20, channels=2):
    prediction = torch.randn(batch, points, channels, dtype=torch.float64)
    target = torch.randn(batch, points, channels, dtype=torch.float64) + 1
    return prediction, target, torch.rand(batch, points, dtype=torch.float64)


def test_norms_are_their_formulas():
    prediction, target, weights = fields()
    expected = dict.fromkeys(("relative_l2", "rmse", "mae", "nrmse", "vrmse", "linf"), 0.0)
    for p, u, q in zip(prediction, target, weights, strict=True):
        q = q / q.sum()
        ratio = sum((q[:, None] * (p - u) ** 2).flatten()) / sum((q[:, None] * u**2).flatten())
        expected["relative_l2"] += math.sqrt(ratio) / 3
        expected["linf"] += (p - u).abs().max().item() / 3
        for c in range(2):
            error = sum(q * (p[:, c] - u[:, c]) ** 2)
            mean = sum(q * u[:, c])
            expected["mae"] += sum(q * (p[:, c] - u[:, c]).abs()).item() / 6
            expected["rmse"] += math.sqrt(error) / 6
            expected["nrmse"] += math.sqrt(error / sum(q * u[:, c] ** 2)) / 6
            expected["vrmse"] += math.sqrt(error / sum(q * (u[:, c] - mean) ** 2)) / 6
    for norm in NORMS:
        value = norm(prediction, target, weights).item()
        assert value == pytest.approx(expected[norm.__name__], rel=1e-12)


def test_anomalies_are_correlated_and_the_bias_is_the_mean_error():
    prediction, target, weights = fields()
    usual = torch.randn(20, 2, dtype=torch.float64)
    bias, correlation = anomaly_scores(prediction, target, weights, usual)
    q = weights / weights.sum(1, keepdim=True)
    for n in range(3):
        for c in range(2):
            a, b = (part[n, :, c] - usual[:, c] for part in (prediction, target))
            expected = (q[n] * a * b).sum() / math.sqrt((q[n] * a * a).sum() * (q[n] * b * b).sum())
            assert correlation[n, c].item() == pytest.approx(expected.item())
            error = (prediction - target)[n, :, c]
            assert bias[n, c].item() == pytest.approx((q[n] * error).sum().item())
    assert anomaly_scores(target, target, weights, usual)[1].mean().item() == pytest.approx(1)
    assert anomaly_scores(usual.expand(3, -1, -1), target, weights, usual)[1].abs().max() == 0
    weights[:, 5:9], prediction[:, 5:9], target[:, 7] = 0, math.nan, math.inf
    assert all(part.isfinite().all() for part in anomaly_scores(prediction, target, weights, usual))


def test_an_error_in_standard_deviations_has_no_units():
    prediction, target, weights = fields()
    scale = torch.tensor([2.0, 0.5], dtype=torch.float64)
    q = weights / weights.sum(1, keepdim=True)
    rows = [sum(q[n] @ ((prediction - target)[n] / scale) ** 2) / 2 for n in range(3)]
    expected = sum(math.sqrt(row) for row in rows) / 3
    assert scaled_rmse(prediction, target, scale, weights).item() == pytest.approx(expected)
    units = torch.tensor([1e3, 1e-3], dtype=torch.float64)
    other = scaled_rmse(units * prediction, units * target, units * scale, weights)
    assert other.item() == pytest.approx(expected)


@pytest.mark.parametrize("norm", NORMS)
def test_masked_points_change_nothing_even_with_nan(norm):
    prediction, target, weights = fields()
    weights[:, 5:9] = 0
    expected = norm(
        torch.cat([prediction[:, :5], prediction[:, 9:]], 1),
        torch.cat([target[:, :5], target[:, 9:]], 1),
        torch.cat([weights[:, :5], weights[:, 9:]], 1),
    )
    prediction[:, 5:7], target[:, 6:9] = float("nan"), float("inf")
    prediction.requires_grad_()
    value = norm(prediction, target, weights)
    torch.testing.assert_close(value, expected)
    value.backward()
    assert prediction.grad is not None
    assert prediction.grad.isfinite().all()
    assert (prediction.grad[:, 5:9] == 0).all()


@pytest.mark.parametrize("norm", NORMS)
def test_a_perfect_prediction_scores_zero_with_a_finite_gradient(norm):
    _, target, weights = fields()
    prediction = target.clone().requires_grad_()
    value = norm(prediction, target, weights)
    value.backward()
    assert value.item() < 1e-15
    assert prediction.grad.isfinite().all()


@pytest.mark.parametrize("norm", [relative_l2, nrmse, vrmse])
def test_an_error_relative_to_nothing_is_infinite_and_none_is_zero(norm):
    prediction, target, weights = fields()
    assert norm(prediction, 0 * target, weights).item() == math.inf
    assert norm(0 * prediction, 0 * target, weights).item() == 0
    prediction.requires_grad_()
    norm(prediction, 0 * target, weights).backward()
    assert prediction.grad is not None
    assert prediction.grad.isfinite().all()


@pytest.mark.parametrize("norm", NORMS)
def test_the_scale_of_the_weights_does_not_matter(norm):
    prediction, target, weights = fields()
    torch.testing.assert_close(
        norm(prediction, target, 1e9 * weights), norm(prediction, target, weights)
    )
    torch.testing.assert_close(
        norm(prediction, target, torch.ones(1, 20).double()), norm(prediction, target)
    )


def test_errors_may_be_relative_to_the_distance_from_an_origin():
    prediction, target, weights = fields()
    origin = target + 0.1 * torch.randn_like(target)
    error = ((prediction - target).square() * weights.unsqueeze(-1)).sum((1, 2))
    size = ((target - origin).square() * weights.unsqueeze(-1)).sum((1, 2))
    loss = relative_l2(prediction, target, weights, origin=origin)
    torch.testing.assert_close(loss, (error / size).sqrt().mean())
    changes = relative_l2(prediction - origin, target - origin, weights)
    torch.testing.assert_close(loss, changes)


def test_a_target_that_is_its_origin_counts_as_a_thousandth_of_its_size_away():
    prediction, target, weights = fields()
    still = relative_l2(prediction, target, weights, origin=target)
    torch.testing.assert_close(still, 1000 * relative_l2(prediction, target, weights))


def test_an_origin_counts_where_points_do():
    prediction, target, weights = fields()
    weights[:, 5:9] = 0
    origin = torch.zeros_like(target)
    origin[:, 5:9] = float("nan")
    loss = relative_l2(prediction, target, weights, origin=origin)
    torch.testing.assert_close(loss, relative_l2(prediction, target, weights))
