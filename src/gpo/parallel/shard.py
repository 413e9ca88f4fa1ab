"""The part of the sites that one of several processes holds, and sums over all of them."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh


class SpatialShard(ABC):
    """A part of all sites; those of other processes come before and after it."""

    is_whole = False
    """Whether there are no other processes."""

    @abstractmethod
    def sum(self, part: Tensor) -> Tensor:
        """Returns the sum over all processes; gradients flow back to all of them."""

    @abstractmethod
    def gathered(self, part: Tensor, dim: int) -> Tensor:
        """Concatenates the parts of all processes, without gradients.

        Args:
            part: Of the same shape everywhere but for the axis of sites.
            dim: The axis of sites.
        """

    @abstractmethod
    def with_neighbours(self, part: Tensor, reach: int, *, is_periodic: bool) -> Tensor:
        """Returns an array of all sites that is filled in for this process and within its reach.

        Gradients go back to where the sites are held.

        Args:
            part: What the sites of this process hold, sites first.
            reach: Number of sites before its first and after its last one that are exchanged.
            is_periodic: Whether the first site of all follows the last one.
        """

    @abstractmethod
    def starts(self, num_sites: int) -> list[int]:
        """Returns where the sites of every process begin among all, and last how many there are.

        Args:
            num_sites: How many are held here.
        """

    @property
    @abstractmethod
    def rank(self) -> int:
        """Which of the processes this one is."""


class SingleProcess(SpatialShard):
    """One process that holds all sites."""

    is_whole = True

    def sum(self, part: Tensor) -> Tensor:
        """Returns the same."""
        return part

    def gathered(self, part: Tensor, dim: int) -> Tensor:
        """Returns the same."""
        return part

    def with_neighbours(self, part: Tensor, reach: int, *, is_periodic: bool) -> Tensor:
        """Returns the same."""
        return part

    def starts(self, num_sites: int) -> list[int]:
        """Returns zero and how many there are."""
        return [0, num_sites]

    @property
    def rank(self) -> int:
        """Zero."""
        return 0


SINGLE_PROCESS = SingleProcess()


class DistributedShard(SpatialShard):
    """The part of one process in a group of them.

    The sum that all processes have counts once for each in the backward pass: a loss made of
    it, which is the same everywhere, gives gradients that, averaged over the group, are those
    of one process with all sites.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self.num_bytes = 0
        """Bytes that this process sent so far, forwards and backwards."""

    @property
    def rank(self) -> int:
        """Which of the processes this one is."""
        return dist.get_rank(self.group)

    @property
    def count(self) -> int:
        """How many processes there are."""
        return dist.get_world_size(self.group)

    def sum(self, part: Tensor) -> Tensor:
        """Returns the sum over all processes; gradients flow back to all of them."""
        return SumOfAll.apply(part, self)

    def gathered(self, part: Tensor, dim: int) -> Tensor:
        """Concatenates the parts of all processes, without gradients."""
        lengths = torch.diff(torch.tensor(self.starts(part.shape[dim]))).tolist()
        own = part.detach().transpose(0, dim).contiguous()
        longest = own.new_zeros(max(lengths), *own.shape[1:])
        longest[: len(own)] = own
        # Not every backend supports booleans.
        is_boolean = longest.dtype == torch.bool
        sent = longest.byte() if is_boolean else longest
        others = [torch.empty_like(sent) for _ in lengths]
        dist.all_gather(others, sent, group=self.group)
        whole = torch.cat([one[:length] for one, length in zip(others, lengths, strict=True)])
        return (whole.bool() if is_boolean else whole).transpose(0, dim)

    def with_neighbours(self, part: Tensor, reach: int, *, is_periodic: bool) -> Tensor:
        """Returns an array of all sites that is filled in for this process and within its reach."""
        starts = self.starts(len(part))
        return WithNeighbours.apply(part, self, Halo(starts, reach, is_periodic))

    def swapped(self, sent: dict[int, Tensor], received: dict[int, Tensor]) -> None:
        """Sends tensors to other processes and receives others from them, and counts bytes."""
        group = self.group
        operations = [
            dist.P2POp(action, tensor, dist.get_global_rank(group, rank), group)
            for action, parts in ((dist.isend, sent), (dist.irecv, received))
            for rank, tensor in parts.items()
        ]
        self.num_bytes += sum(part.numel() * part.element_size() for part in sent.values())
        for request in dist.batch_isend_irecv(operations) if operations else []:
            request.wait()

    def starts(self, num_sites: int) -> list[int]:
        """Returns where the sites of every process begin among all, and last how many there are."""
        device = "cuda" if dist.get_backend(self.group) == "nccl" else "cpu"
        own = torch.tensor([num_sites], device=device)
        counts = [torch.empty_like(own) for _ in range(self.count)]
        dist.all_gather(counts, own, group=self.group)
        return [0, *torch.cat(counts).cumsum(0).tolist()]

    def reduced(self, part: Tensor) -> Tensor:
        """Returns the sum over all processes as a new tensor, and counts its bytes."""
        whole = part.detach().clone(memory_format=torch.contiguous_format)
        self.num_bytes += whole.numel() * whole.element_size()
        dist.all_reduce(whole, group=self.group)
        return whole


class SumOfAll(torch.autograd.Function):
    """Adds up over processes, in both directions."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, shards: DistributedShard) -> Tensor:
        """Returns the sum of all parts."""
        ctx.shards = shards
        return shards.reduced(part)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        """Returns the sum of the gradients of all processes."""
        return ctx.shards.reduced(grads[0]), None


@dataclass(frozen=True)
class Halo:
    """The halo of a process: the sites of others that it needs."""

    starts: list[int]
    """Where the sites of every process begin, and last how many there are."""
    reach: int
    is_periodic: bool

    def rows(self, receiver: int, sender: int) -> Tensor:
        """Returns the sites of one process that another needs, as indices into those of the sender."""
        begin, end = self.starts[receiver : receiver + 2]
        sites = torch.arange(begin - self.reach, end + self.reach)
        sites = sites[: self.starts[-1] + 2 * self.reach]
        if self.is_periodic:
            sites = sites.remainder(self.starts[-1])
        first, last = self.starts[sender : sender + 2]
        return sites[(sites >= first) & (sites < last)].unique() - first


class WithNeighbours(torch.autograd.Function):
    """Receives the halo of a process, and returns its gradients."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, shard: DistributedShard, halo: Halo) -> Tensor:
        """Returns all sites; those that are out of reach are zero."""
        ctx.shard, ctx.halo, own_rank = shard, halo, shard.rank
        others = [rank for rank in range(shard.count) if rank != own_rank]
        sent = {
            rank: part[halo.rows(rank, own_rank).to(part.device)].contiguous() for rank in others
        }
        needed = {rank: halo.rows(own_rank, rank).to(part.device) for rank in others}
        received = {
            rank: part.new_empty(len(rows), *part.shape[1:]) for rank, rows in needed.items()
        }
        shard.swapped(*(_filled(parts) for parts in (sent, received)))
        whole = part.new_zeros(halo.starts[-1], *part.shape[1:])
        whole[halo.starts[own_rank] : halo.starts[own_rank + 1]] = part
        for rank, rows in needed.items():
            whole[halo.starts[rank] + rows] = received[rank]
        return whole

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        """Returns the gradients of all processes at the sites of this one."""
        (grad,), shard, halo, own_rank = grads, ctx.shard, ctx.halo, ctx.shard.rank
        others = [rank for rank in range(shard.count) if rank != own_rank]
        sent = {
            rank: grad[halo.starts[rank] + halo.rows(own_rank, rank).to(grad.device)].contiguous()
            for rank in others
        }
        rows = {rank: halo.rows(rank, own_rank).to(grad.device) for rank in others}
        received = {rank: grad.new_empty(len(one), *grad.shape[1:]) for rank, one in rows.items()}
        shard.swapped(*(_filled(parts) for parts in (sent, received)))
        own = grad[halo.starts[own_rank] : halo.starts[own_rank + 1]].clone()
        for rank, one in rows.items():
            own[one] += received[rank]
        return own, None, None


def _filled(parts: dict[int, Tensor]) -> dict[int, Tensor]:
    """Returns the parts that are not empty: only these are sent."""
    return {rank: part for rank, part in parts.items() if len(part)}


def join_neighbours(device: str, world_size: int, num_shards: int) -> DistributedShard:
    """Returns the shard of this process among those that share the sites of a sample.

    Args:
        device: Kind of device that tensors are on.
        world_size: All processes; those beside each other share sites, the others share batches.
        num_shards: How many share the sites of a sample.
    """
    shape = (world_size // num_shards, num_shards)
    mesh = init_device_mesh(device, shape, mesh_dim_names=("data", "space"))
    return DistributedShard(mesh.get_group("space"))


@contextmanager
def all_processes() -> Iterator[DistributedShard]:
    """Yields the shard of this process among all that `torchrun` started."""
    dist.init_process_group("gloo")
    assert dist.group.WORLD is not None
    try:
        yield DistributedShard(dist.group.WORLD)
    finally:
        dist.destroy_process_group()
