"""The paper's ablation "without Gaussian field": a plain MLP in place of particles."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import softplus

from gpo.model.config import OperatorConfig
from gpo.model.features import make_features
from gpo.model.latent import AbstractLatent
from gpo.numerics.domain import Domain
from gpo.numerics.neighbours import Neighbours


@dataclass(frozen=True)
class PlainLatent(AbstractLatent):
    """Features with no geometry: what a site holds is the same wherever it is evaluated."""

    features: Float[Tensor, "batch points gaussians"]

    def basis(
        self, coords: Float[Tensor, "batch points dim"], domain: Domain
    ) -> Float[Tensor, "batch points gaussians"]:
        """Returns the features."""
        return self.features

    def descriptor(self, domain: Domain) -> Float[Tensor, "batch points 0"]:
        """Returns nothing: windows see the basis alone."""
        return self.features[..., :0]

    def blend(self, neighbours: Neighbours, domain: Domain) -> "PlainLatent":
        """Interpolates the features."""
        return PlainLatent(neighbours.blend(neighbours.gather(self.features)))


class PlainEncoder(nn.Module):
    """As deep as the particle encoder's three heads; positive, so that mass keeps its meaning."""

    def __init__(self, config: OperatorConfig) -> None:
        super().__init__()
        hidden = config.hidden_dim
        self.features = make_features(config)
        self.layers = nn.Sequential(
            nn.Linear(config.in_channels + self.features.num_features, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, config.num_gaussians),
        )

    def forward(
        self,
        values: Float[Tensor, "batch points channels"],
        coords: Float[Tensor, "batch points dim"],
    ) -> PlainLatent:
        """Returns the features of every site."""
        return self.read(self.describe(values, coords), coords)

    def describe(
        self,
        values: Float[Tensor, "batch points channels"],
        coords: Float[Tensor, "batch points dim"],
    ) -> Float[Tensor, "batch points described"]:
        """Returns what a site is known by: its values and its place."""
        return torch.cat([values, self.features(coords)], dim=-1)

    def read(
        self,
        described: Float[Tensor, "batch points described"],
        coords: Float[Tensor, "batch points dim"],
    ) -> PlainLatent:
        """Returns the features of sites that were described already."""
        return PlainLatent(softplus(self.layers(described)))
