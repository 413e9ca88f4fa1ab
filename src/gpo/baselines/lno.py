r"""LNO, the Latent Neural Operator of Wang & Wang (2024); not the Laplace Neural Operator.

Scores $A(x)$ of positions alone carry the field to $M$ latent modes and back: encoding is a softmax
of $A$ over points, decoding one over modes, and a standard Transformer works in between.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from gpo.baselines.base import AbstractBaseline, Problem
from gpo.baselines.transformer import MLP, head_width, num_site_features, site_features


class LNO(AbstractBaseline):
    """Maps fields on any points; 1,292,033 parameters, or 5,074,177 with width 256.

    Weights begin as PyTorch's do. The trunk sees the sites' own unit coordinates, on
    structured meshes too.

    Args:
        problem: What the data are.
        width: Channels of a token.
        num_layers: Transformer blocks on the modes.
        num_heads: Heads of every attention.
        num_modes: Latent modes.
        num_mlp_layers: Residual layers of trunk, branch, scores and readout.
    """

    def __init__(
        self,
        problem: Problem,
        *,
        width: int = 128,
        num_layers: int = 8,
        num_heads: int = 8,
        num_modes: int = 256,
        num_mlp_layers: int = 2,
    ) -> None:
        super().__init__(problem)
        dim, num_features = problem.domain.dim, num_site_features(problem)
        self.trunk = ResidualMLP(dim, width, width, num_mlp_layers)
        self.branch = ResidualMLP(num_features, width, width, num_mlp_layers)
        self.scores = ResidualMLP(width, width, num_modes, num_mlp_layers)
        self.blocks = nn.ModuleList(ModeBlock(width, num_heads) for _ in range(num_layers))
        self.out = ResidualMLP(width, width, problem.out_channels, num_mlp_layers)

    def predict(
        self,
        values: Float[Tensor, "batch points in_channels"],
        coords: Float[Tensor, "batch points dim"],
        is_counted: Bool[Tensor, "batch points"],
    ) -> Float[Tensor, "batch points out_channels"]:
        """Returns the prediction for checked input."""
        sites = site_features(values, coords, is_counted)
        scores = self.scores(self.trunk(sites[..., : coords.shape[-1]]))
        encode = torch.softmax(scores.masked_fill(~is_counted.unsqueeze(-1), -torch.inf), dim=1)
        modes = encode.mT @ self.branch(sites)
        for block in self.blocks:
            modes = block(modes)
        return self.out(torch.softmax(scores, dim=-1) @ modes)


class ModeBlock(nn.Module):
    """A pre-norm Transformer block among the modes."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.head_shape = (num_heads, head_width(width, num_heads))
        self.norm = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.attended = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.LayerNorm(width), MLP(width, 2 * width, width))

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
    r"""$r=\mathrm{GELU}(W_0x)$, then $r\leftarrow r+\mathrm{GELU}(W_ir)$, then a Linear readout."""

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
