import math

import pytest
import torch

from gpo_bench.baselines import ono
from gpo_bench.baselines.ono import ONO, ONOConfig, Orthogonalisation, PointAttention, safe_cholesky
from tests.bench.baselines.point_models import (
    all_active,
    linear,
    make_problem,
    make_small,
    norm,
    perceptron,
    random_field,
    softmax,
    strengthen,
)


def point_attention_loop(layer, tokens):
    """One sample, one head after the other, one channel after the other."""
    num_points, width = tokens.shape
    num_heads, channels = layer.head_shape
    query, key, value = (tokens @ part.T for part in layer.query_key_value.weight.split(width))
    merged = torch.zeros_like(tokens)
    for head in range(num_heads):
        columns = range(head * channels, (head + 1) * channels)
        over_points = {c: softmax(key[:, c]) for c in columns}
        for n in range(num_points):
            over_features = softmax(query[n, columns]) / math.sqrt(channels)
            for out in columns:
                merged[n, out] = sum(
                    share * (over_points[c] @ value[:, out])
                    for share, c in zip(over_features, columns, strict=True)
                )
    return linear(layer.out, merged)


def test_attention_equals_the_plain_loop():
    layer = strengthen(PointAttention((2, 4)))
    tokens = torch.randn(2, 6, 8, dtype=torch.float64)
    fast = layer(tokens, all_active(tokens))
    for sample in range(2):
        slow = point_attention_loop(layer, tokens[sample])
        torch.testing.assert_close(fast[sample], slow, rtol=1e-10, atol=1e-12)


def test_the_model_is_its_specification_line_by_line():
    model = make_small(ONO).train()
    values, coords = random_field(batch=1, points=9)
    sites = torch.cat([coords[0], values[0]], dim=-1)
    x = perceptron(model.lift_features, sites)
    u = perceptron(model.lift_field.layers, sites) + model.lift_field.placeholder
    for number, block in enumerate(model.blocks):
        x = x + point_attention_loop(block.attention, norm(block.norm, x))
        x = x + perceptron(block.mlp[1], norm(block.mlp[0], x))
        psi = linear(block.psi, x)
        covariance = sum(torch.outer(row, row) for row in psi) / len(psi)
        psi = psi @ torch.linalg.inv(torch.linalg.cholesky(covariance)).T
        weights = torch.log(1 + torch.exp(block.spectrum))
        kernel = sum(w * torch.outer(p, p) for w, p in zip(weights, psi.T, strict=True))
        u = norm(block.readout[0], u + kernel @ u)
        u = perceptron(block.readout[1], u) if number == 0 else linear(block.readout[1], u)
    torch.testing.assert_close(model(values, coords)[0], u, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("num_masked", [0, 20])
def test_functions_are_orthonormal_over_a_training_batch(num_masked):
    layer = Orthogonalisation(4).double()
    psi = torch.randn(3, 50, 4, dtype=torch.float64) @ torch.randn(4, 4, dtype=torch.float64)
    is_active = torch.arange(50).expand(3, -1) >= num_masked
    orthogonal = layer(psi, is_active)[is_active]
    gram = orthogonal.T @ orthogonal / (3 * (50 - num_masked))
    torch.testing.assert_close(gram, torch.eye(4).double(), rtol=1e-10, atol=1e-10)


def test_covariance_is_a_running_average_that_evaluation_uses():
    layer = Orthogonalisation(2).double()
    batches = torch.randn(3, 2, 20, 2, dtype=torch.float64)
    covariances = [batch.flatten(0, 1).T @ batch.flatten(0, 1) / 40 for batch in batches]
    is_active = all_active(batches[0])
    layer(batches[0], is_active)
    torch.testing.assert_close(layer.covariance, covariances[0])
    layer(batches[1], is_active)
    average = 0.9 * covariances[0] + 0.1 * covariances[1]
    torch.testing.assert_close(layer.covariance, average)

    layer.eval()
    expected = batches[2] @ torch.linalg.inv(torch.linalg.cholesky(average)).T
    torch.testing.assert_close(layer(batches[2], is_active), expected)
    torch.testing.assert_close(layer.covariance, average)


def test_an_untrained_model_goes_by_its_input():
    model = make_small(ONO)
    field = random_field()
    untrained = model.eval()(*field)
    torch.testing.assert_close(model.train()(*field), untrained)


def test_gradients_of_training_pass_through_the_covariance():
    """Scaling psi changes nothing, so its gradient has no component along psi."""
    layer = Orthogonalisation(3).double()
    psi = torch.randn(2, 10, 3, dtype=torch.float64, requires_grad=True)
    target = torch.randn_like(psi)
    loss = (layer(psi, all_active(psi)) * target).sum()
    (slope,) = torch.autograd.grad(loss, psi)
    assert slope.abs().max() > 1e-3
    assert abs((slope * psi).sum().item()) < 1e-10


def test_jitter_is_the_least_that_helps():
    sound = torch.tensor([[4.0, 2.0], [2.0, 3.0]], dtype=torch.float64)
    torch.testing.assert_close(safe_cholesky(sound), torch.linalg.cholesky(sound), rtol=0, atol=0)
    indefinite = torch.diag(torch.tensor([1.0, -5e-4], dtype=torch.float64))
    factor = safe_cholesky(indefinite)
    torch.testing.assert_close(factor @ factor.T, indefinite + 1e-3 * torch.eye(2).double())


def test_what_cannot_be_factorised_is_nan():
    assert safe_cholesky(torch.full((3, 3), torch.nan)).isnan().all()
    assert safe_cholesky(torch.diag(torch.tensor([1.0, -1e9]))).isnan().all()


def test_fewer_sites_than_functions_are_survived():
    model = make_small(ONO, psi_dim=8).float().train()
    values, coords = random_field(batch=1, points=2)
    assert model(values.float(), coords.float()).isfinite().all()


def test_the_factor_is_taken_in_single_precision_under_autocast(monkeypatch):
    dtypes = []

    def spy(covariance):
        dtypes.append((covariance.dtype, torch.is_autocast_enabled("cpu")))
        return safe_cholesky(covariance)

    monkeypatch.setattr(ono, "safe_cholesky", spy)
    model = ONO(make_problem(), ONOConfig(width=16, num_layers=2, num_heads=2))
    values, coords = (tensor.float() for tensor in random_field(points=40))
    with torch.autocast("cpu", torch.bfloat16):
        answer = model(values, coords)
    assert answer.isfinite().all()
    assert dtypes == [(torch.float32, False)] * 2


def test_a_model_in_half_precision_answers_in_half_precision():
    model = make_small(ONO).bfloat16()
    values, coords = (tensor.bfloat16() for tensor in random_field(points=40))
    assert model(values, coords).dtype == torch.bfloat16
