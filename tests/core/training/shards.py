"""Run as torchrun runs it: a model whose sites several processes share is the model with all sites.

Every process makes the same model and field, and compares its part with the whole.
"""

import math

import torch
import torch.distributed as dist

from gpo import Ablation, Domain, relative_l2
from gpo.execution import execution
from gpo.execution.recompute import Keeps
from gpo.model.losses import LossWeights, operator_losses
from gpo.parallel.shard import SINGLE_PROCESS, DistributedShard
from tests.conftest import DOMAINS, make_model, random_points

CLOSE = {"rtol": 1e-8, "atol": 1e-10}


def cut(tensor, rank, count):
    """The sites of one process; processes hold unequal parts."""
    num_sites = tensor.shape[1]
    ends = [0, *(num_sites * (part + 1) // count - part for part in range(count - 1)), num_sites]
    return tensor[:, ends[rank] : ends[rank + 1]]


def averaged(gradients):
    """The mean over processes, which is what data-parallel training takes."""
    for gradient in gradients:
        dist.all_reduce(gradient)
        gradient /= dist.get_world_size()
    return gradients


def compare(model, values, coords, weights, queries):
    """Compares answers at sites, at queries, losses and gradients."""
    rank, count = dist.get_rank(), dist.get_world_size()
    target = torch.randn_like(values[..., :1]).expand(-1, -1, model.problem.out_channels)
    parameters = list(model.parameters())

    def outcome(shard, part):
        model.execution.shard = shard
        given = [part(one) for one in (values, coords, weights)]
        losses = operator_losses(
            model, given[0], given[1], part(target), weights=given[2], loss_weights=LossWeights()
        )
        gradients = list(torch.autograd.grad(losses["total"], parameters, allow_unused=True))
        gradients = [torch.zeros_like(p) if g is None else g
                     for p, g in zip(parameters, gradients, strict=True)]  # fmt: skip
        with torch.no_grad():
            field = model(given[0], given[1], weights=given[2])
            asked = model(given[0], given[1], weights=given[2], queries=queries)
            error = relative_l2(field, part(target), given[2], shard)
        return field, asked, error, losses, gradients

    whole = outcome(SINGLE_PROCESS, lambda tensor: tensor)
    shared = outcome(DistributedShard(dist.group.WORLD), lambda tensor: cut(tensor, rank, count))
    torch.testing.assert_close(shared[0], cut(whole[0], rank, count), **CLOSE)
    torch.testing.assert_close(shared[1], whole[1], **CLOSE)
    torch.testing.assert_close(shared[2], whole[2], **CLOSE)
    torch.testing.assert_close(shared[3], whole[3], **CLOSE)
    for one, other in zip(averaged(shared[4]), whole[4], strict=True):
        torch.testing.assert_close(one, other, **CLOSE)


def main():
    """Goes through domains, variants, grids, masks and what is kept."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    for keeps in Keeps:
        execution.choose_kept = lambda sizes, values, keeps=keeps: keeps
        for name, domain in DOMAINS.items():
            # Two processes meet on a domain as three do, and three hold unequal parts of it.
            is_rest = keeps != Keeps.ALL or dist.get_world_size() == 2
            if is_rest and name not in ("torus", "patch"):
                continue
            for variant in ("paper", "geometric"):
                model = make_model(domain, variant=variant, num_waves=2)
                model.execution.chunk_size = None if keeps == Keeps.ALL else 20
                weights = torch.rand(2, 30, dtype=torch.double) + 0.1
                weights[:, ::4] = 0
                points = random_points(domain, 2, 30), weights, random_points(domain, 2, 9)
                compare(model, torch.randn(2, 30, 2, dtype=torch.double), *points)
    grids()
    meshes()
    borders()
    chunks_of_queries()
    counts_bytes()
    dist.destroy_process_group()


def grids():
    """SingleProcess lines of a grid stay a grid; parts of lines are points."""
    axes = [torch.arange(count, dtype=torch.double) / count for count in (6, 5)]
    coords = torch.cartesian_prod(*axes).expand(2, -1, -1)
    queries = torch.rand(2, 7, 2, dtype=torch.double)
    values, weights = torch.randn(2, 30, 2, dtype=torch.double), torch.ones(2, 30).double()
    model = make_model(DOMAINS["torus"], variant="geometric", num_waves=2)
    compare(model, values, coords, weights, queries)
    weights[:, [3, 7, 8, 19]] = 0
    compare(model, values, coords, weights, queries)


def meshes():
    """Waves that follow a fitted mesh know which of its nodes are here."""
    model = make_model(Domain.unit_box(2), variant="geometric", num_waves=2, mesh_shape=(6, 5))
    coords = torch.rand(2, 30, 2, dtype=torch.double)
    values, weights = torch.randn(2, 30, 2, dtype=torch.double), torch.ones(2, 30).double()
    compare(model, values, coords, weights, coords[:, 3:8] + 0.01)


def borders():
    """Of a grid, what travels grows with the border between processes, not with the sites."""
    spent = []
    for lines in (48, 192):
        model = make_model(DOMAINS["torus"], variant="geometric", num_waves=2, reach=0.5 / lines)
        # Kernels reach over as many lines, too.
        model.layers[-1].log_scale.data.fill_(math.log(0.5 / lines))
        coords = torch.cartesian_prod(
            torch.arange(lines, dtype=torch.double) / lines, torch.arange(6, dtype=torch.double) / 6
        )
        shard = model.execution.shard = DistributedShard(dist.group.WORLD)
        part = cut(coords[None], dist.get_rank(), dist.get_world_size())
        values = torch.randn(1, part.shape[1], 2, dtype=torch.double)
        for _ in range(2):
            before = shard.num_bytes
            model(values, part).sum().backward()
        spent.append(shard.num_bytes - before)
    assert spent[1] < 1.1 * spent[0], spent


class CountingShard(DistributedShard):
    """Counts how often it fetches a lattice."""

    num_fetched = 0

    def with_neighbours(self, *arguments, **settings):
        self.num_fetched += 1
        return super().with_neighbours(*arguments, **settings)


def chunks_of_queries():
    """A lattice is fetched once for the sites, and once for all queries."""
    lines = torch.arange(48, dtype=torch.double) / 48
    coords = torch.cartesian_prod(lines, lines[::8])
    part = cut(coords[None], dist.get_rank(), dist.get_world_size())
    values, queries = torch.randn(1, part.shape[1], 2).double(), torch.rand(9, 2).double()
    model = make_model(DOMAINS["torus"], variant="geometric", num_waves=2)
    model.execution.chunk_size = 3
    shard = model.execution.shard = CountingShard(dist.group.WORLD)
    model(values, part, queries=queries).sum().backward()
    assert shard.num_fetched == 2, shard.num_fetched


def counts_bytes():
    """What travels does not depend on the number of sites."""
    for variant in ("paper", "geometric"):
        model, spent = make_model(DOMAINS["torus"], variant=variant, num_waves=2), []
        for num_sites in (40, 4000):
            shards = DistributedShard(dist.group.WORLD)
            model.execution.shard = shards
            values = torch.randn(1, num_sites, 2, dtype=torch.double)
            coords = torch.rand(1, num_sites, 2, dtype=torch.double)
            for _ in range(2):
                before = shards.num_bytes
                model(values, coords).sum().backward()
            spent.append(shards.num_bytes - before)
        assert spent[0] == spent[1] > 0, spent
    ablation = Ablation(layers=frozenset({0}))
    with ablation.applied(model):
        assert model(values, coords).isfinite().all()


if __name__ == "__main__":
    main()
