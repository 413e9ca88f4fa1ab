r"""The skeleton of the transformers among the baselines: sizes, tokens, blocks, initial weights.

All five make a token of every site and send tokens through blocks of attention and perceptron.
Where attention has no matrix between points, as in the Galerkin Transformer and GNOT, it is
$O = Q(K^\top V)/\nu + Q$ in every head, with $Q$ and $K$ passed through a softmax over their
*features*. The product in brackets is as small as a head, so the cost is linear in points.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from gpo.model.problem import Problem
from gpo_bench.baselines.base import AbstractBaseline, Perceptron, check_heads, check_sizes

INITIAL_STD = 0.02
"""Standard deviation of every Linear weight at the start."""


@dataclass(frozen=True, kw_only=True)
class AbstractTransformerConfig:
    """Sizes that every transformer has; each has a configuration of its own with these and others."""

    width: int = 128
    """Channels of a token."""
    num_layers: int = 8
    """Blocks."""
    num_heads: int = 8
    """Heads of every attention, which share the width."""
    mlp_ratio: int = 2
    """Hidden width of the perceptrons in a block over `width`."""

    def __post_init__(self) -> None:
        check_sizes(self)
        check_heads(self.width, self.num_heads)

    @property
    def hidden(self) -> int:
        """Hidden width of the perceptrons in a block."""
        return self.mlp_ratio * self.width

    @property
    def head_shape(self) -> tuple[int, int]:
        """Heads, and channels of one head."""
        return self.num_heads, self.width // self.num_heads


class AbstractTransformer(AbstractBaseline):
    """One stream of tokens: lift, blocks, readout.

    Args:
        problem: The data it is built for.
        config: Its sizes.
        make_block: Builds a block, which takes tokens and `is_counted` and returns tokens.
    """

    def __init__(
        self,
        problem: Problem,
        config: AbstractTransformerConfig,
        make_block: Callable[[], nn.Module],
    ) -> None:
        super().__init__(problem)
        width = config.width
        self.lift = Lift(problem, width)
        self.blocks = nn.ModuleList(make_block() for _ in range(config.num_layers))
        self.out = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, problem.out_channels))
        initialise(self)

    def predict(
        self,
        values: Float[Tensor, "batch points in_channels"],
        coords: Float[Tensor, "batch points dim"],
        is_counted: Bool[Tensor, "batch points"],
    ) -> Float[Tensor, "batch points out_channels"]:
        """Returns the prediction for checked input."""
        tokens = self.lift(site_features(values, coords, is_counted))
        for block in self.blocks:
            tokens = block(tokens, is_counted)
        return self.out(tokens)


class Lift(nn.Module):
    """Makes a token of every site: a perceptron of $[x, f(x)]$ plus a learned vector, the placeholder."""

    def __init__(self, problem: Problem, width: int) -> None:
        super().__init__()
        self.layers = Perceptron(num_site_features(problem), 2 * width, width)
        self.placeholder = nn.Parameter(torch.rand(width) / width)

    def forward(
        self, features: Float[Tensor, "batch points features"]
    ) -> Float[Tensor, "batch points width"]:
        """Returns the tokens."""
        return self.layers(features) + self.placeholder


class FeedForward(nn.Sequential):
    """The second half of a block: a perceptron of normalised tokens."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__(nn.LayerNorm(width), Perceptron(width, hidden, width))


class LinearAttention(nn.Module):
    r"""Lets every query gather values from all counted sites.

    Args:
        head_shape: Heads, and channels of one head.
        divisor: $\nu$. "count" is the number of sites (Galerkin Transformer); "mass" is
            $\nu_i=Q_i\cdot\sum_jK_j$, with which the weights of a query sum to one (GNOT).
    """

    def __init__(self, head_shape: tuple[int, int], *, divisor: Literal["count", "mass"]) -> None:
        super().__init__()
        self.head_shape, self.divisor = head_shape, divisor
        width = head_shape[0] * head_shape[1]
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)

    def forward(
        self,
        queries: Float[Tensor, "batch points width"],
        sources: Float[Tensor, "batch points width"],
        is_counted: Bool[Tensor, "batch points"],
    ) -> Float[Tensor, "batch points width"]:
        """Returns what every point gathered.

        Args:
            queries: The stream that queries are made from.
            sources: The stream that keys and values are made from.
            is_counted: False at masked sites, whose keys and values have no weight.
        """
        query = torch.softmax(self.query(queries).unflatten(-1, self.head_shape), dim=-1)
        key, value = self.key_value(sources).unflatten(-1, (2, *self.head_shape)).unbind(-3)
        key = torch.softmax(key, dim=-1) * is_counted[..., None, None]
        gathered = torch.einsum("bnhc,bnhd->bhcd", key, value)
        if self.divisor == "count":
            gathered = gathered / is_counted.sum(1)[:, None, None, None]
        update = torch.einsum("bnhc,bhcd->bnhd", query, gathered)
        if self.divisor == "mass":
            update = update / torch.einsum("bnhc,bhc->bnh", query, key.sum(1)).unsqueeze(-1)
        return self.out((update + query).flatten(-2))


def num_site_features(problem: Problem) -> int:
    """Counts what `site_features` returns per site."""
    return problem.domain.dim + problem.in_channels


def site_features(
    values: Float[Tensor, "batch points channels"],
    coords: Float[Tensor, "batch points dim"],
    is_counted: Bool[Tensor, "batch points"],
) -> Float[Tensor, "batch points features"]:
    """Returns $[x, f(x)]$ at every site, and zeros where a site is masked or padded.

    A padded site may lie anywhere; even where its weight is zero, a token that overflows
    would turn sums over sites into NaN.
    """
    return torch.cat([coords, values], dim=-1).masked_fill(~is_counted.unsqueeze(-1), 0)


def initialise(model: nn.Module) -> None:
    """Draws every Linear weight anew and zeroes its bias; all else keeps PyTorch's initial values."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.trunc_normal_(module.weight, std=INITIAL_STD)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
