r"""GNOT, the General Neural Operator Transformer of Hao et al. (2023).

Linear cross-attention couples a geometry stream $g(x)$ and a physics stream $z(x, f)$. Each
feed-forward layer is a mixture of experts $\sum_e p_e(x)\,F_e$ whose gate $p$ depends on
coordinates only.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import gelu

from gpo.model.problem import Problem
from gpo_bench.baselines.base import AbstractBaseline, Perceptron
from gpo_bench.baselines.transformer import (
    AbstractTransformerConfig,
    Lift,
    LinearAttention,
    initialise,
    site_features,
)


@dataclass(frozen=True, kw_only=True)
class GNOTConfig(AbstractTransformerConfig):
    """Architecture of a `GNOT`; the defaults have 2,485,901 parameters, as in the paper's table."""

    num_layers: int = 4
    """Number of blocks of cross-attention, experts, self-attention and experts."""
    num_experts: int = 3
    """Number of experts per mixture."""
    official_flow: bool = False
    """Blocks update the geometry stream with fixed physics, as in the authors' code. Otherwise each
    block updates the physics stream from the same geometry, as in the Neural-Solver-Library."""


class GNOT(AbstractBaseline):
    """Maps fields on any points.

    Args:
        problem: Channels and geometry.
        config: The architecture.
    """

    def __init__(self, problem: Problem, config: GNOTConfig = GNOTConfig()) -> None:
        super().__init__(problem)
        self.official_flow = config.official_flow
        dim, width = problem.domain.dim, config.width
        self.lift_geometry = Perceptron(dim, 2 * width, width)
        self.lift_physics = Lift(problem, width)
        self.blocks = nn.ModuleList(ExpertBlock(dim, config) for _ in range(config.num_layers))
        self.out = Perceptron(width, 2 * width, problem.out_channels)
        initialise(self)

    def predict(
        self,
        values: Float[Tensor, "batch points in_channels"],
        coords: Float[Tensor, "batch points dim"],
        is_active: Bool[Tensor, "batch points"],
    ) -> Float[Tensor, "batch points out_channels"]:
        """Returns the prediction for validated input."""
        features = site_features(values, coords, is_active)
        coords = features[..., : coords.shape[-1]]
        geometry, physics = self.lift_geometry(coords), self.lift_physics(features)
        for block in self.blocks:
            refined = block(geometry, physics, coords, is_active)
            if self.official_flow:
                geometry = refined
            else:
                physics = refined
        return self.out(geometry if self.official_flow else physics)


class ExpertBlock(nn.Module):
    """Cross-attention, experts, self-attention and experts; norms follow the mixtures."""

    def __init__(self, dim: int, config: GNOTConfig) -> None:
        super().__init__()
        width, hidden, num_experts = config.width, config.hidden, config.num_experts
        gate_logits = Perceptron(dim, hidden, hidden, num_experts)
        self.gate = nn.Sequential(*gate_logits, nn.Softmax(dim=-1))
        self.query_norm = nn.LayerNorm(width)
        self.source_norm = nn.LayerNorm(width)
        self.cross_attention = LinearAttention(config.head_shape, divisor="mass")
        self.first_experts = Experts(width, hidden, num_experts)
        self.first_norm = nn.LayerNorm(width)
        self.self_norm = nn.LayerNorm(width)
        self.self_attention = LinearAttention(config.head_shape, divisor="mass")
        self.second_experts = Experts(width, hidden, num_experts)
        self.second_norm = nn.LayerNorm(width)

    def forward(
        self,
        tokens: Float[Tensor, "batch points width"],
        sources: Float[Tensor, "batch points width"],
        coords: Float[Tensor, "batch points dim"],
        is_active: Bool[Tensor, "batch points"],
    ) -> Float[Tensor, "batch points width"]:
        """Returns `tokens` after cross-attention to `sources` and self-attention."""
        gate = self.gate(coords)
        queries, sources = self.query_norm(tokens), self.source_norm(sources)
        tokens = tokens + self.cross_attention(queries, sources, is_active)
        tokens = tokens + self.first_norm(self.first_experts(tokens, gate))
        queries = self.self_norm(tokens)
        tokens = tokens + self.self_attention(queries, queries, is_active)
        return tokens + self.second_norm(self.second_experts(tokens, gate))


class Experts(nn.Module):
    r"""$\sum_e p_e\,(W_e\,\mathrm{GELU}(U_e z + a_e) + b_e)$, all experts in two products."""

    def __init__(self, width: int, hidden: int, num_experts: int) -> None:
        super().__init__()
        self.num_experts = num_experts
        self.up = nn.Linear(width, num_experts * hidden)
        self.down = nn.Linear(num_experts * hidden, width, bias=False)
        self.bias = nn.Parameter(torch.zeros(num_experts, width))

    def forward(
        self,
        tokens: Float[Tensor, "batch points width"],
        gate: Float[Tensor, "batch points experts"],
    ) -> Float[Tensor, "batch points width"]:
        """Returns the sum over experts weighted by the gate."""
        hidden = gelu(self.up(tokens)).unflatten(-1, (self.num_experts, -1))
        return self.down((hidden * gate.unsqueeze(-1)).flatten(-2)) + gate @ self.bias
