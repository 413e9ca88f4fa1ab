r"""The encoder $E_\theta$ (section 2.1): values at sites in, Gaussian particles out."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import softplus

from gpo.model.abstract_encoder import AbstractEncoder, Described
from gpo.model.config import OperatorConfig
from gpo.model.particles import Particles

SCALE_FLOOR = 1e-4
"""Added to every scale, in unit lengths: a softplus may underflow, a division may not."""

REACH = 2.0
"""Farthest that a displaced center is from its site along an axis, in its own scales.

Without a bound centers run away to where their site does not see them: the mean of a site's
centers is held near it, but not each of them, and what is not seen costs nothing.
"""


class Encoder(AbstractEncoder):
    r"""Predicts $(\mu,\sigma,w)$ at every site from $\eta_j=[a_j,\gamma(x_j)]$."""

    def __init__(self, config: OperatorConfig) -> None:
        super().__init__(config)
        self.is_displacement = config.centers == "displacement"
        self.num_gaussians = config.num_gaussians
        hidden, per_axis = config.hidden_dim, config.num_gaussians * config.dim
        self.lift = nn.Linear(self.num_described, hidden)
        self.centers = Head(hidden, per_axis)
        self.scales = Head(hidden, per_axis)
        self.weights = Head(hidden, config.num_gaussians)
        self._spread_out()

    def read(self, described: Described, coords: Float[Tensor, "#batch points dim"]) -> Particles:
        """Returns the particles of sites that were described already."""
        hidden = torch.relu(described.through(self.lift))
        shape = (*described.values.shape[:2], self.num_gaussians, self.domain.dim)
        centers = self.centers(hidden).reshape(shape)
        scales = softplus(self.scales(hidden).reshape(shape)) + SCALE_FLOOR
        scales = scales * self.domain.unit_lengths(coords)
        weights = torch.softmax(self.weights(hidden), dim=-1)
        if self.is_displacement:
            centers = coords.unsqueeze(-2) + REACH * torch.tanh(centers) * scales
        else:
            centers = self.domain.from_unit(centers)
        if self.domain.is_sphere:
            centers = self.domain.wrap(centers)
        return Particles(centers, scales, weights)

    @torch.no_grad()
    def _spread_out(self) -> None:
        """Starts with centers all over the domain, or scattered closely around their site."""
        bias = self.centers.out.bias
        if self.is_displacement:
            bias.normal_(0, 0.5)
            # softplus(-3) = 0.05: particles that belong to their site.
            self.scales.out.bias.fill_(-3)
        else:
            bias.uniform_(-1 if self.domain.is_sphere else 0, 1)


class Head(nn.Module):
    r"""$W\,\mathrm{ReLU}(U\phi)$."""

    def __init__(self, hidden: int, out: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, out)

    def forward(self, phi: Float[Tensor, "*batch hidden"]) -> Float[Tensor, "*batch out"]:
        """Returns the raw numbers of one kind of particle parameter."""
        return self.out(torch.relu(self.hidden(phi)))
