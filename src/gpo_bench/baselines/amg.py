r"""AMG, the multi-graph neural operator of Li et al. (2025), on point clouds.

Every block couples all points through a few physics tokens, then those that a coarse sample
describes worst through a graph of near points, then a coarse sample through a graph of
similar features: $x\mapsto\mathrm{MLP}(\mathrm{LN}(G_{\mathrm{global}}G_{\mathrm{local}}Px+x))$.
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
    by_cosine,
    by_position,
    farthest_points,
    fixed_start,
    interpolate,
    neighbour_graph,
    random_start,
)


@dataclass(frozen=True, kw_only=True)
class AMGConfig:
    """Sizes of an `AMG` and of its graphs; the defaults are those for Navier-Stokes."""

    width: int = 128
    """Channels."""
    num_blocks: int = 3
    """Blocks of physics, local and global attention."""
    num_heads: int = 8
    """Heads, each of full width."""
    num_tokens: int = 32
    """Physics tokens per head."""
    sampled_fraction: float = 0.25
    """Fraction of the points in a farthest-point sample."""
    num_local_nodes: int = 1024
    """Points in the local graph, those which a sample describes worst."""
    num_local_neighbours: int = 6
    """Neighbours of a node in the local graph."""
    num_global_neighbours: int = 4
    """Neighbours of a node in the global graph."""
    local_metric: Literal["position", "cosine"] = "position"
    """What is near in the local graph: points, or the directions of their features."""

    def __post_init__(self) -> None:
        check_sizes(self)
        if not 0 < self.sampled_fraction <= 1:
            raise ValueError(
                f"`sampled_fraction` must be above 0 and at most 1, got {self.sampled_fraction:g}."
            )


class AMG(AbstractBaseline):
    """Blocks of physics, local and global attention between two perceptrons.

    Args:
        problem: The data it is built for; points in one to three dimensions.
        config: Its sizes.
    """

    def __init__(self, problem: Problem, config: AMGConfig = AMGConfig()) -> None:
        super().__init__(problem)
        self.config = config
        width = config.width
        self.lift = perceptron(problem.in_channels + problem.domain.dim, 2 * width, width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_blocks))
        self.norm = nn.LayerNorm(width)
        self.project = perceptron(width, width, problem.out_channels)
        # The released code builds this norm and never calls it; the published count includes it.
        self.unused = frozenset(
            f"blocks.{block}.unused_norm.{name}"
            for block in range(config.num_blocks)
            for name in ("weight", "bias")
        )

    def predict(
        self,
        values: Float[Tensor, "batch points in_channels"],
        coords: Float[Tensor, "batch points dim"],
        is_counted: Bool[Tensor, "batch points"],
    ) -> Float[Tensor, "batch points out_channels"]:
        """Returns the prediction; masked points influence no other."""
        lifted = hidden = self.lift(torch.cat([values, coords], dim=-1))
        multigraphs = Multigraph.draw(
            self.config, coords, is_counted, len(self.blocks), is_random=self.training
        )
        for block, multigraph in zip(self.blocks, multigraphs, strict=True):
            hidden = block(hidden, multigraph)
        return self.project(self.norm(hidden + lifted))


class Block(nn.Module):
    """Physics attention, local graph attention, global graph attention, and a perceptron."""

    def __init__(self, config: AMGConfig) -> None:
        super().__init__()
        width, num_heads = config.width, config.num_heads
        self.unused_norm = nn.LayerNorm(width)
        self.physics = PhysicsAttention(width, num_heads, config.num_tokens)
        self.after_physics = Residuals(width, has_batch_norm=False)
        self.near = GraphAttention(width, num_heads)
        self.after_near = Residuals(width, has_batch_norm=True)
        self.alike = GraphAttention(width, num_heads)
        self.after_alike = Residuals(width, has_batch_norm=True)
        self.norm = nn.LayerNorm(width)
        self.mix = perceptron(width, width, width)

    def forward(
        self, values: Float[Tensor, "batch points width"], graphs: "Multigraph"
    ) -> Float[Tensor, "batch points width"]:
        """Returns the updated features."""
        is_counted = graphs.is_counted
        hidden = self.after_physics(values, self.physics(values, is_counted), is_counted)
        heard = self.near(hidden, graphs.local_graph(hidden))
        hidden = self.after_near(hidden, heard, is_counted)
        heard = self.alike(hidden, graphs.global_graph(hidden))
        hidden = self.after_alike(hidden, heard, is_counted)
        return self.mix(self.norm(hidden + values))


class PhysicsAttention(nn.Module):
    r"""Attention among tokens, each a weighted mean over all points.

    Point $n$ belongs to token $m$ with weight $p_{nm}=\mathrm{softmax}_m\,(W_aW_hx_n)_m/\tau_h$;
    $t_m=\sum_np_{nm}V_hx_n/(\sum_np_{nm}+10^{-5})$; points receive $\sum_mp_{nm}t_m'$ back.
    All maps of full width are applied to weights and tokens, not to the many points.
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
        is_counted: Bool[Tensor, "batch points"],
    ) -> Float[Tensor, "batch points width"]:
        """Returns the update of every point; masked points have no part in the tokens."""
        memberships = self._memberships(values)
        counted = memberships * is_counted[:, None, :, None]
        mass = counted.sum(2).unsqueeze(-1)
        moments = torch.einsum("bhnm,bnc->bhmc", counted, values)
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
        """Returns how far every point belongs to every token; sums over tokens are one."""
        weight, bias = self._split(self.features)
        weight = self.assign.weight @ weight / self.temperature.unsqueeze(-1)
        bias = linear(bias, self.assign.weight, self.assign.bias) / self.temperature
        logits = linear(values, weight.flatten(0, 1), bias.flatten()).unflatten(-1, bias.shape)
        return logits.softmax(-1).transpose(1, 2)

    def _split(self, layer: nn.Linear) -> tuple[Tensor, Tensor]:
        """Returns the weights `heads width width` and biases `heads width` of every head."""
        return layer.weight.unflatten(0, self.by_head), layer.bias.unflatten(0, self.by_head)


class Residuals(nn.Module):
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
        is_counted: Bool[Tensor, "batch points"],
    ) -> Float[Tensor, "batch points width"]:
        """Returns the settled features; masked points have no part in batch statistics."""
        values = self.first_norm(values + update)
        hidden = self.first(values).relu()
        if self.batch_norm is not None:
            hidden = hidden.masked_scatter(
                is_counted.unsqueeze(-1), self.batch_norm(hidden[is_counted])
            )
        return self.second_norm(values + self.rest(hidden))


def perceptron(in_channels: int, hidden: int, out_channels: int) -> nn.Sequential:
    """Builds two linear maps with a ReLU between them."""
    return nn.Sequential(nn.Linear(in_channels, hidden), nn.ReLU(), nn.Linear(hidden, out_channels))


@dataclass(frozen=True)
class Multigraph:
    """The graphs of one block: a local one for detail, and a global one for the whole.

    They are made from the features that the block has reached.
    """

    config: AMGConfig
    coords: Float[Tensor, "batch points dim"]
    is_counted: Bool[Tensor, "batch points"]
    local_sample: Int64[Tensor, "batch samples"]
    """Some points, far apart; the local graph holds what they cannot describe."""
    global_sample: Int64[Tensor, "batch samples"]
    """The nodes of the global graph."""
    is_sampled: Bool[Tensor, "batch samples"]
    """False where there are fewer points to sample, because others are masked."""
    near_points: Graph | None
    """The local graph, where it holds all points and does not depend on features."""

    @classmethod
    def draw(
        cls,
        config: AMGConfig,
        coords: Float[Tensor, "batch points dim"],
        is_counted: Bool[Tensor, "batch points"],
        num_blocks: int,
        *,
        is_random: bool,
    ) -> list["Multigraph"]:
        """Returns one multigraph per block.

        Args:
            config: How graphs are made.
            coords: Where the points are.
            is_counted: False at masked points, which are in no graph.
            num_blocks: How many to return.
            is_random: Whether every sample starts at a point of its own, drawn with torch's
                generator, or all at the same.
        """
        num_samples = math.ceil(config.sampled_fraction * coords.shape[1])
        num_draws = 2 * num_blocks
        if is_random:
            many, counted = coords.repeat(num_draws, 1, 1), is_counted.repeat(num_draws, 1)
            samples = farthest_points(many, counted, random_start(counted), num_samples)
            samples = samples.unflatten(0, (num_draws, -1))
        else:
            start = fixed_start(coords, is_counted)
            samples = farthest_points(coords, is_counted, start, num_samples)
            samples = samples.expand(num_draws, -1, -1)
        counts = (config.sampled_fraction * is_counted.sum(1, keepdim=True)).ceil()
        is_sampled = torch.arange(num_samples, device=coords.device) < counts
        near_points = None
        if config.local_metric == "position" and coords.shape[1] <= config.num_local_nodes:
            nodes = torch.arange(coords.shape[1], device=coords.device).expand_as(is_counted)
            near_points = neighbour_graph(
                by_position, coords, nodes, is_counted, config.num_local_neighbours
            )
        return [
            cls(config, coords, is_counted, first, second, is_sampled, near_points)
            for first, second in zip(samples[::2], samples[1::2], strict=True)
        ]

    def local_graph(self, values: Float[Tensor, "batch points channels"]) -> Graph:
        """Returns the graph between points that the local sample describes worst.

        Args:
            values: The features of all points.
        """
        if self.near_points is not None:
            return self.near_points
        nodes, is_node = self._hard_points(values.detach())
        count = self.config.num_local_neighbours
        if self.config.local_metric == "cosine":
            return neighbour_graph(by_cosine, values, nodes, is_node, count)
        return neighbour_graph(by_position, self.coords, nodes, is_node, count)

    def global_graph(self, values: Float[Tensor, "batch points channels"]) -> Graph:
        """Returns the graph between points of the global sample whose features are alike."""
        count = self.config.num_global_neighbours
        return neighbour_graph(by_cosine, values, self.global_sample, self.is_sampled, count)

    def _hard_points(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the points where interpolation from the local sample is worst."""
        interpolated = interpolate(values, self.coords, self.local_sample, self.is_sampled)
        score = (values - interpolated).abs().sum(-1).masked_fill(~self.is_counted, -math.inf)
        # A stable order: many points of the sample have a score of exactly zero.
        order = score.argsort(dim=1, descending=True, stable=True)
        nodes = order[:, : self.config.num_local_nodes].sort(dim=1).values
        return nodes, self.is_counted.gather(1, nodes)
