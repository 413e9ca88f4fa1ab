"""What all point models promise alike: counts, symmetry, masks, dimensions, beginnings."""

import pytest
import torch
from torch import nn

from gpo import Domain
from gpo.model.problem import Problem
from gpo_bench.baselines.galerkin import GalerkinTransformer
from gpo_bench.baselines.gnot import GNOT
from gpo_bench.baselines.lno import LNO
from gpo_bench.baselines.ono import ONO
from gpo_bench.baselines.transolver import Transolver
from tests.bench.baselines.point_models import SMALL, make_problem, make_small, random_field
from tests.conftest import DOMAINS, random_points

models = pytest.mark.parametrize("model_class", SMALL)


def config_of(model_class):
    return type(SMALL[model_class])


@pytest.mark.parametrize(
    ("model_class", "changes", "grid_shape", "in_channels", "out_channels", "count"),
    [
        (GalerkinTransformer, {}, (), 1, 1, 1_096_321),
        (GalerkinTransformer, {}, (), 4, 4, 1_097_476),
        (GalerkinTransformer, {"mlp_ratio": 1}, (), 0, 1, 832_897),
        (GalerkinTransformer, {"width": 256}, (), 72, 1, 4_391_681),
        (GNOT, {}, (), 1, 1, 2_485_901),
        (GNOT, {"official_flow": True}, (), 1, 1, 2_485_901),
        (GNOT, {}, (), 4, 4, 2_487_440),
        (GNOT, {"num_layers": 3}, (), 10, 1, 1_891_978),
        (GNOT, {"num_layers": 8, "mlp_ratio": 1}, (), 0, 1, 2_891_161),
        (Transolver, {}, (64, 64), 1, 1, 3_069_889),
        (Transolver, {"num_slices": 64}, (64, 64), 1, 1, 3_074_241),
        (Transolver, {"num_slices": 64}, (221, 51), 2, 1, 3_074_497),
        (Transolver, {"width": 256}, (64, 64), 72, 1, 12_282_945),
        (Transolver, {}, (), 1, 1, 972_737),
        (Transolver, {"num_slices": 64}, (), 0, 1, 976_833),
        (Transolver, {}, (), 4, 4, 973_892),
        (ONO, {}, (), 1, 1, 1_596_673),
        (ONO, {}, (), 4, 4, 1_598_596),
        (ONO, {"mlp_ratio": 1, "psi_dim": 16}, (), 10, 1, 1_116_161),
        (LNO, {}, (), 1, 1, 1_292_033),
        (LNO, {"num_layers": 4}, (), 1, 1, 762_113),
        (LNO, {}, (), 2, 1, 1_292_161),
        (LNO, {}, (), 4, 4, 1_292_804),
        (LNO, {"width": 256}, (), 1, 1, 5_074_177),
        (LNO, {"width": 256}, (), 10, 1, 5_076_481),
    ],
)
def test_parameters_are_as_many_as_specified(
    model_class, changes, grid_shape, in_channels, out_channels, count
):
    problem = Problem(in_channels, out_channels, Domain.unit_box(2), grid_shape)
    with torch.device("meta"):
        model = model_class(problem, config_of(model_class)(**changes))
    assert sum(parameter.numel() for parameter in model.parameters()) == count


@pytest.mark.parametrize(("axes", "kernel"), [(1, 3), (2, 9), (3, 27)])
def test_transolver_on_a_grid_has_a_convolution_of_as_many_axes(axes, kernel):
    with torch.device("meta"):
        counts = [
            sum(parameter.numel() for parameter in Transolver(problem).parameters())
            for problem in (make_problem(axes), make_problem(axes, (8,) * axes))
        ]
    assert counts[1] - counts[0] == 8 * 2 * 128**2 * (kernel - 1)


@models
def test_permuting_the_sites_permutes_the_answer(model_class):
    model = make_small(model_class).eval()
    values, coords = random_field(points=30)
    order = torch.randperm(30)
    answer = model(values, coords)
    permuted = model(values[:, order], coords[:, order])
    torch.testing.assert_close(permuted, answer[:, order], rtol=1e-10, atol=1e-10)


@models
def test_every_site_sees_every_other(model_class):
    model = make_small(model_class).train()
    values, coords = random_field(batch=1)
    answer = model(values, coords)
    values[0, 3] += 1
    moved = (model(values, coords) - answer).abs().amax(-1)[0]
    assert moved.min() > 1e-6


@models
@pytest.mark.parametrize("is_training", [True, False])
def test_padded_sites_change_nothing(model_class, is_training):
    model = make_small(model_class).train(is_training)
    values, coords = random_field()
    answer = model(values, coords)
    torch.testing.assert_close(model(values, coords, weights=torch.ones(7)), answer)
    # Neither what is there, nor where it is, nor how much there is of it.
    for num_padded in (1, 5):
        more_values, more_coords = random_field(points=num_padded)
        more_values[:, 0], more_coords[:, 0] = torch.nan, 1e200
        weights = torch.cat([torch.ones(7), torch.zeros(num_padded)])
        padded = model(
            torch.cat([values, more_values], dim=1),
            torch.cat([coords, more_coords], dim=1),
            weights=weights.double(),
        )
        torch.testing.assert_close(padded[:, :7], answer, rtol=1e-10, atol=1e-10)
        assert padded.isfinite().all()


@models
def test_samples_may_be_padded_differently(model_class):
    model = make_small(model_class)
    values, coords = random_field()
    model(values, coords)  # ONO remembers a covariance
    model.eval()
    weights = torch.ones(2, 7, dtype=torch.float64)
    weights[1, 4:] = 0
    answer = model(values, coords, weights=weights)
    alone = model(values[1:, :4], coords[1:, :4])
    torch.testing.assert_close(answer[1:, :4], alone, rtol=1e-10, atol=1e-10)


@models
@pytest.mark.parametrize("name", ["line", "square", "cube", "sphere"])
def test_answers_depend_on_every_coordinate(model_class, name):
    problem = Problem(2, 3, DOMAINS[name])
    model = make_small(model_class, problem).eval()
    values, _ = random_field(problem=problem)
    coords = problem.domain.to_unit(random_points(problem.domain, 2, 7)).requires_grad_()
    answer = model.predict(values, coords, torch.ones(2, 7, dtype=torch.bool))
    assert answer.shape == (2, 7, 3)
    (slope,) = torch.autograd.grad(answer.square().sum(), coords)
    assert slope.abs().amin(1).min() > 0


@models
def test_gradients_reach_every_parameter(model_class):
    model = make_small(model_class).train()
    model(*random_field()).square().mean().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 1e-12, name


@models
def test_a_reloaded_model_is_the_same_model(model_class):
    model = make_small(model_class).train()
    values, coords = random_field()
    model(values, coords)
    other = make_small(model_class)
    other.load_state_dict(model.state_dict())
    field = random_field()
    assert torch.equal(other.eval()(*field), model.eval()(*field))


@pytest.mark.parametrize("model_class", [GalerkinTransformer, GNOT, Transolver, ONO])
def test_transformers_begin_with_small_linear_weights(model_class):
    model = model_class(make_problem(), config_of(model_class)(num_layers=2))
    weights = [module.weight for module in model.modules() if isinstance(module, nn.Linear)]
    together = torch.cat([weight.flatten() for weight in weights])
    assert together.std().item() == pytest.approx(0.02, rel=0.01)
    biases = [value for name, value in model.named_parameters() if name.endswith("bias")]
    assert len(biases) > len(weights) / 2
    assert all(bool((bias == 0).all()) for bias in biases)
    (placeholder,) = (p for name, p in model.named_parameters() if name.endswith("placeholder"))
    assert placeholder.min() >= 0
    assert 0.9 / 128 < placeholder.max() < 1 / 128


def test_lno_begins_as_pytorch_does():
    model = LNO(make_problem())
    weight = model.scores.out.weight
    assert weight.abs().max() <= 128**-0.5
    assert weight.std().item() == pytest.approx((3 * 128) ** -0.5, rel=0.02)
    assert model.scores.out.bias.abs().max() > 0


@models
def test_heads_must_share_the_width_evenly(model_class):
    with pytest.raises(ValueError, match=r"width=10, num_heads=4\. Nearest valid width: 8"):
        config_of(model_class)(width=10, num_heads=4)
