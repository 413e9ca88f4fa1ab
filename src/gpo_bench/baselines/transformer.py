r"""Common parts of the Transformer baselines: configuration, lift, blocks, linear attention.

All five map each site to a token and apply blocks of attention and perceptron. The linear attention
of the Galerkin Transformer and GNOT is $O = Q(K^\top V)/\nu + Q$ in each head, where $Q$ and $K$
pass through a softmax over their *features*. $K^\top V$ has the size of a head, so the cost is
linear in the number of points.
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
"""Initial standard deviation of the weights of linear layers."""


@dataclass(frozen=True, kw_only=True)
class AbstractTransformerConfig:
    """Architecture options of all Transformer baselines."""

    width: int = 128
    """Number of channels of a token."""
    num_layers: int = 8
    """Number of blocks."""
    num_heads: int = 8
    """Number of attention heads; `width` is divided among them."""
    mlp_ratio: int = 2
    """Ratio of the hidden width of the perceptrons in a block to `width`."""

    def __post_init__(self) -> None:
        check_sizes(self)
        check_heads(self.width, self.num_heads)

    @property
    def hidden(self) -> int:
        """Hidden width of the perceptrons in a block."""
        return self.mlp_ratio * self.width

    @property
    def head_shape(self) -> tuple[int, int]:
        """Number of heads, and number of channels per head."""
        return self.num_heads, self.width // self.num_heads


class AbstractTransformer(AbstractBaseline):
    """A Transformer with a single stream of tokens: lift, blocks, readout.

    Args:
        problem: Channels and geometry.
        config: The architecture.
        make_block: Returns a new block, which maps tokens and `is_active` to tokens.
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
        is_active: Bool[Tensor, "batch points"],
    ) -> Float[Tensor, "batch points out_channels"]:
        """Returns the prediction for validated input."""
        tokens = self.lift(site_features(values, coords, is_active))
        for block in self.blocks:
            tokens = block(tokens, is_active)
        return self.out(tokens)


class Lift(nn.Module):
    """Maps each site to a token: a perceptron of $[x, f(x)]$ plus a learned vector."""

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
    """A pre-norm perceptron, the second half of a block."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__(nn.LayerNorm(width), Perceptron(width, hidden, width))


class LinearAttention(nn.Module):
    r"""Linear attention over all active sites.

    Args:
        head_shape: Number of heads, and number of channels per head.
        divisor: The divisor $\nu$: the number of sites ("count", Galerkin Transformer), or
            $\nu_i=Q_i\cdot\sum_jK_j$, which normalises the weights of a query to one ("mass",
            GNOT).
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
        is_active: Bool[Tensor, "batch points"],
    ) -> Float[Tensor, "batch points width"]:
        """Returns the attention output at each point.

        Args:
            queries: Tokens from which queries are computed.
            sources: Tokens from which keys and values are computed.
            is_active: False at masked sites, which do not contribute.
        """
        query = torch.softmax(self.query(queries).unflatten(-1, self.head_shape), dim=-1)
        key, value = self.key_value(sources).unflatten(-1, (2, *self.head_shape)).unbind(-3)
        key = torch.softmax(key, dim=-1) * is_active[..., None, None]
        key_value = torch.einsum("bnhc,bnhd->bhcd", key, value)
        if self.divisor == "count":
            key_value = key_value / is_active.sum(1)[:, None, None, None]
        update = torch.einsum("bnhc,bhcd->bnhd", query, key_value)
        if self.divisor == "mass":
            update = update / torch.einsum("bnhc,bhc->bnh", query, key.sum(1)).unsqueeze(-1)
        return self.out((update + query).flatten(-2))


def num_site_features(problem: Problem) -> int:
    """Returns the number of channels of `site_features`."""
    return problem.domain.dim + problem.in_channels


def site_features(
    values: Float[Tensor, "batch points channels"],
    coords: Float[Tensor, "batch points dim"],
    is_active: Bool[Tensor, "batch points"],
) -> Float[Tensor, "batch points features"]:
    """Returns $[x, f(x)]$ at each site, and zeros at masked and padded sites.

    Padded sites may have any coordinates; a token that overflows would turn sums over sites into
    NaN even with weight zero.
    """
    return torch.cat([coords, values], dim=-1).masked_fill(~is_active.unsqueeze(-1), 0)


def initialise(model: nn.Module) -> None:
    """Initialises linear layers with truncated normal weights and zero biases."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.trunc_normal_(module.weight, std=INITIAL_STD)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
