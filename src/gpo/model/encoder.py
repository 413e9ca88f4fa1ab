r"""The encoder $E_\theta$ and the decoder $f^{\mathrm{dec}}_\phi$ (section 2.1, eq. decoder).

Values at sites in, Gaussian particles out; at the other end, the field read off the state of a
point. `MLPEncoder` is the paper's ablation "without Gaussian field".
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear, softplus

from gpo.model.ablation import Ablation
from gpo.model.config import FieldConfig, ModelConfig, PaperConfig
from gpo.model.features import PositionFeatures, make_features
from gpo.model.particles import AbstractLatent, Particles
from gpo.numerics.domain import Domain
from gpo.numerics.neighbours import Neighbours

EncodedConfig = PaperConfig | FieldConfig
"""Configurations of models with an encoder of particles."""

SCALE_FLOOR = 1e-4
"""Added to every scale, in unit lengths: a softplus may underflow, a division may not."""

REACH = 2.0
"""Farthest that a displaced center is from its site along an axis, in its own scales.

Without a bound centers run away to where their site does not see them: the mean of a site's
centers is held near it, but not each of them, and what is not seen costs nothing.
"""


@dataclass(frozen=True)
class SiteFeatures:
    r"""$\eta_j=[a_j,\gamma(x_j)]$ of every site, in two parts."""

    values: Float[Tensor, "batch points channels"]
    position: Float[Tensor, "#batch points features"]
    """One set where all samples have the same sites, which most data has."""

    def project(self, layer: nn.Linear) -> Float[Tensor, "batch points out"]:
        r"""Returns $W\eta_j+b$, the part of the position only once for all samples."""
        channels = self.values.shape[-1]
        there = linear(self.position, layer.weight[:, channels:], layer.bias)
        return linear(self.values, layer.weight[:, :channels]) + there


def describe_sites(
    features: PositionFeatures,
    values: Float[Tensor, "batch points channels"],
    coords: Float[Tensor, "#batch points dim"],
) -> SiteFeatures:
    """Returns values and position features of every site, these once where samples share sites."""
    if len(coords) > 1 and not torch.compiler.is_compiling():
        coords = coords[:1] if bool((coords == coords[:1]).all()) else coords
    return SiteFeatures(values, features(coords))


class AbstractEncoder(nn.Module, ABC):
    """Turns a field at sites into what every site owns: particles, or features in their place."""

    def __init__(self, config: EncodedConfig) -> None:
        super().__init__()
        self.domain = config.domain
        self.features = make_features(config.encoder, config.domain, config.hidden_dim)
        self.num_inputs = config.in_channels + self.features.num_features

    def forward(
        self,
        values: Float[Tensor, "batch points channels"],
        coords: Float[Tensor, "#batch points dim"],
    ) -> AbstractLatent:
        """Returns what every site owns."""
        return self.read(self.describe(values, coords), coords)

    def describe(
        self,
        values: Float[Tensor, "batch points channels"],
        coords: Float[Tensor, "#batch points dim"],
    ) -> SiteFeatures:
        """Returns values and position features of every site."""
        return describe_sites(self.features, values, coords)

    @abstractmethod
    def read(
        self, features: SiteFeatures, coords: Float[Tensor, "#batch points dim"]
    ) -> AbstractLatent:
        """Returns what sites own, from their features."""


class ParticleEncoder(AbstractEncoder):
    r"""Predicts $(\mu,\sigma,w)$ at every site from $\eta_j=[a_j,\gamma(x_j)]$."""

    def __init__(self, config: EncodedConfig) -> None:
        super().__init__(config)
        self.is_displacement = config.encoder.centers == "displacement"
        self.num_gaussians = config.encoder.num_gaussians
        hidden, per_axis = config.hidden_dim, config.encoder.num_gaussians * config.domain.dim
        self.lift = nn.Linear(self.num_inputs, hidden)
        self.centers = Head(hidden, per_axis)
        self.scales = Head(hidden, per_axis)
        self.weights = Head(hidden, config.encoder.num_gaussians)
        self._spread_out()

    def read(self, features: SiteFeatures, coords: Float[Tensor, "#batch points dim"]) -> Particles:
        """Returns the particles of sites, from their features."""
        hidden = torch.relu(features.project(self.lift))
        shape = (*features.values.shape[:2], self.num_gaussians, self.domain.dim)
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
        """Returns the features with those of ablated sites, and ablated ones, set to zero."""
        return MLPFeatures(ablation.of_sites(self.features))


class MLPEncoder(AbstractEncoder):
    """As deep as the particle encoder's three heads; positive, so that mass keeps its meaning."""

    def __init__(self, config: EncodedConfig) -> None:
        super().__init__(config)
        hidden = config.hidden_dim
        self.layers = nn.Sequential(
            nn.Linear(self.num_inputs, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, config.encoder.num_gaussians),
        )

    def read(
        self, features: SiteFeatures, coords: Float[Tensor, "#batch points dim"]
    ) -> MLPFeatures:
        """Returns the features that take the place of particles."""
        first, *others = self.layers
        assert isinstance(first, nn.Linear)
        hidden = features.project(first)
        for layer in others:
            hidden = layer(hidden)
        return MLPFeatures(softplus(hidden))


class Decoder(nn.Module):
    """Regresses the value of the field at a point from its basis, or from its state."""

    def __init__(self, config: ModelConfig, channels: int) -> None:
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


def make_encoder(config: EncodedConfig) -> ParticleEncoder | MLPEncoder:
    """Builds the encoder of a configuration."""
    return ParticleEncoder(config) if config.encoder.has_gaussian_field else MLPEncoder(config)
