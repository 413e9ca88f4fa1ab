r"""AMG, the multi-graph neural operator of Li et al. (2025), on point clouds.

Each block couples all points through a few physics tokens, then the points with the largest
interpolation error through a graph of spatial neighbours, then a coarse sample of points through a
graph of similar features:
$x\mapsto\mathrm{MLP}(\mathrm{LN}(G_{\mathrm{global}}G_{\mathrm{local}}Px+x))$.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn
from torch.nn.functional import linear, scaled_dot_product_attention

from gpo.model.problem import Problem
from gpo_bench.baselines.base import AbstractBaseline, check_sizes
from gpo_bench.baselines.graphs import (
    Graph,
    GraphAttention,
    cosine_similarity,
    farthest_points,
    fixed_start,
    interpolate,
    neighbour_graph,
    position_similarity,
    random_start,
)


@dataclass(frozen=True, kw_only=True)
class AMGConfig:
    """Architecture of an `AMG`; the defaults are the published values for Navier-Stokes."""

    width: int = 128
    """Number of hidden channels."""
    num_blocks: int = 3
    """Number of blocks of physics, local and global attention."""
    num_heads: int = 8
    """Number of attention heads, each of full width."""
    num_tokens: int = 32
    """Number of physics tokens per head."""
    sampled_fraction: float = 0.25
    """Fraction of the points in a farthest-point sample."""
    num_local_nodes: int = 1024
    """Number of points in the local graph, those of the largest interpolation error."""
    num_local_neighbours: int = 6
    """Number of neighbours of a node in the local graph."""
    num_global_neighbours: int = 4
    """Number of neighbours of a node in the global graph."""
    local_metric: Literal["position", "cosine"] = "position"
    """Similarity in the local graph: distance of positions, or cosine of features."""

    def __post_init__(self) -> None:
        check_sizes(self)
        if not 0 < self.sampled_fraction <= 1:
            raise ValueError(
                f"`sampled_fraction` must be above 0 and at most 1, got {self.sampled_fraction:g}."
            )


class AMG(AbstractBaseline):
    """Blocks of physics, local and global attention between two perceptrons.

    Args:
        problem: Channels and geometry; points in one to three dimensions.
        config: The architecture.
    """

    def __init__(self, problem: Problem, config: AMGConfig = AMGConfig()) -> None:
        super().__init__(problem)
        self.config = config
        width = config.width
        self.lift = perceptron(problem.in_channels + problem.domain.dim, 2 * width, width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_blocks))
        self.norm = nn.LayerNorm(width)
        self.project = perceptron(width, width, problem.out_channels)
        # The released code never calls this norm, but the published parameter count includes it.
        self.unused = frozenset(
            f"blocks.{block}.unused_norm.{name}"
            for block in range(config.num_blocks)
            for name in ("weight", "bias")
        )

    def predict(
        self,
        values: Float[Tensor, "batch points in_channels"],
        coords: Float[Tensor, "batch points dim"],
        is_active: Bool[Tensor, "batch points"],
    ) -> Float[Tensor, "batch points out_channels"]:
        """Returns the prediction; masked points do not affect others."""
        lifted = hidden = self.lift(torch.cat([values, coords], dim=-1))
        multigraphs = Multigraph.draw(
            self.config, coords, is_active, len(self.blocks), is_random=self.training
        )
        for block, multigraph in zip(self.blocks, multigraphs, strict=True):
            hidden = block(hidden, multigraph)
        return self.project(self.norm(hidden + lifted))


class Block(nn.Module):
    """Physics attention, local and global graph attention, and a perceptron."""

    def __init__(self, config: AMGConfig) -> None:
        super().__init__()
        width, num_heads = config.width, config.num_heads
        self.unused_norm = nn.LayerNorm(width)
        self.physics = PhysicsAttention(width, num_heads, config.num_tokens)
        self.after_physics = ResidualUpdate(width, has_batch_norm=False)
        self.near = GraphAttention(width, num_heads)
        self.after_near = ResidualUpdate(width, has_batch_norm=True)
        self.alike = GraphAttention(width, num_heads)
        self.after_alike = ResidualUpdate(width, has_batch_norm=True)
        self.norm = nn.LayerNorm(width)
        self.mix = perceptron(width, width, width)

    def forward(
        self, values: Float[Tensor, "batch points width"], graphs: "Multigraph"
    ) -> Float[Tensor, "batch points width"]:
        """Returns the updated features."""
        is_active = graphs.is_active
        hidden = self.after_physics(values, self.physics(values, is_active), is_active)
        update = self.near(hidden, graphs.local_graph(hidden))
        hidden = self.after_near(hidden, update, is_active)
        update = self.alike(hidden, graphs.global_graph(hidden))
        hidden = self.after_alike(hidden, update, is_active)
        return self.mix(self.norm(hidden + values))


class PhysicsAttention(nn.Module):
    r"""Attention among tokens, each a weighted mean over all points.

    Point $n$ belongs to token $m$ with weight $p_{nm}=\mathrm{softmax}_m\,(W_aW_hx_n)_m/\tau_h$.
    Tokens are $t_m=\sum_np_{nm}V_hx_n/(\sum_np_{nm}+10^{-5})$, and a point receives
    $\sum_mp_{nm}t_m'$. Linear maps are applied to weights and tokens where possible, because points
    are many more.
    """

    def __init__(self, width: int, num_heads: int, num_tokens: int) -> None:
        super().__init__()
        self.by_head = (num_heads, width)
        self.features = nn.Linear(width, num_heads * width)
        self.assign = nn.Linear(width, num_tokens)
        self.temperature = nn.Parameter(torch.full((num_heads, 1), 0.5))
        self.measure = nn.Linear(width, num_heads * width)
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(num_heads * width, width)
        nn.init.orthogonal_(self.assign.weight)

    def forward(
        self,
        values: Float[Tensor, "batch points width"],
        is_active: Bool[Tensor, "batch points"],
    ) -> Float[Tensor, "batch points width"]:
        """Returns the update of each point; masked points do not contribute to tokens."""
        memberships = self._memberships(values)
        active_memberships = memberships * is_active[:, None, :, None]
        mass = active_memberships.sum(2).unsqueeze(-1)
        moments = torch.einsum("bhnm,bnc->bhmc", active_memberships, values)
        weight, bias = self._split(self.measure)
        totals = torch.einsum("bhmc,hdc->bhmd", moments, weight) + mass * bias.unsqueeze(1)
        tokens = totals / (mass + 1e-5)
        coupled = scaled_dot_product_attention(
            self.query(tokens), self.key(tokens), self.value(tokens)
        )
        weight = self.out.weight.unflatten(1, self.by_head)
        updates = torch.einsum("bhmd,chd->bhmc", coupled, weight)
        return torch.einsum("bhnm,bhmc->bnc", memberships, updates) + self.out.bias

    def _memberships(
        self, values: Float[Tensor, "batch points width"]
    ) -> Float[Tensor, "batch heads points tokens"]:
        """Returns the weight of each point in each token; sums over tokens are one."""
        weight, bias = self._split(self.features)
        weight = self.assign.weight @ weight / self.temperature.unsqueeze(-1)
        bias = linear(bias, self.assign.weight, self.assign.bias) / self.temperature
        logits = linear(values, weight.flatten(0, 1), bias.flatten()).unflatten(-1, bias.shape)
        return logits.softmax(-1).transpose(1, 2)

    def _split(self, layer: nn.Linear) -> tuple[Tensor, Tensor]:
        """Returns the weights `heads width width` and biases `heads width` by head."""
        return layer.weight.unflatten(0, self.by_head), layer.bias.unflatten(0, self.by_head)


class ResidualUpdate(nn.Module):
    r"""$y=\mathrm{LN}(x+u)$, then $\mathrm{LN}(y+\mathrm{FFN}(y))$, after an update $u$ of $x$."""

    def __init__(self, width: int, *, has_batch_norm: bool) -> None:
        super().__init__()
        self.first_norm = nn.LayerNorm(width)
        self.first = nn.Linear(width, width)
        self.batch_norm = nn.BatchNorm1d(width) if has_batch_norm else None
        self.rest = perceptron(width, width, width)
        self.second_norm = nn.LayerNorm(width)

    def forward(
        self,
        values: Float[Tensor, "batch points width"],
        update: Float[Tensor, "batch points width"],
        is_active: Bool[Tensor, "batch points"],
    ) -> Float[Tensor, "batch points width"]:
        """Returns the updated features; masked points do not contribute to batch statistics."""
        values = self.first_norm(values + update)
        hidden = self.first(values).relu()
        if self.batch_norm is not None:
            hidden = hidden.masked_scatter(
                is_active.unsqueeze(-1), self.batch_norm(hidden[is_active])
            )
        return self.second_norm(values + self.rest(hidden))


def perceptron(in_channels: int, hidden: int, out_channels: int) -> nn.Sequential:
    """Returns two linear layers with a ReLU between them."""
    return nn.Sequential(nn.Linear(in_channels, hidden), nn.ReLU(), nn.Linear(hidden, out_channels))


@dataclass(frozen=True)
class Multigraph:
    """The local and the global graph of a block, which depend on its features."""

    config: AMGConfig
    coords: Float[Tensor, "batch points dim"]
    is_active: Bool[Tensor, "batch points"]
    local_sample: Int64[Tensor, "batch samples"]
    """A farthest-point sample, whose interpolation error selects the nodes of the local graph."""
    global_sample: Int64[Tensor, "batch samples"]
    """A farthest-point sample: the nodes of the global graph."""
    is_sampled: Bool[Tensor, "batch samples"]
    """False for surplus entries of samples with masked points."""
    near_points: Graph | None
    """The local graph if it contains all points and does not depend on features, else None."""

    @classmethod
    def draw(
        cls,
        config: AMGConfig,
        coords: Float[Tensor, "batch points dim"],
        is_active: Bool[Tensor, "batch points"],
        num_blocks: int,
        *,
        is_random: bool,
    ) -> list["Multigraph"]:
        """Returns one multigraph per block.

        Args:
            config: The architecture.
            coords: Coordinates of the points.
            is_active: False at masked points, which are in no graph.
            num_blocks: Number of multigraphs.
            is_random: Whether each farthest-point sample starts at a random point, drawn with
                torch's global generator, instead of a fixed one.
        """
        num_samples = math.ceil(config.sampled_fraction * coords.shape[1])
        num_draws = 2 * num_blocks
        if is_random:
            repeated = is_active.repeat(num_draws, 1)
            samples = farthest_points(
                coords.repeat(num_draws, 1, 1), repeated, random_start(repeated), num_samples
            ).unflatten(0, (num_draws, -1))
        else:
            start = fixed_start(coords, is_active)
            samples = farthest_points(coords, is_active, start, num_samples)
            samples = samples.expand(num_draws, -1, -1)
        counts = (config.sampled_fraction * is_active.sum(1, keepdim=True)).ceil()
        is_sampled = torch.arange(num_samples, device=coords.device) < counts
        near_points = None
        if config.local_metric == "position" and coords.shape[1] <= config.num_local_nodes:
            nodes = torch.arange(coords.shape[1], device=coords.device).expand_as(is_active)
            near_points = neighbour_graph(
                position_similarity, coords, nodes, is_active, config.num_local_neighbours
            )
        return [
            cls(config, coords, is_active, first, second, is_sampled, near_points)
            for first, second in zip(samples[::2], samples[1::2], strict=True)
        ]

    def local_graph(self, values: Float[Tensor, "batch points channels"]) -> Graph:
        """Returns the graph of the points with the largest interpolation error.

        Args:
            values: Features of all points.
        """
        if self.near_points is not None:
            return self.near_points
        nodes, is_node = self._worst_points(values.detach())
        count = self.config.num_local_neighbours
        if self.config.local_metric == "cosine":
            return neighbour_graph(cosine_similarity, values, nodes, is_node, count)
        return neighbour_graph(position_similarity, self.coords, nodes, is_node, count)

    def global_graph(self, values: Float[Tensor, "batch points channels"]) -> Graph:
        """Returns the graph that joins points of the global sample with similar features."""
        count = self.config.num_global_neighbours
        return neighbour_graph(
            cosine_similarity, values, self.global_sample, self.is_sampled, count
        )

    def _worst_points(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the points of the largest interpolation error, and which of them are active."""
        interpolated = interpolate(values, self.coords, self.local_sample, self.is_sampled)
        error = (values - interpolated).abs().sum(-1).masked_fill(~self.is_active, -math.inf)
        # The sort is stable because sampled points all have an error of exactly zero.
        order = error.argsort(dim=1, descending=True, stable=True)
        nodes = order[:, : self.config.num_local_nodes].sort(dim=1).values
        return nodes, self.is_active.gather(1, nodes)
