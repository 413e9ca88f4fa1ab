import pytest
import torch

from gpo_bench.baselines import graphs
from gpo_bench.baselines.graphs import (
    Graph,
    GraphAttention,
    cosine_similarity,
    farthest_points,
    fixed_start,
    interpolate,
    nearest,
    neighbour_graph,
    position_similarity,
    random_start,
)


def cloud(batch=3, points=20, dim=2):
    coords = torch.rand(batch, points, dim, dtype=torch.float64)
    is_active = torch.rand(batch, points) > 0.3
    is_active[:, 4] = True
    return coords, is_active


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_farthest_points_are_those_of_a_plain_loop(dim):
    coords, is_active = cloud(dim=dim)
    index = farthest_points(coords, is_active, torch.full((3,), 4), 6)
    for places, active, indices in zip(coords, is_active, index.tolist(), strict=True):
        expected = [4]
        while len(expected) < 6:
            others = [i for i in range(20) if active[i] and i not in expected]
            expected.append(
                max(others, key=lambda i: min((places[i] - places[j]).norm() for j in expected))
            )
        assert indices == expected


def test_farthest_points_name_every_point_once_and_masked_ones_last():
    coords, is_active = cloud()
    coords[:, 5:9] = coords[:, 4:5]
    index = farthest_points(coords, is_active, torch.full((3,), 4), 20)
    assert torch.equal(index.sort(1).values, torch.arange(20).expand(3, 20))
    is_first = torch.arange(20) < is_active.sum(1, keepdim=True)
    assert torch.equal(is_active.gather(1, index), is_first)


def test_a_random_start_is_any_active_point():
    is_active = torch.tensor([False, True, True, False, True]).expand(500, 5)
    starts = random_start(is_active)
    assert starts.unique().tolist() == [1, 2, 4]
    assert starts.bincount().max() < 220


def test_the_fixed_start_does_not_depend_on_the_order():
    coords = torch.cartesian_prod(torch.arange(4.0), torch.arange(4.0)).expand(2, 16, 2)
    is_active = torch.ones(2, 16, dtype=torch.bool)
    is_active[1, 0] = False
    order = torch.randperm(16)
    start = fixed_start(coords, is_active)
    assert start.tolist() == [0, 4]
    assert torch.equal(order[fixed_start(coords[:, order], is_active[:, order])], start)


def cosine(first, second):
    return (first @ second / (first.norm() * second.norm())).item()


def minus_distance(first, second):
    return -(first - second).norm().item()


@pytest.mark.parametrize("max_pairs", [1, 200, 2**20])
@pytest.mark.parametrize(
    ("similarity", "measure"), [(position_similarity, minus_distance), (cosine_similarity, cosine)]
)
def test_neighbours_are_those_of_brute_force(similarity, measure, max_pairs, monkeypatch):
    monkeypatch.setitem(graphs.MAX_PAIRS, "cpu", max_pairs)
    sites, is_site = cloud(dim=3)
    sites = sites - 0.5
    index, is_valid = nearest(similarity, sites, sites, is_site, 4, excludes_self=True)
    assert is_valid.all()
    for points, possible, rows in zip(sites, is_site, index.tolist(), strict=True):
        for query, row in enumerate(rows):
            others = [i for i in range(20) if possible[i] and i != query]
            others.sort(key=lambda i: measure(points[query], points[i]), reverse=True)
            assert row == others[:4]


def test_the_first_of_equally_near_sites_counts_however_many_are_masked():
    coords = torch.cartesian_prod(torch.arange(5.0), torch.arange(5.0)).unsqueeze(0)
    is_site = torch.ones(1, 25, dtype=torch.bool)
    index, _ = nearest(position_similarity, coords, coords, is_site, 6, excludes_self=True)
    assert index[0, 12].tolist() == [7, 11, 13, 17, 6, 8]
    padded, is_padded = torch.cat([coords, coords], 1), torch.cat([is_site, ~is_site], 1)
    more, _ = nearest(position_similarity, coords, padded, is_padded, 6, excludes_self=True)
    assert torch.equal(more, index)


def test_masked_sites_are_no_neighbours():
    coords, is_active = cloud(batch=1, points=5)
    is_active[:] = torch.tensor([True, False, True, True, False])
    index, is_valid = nearest(position_similarity, coords, coords, is_active, 8, excludes_self=True)
    assert is_valid.sum(-1).tolist() == [[2, 3, 2, 2, 3]]
    assert is_active[0, index[is_valid]].all()
    assert nearest(position_similarity, coords[:, :1], coords[:, :1], is_active[:, :1], 8,
                   excludes_self=True)[0].shape == (1, 1, 0)  # fmt: skip


def test_interpolation_weighs_the_three_nearest_sites_by_inverse_squared_distance():
    coords, is_active = cloud()
    values = torch.randn(3, 20, 5, dtype=torch.float64)
    sites = farthest_points(coords, is_active, torch.full((3,), 4), 6)
    is_site = torch.tensor([6, 2, 4]).unsqueeze(1) > torch.arange(6)
    interpolated = interpolate(values, coords, sites, is_site)
    for sample in range(3):
        candidates = sites[sample][is_site[sample]].tolist()
        for point in range(20):
            squared = {
                i: (coords[sample, i] - coords[sample, point]).square().sum() for i in candidates
            }
            near = sorted(candidates, key=squared.__getitem__)[:3]
            weights = torch.stack([1 / squared[i].clamp_min(1e-16) for i in near])
            expected = weights @ values[sample, near] / weights.sum()
            torch.testing.assert_close(interpolated[sample, point], expected)


def graph_and_values():
    coords, is_active = cloud(batch=2, points=9)
    nodes = farthest_points(coords, is_active, torch.full((2,), 4), 6)
    is_node = torch.tensor([6, 3]).unsqueeze(1) > torch.arange(6)
    graph = neighbour_graph(position_similarity, coords, nodes, is_node, 3)
    return graph, torch.randn(2, 9, 4, dtype=torch.float64), coords, is_node


def test_a_graph_joins_every_node_to_itself_and_its_nearest_nodes():
    graph, _, coords, is_node = graph_and_values()
    for sample in range(2):
        nodes = graph.nodes[sample].tolist()
        candidates = [node for node, counts in zip(nodes, is_node[sample], strict=True) if counts]
        for slot, node in enumerate(nodes):
            neighbours = graph.nodes[
                sample, graph.senders[sample, slot][graph.is_edge[sample, slot]]
            ]
            near = sorted(
                candidates, key=lambda i: (coords[sample, i] - coords[sample, node]).norm()
            )
            others = [i for i in near if i != node][:3] if node in candidates else []
            assert neighbours.tolist() == [node, *others]


@pytest.mark.parametrize("max_messages", [1, 40, 2**19])
def test_graph_attention_is_that_of_a_plain_loop_over_edges(max_messages, monkeypatch):
    monkeypatch.setitem(graphs.MAX_MESSAGES, "cpu", max_messages)
    graph, values, _, _ = graph_and_values()
    layer = GraphAttention(4, 2).double()
    torch.nn.init.normal_(layer.bias)
    result = layer(values, graph)
    for sample in range(2):
        neighbours = {point: [point] for point in range(9)}
        for slot, node in enumerate(graph.nodes[sample].tolist()):
            slots = graph.senders[sample, slot][graph.is_edge[sample, slot]]
            neighbours[node] = graph.nodes[sample, slots].tolist()
        for point, senders in neighbours.items():
            received = layer.receiver(values[sample, point]).view(2, 4)
            total = layer.bias
            for head in range(2):
                sent = [layer.sender(values[sample, j]).view(2, 4)[head] for j in senders]
                joined = [message + received[head] for message in sent]
                logits = [
                    layer.attention[head] @ torch.where(part > 0, part, 0.2 * part)
                    for part in joined
                ]
                exponentials = [logit.exp() for logit in logits]
                for message, exponential in zip(sent, exponentials, strict=True):
                    total = total + message * exponential / sum(exponentials) / 2
            torch.testing.assert_close(result[sample, point], total)


def test_the_gradient_of_edge_attention_is_that_of_finite_differences(monkeypatch):
    monkeypatch.setitem(graphs.MAX_MESSAGES, "cpu", 40)
    graph, _, _, _ = graph_and_values()
    senders, is_edge = graph.senders[1], graph.is_edge[1]
    sent, received = torch.randn(2, 6, 8, dtype=torch.float64)
    attention = torch.randn(2, 4, dtype=torch.float64)
    inputs = [part.clone().requires_grad_() for part in (sent, received, attention)]
    assert torch.autograd.gradcheck(
        lambda *parts: graphs.edge_attention(*parts, senders, is_edge), inputs
    )


def test_only_edges_carry_gradients():
    graph, values, _, _ = graph_and_values()
    values.requires_grad_()
    layer = GraphAttention(4, 2).double()
    alone = torch.arange(9).expand(2, 9)
    loops = Graph(alone, alone.unsqueeze(-1), torch.ones(2, 9, 1, dtype=torch.bool))
    (gradient,) = torch.autograd.grad(layer(values, loops)[0, 3].sum(), values)
    assert gradient.abs().sum(-1).nonzero().tolist() == [[0, 3]]
    node = graph.nodes[0, 2].item()
    (gradient,) = torch.autograd.grad(layer(values, graph)[0, node].sum(), values)
    neighbours = graph.nodes[0, graph.senders[0, 2][graph.is_edge[0, 2]]]
    assert gradient[0].abs().sum(-1).nonzero().flatten().tolist() == sorted(neighbours.tolist())
