"""The same smooth field sampled more densely: tokens, which are integrals, and outputs converge."""

import itertools
import math

import pytest
import torch

from gpo import Domain
from gpo.model.scales import MULTILINEAR
from tests.conftest import SMOOTH, make_model


def smooth_field(coords):
    x, y = coords[..., 0], coords[..., 1]
    first = torch.sin(2 * math.pi * x) * torch.cos(2 * math.pi * y)
    second = torch.cos(2 * math.pi * (x + y)) / 2
    return torch.stack([first, second], -1).unsqueeze(0)


def tokens_on(model, coords, weights=None):
    with torch.no_grad():
        trace = model.trace(smooth_field(coords), coords, weights=weights)
    return torch.cat([tokens.flatten() for tokens in trace.tokens])


def measured_order(errors):
    """Slope of log error over log spacing, least squares over all refinements."""
    sizes = torch.log(torch.tensor(list(errors), dtype=torch.float64))
    logs = torch.log(torch.tensor(list(errors.values()), dtype=torch.float64))
    return -(
        ((sizes - sizes.mean()) * (logs - logs.mean())).sum()
        / (sizes - sizes.mean()).square().sum()
    ).item()


def grid(domain, size):
    coords, weights = domain.grid(size, size)
    return coords.double(), weights.double()


def test_tokens_on_open_grids_converge_at_second_order_with_quadrature_weights():
    """Trapezoid weights; the integrand is Lipschitz (ReLU), smooth but for kinks."""
    domain = Domain.unit_box(2)
    model = make_model(domain, **SMOOTH)
    truth = tokens_on(model, *grid(domain, 513))
    errors = {}
    for size in (17, 33, 65, 129):
        errors[size - 1] = (tokens_on(model, *grid(domain, size)) - truth).norm().item()
    assert 1.6 < measured_order(errors) < 2.6, errors


def test_without_weights_boundary_points_count_twice_and_the_order_drops_to_one():
    domain = Domain.unit_box(2)
    model = make_model(domain, **SMOOTH)
    truth = tokens_on(model, *grid(domain, 513))
    errors = {}
    for size in (17, 33, 65, 129):
        errors[size - 1] = (tokens_on(model, grid(domain, size)[0]) - truth).norm().item()
    assert 0.8 < measured_order(errors) < 1.3, errors


def test_the_same_field_at_32_and_64_gives_nearly_the_same_tokens():
    domain = Domain.unit_box(2, periodic=True)
    model = make_model(domain, **SMOOTH)
    coarse, fine = tokens_on(model, *grid(domain, 32)), tokens_on(model, *grid(domain, 64))
    assert (coarse - fine).norm() < 1e-3 * fine.norm()


@pytest.mark.thorough
def test_tokens_on_random_points_converge_at_the_monte_carlo_rate():
    domain = Domain.unit_box(2, periodic=True)
    model = make_model(domain, **SMOOTH)
    truth = tokens_on(model, *grid(domain, 256))
    errors = {}
    for size in (64, 256, 1024, 4096):
        draws = [
            (tokens_on(model, torch.rand(size, 2, dtype=torch.float64)) - truth).square().sum()
            for _ in range(24)
        ]
        errors[size] = torch.stack(draws).mean().sqrt().item()
    assert 0.4 < measured_order(errors) < 0.6, errors


def test_outputs_agree_where_points_of_two_resolutions_coincide():
    domain = Domain.unit_box(2, periodic=True)
    model = make_model(domain, **SMOOTH)
    coarse, fine = domain.grid(32, 32)[0].double(), domain.grid(64, 64)[0].double()
    with torch.no_grad():
        at_coarse = model(smooth_field(coarse), coarse)
        at_fine = model(smooth_field(fine), fine).reshape(64, 64, 3)[::2, ::2].reshape(1, -1, 3)
    assert (at_coarse - at_fine).norm() < 1e-4 * at_fine.norm()


def transporting_model(size):
    """Two layers of waves and two with transport, for a grid of this size."""
    return make_model(
        Domain.unit_box(2, periodic=True), variant="waves", grid_shape=(size, size), num_waves=5,
        num_layers=4, num_transports=2, num_gaussians=4,
    )  # fmt: skip


def changes_by_resolution(log_scale):
    """How much outputs at common points change with every doubling, from 16 points along each axis.

    The model is that for 16 by 16.
    """
    model, outputs = transporting_model(16), []
    with torch.no_grad():
        for layer in model.layers[2:]:
            layer.log_scale.fill_(log_scale)
        for size in (16, 32, 64, 128):
            coords = grid(model.problem.domain, size)[0]
            output = model(smooth_field(coords), coords).reshape(size, size, 3)
            outputs.append(output[:: size // 16, :: size // 16])
    pairs = itertools.pairwise(outputs)
    return [((fine - coarse).norm() / outputs[-1].norm()).item() for coarse, fine in pairs]


ONE_CELL = math.log(1 / 16)


@pytest.mark.parametrize("log_scale", [ONE_CELL, MULTILINEAR], ids=["gaussian", "multilinear"])
def test_outputs_of_transports_converge_with_second_order_in_the_resolution(log_scale):
    """Also with the multilinear kernel, whose variance falls with the square of the spacing."""
    _, coarse, fine = changes_by_resolution(log_scale)
    assert abs(math.log2(coarse / fine) - 2) < 0.25, (coarse, fine)


def test_gaussians_change_less_between_resolutions_than_the_multilinear_kernel():
    """They are as wide at every resolution; it narrows to a point."""
    gaussian, multilinear = changes_by_resolution(ONE_CELL), changes_by_resolution(MULTILINEAR)
    ratios = [wide / narrow for wide, narrow in zip(multilinear[1:], gaussian[1:], strict=True)]
    assert min(ratios) > 3, ratios


def test_the_grid_for_which_a_model_was_made_only_sets_where_its_scales_start():
    models = [transporting_model(size) for size in (16, 32)]
    models[1].load_state_dict(models[0].state_dict())
    coords = grid(models[0].problem.domain, 24)[0]
    with torch.no_grad():
        first, second = (model(smooth_field(coords), coords) for model in models)
    assert torch.equal(first, second)
