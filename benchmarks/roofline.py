"""The least time that a processor needs for the work of a model, from its two measured speeds.

Matrix products are counted in operations, everything else in bytes that are read and written.
Both take their time one after the other, as they do where a library call does one thing.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

WITHOUT_WORK = ("empty", "empty_like", "new_empty", "empty_strided", "_unsafe_view", "alias")
"""Operations that touch no number, beside views."""


@dataclass(frozen=True)
class Machine:
    """How fast one thread is here."""

    flops: float
    """Operations per second in a product of large matrices."""
    bandwidth: float
    """Bytes per second, read or written, in a copy that no cache holds."""

    @classmethod
    def measured(cls) -> "Machine":
        """Measures both, each the best of several times."""
        size, length = 1536, 2**26
        one, other = torch.randn(size, size), torch.randn(size, size)
        product = torch.empty(size, size)
        source, copy = torch.randn(length), torch.empty(length)
        return cls(
            flops=2 * size**3 / _shortest(lambda: torch.mm(one, other, out=product)),
            bandwidth=8 * length / _shortest(lambda: copy.copy_(source)),
        )


@dataclass(frozen=True)
class Work:
    """What is to be done."""

    flops: int
    """Operations in matrix products; a multiplication and an addition are two."""
    num_bytes: int
    """Read and written by everything else."""

    @classmethod
    def of(cls, step: Callable[[], Any]) -> "Work":
        """Counts the work of one call."""
        with CountingMode() as counted:
            step()
        return cls(counted.flops, counted.num_bytes)

    def seconds(self, machine: Machine) -> float:
        """Returns the least time it takes."""
        return self.flops / machine.flops + self.num_bytes / machine.bandwidth


class CountingMode(TorchDispatchMode):
    """Looks at every operation that is carried out, those of the backward pass too."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = self.num_bytes = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Carries out an operation and counts it."""
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        packet = func._overloadpacket
        if packet in flop_registry:
            self.flops += flop_registry[packet](*args, **kwargs, out_val=out)
        elif not func.is_view and packet.__name__ not in WITHOUT_WORK:
            tensors = [
                leaf for leaf in tree_leaves((args, kwargs, out)) if isinstance(leaf, Tensor)
            ]
            self.num_bytes += sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        return out


def _shortest(call: Callable[[], Any], repeats: int = 8) -> float:
    seconds: list[float] = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        seconds.append(time.process_time() - start)
    return min(seconds)
