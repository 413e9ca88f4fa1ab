"""What a process holds of the sites when several share them, and how their sums are made one."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
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
        """Returns the sum of what all processes have; gradients go back to all of them."""

    @abstractmethod
    def gathered(self, part: Tensor, dim: int) -> Tensor:
        """Returns what all processes have, one after the other, without gradients.

        Args:
            part: Of the same shape everywhere but for the axis of sites.
            dim: The axis of sites.
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
        """What this process handed over to be summed so far, forwards and backwards."""

    @property
    def rank(self) -> int:
        """Which of the processes this one is."""
        return dist.get_rank(self.group)

    @property
    def count(self) -> int:
        """How many processes there are."""
        return dist.get_world_size(self.group)

    def sum(self, part: Tensor) -> Tensor:
        """Returns the sum of what all processes have; gradients go back to all of them."""
        return SumOfAll.apply(part, self)

    def gathered(self, part: Tensor, dim: int) -> Tensor:
        """Returns what all processes have, one after the other, without gradients."""
        lengths = torch.diff(torch.tensor(self.starts(part.shape[dim]))).tolist()
        mine = part.detach().transpose(0, dim).contiguous()
        longest = mine.new_zeros(max(lengths), *mine.shape[1:])
        longest[: len(mine)] = mine
        # Not every backend knows truth values.
        is_claim = longest.dtype == torch.bool
        sent = longest.byte() if is_claim else longest
        others = [torch.empty_like(sent) for _ in lengths]
        dist.all_gather(others, sent, group=self.group)
        whole = torch.cat([one[:length] for one, length in zip(others, lengths, strict=True)])
        return (whole.bool() if is_claim else whole).transpose(0, dim)

    def starts(self, num_sites: int) -> list[int]:
        """Returns where the sites of every process begin among all, and last how many there are."""
        device = "cuda" if dist.get_backend(self.group) == "nccl" else "cpu"
        mine = torch.tensor([num_sites], device=device)
        counts = [torch.empty_like(mine) for _ in range(self.count)]
        dist.all_gather(counts, mine, group=self.group)
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
        """Returns the sum of what all processes want changed."""
        return ctx.shards.reduced(grads[0]), None


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
