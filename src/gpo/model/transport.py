r"""Particles that move: every site looks at the field through its particles, where things come from.

After the modes were scattered, the state of a site knows of the whole field. Off both, a
displacement $\delta$ is read for each of the $G$ particles of site $j$. The center
$\mu_{ji}=x_j-\delta_{ji}$ is where what arrives at the site came from,

$s_{ji}=\sum_lK(x_l-\mu_{ji})\,c_l^{(i)}$ with $c=hV$

is the content around it, and $h_j\leftarrow h_j+\sum_i(s_{ji}-\bar s_{ji})\,W_i$ takes up how it
differs from what is seen at rest, $\bar s$ at $\delta=0$. $K$ is the hat of the lattice that content
is laid on (`transforms/lattice.py`).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gpo.model.ablation import Ablation
from gpo.model.config import GeometricConfig
from gpo.model.mode_filter import ModeFilter
from gpo.model.particles import Particles
from gpo.numerics.weighted_rows import LARGEST_INT32, RowTable
from gpo.parallel.shard import SINGLE_PROCESS, SpatialShard
from gpo.transforms.lattice import LatticePoints

NEAR = 0.1
"""How large the numbers of particles are at the start, beside those of gates: they begin near their sites."""


@dataclass(frozen=True)
class Content:
    """What sites hold for particles to look at, on the nodes of their lattice."""

    within_reach: RowTable
    """Complete where the sites of this process look; elsewhere too, if it is the only one."""
    own: Float[Tensor, "points batch carried"] | None = None
    """Of the sites of this process, where others hold the rest of a grid."""
    shard: SpatialShard = SINGLE_PROCESS

    def everywhere(self) -> RowTable:
        """Returns the content of all sites, for those who may look from anywhere."""
        if self.own is None:
            return self.within_reach
        num_sites = self.shard.starts(len(self.own))[-1]
        return RowTable.of(self.shard.with_neighbours(self.own, num_sites, is_closed=False))


@dataclass(frozen=True)
class View:
    """What the particles of some points look at."""

    content: RowTable
    """At the nodes of the lattice, for every sample."""
    points: LatticePoints
    """Where they look from."""
    are_sites: bool
    """Whether these points are the sites that the content came from."""
    ablation: Ablation
    """Particles that bring nothing; sites are numbered from the first of the points on."""
    layer: int
    """Which of the layers looks, for an ablation."""


class Transport(nn.Module):
    """The particles of every site, and what they bring."""

    def __init__(self, config: GeometricConfig, shape: tuple[int, ...]) -> None:
        """Makes particles that begin near their sites.

        Args:
            config: The architecture.
            shape: Wave numbers along every axis.
        """
        super().__init__()
        self.num_gaussians, self.num_axes = config.num_gaussians, config.num_axes
        self.domain, self.is_fitted = config.domain, bool(config.mesh_shape)
        self.reach = config.reach * _unit(config)
        channels, numbers = config.hidden_dim, self.num_gaussians * self.num_axes
        self.channels_each = max(1, channels // self.num_gaussians)
        carried, bound = self.num_gaussians * self.channels_each, channels**-0.5
        self.filter = ModeFilter(shape, channels, numbers, config.packet_widths)
        self.local = nn.Parameter(torch.empty(channels, numbers).uniform_(-bound, bound))
        with torch.no_grad():
            self.local.mul_(NEAR)
            self.filter.mix.mul_(NEAR)
        self.content = nn.Parameter(torch.empty(channels, carried).uniform_(-bound, bound))
        self.arrive = nn.Parameter(torch.empty(carried, channels).uniform_(-bound / 2, bound / 2))

    def carry(
        self, state: Float[Tensor, "points batch channels"]
    ) -> Float[Tensor, "points batch carried"]:
        """Returns the content $c=hV$ of points, for others to look at."""
        return state @ self.content

    def guides(
        self, tokens: Float[Tensor, "2 modes batch channels"]
    ) -> Float[Tensor, "2 modes batch numbers"]:
        """Returns the modes that particles are read off."""
        return self.filter(tokens, self.filter.transfer())

    def read(
        self,
        state: Float[Tensor, "points batch channels"],
        guides: Float[Tensor, "points batch numbers"],
    ) -> Float[Tensor, "points batch gaussians axes"]:
        """Returns the displacement of the particles of points, off state and modes scattered there.

        It points from the center of a particle to its point, in units of the axes; on a sphere in
        the tangent plane, east and north, in radii.
        """
        numbers = torch.addmm(guides.flatten(0, 1), state.flatten(0, 1), self.local)
        shape = (*state.shape[:2], self.num_gaussians, self.num_axes)
        return self.reach * torch.tanh(numbers).view(shape)

    def forward(
        self,
        state: Float[Tensor, "points batch channels"],
        displacement: Float[Tensor, "points batch gaussians axes"],
        view: View,
    ) -> Float[Tensor, "points batch channels"]:
        """Returns the state of points after what their particles see has arrived."""
        brought = self.brought(state, displacement, view).flatten(0, 1)
        return torch.addmm(state.flatten(0, 1), brought, self.arrive).view_as(state)

    def brought(
        self,
        state: Float[Tensor, "points batch channels"],
        displacement: Float[Tensor, "points batch gaussians axes"],
        view: View,
    ) -> Float[Tensor, "points batch carried"]:
        """Returns how what particles see differs from what is seen at rest."""
        nodes, weights = view.points.corners(displacement)
        brought = self._blend(view.content, nodes, weights) - self.rest(state, view)
        if view.ablation.sites or view.ablation.gaussians:
            brought = self._ablated(brought, view.ablation)
        return brought

    def particles(
        self,
        state: Float[Tensor, "points batch channels"],
        displacement: Float[Tensor, "points batch gaussians axes"],
        view: View,
        coords: Float[Tensor, "#batch points dim"],
    ) -> Particles:
        """Returns the particles as they were used.

        The scale is that of the hat, whose standard deviation is the width of a cell over the root
        of six. The weight is the fraction of what arrives that a particle brings.
        """
        brought = self.brought(state, displacement, view)
        arrived = torch.einsum(
            "nbgc,gcd->nbgd",
            brought.unflatten(-1, (self.num_gaussians, -1)),
            self.arrive.unflatten(0, (self.num_gaussians, -1)),
        )
        sizes = arrived.norm(dim=-1).transpose(0, 1)
        total = sizes.sum(-1, keepdim=True)
        weights = torch.where(total > 0, sizes / total, 1 / self.num_gaussians)
        centers, cells = self._places(displacement, view, coords)
        return Particles(centers, cells / 6**0.5, weights)

    def _places(
        self, displacement: Tensor, view: View, coords: Tensor
    ) -> tuple[
        Float[Tensor, "batch points gaussians dim"], Float[Tensor, "batch points gaussians dim"]
    ]:
        """Returns where particles are, and how wide the cells there are, in coordinates."""
        batch = displacement.shape[1]
        coords = coords.expand(batch, -1, -1)
        if self.is_fitted:
            # Coordinates of a mesh are content like any other.
            nodes, weights = view.points.corners(displacement)
            laid = view.points.lattice.lay(coords.transpose(0, 1).contiguous())
            samples = torch.arange(batch, device=nodes.device).view(-1, 1, 1)
            corners = laid[nodes.long(), samples]
            centers = (weights.unsqueeze(-1) * corners).sum(-2)
            widths = corners.amax(-2) - corners.amin(-2)
            # Beyond an end all corners are one.
            widths = widths.clamp_min(1e-3 * self.domain.unit_lengths(coords).min())
            return centers.transpose(0, 1), widths.transpose(0, 1)
        centers = view.points.departures(displacement.transpose(0, 1), coords, self.domain)
        lengths = torch.tensor(view.points.lattice.spacings, dtype=centers.dtype)
        if self.domain.is_sphere:
            # In radii, along every axis of the space around.
            lengths = lengths.min().expand(3)
        else:
            lengths = lengths.to(centers) * self.domain.unit_lengths(centers)
        return centers, lengths.to(centers).expand_as(centers)

    def rest(
        self, state: Float[Tensor, "points batch channels"], view: View
    ) -> Float[Tensor, "points batch carried"]:
        """Returns what is seen without any displacement, through the hat of the lattice alone."""
        if view.are_sites and view.points.lattice.holds_sites:
            return self.carry(state)
        still = state.new_zeros(()).expand(*state.shape[:2], 1, self.num_axes)
        nodes, weights = view.points.corners(still)
        shape = (*state.shape[:2], self.num_gaussians, nodes.shape[-1])
        return self._blend(view.content, nodes.expand(shape), weights.expand(shape))

    def _ablated(self, brought: Tensor, ablation: Ablation) -> Tensor:
        """Returns what particles bring, nothing of ablated ones and to ablated sites."""
        owned = brought.unflatten(-1, (self.num_gaussians, -1)).permute(1, 0, 3, 2)
        return ablation.of_sites(owned).permute(1, 0, 3, 2).flatten(2)

    def _blend(
        self, content: RowTable, nodes: Tensor, weights: Tensor
    ) -> Float[Tensor, "points batch carried"]:
        batch, gaussians = nodes.shape[1:3]
        if torch.compiler.is_compiling() or content.size > LARGEST_INT32:
            nodes = nodes.long()
        own = torch.arange(batch * gaussians, dtype=nodes.dtype, device=nodes.device)
        index = nodes * (batch * gaussians) + own.view(batch, gaussians, 1)
        taps = nodes.shape[-1]
        seen = content.weighted(index.view(-1, taps), weights.reshape(-1, taps), self.channels_each)
        return seen.view(*nodes.shape[:2], -1)


def _unit(config: GeometricConfig) -> float:
    """Returns the unit that a reach is counted in: a length of an axis, on a sphere of its box."""
    domain = config.domain
    if not domain.is_sphere or config.mesh_shape:
        return 1.0
    return max(high - low for low, high in zip(domain.lower, domain.upper, strict=True))
