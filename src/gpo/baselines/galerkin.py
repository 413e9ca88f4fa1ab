r"""The Galerkin Transformer of Cao (2021), in the form of the Neural-Solver-Library.

A pre-norm Transformer on points whose attention $Q(K^\top V)/N + Q$ is a Galerkin
projection: the features of $K$ and $V$ are bases, their products integrals over the sites.
"""

from jaxtyping import Bool, Float
from torch import Tensor, nn

from gpo.baselines.base import AbstractBaseline, Problem
from gpo.baselines.transformer import MLP, Lift, LinearAttention, initialise, site_features


class GalerkinTransformer(AbstractBaseline):
    """Maps fields on any points; the defaults have the 1,096,321 parameters of the paper's table.

    Args:
        problem: What the data are.
        width: Channels of a token.
        num_layers: Blocks of attention and MLP.
        num_heads: Heads of every attention.
        mlp_ratio: Hidden width of a block's MLP over `width`.
    """

    def __init__(
        self,
        problem: Problem,
        *,
        width: int = 128,
        num_layers: int = 8,
        num_heads: int = 8,
        mlp_ratio: int = 2,
    ) -> None:
        super().__init__(problem)
        self.lift = Lift(problem, width)
        self.blocks = nn.ModuleList(
            GalerkinBlock(width, num_heads, mlp_ratio) for _ in range(num_layers)
        )
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


class GalerkinBlock(nn.Module):
    """Attention, then an MLP, each on normalised tokens; keys and values have a norm of their own."""

    def __init__(self, width: int, num_heads: int, mlp_ratio: int) -> None:
        super().__init__()
        self.query_norm = nn.LayerNorm(width)
        self.source_norm = nn.LayerNorm(width)
        self.attention = LinearAttention(width, num_heads, divisor="count")
        self.mlp = nn.Sequential(nn.LayerNorm(width), MLP(width, mlp_ratio * width, width))

    def forward(
        self, tokens: Float[Tensor, "batch points width"], is_counted: Bool[Tensor, "batch points"]
    ) -> Float[Tensor, "batch points width"]:
        """Returns the updated tokens."""
        queries, sources = self.query_norm(tokens), self.source_norm(tokens)
        tokens = tokens + self.attention(queries, sources, is_counted)
        return tokens + self.mlp(tokens)
