r"""GNOT, the General Neural Operator Transformer of Hao et al. (2023).

Two streams, geometry $g(x)$ and physics $z(x, f)$, meet in linear cross-attention; every
feed-forward is a mixture of experts $\sum_e p_e(x)\,F_e$ whose gate $p$ sees coordinates only.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import gelu

from gpo.baselines.base import AbstractBaseline, Problem
from gpo.baselines.transformer import MLP, Lift, LinearAttention, initialise, site_features


class GNOT(AbstractBaseline):
    """Maps fields on any points; the defaults have the 2,485,901 parameters of the paper's table.

    Args:
        problem: What the data are.
        width: Channels of a token.
        num_layers: Blocks of cross-attention, experts, self-attention, experts.
        num_heads: Heads of every attention.
        mlp_ratio: Hidden width of experts and gate over `width`.
        num_experts: Experts of every mixture.
        official_flow: The authors' code refines the asking geometry stream, block after block,
            against fixed physics. By default, as in the Neural-Solver-Library, every block
            starts from the same geometry, and its answer is the next block's physics.
    """

    def __init__(
        self,
        problem: Problem,
        *,
        width: int = 128,
        num_layers: int = 4,
        num_heads: int = 8,
        mlp_ratio: int = 2,
        num_experts: int = 3,
        official_flow: bool = False,
    ) -> None:
        super().__init__(problem)
        self.official_flow = official_flow
        dim, hidden = problem.domain.dim, mlp_ratio * width
        self.lift_geometry = MLP(dim, 2 * width, width)
        self.lift_physics = Lift(problem, width)
        self.blocks = nn.ModuleList(
            ExpertBlock(dim, width, hidden, num_heads, num_experts) for _ in range(num_layers)
        )
        self.out = MLP(width, 2 * width, problem.out_channels)
        initialise(self)

    def predict(
        self,
        values: Float[Tensor, "batch points in_channels"],
        coords: Float[Tensor, "batch points dim"],
        is_counted: Bool[Tensor, "batch points"],
    ) -> Float[Tensor, "batch points out_channels"]:
        """Returns the prediction for checked input."""
        features = site_features(values, coords, is_counted)
        coords = features[..., : coords.shape[-1]]
        geometry, physics = self.lift_geometry(coords), self.lift_physics(features)
        for block in self.blocks:
            answer = block(geometry, physics, coords, is_counted)
            if self.official_flow:
                geometry = answer
            else:
                physics = answer
        return self.out(geometry if self.official_flow else physics)


class ExpertBlock(nn.Module):
    """Cross-attention, experts, self-attention, experts; mixtures are normalised *after* the sum."""

    def __init__(self, dim: int, width: int, hidden: int, num_heads: int, num_experts: int) -> None:
        super().__init__()
        self.gate = nn.Sequential(
            nn.Linear(dim, hidden),
            nn.GELU(),
            nn.Linear(hidden, hidden),
            nn.GELU(),
            nn.Linear(hidden, num_experts),
            nn.Softmax(dim=-1),
        )
        self.query_norm = nn.LayerNorm(width)
        self.source_norm = nn.LayerNorm(width)
        self.cross_attention = LinearAttention(width, num_heads, divisor="mass")
        self.first_experts = Experts(width, hidden, num_experts)
        self.first_norm = nn.LayerNorm(width)
        self.self_norm = nn.LayerNorm(width)
        self.self_attention = LinearAttention(width, num_heads, divisor="mass")
        self.second_experts = Experts(width, hidden, num_experts)
        self.second_norm = nn.LayerNorm(width)

    def forward(
        self,
        tokens: Float[Tensor, "batch points width"],
        sources: Float[Tensor, "batch points width"],
        coords: Float[Tensor, "batch points dim"],
        is_counted: Bool[Tensor, "batch points"],
    ) -> Float[Tensor, "batch points width"]:
        """Returns `tokens` after they have asked `sources`, then each other."""
        gate = self.gate(coords)
        queries, sources = self.query_norm(tokens), self.source_norm(sources)
        tokens = tokens + self.cross_attention(queries, sources, is_counted)
        tokens = tokens + self.first_norm(self.first_experts(tokens, gate))
        queries = self.self_norm(tokens)
        tokens = tokens + self.self_attention(queries, queries, is_counted)
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
        """Returns the experts' answers, weighted by the gate."""
        hidden = gelu(self.up(tokens)).unflatten(-1, (self.num_experts, -1))
        return self.down((hidden * gate.unsqueeze(-1)).flatten(-2)) + gate @ self.bias
