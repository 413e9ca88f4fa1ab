r"""Weighted sums of rows of a table, $s_n=\sum_kw_{nk}\,c_{i_{nk}}$, with a backward pass of its own.

Many chunks read one table. Each adds to the same gradient, so that the cost of a chunk does not grow
with the table.
"""

import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.sparse import csc_array
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding_bag

LARGEST_INT32 = 2**31 - 1
"""The largest number that indices of 32 bits can hold."""


@dataclass(frozen=True)
class RowTable:
    """A table of rows from which several functions read."""

    link: Float[Tensor, ""]
    """A zero that connects readers with the rows in the autograd graph."""
    store: "_Store"

    @classmethod
    def of(cls, field: Float[Tensor, "*shape"]) -> "RowTable":
        """Makes a table of a tensor; the length of rows is set by the reader."""
        if torch.compiler.is_compiling():
            # A compiled graph cannot hold the shared gradient.
            return cls(field.new_zeros(()), _Store(field))
        store = _Store(field.detach())
        return cls(_Shared.apply(field, store), store)

    def sample(
        self,
        nodes: Int[Tensor, "points batch gaussians corners"],
        weights: Float[Tensor, "points batch gaussians corners"],
    ) -> Float[Tensor, "points batch channels"]:
        """Returns weighted sums of nodes of a field that has axes (nodes, batch, channels).

        Args:
            nodes: The nodes that every Gaussian sums; channels are divided among the Gaussians.
            weights: The coefficient of each.
        """
        _, batch, channels = self.store.field.shape
        gaussians, corners = nodes.shape[2:]
        if torch.compiler.is_compiling() or self.store.field.numel() > LARGEST_INT32:
            nodes = nodes.long()
        own = torch.arange(batch * gaussians, dtype=nodes.dtype, device=nodes.device)
        index = nodes * (batch * gaussians) + own.view(batch, gaussians, 1)
        index, weights = index.view(-1, corners), weights.reshape(-1, corners)
        sampled = self.weighted(index, weights, channels // gaussians)
        return sampled.view(*nodes.shape[:2], channels)

    def weighted(
        self,
        index: Int[Tensor, "readers taps"],
        weights: Float[Tensor, "readers taps"],
        channels: int,
    ) -> Float[Tensor, "readers channels"]:
        """Returns the weighted sum of some rows for every reader.

        Args:
            index: Which rows.
            weights: How much each of them counts.
            channels: Numbers in a row.
        """
        rows = self.store.field.view(-1, channels)
        if torch.compiler.is_compiling():
            gathered = rows.index_select(0, index.flatten()).unflatten(0, index.shape)
            return (gathered * weights.unsqueeze(-1)).sum(1)
        if len(rows) <= LARGEST_INT32:
            # Sums of rows that 32 bits can number take a fifth of the time.
            index = index.to(torch.int32)
        return _Weighted.apply(self.link, self.store, index, weights.contiguous(), channels)


class _Store:
    """The field of a table and, during a backward pass, its gradient."""

    def __init__(self, field: Tensor) -> None:
        self.field = field.contiguous()
        self.gradient: Tensor | None = None

    def add_gradient(self, index: Tensor, weights: Tensor, grad: Tensor) -> None:
        """Adds the gradient of a reader to that of the rows it read."""
        if self.gradient is None:
            # Accumulated in single precision at least.
            dtype = torch.promote_types(self.field.dtype, torch.float32)
            self.gradient = torch.zeros_like(self.field, dtype=dtype)
        by_rows = self.gradient.view(-1, grad.shape[1])
        if grad.device.type != "cpu":
            for column, weight in zip(index.unbind(1), weights.unbind(1), strict=True):
                by_rows.index_add_(0, column, (grad * weight.unsqueeze(-1)).to(by_rows))
            return
        # The product with a sparse matrix that has a column per reader: a tenth of the time.
        first = int(index.min())
        shape = int(index.max()) + 1 - first, len(index)
        starts = np.arange(0, index.numel() + 1, index.shape[1], dtype=np.int32)
        parts = weights.to(by_rows).flatten().numpy(), (index - first).flatten().numpy(), starts
        product = csc_array(parts, shape=shape) @ grad.to(by_rows).numpy()
        by_rows[first : first + shape[0]].add_(torch.from_numpy(product))


class _Shared(torch.autograd.Function):
    """Connects a table with its readers in the autograd graph."""

    @staticmethod
    def forward(ctx: Any, field: Tensor, store: _Store) -> Tensor:
        """Returns the link, an input of every reader."""
        ctx.store = store
        return field.new_zeros(())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Returns the gradient of the field, to which all readers have added."""
        gradient, ctx.store.gradient = ctx.store.gradient, None
        return None if gradient is None else gradient.to(ctx.store.field), None


class _Weighted(torch.autograd.Function):
    """One reader of a table."""

    @staticmethod
    def forward(
        ctx: Any, link: Tensor, store: _Store, index: Tensor, weights: Tensor, channels: int
    ) -> Tensor:
        """Returns the weighted sums."""
        ctx.store, ctx.channels = store, channels
        ctx.save_for_backward(index, weights)
        rows = store.field.view(-1, channels)
        return embedding_bag(index, rows, per_sample_weights=weights.to(rows), mode="sum")

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *grads: Tensor
    ) -> tuple[Tensor | None, None, None, Tensor | None, None]:
        r"""Adds $w_{nk}\dot s_n$ to the rows, and returns $\dot w_{nk}=\dot s_n\cdot c_{i_{nk}}$."""
        store: _Store = ctx.store
        index, weights = ctx.saved_tensors
        rows = store.field.view(-1, ctx.channels)
        grad, by_link, by_weights = grads[0].contiguous(), None, None
        if ctx.needs_input_grad[0]:
            by_link = grad.new_zeros(())
            store.add_gradient(index, weights, grad)
        if ctx.needs_input_grad[3]:
            by_weights = _row_products(rows, index, grad.to(rows)).to(weights)
        return by_link, None, None, by_weights, None


def _row_products(
    rows: Float[Tensor, "rows channels"],
    index: Int[Tensor, "readers taps"],
    grad: Float[Tensor, "readers channels"],
) -> Float[Tensor, "readers taps"]:
    """Returns the products of the gradient of every reader with the rows it read."""
    if rows.device.type != "cpu" or rows.dtype not in (torch.float32, torch.float64):
        # Sums of one row each are gathered faster than rows by an index.
        columns = (column.unsqueeze(-1).contiguous() for column in index.unbind(1))
        gathered = (embedding_bag(column, rows, mode="sum") for column in columns)
        return torch.stack([(row * grad).sum(-1) for row in gathered], dim=-1)
    # The entries of a matrix product where a sparse matrix has entries: a quarter of the time.
    starts = torch.arange(0, index.numel() + 1, index.shape[1], dtype=index.dtype)
    _expect_sparse_matrices()
    pattern = torch.sparse_csr_tensor(
        starts, index.flatten(), grad.new_zeros(index.numel()),
        size=(len(index), len(rows)), check_invariants=False,
    )  # fmt: skip
    return torch.sparse.sampled_addmm(pattern, grad, rows.t(), beta=0.0).values().view(index.shape)


@cache
def _expect_sparse_matrices() -> None:
    """Makes a first sparse matrix: torch warns once in a process that they are in beta state."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        torch.eye(1).to_sparse_csr()
