"""Means over examples that come in batches, and on several processes, of unequal size."""

import torch
from lightning.pytorch.strategies import Strategy
from torch import Tensor


class ExampleMeans:
    """Adds up numbers by name; Lightning's own means cost a step of a small model a tenth of its time."""

    def __init__(self) -> None:
        self._names: tuple[str, ...] = ()
        self._sums: Tensor | float = 0.0

    def add(self, values: dict[str, Tensor], num_examples: int) -> None:
        """Counts the means of a batch, the same names every time."""
        self._names = tuple(values)
        row = torch.stack([*values.values(), next(iter(values.values())).new_ones(())])
        self._sums = self._sums + num_examples * row.detach()

    def of_all(self, strategy: Strategy) -> dict[str, Tensor]:
        """Returns the means over the examples of all processes."""
        sums = strategy.reduce(self._sums, reduce_op="sum")
        assert isinstance(sums, Tensor)
        return dict(zip(self._names, sums[:-1] / sums[-1], strict=True))
