import numpy as np
import pytest
import torch
from torch.nn.functional import gelu

from gpo import Domain
from gpo.model.problem import Problem, UnsupportedGeometryError
from gpo_bench.baselines.base import to_grid
from gpo_bench.baselines.m2no import (
    M2NO,
    M2NOConfig,
    Transfer,
    VCycle,
    low_pass_filters,
    transfer_matrix,
)

SQUARE = Domain.unit_box(2)


@pytest.mark.parametrize(("num_cycles", "count"), [(2, 6_945_025), (5, 17_336_833)])
def test_the_counts_are_the_published_ones(num_cycles, count):
    with torch.device("meta"):
        model = M2NO(Problem(1, 1, SQUARE, (64, 64)), M2NOConfig(num_cycles=num_cycles))
    assert sum(part.numel() for part in model.parameters()) == count


@pytest.mark.parametrize(
    ("rows", "columns", "sweeps"),
    [
        (8, 8, (1, 1, 2)),
        (128, 128, (1, 1, 2, 2, 2, 3)),
        (256, 512, (1, 1, 2, 2, 2, 3)),
        (384, 128, (1, 1, 2, 2, 2, 3)),
        (24, 10, (1,)),
    ],
)
def test_the_grid_decides_how_many_levels_there_are(rows, columns, sweeps):
    with torch.device("meta"):
        model = M2NO(Problem(4, 3, SQUARE, (rows, columns)))
    norms = 2 * 128 * sum((rows >> level) * (columns >> level) for level in range(len(sweeps)))
    cycle = (9 * 128**2 + 128) * (3 + sum(sweeps)) + norms
    ends = (6 * 128 + 128) + (128 * 128 + 128) + (128 * 3 + 3)
    assert sum(part.numel() for part in model.parameters()) == ends + 2 * cycle


def test_the_filters_of_two_polynomials_have_their_known_values():
    left, right = low_pass_filters(2)
    half, slope, small = 2**-0.5, 6**0.5 / 4, 2**0.5 / 4
    np.testing.assert_allclose(left, [[half, 0], [-slope, small]], atol=1e-14)
    np.testing.assert_allclose(right, [[half, 0], [slope, small]], atol=1e-14)


@pytest.mark.parametrize("order", [1, 3, 4, 8])
def test_the_rows_of_the_transfer_matrix_are_orthonormal(order):
    matrix = transfer_matrix(order)
    assert matrix.shape == (order**2, 4 * order**2)
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(order**2), atol=1e-13)


@pytest.mark.parametrize("spatial_2x2", [False, True])
def test_restriction_undoes_prolongation_and_is_its_transpose(spatial_2x2):
    transfer = Transfer(3, 2, spatial_2x2)
    coarse = torch.randn(2, 18, 4, 6, dtype=torch.float64)
    fine = torch.randn(2, 18, 8, 12, dtype=torch.float64)
    torch.testing.assert_close(transfer.restrict(transfer.prolong(coarse)), coarse)
    torch.testing.assert_close(
        (transfer.restrict(fine) * coarse).sum(), (fine * transfer.prolong(coarse)).sum()
    )


def test_restricting_squares_projects_polynomials_exactly():
    order, power = 3, (2, 1)
    nodes, weights = np.polynomial.legendre.leggauss(8)
    nodes, weights = (nodes + 1) / 2, weights / 2
    functions = np.polynomial.legendre.legvander(2 * nodes - 1, order - 1)
    functions = functions * np.sqrt(2 * np.arange(order) + 1)

    def coefficients(num_cells):
        """Of x² y: for every cell the integrals against its scaled scaling functions."""
        cells = (np.arange(num_cells)[:, None] + nodes) / num_cells
        rows, columns = (
            np.einsum("cq,q,qi->ci", cells**exponent, weights, functions) / num_cells**0.5
            for exponent in power
        )
        both = np.einsum("ri,cj->ijrc", rows, columns).reshape(-1, num_cells, num_cells)
        return torch.from_numpy(both).unsqueeze(0)

    coarse = Transfer(order, 1, spatial_2x2=True).restrict(coefficients(8))
    torch.testing.assert_close(coarse, coefficients(4))


def test_the_released_restriction_collects_four_consecutive_cells():
    transfer = Transfer(2, 2, spatial_2x2=False)
    for cell in range(64):
        field = torch.zeros(1, 8, 64, dtype=torch.float64)
        field[:, :, cell] = torch.randn(8, dtype=torch.float64)
        coarse = transfer.restrict(field.view(1, 8, 8, 8)).flatten(2).abs().sum(1)
        assert coarse.nonzero()[:, 1].tolist() == [cell // 4]


@pytest.mark.parametrize("shape", [(4, 4), (4, 12)])
def test_a_v_cycle_is_the_straight_line_of_its_specification(shape):
    transfer = Transfer(2, 1, spatial_2x2=False)
    cycle = VCycle(4, shape, (1, 3), transfer).double()
    for norm in cycle.norms:
        torch.nn.init.normal_(norm.weight)
        torch.nn.init.normal_(norm.bias)
    forcing = torch.randn(2, 4, *shape, dtype=torch.float64)

    def convolve(layer, field):
        total = layer.bias.view(1, -1, 1, 1)
        for row in range(3):
            for column in range(3):
                shifted = field.roll((1 - row, 1 - column), (2, 3))
                total = total + torch.einsum(
                    "oi,bihw->bohw", layer.weight[:, :, row, column], shifted
                )
        return total

    def layer_norm(norm, field):
        mean = field.mean((1, 2, 3), keepdim=True)
        spread = (field - mean).square().mean((1, 2, 3), keepdim=True) + 1e-5
        return (field - mean) / spread.sqrt() * norm.weight + norm.bias

    fine = convolve(cycle.before, forcing)
    middle = convolve(cycle.smoothers[0][0], transfer.restrict(fine))
    below = transfer.restrict(middle)
    coarse = convolve(cycle.smoothers[1][0], below)
    for smoother in cycle.smoothers[1][1:]:
        coarse = coarse + convolve(smoother, below - convolve(cycle.operator, coarse))
    middle = layer_norm(cycle.norms[1], middle + transfer.prolong(coarse))
    fine = layer_norm(cycle.norms[0], fine + transfer.prolong(middle))
    expected = fine + convolve(cycle.after, forcing - convolve(cycle.operator, fine))
    torch.testing.assert_close(cycle(forcing), expected)


def test_cycles_have_a_gelu_between_them_and_none_behind():
    model = M2NO(Problem(1, 2, SQUARE, (8, 8)), M2NOConfig(order=2, multiplicity=1)).double()
    values = torch.randn(2, 64, 1, dtype=torch.float64)
    index = torch.cartesian_prod(*[torch.linspace(0, 1, 8, dtype=torch.float64)] * 2).expand(
        2, 64, 2
    )
    hidden = to_grid(model.lift(torch.cat([values, index], dim=-1)), (8, 8))
    hidden = model.cycles[1](gelu(model.cycles[0](hidden)))
    first, _, last = model.project
    expected = last(gelu(first(hidden.flatten(2).mT)))
    torch.testing.assert_close(model(values, SQUARE.grid(8, 8)[0].double()), expected)


def test_masked_sites_are_zeros():
    model = M2NO(Problem(1, 1, SQUARE, (4, 4)), M2NOConfig(order=2, multiplicity=1)).double()
    values = torch.randn(2, 16, 1, dtype=torch.float64)
    weights = torch.ones(16, dtype=torch.float64)
    weights[3:7] = 0
    coords = SQUARE.grid(4, 4)[0].double()
    emptied, spoiled = values.clone(), values.clone()
    emptied[:, 3:7], spoiled[:, 3:7] = 0, torch.nan
    assert torch.equal(model(spoiled, coords, weights=weights), model(emptied, coords))


@pytest.mark.parametrize(
    ("grid_shape", "reason"),
    [
        ((), "needs a 2-D grid; its authors have no 3-D version"),
        ((8,), "needs a 2-D grid; its authors have no 3-D version"),
        ((8, 8, 8), "needs a 2-D grid; its authors have no 3-D version"),
        ((721, 1440), "needs grid sizes that are multiples of 2, such as 720 x 1440"),
        ((1, 1), "needs grid sizes that are multiples of 2, such as 2 x 2"),
    ],
)
def test_other_sites_are_refused_with_the_reason(grid_shape, reason):
    with pytest.raises(UnsupportedGeometryError, match=f"^{reason}$"):
        M2NO(Problem(1, 1, SQUARE, grid_shape))
