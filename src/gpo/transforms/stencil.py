"""The linear map from sites to the nodes of a lattice."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gpo.numerics.weighted_rows import RowTable


@dataclass(frozen=True)
class NodeStencil:
    """The linear map from sites to nodes of a lattice, all nodes or some."""

    index: Int[Tensor, "sets interpolated sites"]
    """The sites that contribute to each of these nodes."""
    coefficients: Float[Tensor, "sets interpolated sites"]
    """Their coefficients."""
    nodes: Int[Tensor, " interpolated"] | None = None
    """Which nodes these are, where the others coincide with sites; None for all."""
    own: Int[Tensor, " points"] | None = None
    """The node of every site, `num_nodes` where it has none; None where numbers are equal."""

    def interpolate(
        self, field: Float[Tensor, "points batch channels"], num_nodes: int
    ) -> Float[Tensor, "nodes batch channels"]:
        """Interpolates a field from the sites onto all nodes."""
        batch, channels = field.shape[1:]
        num_sets, num_nodes_here, taps = self.index.shape
        index, coefficients, width = self.index, self.coefficients.to(field), batch * channels
        if num_sets > 1:
            samples = torch.arange(batch, device=field.device).view(-1, 1, 1)
            index, width = index * batch + samples, channels
        index, coefficients = (
            part.transpose(0, 1).reshape(-1, taps) for part in (index, coefficients)
        )
        interpolated = None
        if num_nodes_here > 0:
            interpolated = RowTable.of(field).weighted(index, coefficients, width)
            interpolated = interpolated.view(num_nodes_here, batch, channels)
        if self.nodes is None:
            assert interpolated is not None
            return interpolated
        if self.own is None:
            return field if interpolated is None else field.index_copy(0, self.nodes, interpolated)
        rows, nodes = field, self.own
        if interpolated is not None:
            rows, nodes = torch.cat([field, interpolated]), torch.cat([nodes, self.nodes])
        # Every node is one of these; the last row takes sites without a node.
        return field.new_empty(num_nodes + 1, *rows.shape[1:]).index_copy_(0, nodes, rows)[
            :num_nodes
        ]

    def at_sites(self, kept: Int[Tensor, " kept"]) -> "NodeStencil":
        """Returns the stencil on a subset of the sites, which holds all that contribute."""
        own = kept if self.own is None else self.own[kept]
        return replace(self, index=torch.searchsorted(kept, self.index), own=own)

    def of_all(self, num_nodes: int) -> "NodeStencil":
        """Returns the stencil of all nodes, including those that coincide with sites."""
        if self.nodes is None:
            return self
        site = torch.arange(num_nodes, device=self.index.device)
        if self.own is not None:
            numbers = torch.arange(len(self.own), device=site.device)
            site = site.new_zeros(num_nodes + 1).index_copy(0, self.own, numbers)[:num_nodes]
        index = site.view(1, -1, 1).expand(1, -1, self.index.shape[2])
        coefficients = self.coefficients.new_zeros(index.shape)
        coefficients[..., 0] = 1
        return NodeStencil(
            index.index_copy(1, self.nodes, self.index),
            coefficients.index_copy(1, self.nodes, self.coefficients),
        )
