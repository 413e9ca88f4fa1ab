r"""The Galerkin Transformer of Cao (2021), in the form of the Neural-Solver-Library.

A pre-norm Transformer on points whose attention $Q(K^\top V)/N + Q$ is a Galerkin projection: the
features of $K$ and $V$ are basis functions, and $K^\top V/N$ are their integrals over the sites.
"""

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor, nn

from gpo.model.problem import Problem
from gpo_bench.baselines.transformer import (
    AbstractTransformer,
    AbstractTransformerConfig,
    FeedForward,
    LinearAttention,
)


@dataclass(frozen=True, kw_only=True)
class GalerkinConfig(AbstractTransformerConfig):
    """Architecture of a `GalerkinTransformer`; 1,096,321 parameters as in the paper's table."""


class GalerkinTransformer(AbstractTransformer):
    """Maps fields on any points.

    Args:
        problem: Channels and geometry.
        config: The architecture.
    """

    def __init__(self, problem: Problem, config: GalerkinConfig = GalerkinConfig()) -> None:
        super().__init__(problem, config, lambda: GalerkinBlock(config))


class GalerkinBlock(nn.Module):
    """Pre-norm attention and perceptron, with a separate norm for keys and values."""

    def __init__(self, config: GalerkinConfig) -> None:
        super().__init__()
        self.query_norm = nn.LayerNorm(config.width)
        self.source_norm = nn.LayerNorm(config.width)
        self.attention = LinearAttention(config.head_shape, divisor="count")
        self.mlp = FeedForward(config.width, config.hidden)

    def forward(
        self, tokens: Float[Tensor, "batch points width"], is_active: Bool[Tensor, "batch points"]
    ) -> Float[Tensor, "batch points width"]:
        """Returns the updated tokens."""
        queries, sources = self.query_norm(tokens), self.source_norm(tokens)
        tokens = tokens + self.attention(queries, sources, is_active)
        return tokens + self.mlp(tokens)
