"""The graphs of AMG: one for detail, between near points, and one for the whole."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from gpo.baselines.graphs import (
    Graph,
    by_cosine,
    by_position,
    farthest_points,
    fixed_start,
    interpolate,
    neighbour_graph,
    random_start,
)


@dataclass(frozen=True, kw_only=True)
class MultigraphConfig:
    """How local and global graphs are made; the defaults are those for Navier-Stokes."""

    sampled_fraction: float = 0.25
    """Share of the points in a farthest-point sample."""
    num_local_nodes: int = 1024
    """Points in the local graph, those which a sample describes worst."""
    num_local_neighbours: int = 6
    num_global_neighbours: int = 4
    local_metric: Literal["position", "cosine"] = "position"
    """What is near in the local graph: points, or the directions of their features."""


@dataclass(frozen=True)
class Multigraph:
    """What one block needs to make its graphs of the features it has reached."""

    config: MultigraphConfig
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
        config: MultigraphConfig,
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
        """Returns the points farthest from what their neighbours in the local sample tell."""
        told = interpolate(values, self.coords, self.local_sample, self.is_sampled)
        score = (values - told).abs().sum(-1).masked_fill(~self.is_counted, -math.inf)
        # A stable order: many points of the sample have a score of exactly zero.
        order = score.argsort(dim=1, descending=True, stable=True)
        nodes = order[:, : self.config.num_local_nodes].sort(dim=1).values
        return nodes, self.is_counted.gather(1, nodes)
