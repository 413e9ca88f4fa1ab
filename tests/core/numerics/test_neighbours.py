import numpy as np
import pytest
import torch
from scipy.spatial import KDTree

from gpo import Domain
from gpo.numerics import neighbours
from gpo.numerics.neighbours import NeighbourSearch, partition_of_unity
from tests.conftest import random_points


def all_active(coords):
    return torch.ones(coords.shape[:2], dtype=torch.bool)


@pytest.mark.parametrize("num_neighbours", [1, 3])
def test_neighbours_are_those_of_brute_force(domain, num_neighbours):
    coords, queries = random_points(domain, 2, 40), random_points(domain, 2, 25)
    is_active = torch.rand(2, 40) > 0.3
    neighbours = NeighbourSearch(domain, num_neighbours)(queries, coords, is_active)
    distance = domain.offset(queries.unsqueeze(2), coords.unsqueeze(1)).norm(dim=-1)
    distance[~is_active.unsqueeze(1).expand(-1, 25, -1)] = torch.inf
    assert torch.equal(neighbours.index, distance.topk(num_neighbours, largest=False).indices)


def test_weights_are_a_partition_of_unity(domain):
    coords, queries = random_points(domain, 1, 40), random_points(domain, 1, 100)
    weights = NeighbourSearch(domain, 4)(queries, coords, all_active(coords)).weights
    assert (weights >= 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 100, dtype=torch.float64))


def test_a_query_on_a_site_interpolates_that_site_alone(domain):
    coords = random_points(domain, 1, 40)
    neighbours = NeighbourSearch(domain, 4)(coords, coords, all_active(coords))
    assert torch.equal(neighbours.index[..., 0], torch.arange(40).unsqueeze(0))
    expected = torch.zeros(1, 40, 4, dtype=torch.float64)
    expected[..., 0] = 1
    assert torch.equal(neighbours.weights, expected)


def test_blending_is_continuous_along_a_path():
    domain = Domain.unit_box(2, periodic=True)
    coords = random_points(domain, 1, 30)
    values = torch.randn(1, 30, dtype=torch.float64)

    def largest_jump(num_steps):
        start, direction = torch.tensor([0.1, 0.2]), torch.tensor([1.0, 0.37])
        path = start + torch.linspace(0, 1, num_steps, dtype=torch.float64)[:, None] * direction
        neighbours = NeighbourSearch(domain, 5)(path.unsqueeze(0), coords, all_active(coords))
        return neighbours.blend(neighbours.gather(values)).diff().abs().max().item()

    # A jump would stay as large however fine the steps are.
    assert largest_jump(40_000) < 0.02 * largest_jump(100)


def test_more_neighbours_than_sites_are_as_many_as_there_are():
    domain = Domain.unit_box(1)
    coords, queries = random_points(domain, 1, 3), random_points(domain, 1, 7)
    neighbours = NeighbourSearch(domain, 8)(queries, coords, all_active(coords))
    assert neighbours.index.shape == (1, 7, 3)
    alone = NeighbourSearch(domain, 8)(queries, coords[:, :1], all_active(coords[:, :1]))
    assert torch.equal(alone.weights, torch.ones(1, 7, 1, dtype=torch.float64))


def test_samples_with_different_numbers_of_sites_share_a_batch():
    domain = Domain.unit_box(2)
    coords, queries = random_points(domain, 2, 6), random_points(domain, 2, 9)
    is_active = torch.tensor([[True] * 6, [True, True, False, False, False, False]])
    both = NeighbourSearch(domain, 4)(queries, coords, is_active)
    alone = NeighbourSearch(domain, 4)(queries[1:], coords[1:], is_active[1:])
    values = torch.randn(2, 6, dtype=torch.float64)
    torch.testing.assert_close(
        both.blend(both.gather(values))[1:], alone.blend(alone.gather(values[1:]))
    )


def test_a_site_listed_twice_is_one_neighbour():
    domain = Domain.unit_box(2)
    coords, queries = random_points(domain, 1, 12), random_points(domain, 1, 30)
    values = torch.randn(1, 12, dtype=torch.float64)
    twice = torch.cat([coords, coords[:, 3:6]], 1)
    once = NeighbourSearch(domain, 4)(queries, coords, all_active(coords))
    again = NeighbourSearch(domain, 4)(queries, twice, all_active(twice))
    values_twice = torch.cat([values, values[:, 3:6]], 1)
    torch.testing.assert_close(
        again.blend(again.gather(values_twice)), once.blend(once.gather(values))
    )


def test_equally_far_candidates_count_the_same():
    weights = partition_of_unity(torch.full((1, 4), 2.0, dtype=torch.float64), 3)
    torch.testing.assert_close(weights, torch.full((1, 3), 1 / 3, dtype=torch.float64))


def test_weights_have_a_gradient_in_the_query_off_sites():
    domain = Domain.unit_box(2)
    coords = random_points(domain, 1, 10)

    def blended(queries):
        neighbours = NeighbourSearch(domain, 3)(queries, coords, all_active(coords))
        return neighbours.weights

    queries = random_points(domain, 1, 4).requires_grad_()
    assert torch.autograd.gradcheck(blended, queries)
    on_site = coords.clone().requires_grad_()
    blended(on_site).square().sum().backward()
    assert on_site.grad.isfinite().all()


def test_a_geometry_is_searched_once(monkeypatch):
    domain = Domain.unit_box(2)
    coords, queries = random_points(domain, 1, 10), random_points(domain, 1, 4)
    search, calls = NeighbourSearch(domain, 3), []
    original = KDTree.query
    monkeypatch.setattr(KDTree, "query", lambda *a, **k: (calls.append(1), original(*a, **k))[1])
    first = search(queries, coords, all_active(coords))
    second = search(queries.clone(), coords.clone(), all_active(coords))
    assert len(calls) == 1
    assert np.array_equal(first.index, second.index)
    search(queries + 0.01, coords, all_active(coords))
    assert len(calls) == 2


def test_chunks_of_queries_share_one_tree_and_find_the_same_neighbours(domain, monkeypatch):
    trees = []

    def counting(*arguments, **settings):
        trees.append(1)
        return KDTree(*arguments, **settings)

    monkeypatch.setattr(neighbours, "KDTree", counting)
    coords, queries = random_points(domain, 1, 40), random_points(domain, 1, 90)
    is_active = torch.rand(1, 40) > 0.3
    whole = NeighbourSearch(domain, 4)(queries, coords, is_active)
    search = NeighbourSearch(domain, 4)
    parts = [search(part, coords, is_active) for part in queries.split(20, dim=1)]
    assert len(trees) == 2
    assert torch.equal(torch.cat([part.index for part in parts], 1), whole.index)
    assert torch.equal(torch.cat([part.weights for part in parts], 1), whole.weights)
    for number in range(3):
        moved = random_points(domain, 1, 30 + number)
        search(queries, moved, all_active(moved))
    assert torch.equal(search(queries, coords, is_active).index, whole.index)
