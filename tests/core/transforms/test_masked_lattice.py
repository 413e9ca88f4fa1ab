"""What particles sample on a masked grid."""

import pytest
import torch

from gpo import Domain
from gpo.transforms.lattice_fit import fit_lattice
from gpo.transforms.waves import Waves
from tests.conftest import make_model
from tests.core.transforms.test_masked_grid import GRIDS, MASKS, grids, masked_sites

DOUBLE = torch.double


def lattice_points(kind, mask):
    """Sites on the lattice of a masked grid, and which of them are active."""
    waves, positions, weights = masked_sites(kind, mask)
    coords, is_active = grids()[kind][1][None], weights > 0
    return fit_lattice(waves, 100, coords, positions, is_active), is_active[0]


def sample(points, content, displacement):
    """What every site samples of a field, given at all sites, through one particle."""
    nodes, weights = points.corners(displacement)
    at_nodes = points.lattice.interpolate(content.view(-1, 1, 1)).flatten()
    return (weights * at_nodes[nodes.long()]).sum(-1).flatten()


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("kind", GRIDS)
def test_a_masked_grid_is_its_own_lattice_and_masked_values_are_never_sampled(kind, mask):
    points, is_active = lattice_points(kind, mask)
    # A line without active sites is left out: along a single axis, every masked site.
    num_nodes = is_active.sum() if len(points.cells) == 1 else len(is_active)
    assert points.lattice.num_nodes == num_nodes
    assert points.lattice.has_nodes_at_sites
    content = torch.where(is_active, 0.7, 1e9).double()
    num_axes = len(points.cells)
    displacement = 0.3 * torch.randn(len(is_active), 1, 1, num_axes, dtype=DOUBLE)
    everywhere = sample(points, content, displacement)
    torch.testing.assert_close(everywhere, torch.full_like(everywhere, 0.7))
    content = torch.randn(len(is_active), dtype=DOUBLE)
    at_rest = sample(points, content, torch.zeros_like(displacement))
    assert torch.equal(at_rest[is_active], content[is_active])


def test_a_grid_from_south_to_north_is_interpolated_as_one_from_north_to_south():
    """Latitudes of a patch go down along their axis: nodes have other numbers than sites."""
    waves, positions, weights = masked_sites("patch", "land")
    coords, is_active = grids()["patch"][1][None], weights > 0
    order = torch.arange(14 * 19).view(14, 19).flip(0).flatten()
    down = fit_lattice(waves, 100, coords, positions, is_active)
    up = fit_lattice(waves, 100, coords[:, order], positions[:, order], is_active[:, order])
    assert up.lattice.stencil.nodes is not None
    content = torch.randn(14 * 19, 2, 3, dtype=DOUBLE)
    at_nodes = down.lattice.interpolate(content)
    torch.testing.assert_close(up.lattice.interpolate(content[order]), at_nodes)
    # So it is from the active sites alone, and for all nodes one by one.
    kept = is_active[0, order].nonzero().flatten()
    some = up.lattice.stencil.at_sites(kept)
    torch.testing.assert_close(some.interpolate(content[order][kept], 14 * 19), at_nodes)
    every = up.lattice.stencil.of_all(14 * 19)
    torch.testing.assert_close(every.interpolate(content[order], 14 * 19), at_nodes)


def test_a_gap_of_one_node_is_the_mean_of_its_neighbours():
    domain = Domain.unit_box(2, periodic=True)
    coords = domain.grid(8, 8)[0].double()
    waves, is_active = Waves.on(domain, (2, 2)), torch.ones(1, 64, dtype=torch.bool)
    # One gap inside, one whose neighbours are across both ends.
    is_active[0, [0, 8 * 3 + 4]] = False
    points = fit_lattice(waves, 64, coords[None], waves.positions(coords[None]), is_active)
    content = torch.randn(64, 1, 1, dtype=DOUBLE)
    at_nodes = points.lattice.interpolate(content).view(8, 8)
    field = content.view(8, 8)
    around = [field.roll(shift, axis) for shift in (1, -1) for axis in (0, 1)]
    mean = torch.stack(around).mean(0)
    torch.testing.assert_close(at_nodes[3, 4], mean[3, 4])
    torch.testing.assert_close(at_nodes[0, 0], mean[0, 0])


def test_across_a_straight_coast_particles_sample_the_coast():
    """There the kernel of the active nodes, whose weights add up to one, gives the same."""
    domain = Domain.unit_box(2)
    coords = domain.grid(9, 9)[0].double()
    waves, is_active = Waves.on(domain, (2, 2)), (coords[:, 0] < 0.55)[None]
    points = fit_lattice(waves, 81, coords[None], waves.positions(coords[None]), is_active)
    content, row = torch.randn(81, dtype=DOUBLE), torch.arange(81) // 9
    last = int(row[is_active[0]].max())
    displacement = torch.zeros(81, 1, 1, 2, dtype=DOUBLE)
    displacement[..., 0] = -0.37
    from_coast = sample(points, content, displacement)[row == last]
    torch.testing.assert_close(from_coast, content[row == last])


def test_samples_with_different_gaps_are_interpolated_each_on_its_own():
    domain = Domain.unit_box(2, periodic=True)
    model = make_model(domain, variant="waves", num_waves=2)
    coords, weights = (part.double() for part in domain.grid(6, 7))
    weights = weights.repeat(2, 1)
    weights[0, 5], weights[1, [11, 12]] = 0, 0
    values = torch.randn(2, 42, 2, dtype=DOUBLE)
    together = model(values, coords, weights=weights)
    for sample in range(2):
        alone = model(values[sample : sample + 1], coords, weights=weights[sample])[0]
        active = weights[sample] > 0
        torch.testing.assert_close(together[sample, active], alone[active])
