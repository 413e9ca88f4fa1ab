r"""LNO, the Latent Neural Operator of Wang & Wang (2024); not the Laplace Neural Operator.

Scores $A(x)$, which depend on positions only, map the field to $M$ latent modes by a softmax over
points and back by a softmax over modes. A standard Transformer acts on the modes.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from gpo.model.problem import Problem
from gpo_bench.baselines.base import AbstractBaseline
from gpo_bench.baselines.transformer import (
    AbstractTransformerConfig,
    FeedForward,
    num_site_features,
    site_features,
)


@dataclass(frozen=True, kw_only=True)
class LNOConfig(AbstractTransformerConfig):
    """Architecture of an `LNO`: 1,292,033 parameters, or 5,074,177 with width 256."""

    num_modes: int = 256
    """Number of latent modes."""
    num_mlp_layers: int = 2
    """Number of residual layers of trunk, branch, scores and readout."""


class LNO(AbstractBaseline):
    """Maps fields on any points by blocks that act on latent modes.

    Weights keep PyTorch's default initialisation. The inputs of the trunk are unit coordinates,
    also on structured meshes.

    Args:
        problem: Channels and geometry.
        config: The architecture.
    """

    def __init__(self, problem: Problem, config: LNOConfig = LNOConfig()) -> None:
        super().__init__(problem)
        width, depth = config.width, config.num_mlp_layers
        self.trunk = ResidualMLP(problem.domain.dim, width, width, depth)
        self.branch = ResidualMLP(num_site_features(problem), width, width, depth)
        self.scores = ResidualMLP(width, width, config.num_modes, depth)
        self.blocks = nn.ModuleList(ModeBlock(config) for _ in range(config.num_layers))
        self.out = ResidualMLP(width, width, problem.out_channels, depth)

    def predict(
        self,
        values: Float[Tensor, "batch points in_channels"],
        coords: Float[Tensor, "batch points dim"],
        is_active: Bool[Tensor, "batch points"],
    ) -> Float[Tensor, "batch points out_channels"]:
        """Returns the prediction for validated input."""
        sites = site_features(values, coords, is_active)
        scores = self.scores(self.trunk(sites[..., : coords.shape[-1]]))
        encode = torch.softmax(scores.masked_fill(~is_active.unsqueeze(-1), -torch.inf), dim=1)
        modes = encode.mT @ self.branch(sites)
        for block in self.blocks:
            modes = block(modes)
        return self.out(torch.softmax(scores, dim=-1) @ modes)


class ModeBlock(nn.Module):
    """A pre-norm Transformer block among the modes."""

    def __init__(self, config: LNOConfig) -> None:
        super().__init__()
        width, self.head_shape = config.width, config.head_shape
        self.norm = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.attended = nn.Linear(width, width)
        self.mlp = FeedForward(width, config.hidden)

    def forward(
        self, modes: Float[Tensor, "batch modes width"]
    ) -> Float[Tensor, "batch modes width"]:
        """Returns the updated modes."""
        projected = self.query_key_value(self.norm(modes)).unflatten(-1, (3, *self.head_shape))
        query, key, value = projected.transpose(1, 3).unbind(2)
        attended = scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(-2)
        modes = modes + self.attended(attended)
        return modes + self.mlp(modes)


class ResidualMLP(nn.Module):
    r"""$r=\mathrm{GELU}(W_0x)$, then $r\leftarrow r+\mathrm{GELU}(W_ir)$, then a linear readout."""

    def __init__(self, in_features: int, width: int, out_features: int, num_layers: int) -> None:
        super().__init__()
        self.lift = nn.Linear(in_features, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(num_layers))
        self.out = nn.Linear(width, out_features)

    def forward(self, features: Float[Tensor, "*batch features"]) -> Float[Tensor, "*batch out"]:
        """Returns the readout."""
        hidden = gelu(self.lift(features))
        for layer in self.layers:
            hidden = hidden + gelu(layer(hidden))
        return self.out(hidden)
