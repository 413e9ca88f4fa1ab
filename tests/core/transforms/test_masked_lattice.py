"""What particles see of a grid behind a mask."""

import pytest
import torch

from gpo import Domain
from gpo.transforms.lattice_fit import fit_lattice
from gpo.transforms.waves import Waves
from tests.conftest import make_model
from tests.core.transforms.test_masked_grid import GRIDS, MASKS, grids, masked_sites

DOUBLE = torch.double


def lattice_points(kind, mask):
    """Sites on the lattice of a masked grid, and which of them count."""
    waves, positions, weights = masked_sites(kind, mask)
    coords, is_counted = grids()[kind][1][None], weights > 0
    return fit_lattice(waves, 100, coords, positions, is_counted), is_counted[0]


def seen(points, content, displacement):
    """What every site sees of content, a number at every site, through one particle."""
    nodes, weights = points.corners(displacement)
    laid = points.lattice.lay(content.view(-1, 1, 1)).flatten()
    return (weights * laid[nodes.long()]).sum(-1).flatten()


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("kind", GRIDS)
def test_a_masked_grid_is_its_own_lattice_and_nobody_sees_what_is_masked(kind, mask):
    points, is_counted = lattice_points(kind, mask)
    # A line without any site that counts is none: along a single axis, every masked site.
    num_nodes = is_counted.sum() if len(points.cells) == 1 else len(is_counted)
    assert points.lattice.num_nodes == num_nodes
    assert points.lattice.holds_sites
    content = torch.where(is_counted, 0.7, 1e9).double()
    num_axes = len(points.cells)
    displacement = 0.3 * torch.randn(len(is_counted), 1, 1, num_axes, dtype=DOUBLE)
    everywhere = seen(points, content, displacement)
    torch.testing.assert_close(everywhere, torch.full_like(everywhere, 0.7))
    content = torch.randn(len(is_counted), dtype=DOUBLE)
    at_rest = seen(points, content, torch.zeros_like(displacement))
    assert torch.equal(at_rest[is_counted], content[is_counted])


def test_a_grid_from_south_to_north_is_laid_as_one_from_north_to_south():
    """Latitudes of a patch go down along their axis: nodes have other numbers than sites."""
    waves, positions, weights = masked_sites("patch", "land")
    coords, is_counted = grids()["patch"][1][None], weights > 0
    order = torch.arange(14 * 19).view(14, 19).flip(0).flatten()
    down = fit_lattice(waves, 100, coords, positions, is_counted)
    up = fit_lattice(waves, 100, coords[:, order], positions[:, order], is_counted[:, order])
    assert up.lattice.sources.nodes is not None
    content = torch.randn(14 * 19, 2, 3, dtype=DOUBLE)
    laid = down.lattice.lay(content)
    torch.testing.assert_close(up.lattice.lay(content[order]), laid)
    # So it is of the sites that count alone, and of all nodes one by one.
    kept = is_counted[0, order].nonzero().flatten()
    some = up.lattice.sources.at_sites(kept)
    torch.testing.assert_close(some.lay(content[order][kept], 14 * 19), laid)
    every = up.lattice.sources.of_all(14 * 19)
    torch.testing.assert_close(every.lay(content[order], 14 * 19), laid)


def test_a_gap_of_one_node_is_the_mean_of_its_neighbours():
    domain = Domain.unit_box(2, periodic=True)
    coords = domain.grid(8, 8)[0].double()
    waves, is_counted = Waves.on(domain, (2, 2)), torch.ones(1, 64, dtype=torch.bool)
    # One gap inside, one whose neighbours are across both ends.
    is_counted[0, [0, 8 * 3 + 4]] = False
    points = fit_lattice(waves, 64, coords[None], waves.positions(coords[None]), is_counted)
    content = torch.randn(64, 1, 1, dtype=DOUBLE)
    laid = points.lattice.lay(content).view(8, 8)
    field = content.view(8, 8)
    around = [field.roll(shift, axis) for shift in (1, -1) for axis in (0, 1)]
    mean = torch.stack(around).mean(0)
    torch.testing.assert_close(laid[3, 4], mean[3, 4])
    torch.testing.assert_close(laid[0, 0], mean[0, 0])


def test_across_a_straight_coast_particles_see_the_coast():
    """There the hat of the nodes that count, whose weights add up to one, gives the same."""
    domain = Domain.unit_box(2)
    coords = domain.grid(9, 9)[0].double()
    waves, is_counted = Waves.on(domain, (2, 2)), (coords[:, 0] < 0.55)[None]
    points = fit_lattice(waves, 81, coords[None], waves.positions(coords[None]), is_counted)
    content, row = torch.randn(81, dtype=DOUBLE), torch.arange(81) // 9
    last = int(row[is_counted[0]].max())
    displacement = torch.zeros(81, 1, 1, 2, dtype=DOUBLE)
    displacement[..., 0] = -0.37
    from_coast = seen(points, content, displacement)[row == last]
    torch.testing.assert_close(from_coast, content[row == last])


def test_samples_that_differ_in_their_gaps_are_each_laid_on_their_own():
    domain = Domain.unit_box(2, periodic=True)
    model = make_model(domain, variant="geometric", num_waves=2)
    coords, weights = (part.double() for part in domain.grid(6, 7))
    weights = weights.repeat(2, 1)
    weights[0, 5], weights[1, [11, 12]] = 0, 0
    values = torch.randn(2, 42, 2, dtype=DOUBLE)
    together = model(values, coords, weights=weights)
    for sample in range(2):
        alone = model(values[sample : sample + 1], coords, weights=weights[sample])[0]
        counted = weights[sample] > 0
        torch.testing.assert_close(together[sample, counted], alone[counted])
