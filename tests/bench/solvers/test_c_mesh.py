import numpy as np
import pytest

from gpo_bench.solvers.airfoil_mesh import (
    c_mesh,
    deformed,
    mesh_triangles,
    naca,
    named_section,
    num_wake,
)


def signed_areas(nodes):
    first, second = nodes[1:, 1:] - nodes[:-1, :-1], nodes[:-1, 1:] - nodes[1:, :-1]
    return (first[..., 0] * second[..., 1] - first[..., 1] * second[..., 0]) / 2


def test_the_mesh_follows_body_and_wake_and_ends_far_away():
    section = named_section("2412")
    nodes = c_mesh(section)
    assert nodes.shape == (221, 51, 2)
    wake = num_wake(220)
    np.testing.assert_allclose(nodes[:wake, 0], nodes[: -wake - 1 : -1, 0], atol=1e-12)
    body = nodes[wake : 221 - wake, 0]
    middle = len(body) // 2
    np.testing.assert_allclose(body[middle:, 1], section.upper(body[middle:, 0]), atol=1e-9)
    np.testing.assert_allclose(body[: middle + 1, 1], section.lower(body[: middle + 1, 0].clip(0)), atol=1e-9)  # fmt: skip
    assert np.hypot(*nodes[:, -1].T).min() > 20
    assert nodes[0, 0, 0] == pytest.approx(26, abs=0.1)


@pytest.mark.parametrize("seed", range(10))
def test_no_cell_folds_over_and_none_is_much_larger_than_its_neighbour(seed):
    shape = deformed(naca(0.12), np.random.default_rng(seed), 0.03)
    areas = signed_areas(c_mesh(shape))
    assert areas.min() > 0
    assert np.abs(np.diff(np.log(areas), axis=1)).max() < 0.5


def test_triangles_tile_the_mesh_and_join_at_the_wake():
    nodes = c_mesh(naca(0.12), 88, 20)
    kept, triangles = mesh_triangles(88, 20)
    points = nodes.reshape(-1, 2)[kept]
    wake = num_wake(88)
    assert len(points) == 89 * 21 - wake - 1
    assert len(np.unique(points.round(12), axis=0)) == len(points)
    edges = points[triangles[:, 1:]] - points[triangles[:, :1]]
    areas = np.linalg.det(edges) / 2
    assert areas.min() > 0
    assert areas.sum() == pytest.approx(signed_areas(nodes).sum(), rel=1e-12)
    pairs = np.sort(np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [2, 0]]]), 1)  # fmt: skip
    _, counts = np.unique(pairs, axis=0, return_counts=True)
    rim = 88 - 2 * wake + 2 * 20 + 88
    assert (counts == 1).sum() == rim, "only airfoil and outer boundary have one cell beside them"
