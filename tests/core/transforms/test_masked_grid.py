"""A tensor grid behind a mask: products along the axes, and one matrix that makes tokens."""

import math

import pytest
import torch

from gpo import Domain, unit_vectors
from gpo.parallel.shard import SINGLE_PROCESS
from gpo.transforms.fit import _token_matrix, fit_transform
from gpo.transforms.gram import grid_gram
from gpo.transforms.transform import (
    GridTransform,
    MaskedGridTransform,
    PointTransform,
    functions_at,
    waves_at,
)
from gpo.transforms.waves import Waves
from tests.conftest import DOMAINS

DOUBLE = torch.double
EXACT = {"rtol": 1e-9, "atol": 1e-10}


def globe(latitudes, longitudes):
    """Sites of a globe or of a part of it, exactly on their circles, and their weights."""
    degrees = torch.cartesian_prod(latitudes, longitudes)
    return unit_vectors(degrees[:, 1], degrees[:, 0]), degrees[:, 0].deg2rad().cos()


def grid_of(domain, *shape):
    coords, weights = domain.grid(*shape)
    return domain, coords.double(), weights.double()


def grids():
    """Domain, sites, weights before the mask, waves along every axis, and a mesh if there is one."""
    uneven = torch.cartesian_prod(
        torch.linspace(0, 1, 15, dtype=DOUBLE) ** 2, torch.linspace(0, 1, 12, dtype=DOUBLE)
    )
    round_the_globe = globe(
        torch.linspace(82.5, -82.5, 12, dtype=DOUBLE), 15 * torch.arange(24, dtype=DOUBLE)
    )
    patch = globe(
        torch.linspace(46, 31, 14, dtype=DOUBLE), torch.linspace(-5, 36, 19, dtype=DOUBLE)
    )
    fitted = torch.rand(12 * 9, 2, dtype=DOUBLE)
    return {
        "circle": (*grid_of(Domain.unit_box(1, periodic=True), 24), (5,), ()),
        "line": (*grid_of(Domain.unit_box(1), 21), (4,), ()),
        "torus": (*grid_of(Domain.unit_box(2, periodic=True), 12, 14), (3, 4), ()),
        "open": (*grid_of(Domain.box([1, -2], [4, 0]), 13, 11), (3, 3), ()),
        "channel": (*grid_of(DOMAINS["channel"], 12, 13), (3, 3), ()),
        "uneven": (Domain.unit_box(2), uneven, torch.rand(180, dtype=DOUBLE) + 0.1, (3, 3), ()),
        "cube": (*grid_of(Domain.unit_box(3, periodic=True), 6, 7, 8), (2, 1, 2), ()),
        "box": (*grid_of(Domain.unit_box(3), 7, 6, 8), (1, 2, 2), ()),
        "globe": (Domain.sphere(), *round_the_globe, (3, 4), ()),
        "patch": (Domain.sphere(patch[0]), *patch, (3, 4), ()),
        "mesh": (Domain.around(fitted), fitted, torch.rand(108, dtype=DOUBLE) + 0.1, (3, 2), (12, 9)),
        "few sites": (*grid_of(Domain.unit_box(2), 7, 8), (4, 4), ()),
    }  # fmt: skip


GRIDS = list(grids())
MASKS = ("gaps", "land")


def masked_sites(kind, mask):
    """Waves, positions and weights of a grid with random gaps, or with land in one place."""
    torch.manual_seed(3)
    domain, coords, weights, limits, mesh = grids()[kind]
    waves = Waves.on(domain, limits, mesh)
    positions = waves.positions(coords[None])
    is_dry = torch.rand(len(coords)) < 0.1
    if mask == "land":
        is_dry = (positions[0] - 0.4).norm(dim=-1) < 0.3
    is_dry[1] = True
    weights = torch.where(is_dry, 0.0, weights)
    return waves, positions, (weights / weights.sum())[None]


def dense_transform(waves, positions, weights):
    """Analysis and synthesis with one number for every site and mode."""
    matrix = _token_matrix(waves, positions, weights, SINGLE_PROCESS)
    tested = functions_at(waves, positions) * weights.unsqueeze(-1)
    return PointTransform(matrix @ tested.mT, waves_at(waves, positions))


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("kind", GRIDS)
def test_behind_a_mask_a_grid_has_the_tokens_of_dense_least_squares(kind, mask):
    waves, positions, weights = masked_sites(kind, mask)
    transform, dense = (fit(waves, positions, weights) for fit in (fit_transform, dense_transform))
    # Along a single axis any weights factor.
    expected = GridTransform if positions.shape[-1] == 1 else MaskedGridTransform
    assert isinstance(transform, expected)
    field = torch.randn(positions.shape[1], 2, 3, dtype=DOUBLE)
    tokens = transform.tokens(transform.analyse(field))
    torch.testing.assert_close(tokens, dense.analyse(field), **EXACT)
    torch.testing.assert_close(transform.synthesise(tokens), dense.synthesise(tokens), **EXACT)


def test_the_products_of_functions_on_a_grid_are_the_sums_over_its_nodes():
    functions = [torch.randn(*shape, dtype=DOUBLE) for shape in ((5, 3), (4, 2), (6, 3))]
    weights = torch.rand(5, 4, 6, dtype=DOUBLE)
    rows = torch.einsum("ia,jb,kc->ijkabc", *functions).reshape(120, 18)
    expected = rows.mT @ (rows * weights.reshape(-1, 1))
    torch.testing.assert_close(grid_gram(functions, weights), expected, **EXACT)


def test_nodes_of_a_masked_grid_may_come_in_any_order():
    waves, positions, weights = masked_sites("open", "land")
    field, order = torch.randn(143, 2, 3, dtype=DOUBLE), torch.randperm(143)
    straight = fit_transform(waves, positions, weights)
    mixed = fit_transform(waves, positions[:, order], weights[:, order])
    assert isinstance(mixed, MaskedGridTransform)
    tokens = straight.tokens(straight.analyse(field))
    torch.testing.assert_close(mixed.tokens(mixed.analyse(field[order])), tokens, **EXACT)
    torch.testing.assert_close(mixed.synthesise(tokens), straight.synthesise(tokens)[order])


@pytest.mark.parametrize("kind", ["torus", "box", "patch"])
def test_lines_of_a_masked_grid_measure_what_adds_up(kind):
    waves, positions, weights = masked_sites(kind, "gaps")
    whole = fit_transform(waves, positions, weights)
    field = torch.randn(positions.shape[1], 1, 2, dtype=DOUBLE)
    parts = whole.split(2 * math.prod(whole.shape[1:]))
    assert len(parts) > 2
    moments = sum(part.analyse(field[points]) for points, part in parts)
    torch.testing.assert_close(moments, whole.analyse(field), **EXACT)
    tokens = whole.tokens(moments)
    joined = torch.cat([part.synthesise(tokens) for _, part in parts])
    torch.testing.assert_close(joined, whole.synthesise(tokens), **EXACT)
