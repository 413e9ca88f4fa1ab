"""Blocks that the Transformer rivals share: how sites become tokens, and how weights begin."""

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from gpo.baselines.base import Problem

INITIAL_STD = 0.02
"""Standard deviation of every Linear weight at the start."""


class MLP(nn.Sequential):
    """A perceptron with one hidden layer and GELU."""

    def __init__(self, in_features: int, hidden: int, out_features: int) -> None:
        super().__init__(nn.Linear(in_features, hidden), nn.GELU(), nn.Linear(hidden, out_features))


class Lift(nn.Module):
    """Makes a token of every site: an MLP of $[x, f(x)]$ plus a learned vector, the placeholder."""

    def __init__(self, problem: Problem, width: int) -> None:
        super().__init__()
        self.layers = MLP(num_site_features(problem), 2 * width, width)
        self.placeholder = nn.Parameter(torch.rand(width) / width)

    def forward(
        self, features: Float[Tensor, "batch points features"]
    ) -> Float[Tensor, "batch points width"]:
        """Returns the tokens."""
        return self.layers(features) + self.placeholder


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
    """Draws every Linear weight anew and zeroes its bias; all else keeps PyTorch's beginning."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.trunc_normal_(module.weight, std=INITIAL_STD)
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def head_width(width: int, num_heads: int) -> int:
    """Returns the channels of one head."""
    if width % num_heads:
        nearest = max(1, round(width / num_heads)) * num_heads
        raise ValueError(
            f"`width` must be a multiple of `num_heads`, got width={width}, "
            f"num_heads={num_heads}. Nearest valid width: {nearest}."
        )
    return width // num_heads


# >>> r"""Attention without a matrix between points, as the Galerkin Transformer and GNOT use it.
#
# $O = Q(K^\top V)/\nu + Q$ in every head, with $Q$ and $K$ passed through a softmax over their
# *features*. The product in brackets is as small as a head, so the cost is linear in points.
# """


class LinearAttention(nn.Module):
    r"""Lets every query gather values from all counted sites.

    Args:
        width: Channels of queries, keys, values and output.
        num_heads: Heads that share them.
        divisor: $\nu$. "count" is the number of sites (Galerkin Transformer); "mass" is
            $\nu_i=Q_i\cdot\sum_jK_j$, with which the weights of a query sum to one (GNOT).
    """

    def __init__(self, width: int, num_heads: int, *, divisor: Literal["count", "mass"]) -> None:
        super().__init__()
        self.head_shape = (num_heads, head_width(width, num_heads))
        self.divisor = divisor
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
            queries: The stream that asks.
            sources: The stream that keys and values are made from.
            is_counted: False at sites that nobody may see.
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
