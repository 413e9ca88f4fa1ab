r"""Attention without a matrix between points, as the Galerkin Transformer and GNOT use it.

$O = Q(K^\top V)/\nu + Q$ in every head, with $Q$ and $K$ passed through a softmax over their
*features*. The product in brackets is as small as a head, so the cost is linear in points.
"""

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from gpo.baselines.transformer import head_width


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
