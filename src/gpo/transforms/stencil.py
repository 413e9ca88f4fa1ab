"""The linear map from sites to the nodes of a lattice."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gpo.numerics.weighted_rows import RowTable


@dataclass(frozen=True)
class NodeStencil:
    """The linear map from sites to nodes of a lattice, all nodes or some."""

    index: Int[Tensor, "sets made sites"]
    """The sites that contribute to each of these nodes."""
    coefficients: Float[Tensor, "sets made sites"]
    """Their coefficients."""
    nodes: Int[Tensor, " made"] | None = None
    """Which nodes these are, where the others coincide with sites; None for all."""
    own: Int[Tensor, " points"] | None = None
    """The node of every site, `num_nodes` where it has none; None where numbers are equal."""

    def interpolate(
        self, content: Float[Tensor, "points batch channels"], num_nodes: int
    ) -> Float[Tensor, "nodes batch channels"]:
        """Interpolates a field from the sites onto all nodes."""
        batch, channels = content.shape[1:]
        num_sets, num_made, taps = self.index.shape
        index, coefficients, width = self.index, self.coefficients.to(content), batch * channels
        if num_sets > 1:
            samples = torch.arange(batch, device=content.device).view(-1, 1, 1)
            index, width = index * batch + samples, channels
        index, coefficients = (
            part.transpose(0, 1).reshape(-1, taps) for part in (index, coefficients)
        )
        made = None
        if num_made > 0:
            made = RowTable.of(content).weighted(index, coefficients, width)
            made = made.view(num_made, batch, channels)
        if self.nodes is None:
            assert made is not None
            return made
        if self.own is not None:
            nothing = content.new_zeros(num_nodes + 1, batch, channels)
            content = nothing.index_copy(0, self.own, content)[:num_nodes]
        return content if made is None else content.index_copy(0, self.nodes, made)

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
