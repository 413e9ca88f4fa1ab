"""Other ways for particles to look, measured beside the one that `gpo.model.transport` has.

    python benchmarks/study/transports.py VARIANT train ns2d --preset quick --coarsen 2 --noise 0 \
        --budget-cpu 60 --epochs 100000 --patience 100000 --out runs/VARIANT

What follows the variant is a command of `gpo`. Scores are those on validation data.
"""

import sys

import torch
from torch import Tensor, nn

from gpo.cli import main
from gpo.model import geometric
from gpo.model.config import GeometricConfig
from gpo.model.mode_filter import ModeFilter
from gpo.model.transport import NEAR, Transport, View
from gpo.numerics.weighted_rows import RowTable

WIDEST = 0.2
"""The largest scale of a particle, in reaches."""


class Pair(Transport):
    r"""Particles with a scale: $s=\tfrac12(c(\mu+\sigma)+c(\mu-\sigma))$, a Gauss-Hermite rule along $\sigma$."""

    def __init__(self, config: GeometricConfig, shape: tuple[int, ...]) -> None:
        super().__init__(config, shape)
        channels, numbers = config.hidden_dim, 2 * self.num_gaussians * self.num_axes
        bound = channels**-0.5
        self.filter = ModeFilter(shape, channels, numbers, config.packet_widths)
        self.local = nn.Parameter(torch.empty(channels, numbers).uniform_(-bound, bound))
        with torch.no_grad():
            self.local.mul_(NEAR)
            self.filter.mix.mul_(NEAR)

    def read(self, state: Tensor, guides: Tensor) -> Tensor:
        """Returns displacements, and keeps the scales beside them."""
        numbers = torch.addmm(guides.flatten(0, 1), state.flatten(0, 1), self.local)
        shape = (*state.shape[:2], 2, self.num_gaussians, self.num_axes)
        displacement, scale = torch.tanh(numbers).view(shape).unbind(2)
        self.scale = WIDEST * self.reach * scale
        return self.reach * displacement

    def brought(self, state: Tensor, displacement: Tensor, view: View) -> Tensor:
        """Returns how the mean of both looks differs from what is seen at rest."""
        both = [view.points.corners(displacement + way * self.scale) for way in (1, -1)]
        nodes, weights = (torch.cat(parts, dim=-1) for parts in zip(*both, strict=True))
        return self._blend(view.content, nodes, 0.5 * weights) - self.rest(state, view)


class Halfway(Transport):
    """Departure points by the midpoint rule: the displacement that is read off halfway."""

    def brought(self, state: Tensor, displacement: Tensor, view: View) -> Tensor:
        """Returns what is brought along the displacement of the middle of the way."""
        table = RowTable.of(view.points.lattice.lay(displacement.flatten(2)))
        nodes, weights = view.points.corners(displacement / 2)
        batch, taps = nodes.shape[1], nodes.shape[-1]
        own = torch.arange(batch * self.num_gaussians, dtype=nodes.dtype).view(batch, -1, 1)
        index = (nodes * (batch * self.num_gaussians) + own).view(-1, taps)
        middle = table.weighted(index, weights.reshape(-1, taps), self.num_axes)
        return super().brought(state, middle.view_as(displacement), view)


class Beyond(Transport):
    """What lies beyond an open end is a learned value, in place of the nearest site; plane grids."""

    def __init__(self, config: GeometricConfig, shape: tuple[int, ...]) -> None:
        super().__init__(config, shape)
        self.beyond = nn.Parameter(torch.zeros(self.num_gaussians, self.channels_each))

    def brought(self, state: Tensor, displacement: Tensor, view: View) -> Tensor:
        """Returns how what is seen, or lies beyond an end, differs from what is seen at rest."""
        nodes, weights = view.points.corners(displacement)
        seen = self._blend(view.content, nodes, weights)
        first, second, third, last = nodes.unbind(-1)
        # Beyond an end both corners across an axis are the node at the end.
        is_beyond = ((first == third) & (second == last)) | ((first == second) & (third == last))
        owned = seen.unflatten(-1, (self.num_gaussians, -1))
        owned = torch.where(is_beyond.unsqueeze(-1), self.beyond, owned)
        return owned.flatten(-2) - self.rest(state, view)


VARIANTS = {"hat": Transport, "pair": Pair, "halfway": Halfway, "beyond": Beyond}

if __name__ == "__main__":
    geometric.Transport = VARIANTS[sys.argv[1]]
    torch.set_num_threads(1)
    main(sys.argv[2:])
