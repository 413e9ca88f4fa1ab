r"""The encoder $E_\theta$ (section 2.1): values at sites in, Gaussian particles out."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear, softplus

from gpo.model.ablation import Ablation
from gpo.model.config import OperatorConfig
from gpo.model.features import make_features
from gpo.model.particles import AbstractLatent, Particles
from gpo.numerics.domain import Domain
from gpo.numerics.neighbours import Neighbours

# >>> r"""What every encoder does: describes a site by its values and its place, and reads a state off that."""


@dataclass(frozen=True)
class SiteFeatures:
    r"""$\eta_j=[a_j,\gamma(x_j)]$ of every site, in two parts."""

    values: Float[Tensor, "batch points channels"]
    place: Float[Tensor, "#batch points features"]
    """One set where all samples have the same sites, which most data has."""

    def through(self, layer: nn.Linear) -> Float[Tensor, "batch points out"]:
        r"""Returns $W\eta_j+b$, its part that depends on the place only once for all samples."""
        channels = self.values.shape[-1]
        there = linear(self.place, layer.weight[:, channels:], layer.bias)
        return linear(self.values, layer.weight[:, :channels]) + there


class AbstractEncoder(nn.Module, ABC):
    """Turns a field at sites into the state of the sites."""

    def __init__(self, config: OperatorConfig) -> None:
        super().__init__()
        self.domain = config.space
        self.features = make_features(config)
        self.num_described = config.in_channels + self.features.num_features

    def forward(
        self,
        values: Float[Tensor, "batch points channels"],
        coords: Float[Tensor, "#batch points dim"],
    ) -> AbstractLatent:
        """Returns the state of every site."""
        return self.read(self.describe(values, coords), coords)

    def describe(
        self,
        values: Float[Tensor, "batch points channels"],
        coords: Float[Tensor, "#batch points dim"],
    ) -> SiteFeatures:
        """Returns what is known of every site."""
        if not torch.compiler.is_compiling() and bool((coords == coords[:1]).all()):
            coords = coords[:1]
        return SiteFeatures(values, self.features(coords))

    @abstractmethod
    def read(
        self, described: SiteFeatures, coords: Float[Tensor, "#batch points dim"]
    ) -> AbstractLatent:
        """Returns the state of sites that were described already."""


# >>> """The paper's ablation "without Gaussian field": a plain MLP in place of particles."""


@dataclass(frozen=True)
class MLPFeatures(AbstractLatent):
    """Features with no geometry: what a site holds is the same wherever it is evaluated."""

    features: Float[Tensor, "batch points gaussians"]

    def basis(
        self, coords: Float[Tensor, "#batch points dim"], domain: Domain
    ) -> Float[Tensor, "batch points gaussians"]:
        """Returns the features."""
        return self.features

    def descriptor(self, domain: Domain) -> Float[Tensor, "batch points 0"]:
        """Returns nothing: windows see the basis alone."""
        return self.features[..., :0]

    def blend(self, neighbours: Neighbours, domain: Domain) -> "MLPFeatures":
        """Interpolates the features."""
        return MLPFeatures(neighbours.blend(neighbours.gather(self.features)))

    def ablated(self, ablation: Ablation) -> "MLPFeatures":
        """Returns the same features, zero at silent sites and where silent themselves."""
        return MLPFeatures(ablation.of_sites(self.features))


class MLPEncoder(AbstractEncoder):
    """As deep as the particle encoder's three heads; positive, so that mass keeps its meaning."""

    def __init__(self, config: OperatorConfig) -> None:
        super().__init__(config)
        hidden = config.hidden_dim
        self.layers = nn.Sequential(
            nn.Linear(self.num_described, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, config.num_gaussians),
        )

    def read(
        self, described: SiteFeatures, coords: Float[Tensor, "#batch points dim"]
    ) -> MLPFeatures:
        """Returns the features of sites that were described already."""
        first, *others = self.layers
        assert isinstance(first, nn.Linear)
        hidden = described.through(first)
        for layer in others:
            hidden = layer(hidden)
        return MLPFeatures(softplus(hidden))


# >>> r"""The decoder $f^{\mathrm{dec}}_\phi$ (eq. decoder): a two-layer perceptron with ReLU."""


class Decoder(nn.Module):
    """Regresses the value of the field at a point from its basis, or from its state."""

    def __init__(self, config: OperatorConfig, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(channels, config.hidden_dim),
            nn.ReLU(),
            nn.Linear(config.hidden_dim, config.out_channels),
        )

    def forward(
        self, state: Float[Tensor, "batch points channels"]
    ) -> Float[Tensor, "batch points out_channels"]:
        """Returns the field's values."""
        return self.layers(state)


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

    def read(
        self, described: SiteFeatures, coords: Float[Tensor, "#batch points dim"]
    ) -> Particles:
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
