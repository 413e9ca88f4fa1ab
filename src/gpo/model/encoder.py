r"""The encoder $E_\theta$ (section 2.1): values at sites in, Gaussian particles out.

`MLPEncoder` is the paper's ablation "without Gaussian field".
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import softplus

from gpo.model.config import PaperConfig
from gpo.model.features import (
    PointFeatures,
    WithCoordinates,
    describe_points,
    make_features,
)
from gpo.model.particles import AbstractLatent, Particles
from gpo.model.problem import Problem
from gpo.numerics.domain import Domain
from gpo.numerics.neighbours import Neighbours
from gpo.numerics.products import without

SCALE_FLOOR = 1e-4
"""Added to every scale, in unit lengths: a softplus may underflow, a division may not."""

REACH = 2.0
"""Largest displacement of a center from its site along an axis, in its own scales.

Without a bound centers drift to where their site has no weight on them: the loss keeps the mean of
a site's centers near the site, but not each of them.
"""


def geometry_of(problem: Problem, config: PaperConfig) -> Domain:
    """Returns the domain in which offsets are taken: without nearest images, one with open axes."""
    domain = problem.domain
    return domain if config.nearest_images else replace(domain, periodic=(False,) * domain.dim)


class AbstractEncoder(nn.Module, ABC):
    """Maps a field at sites to particles of every site, or to features in their place."""

    def __init__(self, problem: Problem, config: PaperConfig) -> None:
        super().__init__()
        self.domain = geometry_of(problem, config)
        domain = problem.domain if config.features == "fourier" else self.domain
        self.features = make_features(
            config, domain, config.hidden_dim, is_rounded=config.integer_frequencies
        )
        if config.input_coordinates:
            self.features = WithCoordinates(self.features, domain)
        self.num_inputs = problem.in_channels + self.features.num_features

    def forward(
        self,
        values: Float[Tensor, "batch points channels"],
        coords: Float[Tensor, "#batch points dim"],
    ) -> AbstractLatent:
        """Returns the particles of every site."""
        return self.read(describe_points(self.features, values, coords), coords)

    @abstractmethod
    def read(
        self, features: PointFeatures, coords: Float[Tensor, "#batch points dim"]
    ) -> AbstractLatent:
        """Returns the particles of sites, from their features."""


class ParticleEncoder(AbstractEncoder):
    r"""Predicts $(\mu,\sigma,w)$ at every site from $\eta_j=[a_j,\gamma(x_j)]$."""

    def __init__(self, problem: Problem, config: PaperConfig) -> None:
        super().__init__(problem, config)
        self.is_displacement = config.centers == "displacement"
        self.num_gaussians = config.num_gaussians
        hidden, per_axis = config.hidden_dim, config.num_gaussians * problem.domain.dim
        self.lift = nn.Linear(self.num_inputs, hidden)
        self.centers = Head(hidden, per_axis)
        self.scales = Head(hidden, per_axis)
        self.weights = Head(hidden, config.num_gaussians)
        self._spread_out()

    def read(
        self, features: PointFeatures, coords: Float[Tensor, "#batch points dim"]
    ) -> Particles:
        """Returns the particles of sites, from their features."""
        hidden = torch.relu(features.project(self.lift))
        shape = (*features.values.shape[:2], self.num_gaussians, self.domain.dim)
        centers = self.centers(hidden).reshape(shape)
        scales = _positive(self.scales(hidden)).reshape(shape) + SCALE_FLOOR
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
        """Initialises centers all over the domain, or closely around their site."""
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
    """Features without geometry: their basis is the same wherever it is evaluated."""

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

    def without(self, sites: Sequence[int], gaussians: Sequence[int]) -> "MLPFeatures":
        """Returns the features with those of some sites, and some of every site, zero."""
        return MLPFeatures(without(without(self.features, sites, dim=1), gaussians, dim=-1))


class MLPEncoder(AbstractEncoder):
    """As deep as the particle encoder's three heads; positive, so that mass keeps its meaning."""

    def __init__(self, problem: Problem, config: PaperConfig) -> None:
        super().__init__(problem, config)
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
            nn.Linear(hidden, config.num_gaussians),
        )

    def read(
        self, features: PointFeatures, coords: Float[Tensor, "#batch points dim"]
    ) -> MLPFeatures:
        """Returns the features that take the place of particles."""
        first, *others = self.layers
        assert isinstance(first, nn.Linear)
        hidden = features.project(first)
        for layer in others:
            hidden = layer(hidden)
        return MLPFeatures(_positive(hidden))


def _positive(raw: Float[Tensor, "batch points out"]) -> Float[Tensor, "batch points out"]:
    """Returns the softplus, along one axis: with more, compiled gradients have wrong strides."""
    return softplus(raw.flatten()).view_as(raw)


def make_encoder(problem: Problem, config: PaperConfig) -> ParticleEncoder | MLPEncoder:
    """Builds the encoder of a configuration."""
    encoder = ParticleEncoder if config.has_gaussian_field else MLPEncoder
    return encoder(problem, config)
