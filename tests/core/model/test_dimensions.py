"""A plane in space is a plane: two dimensions are three with a constant third coordinate."""

import torch

from gpo import Domain
from gpo.numerics.gaussian import gaussian
from gpo.numerics.neighbours import NeighbourSearch
from tests.conftest import make_model, random_points

HEIGHT = 0.3


def lifted(points):
    return torch.cat([points, torch.full_like(points[..., :1], HEIGHT)], -1)


def lift_last_axis(flat, fill):
    """Returns particle parameters `gaussians x 2` with a third axis of `fill`, flattened."""
    pairs = flat.unflatten(0, (-1, 2))
    return torch.cat([pairs, torch.full_like(pairs[:, :1], fill)], 1).flatten(0, 1)


def lift_model(plane, space):
    """Copies a 2-D model into a 3-D one that ignores the third coordinate."""
    state = plane.state_dict()
    g = plane.config.num_gaussians
    for name, tensor in state.items():
        if name.endswith("frequencies"):
            state[name] = torch.cat([tensor, torch.zeros_like(tensor[:, :1])], 1)
        elif "encoder.centers.out" in name or "encoder.scales.out" in name:
            state[name] = lift_last_axis(tensor, 0.0)
        elif name.endswith("describe.weight"):
            basis_and_weights, centers, scales = tensor.split([2 * g, 2 * g, 2 * g], dim=1)
            state[name] = torch.cat(
                [
                    basis_and_weights,
                    lift_last_axis(centers.T, 0.0).T,
                    lift_last_axis(scales.T, 0.0).T,
                ],
                1,
            )
    space.load_state_dict(state)


def test_the_operator_in_a_plane_is_the_operator_in_space():
    plane = make_model(Domain.unit_box(2), centers="displacement")
    space = make_model(Domain.unit_box(3), centers="displacement")
    lift_model(plane, space)
    values = torch.randn(2, 21, 2, dtype=torch.float64)
    weights = torch.rand(2, 21, dtype=torch.float64)
    coords, queries = (
        random_points(Domain.unit_box(2), 2, 21),
        random_points(Domain.unit_box(2), 2, 8),
    )
    flat = plane(values, coords, weights=weights, queries=queries)
    solid = space(values, lifted(coords), weights=weights, queries=lifted(queries))
    torch.testing.assert_close(solid, flat, rtol=1e-10, atol=1e-12)
    flat, solid = plane(values, coords), space(values, lifted(coords))
    torch.testing.assert_close(solid, flat, rtol=1e-10, atol=1e-12)


def test_the_kernel_of_a_plane_is_the_kernel_of_space_without_height():
    offset, scales = torch.randn(9, 2).double(), torch.rand(9, 2).double() + 0.1
    deep = torch.cat([offset, torch.zeros(9, 1).double()], -1)
    thick = torch.cat([scales, torch.rand(9, 1).double() + 0.1], -1)
    torch.testing.assert_close(gaussian(deep, thick), gaussian(offset, scales))


def test_neighbours_in_a_plane_are_neighbours_in_space():
    plane, space = Domain.unit_box(2, periodic=True), Domain.unit_box(3, periodic=True)
    coords, queries = random_points(plane, 1, 30), random_points(plane, 1, 12)
    is_active = torch.ones(1, 30, dtype=torch.bool)
    flat = NeighbourSearch(plane, 4)(queries, coords, is_active)
    solid = NeighbourSearch(space, 4)(lifted(queries), lifted(coords), is_active)
    assert torch.equal(flat.index, solid.index)
    torch.testing.assert_close(flat.weights, solid.weights)
