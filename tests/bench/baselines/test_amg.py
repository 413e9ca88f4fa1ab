import math
from dataclasses import replace

import pytest
import torch

from gpo import Domain
from gpo.model.problem import Problem
from gpo_bench.baselines.amg import AMG, AMGConfig, Multigraph, PhysicsAttention, ResidualUpdate
from gpo_bench.baselines.graphs import interpolate
from tests.conftest import random_points

SQUARE = Domain.unit_box(2)

GRAPHS = {
    "all near": AMGConfig(),
    "some near": AMGConfig(num_local_nodes=20),
    "some alike": AMGConfig(num_local_nodes=20, local_metric="cosine"),
}


def small_amg(domain=SQUARE, graphs=AMGConfig(), **changes):
    options = {"width": 8, "num_blocks": 2, "num_heads": 2, "num_tokens": 3, **changes}
    return AMG(Problem(2, 1, domain), replace(graphs, **options)).double()


def sample(domain=SQUARE, batch=2, points=30):
    return torch.randn(batch, points, 2, dtype=torch.float64), random_points(domain, batch, points)


@pytest.mark.parametrize(("channels", "count"), [(1, 3_541_497), (4, 3_542_652)])
def test_the_counts_are_the_published_ones(channels, count):
    with torch.device("meta"):
        model = AMG(Problem(channels, channels, SQUARE))
    assert sum(part.numel() for part in model.parameters()) == count


def test_all_parameters_learn_but_those_the_published_model_never_uses():
    model = small_amg(num_blocks=3)
    model(*sample()).square().sum().backward()
    idle = {
        name
        for name, part in model.named_parameters()
        if part.grad is None or part.grad.abs().sum() == 0
    }
    assert idle == model.unused


def test_physics_attention_is_that_of_a_plain_loop():
    layer = PhysicsAttention(4, 2, 3).double()
    torch.nn.init.uniform_(layer.temperature, 0.3, 0.9)
    values = torch.randn(2, 7, 4, dtype=torch.float64)
    is_active = torch.rand(2, 7) > 0.4
    is_active[:, 0] = True
    result = layer(values, is_active)
    for points, active, output in zip(values, is_active, result, strict=True):
        heads = []
        for head in range(2):
            rows = slice(4 * head, 4 * head + 4)
            features = points @ layer.features.weight[rows].T + layer.features.bias[rows]
            logits = layer.assign(features) / layer.temperature[head]
            memberships = torch.softmax(logits, dim=-1)
            measured = points @ layer.measure.weight[rows].T + layer.measure.bias[rows]
            tokens = torch.stack(
                [
                    sum(memberships[n, m] * measured[n] for n in range(7) if active[n])
                    / (sum(memberships[n, m] for n in range(7) if active[n]) + 1e-5)
                    for m in range(3)
                ]
            )
            query, key, value = layer.query(tokens), layer.key(tokens), layer.value(tokens)
            coupled = torch.softmax(query @ key.T / math.sqrt(4), dim=-1) @ value
            heads.append(memberships @ coupled)
        torch.testing.assert_close(output, layer.out(torch.cat(heads, dim=-1)))


def test_the_assignment_starts_orthogonal_and_the_temperature_at_one_half():
    layer = PhysicsAttention(8, 2, 3)
    torch.testing.assert_close(layer.assign.weight @ layer.assign.weight.T, torch.eye(3))
    assert layer.temperature.eq(0.5).all()


def test_batch_statistics_are_those_of_active_points():
    layer = ResidualUpdate(4, has_batch_norm=True).double()
    values, update = torch.randn(2, 3, 5, 4, dtype=torch.float64)
    is_active = torch.rand(3, 5) > 0.4
    result = layer(values, update, is_active)[is_active]
    normed = layer.first_norm((values + update)[is_active])
    hidden = torch.relu(layer.first(normed))
    mean, variance = hidden.mean(0), hidden.var(0, correction=0)
    hidden = (hidden - mean) / (variance + 1e-5).sqrt()
    first, _, last = layer.rest
    expected = layer.second_norm(normed + last(torch.relu(first(hidden))))
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(layer.batch_norm.running_mean, 0.1 * mean)


def test_the_local_graph_has_the_points_of_the_largest_interpolation_error():
    values, coords = sample(points=40)
    is_active = torch.rand(2, 40) > 0.2
    config = AMGConfig(num_local_nodes=10)
    (multigraph,) = Multigraph.draw(config, coords, is_active, 1, is_random=True)
    graph = multigraph.local_graph(values)
    interpolated = interpolate(values, coords, multigraph.local_sample, multigraph.is_sampled)
    for index in range(2):
        score = {
            point: (values[index, point] - interpolated[index, point]).abs().sum().item()
            for point in is_active[index].nonzero().flatten().tolist()
        }
        worst = sorted(score, key=score.__getitem__, reverse=True)[:10]
        assert graph.nodes[index].tolist() == sorted(worst)
    assert graph.senders.shape == (2, 10, 7)


@pytest.mark.parametrize("kind", ["local", "global"])
def test_features_are_alike_when_they_point_the_same_way(kind):
    values, coords = sample(points=40)
    is_active = torch.rand(2, 40) > 0.2
    config = AMGConfig(num_local_nodes=20, local_metric="cosine")
    (multigraph,) = Multigraph.draw(config, coords, is_active, 1, is_random=True)
    graph = getattr(multigraph, f"{kind}_graph")(values)
    count = {"local": 6, "global": 4}[kind]
    for index in range(2):
        candidates = {"local": graph.nodes[index], "global": multigraph.global_sample[index]}[kind]
        is_candidate = {
            "local": is_active[index, candidates],
            "global": multigraph.is_sampled[index],
        }
        candidates = candidates[is_candidate[kind]]
        unit = torch.nn.functional.normalize(values[index], dim=-1)
        for node in candidates.tolist():
            slot = graph.nodes[index].tolist().index(node)
            senders = graph.nodes[index, graph.senders[index, slot][graph.is_edge[index, slot]]]
            others = [other for other in candidates.tolist() if other != node]
            others.sort(key=lambda other: (unit[node] @ unit[other]).item(), reverse=True)
            assert senders.tolist() == [node, *others[:count]]


def test_samples_are_a_quarter_of_the_active_points_and_independent():
    _, coords = sample(points=41)
    is_active = torch.ones(2, 41, dtype=torch.bool)
    is_active[1, 20:] = False
    draws = Multigraph.draw(AMGConfig(), coords, is_active, 3, is_random=True)
    assert draws[0].is_sampled.sum(1).tolist() == [11, 5]
    starts = {draw.local_sample[0, 0].item() for draw in draws}
    starts |= {draw.global_sample[0, 0].item() for draw in draws}
    assert len(starts) > 1
    draws = Multigraph.draw(AMGConfig(), coords, is_active, 3, is_random=False)
    assert all(torch.equal(draw.global_sample, draws[0].local_sample) for draw in draws)


def test_a_block_is_the_straight_line_of_its_specification():
    model = small_amg(num_blocks=1).eval()
    values, coords = sample()
    active = torch.ones(2, 30, dtype=torch.bool)
    (graphs,) = Multigraph.draw(model.config, coords, active, 1, is_random=False)
    lifted = model.lift(torch.cat([values, coords], dim=-1))
    (block,) = model.blocks

    def settle(after, x, update):
        x = after.first_norm(x + update)
        hidden = torch.relu(after.first(x))
        if after.batch_norm is not None:
            hidden = hidden / math.sqrt(1 + 1e-5)
        return after.second_norm(x + after.rest(hidden))

    x = settle(block.after_physics, lifted, block.physics(lifted, active))
    x = settle(block.after_near, x, block.near(x, graphs.local_graph(x)))
    x = settle(block.after_alike, x, block.alike(x, graphs.global_graph(x)))
    last = block.mix(block.norm(x + lifted))
    expected = model.project(model.norm(last + lifted))
    torch.testing.assert_close(model(values, coords), expected)


@pytest.mark.parametrize("graphs", GRAPHS.values(), ids=GRAPHS.keys())
@pytest.mark.parametrize("is_training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("is_grid", [True, False], ids=["grid", "cloud"])
def test_padding_changes_nothing(graphs, is_training, is_grid):
    model = small_amg(graphs=graphs).train(is_training)
    state = {name: part.clone() for name, part in model.state_dict().items()}
    values, coords = sample()
    if is_grid:
        coords = SQUARE.grid(5, 6)[0].double().expand(2, 30, 2)
    weights = torch.ones(2, 30, dtype=torch.float64)
    weights[1, 25:] = 0
    torch.manual_seed(1)
    expected = model(values, coords, weights=weights)
    expected_state = {name: part.clone() for name, part in model.state_dict().items()}
    for num_padded in (1, 17):
        model.load_state_dict(state)
        noise, places = sample(points=num_padded)
        torch.manual_seed(1)
        result = model(
            torch.cat([noise, values], 1),
            torch.cat([places, coords], 1),
            weights=torch.cat([torch.zeros(2, num_padded), weights], 1),
        )[:, num_padded:]
        is_active = weights > 0
        torch.testing.assert_close(result[is_active], expected[is_active], rtol=1e-9, atol=1e-11)
        for name, part in model.state_dict().items():
            torch.testing.assert_close(part, expected_state[name], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("graphs", GRAPHS.values(), ids=GRAPHS.keys())
def test_evaluation_follows_a_permutation_of_the_points(graphs):
    model = small_amg(graphs=graphs).eval()
    values, coords = sample()
    order = torch.randperm(30)
    expected = model(values, coords)[:, order]
    torch.testing.assert_close(model(values[:, order], coords[:, order]), expected)


def test_training_samples_anew_and_evaluation_does_not():
    model = small_amg()
    values, coords = sample()
    assert not torch.equal(model(values, coords), model(values, coords))
    model.eval()
    assert torch.equal(model(values, coords), model(values, coords))


def test_points_of_every_domain_are_taken(domain):
    values, coords = sample(domain)
    model = small_amg(domain)
    assert model.lift[0].in_features == 2 + domain.dim
    result = model(values, coords)
    assert result.shape == (2, 30, 1)
    assert result.isfinite().all()


def test_one_point_alone_has_an_answer():
    model = small_amg().eval()
    values, coords = sample(points=1)
    assert model(values, coords).isfinite().all()
