import itertools
import math

import pytest
import torch

from gpo import Domain
from gpo.model.problem import Problem, UnsupportedGeometryError
from gpo_bench.baselines.transolver import PhysicsAttention, Transolver, TransolverConfig
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


def physics_attention_loop(layer, projected, temperature):
    """One sample, from its projection on; one head after the other, one point after the other."""
    num_points, width = len(projected), layer.out.in_features
    num_heads, channels = layer.head_shape
    query, key, value = layer.query_key_value.weight.split(channels)
    merged = torch.zeros(num_points, width, dtype=projected.dtype)
    for head in range(num_heads):
        rows = slice(head * channels, (head + 1) * channels)
        assignment, content = projected[:, :width][:, rows], projected[:, width:][:, rows]
        weights = [
            softmax((layer.slices.weight @ x + layer.slices.bias) / temperature[head])
            for x in assignment
        ]
        tokens = []
        for s in range(layer.slices.out_features):
            mass = sum(weight[s] for weight in weights) + 1e-5
            tokens.append(sum(w[s] * f for w, f in zip(weights, content, strict=True)) / mass)
        coupled = []
        for t in tokens:
            scores = [(query @ t) @ (key @ other) / math.sqrt(channels) for other in tokens]
            terms = zip(softmax(scores), tokens, strict=True)
            coupled.append(sum(weight * (value @ other) for weight, other in terms))
        for n in range(num_points):
            merged[n, rows] = sum(w * t for w, t in zip(weights[n], coupled, strict=True))
    return linear(layer.out, merged)


def convolution_loop(layer, field, grid_shape):
    """The sum over the 3^d neighbours of every site that are inside the grid."""
    sites = list(itertools.product(*map(range, grid_shape)))
    place = {site: n for n, site in enumerate(sites)}
    rows = []
    for site in sites:
        total = layer.bias
        for offset in itertools.product((-1, 0, 1), repeat=len(grid_shape)):
            neighbour = tuple(s + o for s, o in zip(site, offset, strict=True))
            if neighbour in place:
                tap = layer.weight[(slice(None), slice(None), *(o + 1 for o in offset))]
                total = total + tap @ field[place[neighbour]]
        rows.append(total)
    return torch.stack(rows)


def test_attention_among_unstructured_points_equals_the_plain_loop():
    layer = strengthen(PhysicsAttention((2, 4), 5, ()))
    tokens = torch.randn(2, 6, 8, dtype=torch.float64)
    fast = layer(tokens, all_active(tokens))
    for sample in range(2):
        projected = linear(layer.project, tokens[sample])
        slow = physics_attention_loop(layer, projected, layer.temperature)
        torch.testing.assert_close(fast[sample], slow, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("grid_shape", [(6,), (2, 3), (2, 3, 2)])
def test_attention_on_a_grid_equals_the_plain_loop(grid_shape):
    layer = strengthen(PhysicsAttention((2, 4), 5, grid_shape))
    num_points = math.prod(grid_shape)
    tokens = torch.randn(2, num_points, 8, dtype=torch.float64)
    fast = layer(tokens, all_active(tokens))
    for sample in range(2):
        projected = convolution_loop(layer.project, tokens[sample], grid_shape)
        slow = physics_attention_loop(layer, projected, layer.temperature)
        torch.testing.assert_close(fast[sample], slow, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("requested", "used"), [(0.01, 0.1), (9.0, 5.0)])
@pytest.mark.parametrize("grid_shape", [(2, 3), ()])
def test_temperature_is_bounded_on_grids_only(grid_shape, requested, used):
    layer = strengthen(PhysicsAttention((2, 4), 5, grid_shape))
    tokens = torch.randn(1, 6, 8, dtype=torch.float64)
    answers = []
    for temperature in (requested, used):
        torch.nn.init.constant_(layer.temperature, temperature)
        answers.append(layer(tokens, all_active(tokens)))
    assert torch.equal(*answers) == bool(grid_shape)


def test_the_model_is_its_specification_line_by_line():
    model = make_small(Transolver)
    values, coords = random_field(batch=1)
    sites = torch.cat([coords[0], values[0]], dim=-1)
    z = perceptron(model.lift.layers, sites) + model.lift.placeholder
    for block in model.blocks:
        layer = block.attention
        projected = linear(layer.project, norm(block.norm, z))
        z = z + physics_attention_loop(layer, projected, layer.temperature)
        z = z + perceptron(block.mlp[1], norm(block.mlp[0], z))
    expected = linear(model.out[1], norm(model.out[0], z))
    torch.testing.assert_close(model(values, coords)[0], expected, rtol=1e-10, atol=1e-12)


def test_a_masked_site_of_a_grid_is_as_good_as_outside_it():
    """A grid whose last column is masked answers as the grid without that column."""
    wide, narrow = (make_problem(grid_shape=shape) for shape in [(4, 4), (4, 3)])
    model, cropped = make_small(Transolver, wide), make_small(Transolver, narrow)
    cropped.load_state_dict(model.state_dict())
    values, coords = random_field(points=16)
    weights = torch.ones(4, 4, dtype=torch.float64)
    weights[:, 3] = 0
    is_kept = weights.flatten() > 0
    answer = model(values, coords, weights=weights.flatten())
    expected = cropped(values[:, is_kept], coords[:, is_kept])
    torch.testing.assert_close(answer[:, is_kept], expected, rtol=1e-10, atol=1e-12)


def test_convolutions_begin_as_pytorch_does():
    model = Transolver(make_problem(grid_shape=(8, 8)), TransolverConfig(num_layers=1))
    weight = model.blocks[0].attention.project.weight
    bound = (9 * 128) ** -0.5
    assert weight.abs().max().item() == pytest.approx(bound, rel=0.01)
    assert bool((model.blocks[0].attention.temperature == 0.5).all())


def test_grids_of_more_than_three_axes_are_refused():
    with pytest.raises(
        UnsupportedGeometryError, match=r"^needs a grid of 1 to 3 axes or points on"
    ):
        Transolver(make_problem(grid_shape=(2, 2, 2, 2)))


def test_a_grid_on_the_sphere_has_two_axes_and_three_coordinates():
    problem = Problem(2, 3, Domain.sphere(), (4, 6))
    model = make_small(Transolver, problem)
    coords, weights = problem.domain.grid(4, 6)
    values, _ = random_field(points=24)
    answer = model(values, coords.double(), weights=weights.double())
    assert answer.shape == (2, 24, 3)
    assert isinstance(model.blocks[0].attention.project, torch.nn.Conv2d)
    assert model.lift.layers[0].in_features == 5
