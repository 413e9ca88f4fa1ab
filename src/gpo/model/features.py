r"""How a site's position enters encoder or lift: the map $\gamma(x)$ of section 2.1."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear

from gpo.model.config import AnyConfig
from gpo.numerics.domain import Domain


class FourierFeatures(nn.Module):
    r"""$\gamma(x)=[\sin(2\pi Bx),\cos(2\pi Bx)]$ with $B$ drawn once from $N(0,\sigma_B^2)$.

    On a periodic axis frequencies are rounded to whole turns, so that $\gamma$ has no seam.
    """

    frequencies: Tensor

    def __init__(self, config: AnyConfig, domain: Domain) -> None:
        super().__init__()
        self.domain = domain
        self.num_features = 2 * config.num_frequencies
        generator = torch.Generator().manual_seed(config.fourier_seed or 0)
        shape = (config.num_frequencies, domain.dim)
        frequencies = torch.randn(shape, generator=generator, device="cpu") * config.fourier_std
        is_periodic = torch.tensor(self.domain.periodic, device="cpu")
        # Saved with the weights: they mean nothing with other frequencies.
        self.register_buffer(
            "frequencies", torch.where(is_periodic, frequencies.round(), frequencies)
        )

    def forward(self, coords: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch features"]:
        """Returns the features of every point."""
        angles = 2 * math.pi * self.domain.to_unit(coords) @ self.frequencies.T
        return torch.cat([torch.sin(angles), torch.cos(angles)], dim=-1)


class LearnedFeatures(nn.Module):
    """A small MLP on seamless coordinates."""

    def __init__(self, domain: Domain, hidden_dim: int) -> None:
        super().__init__()
        self.domain = domain
        self.num_features = hidden_dim
        self.layers = nn.Sequential(
            nn.Linear(domain.embedding_dim, hidden_dim),
            nn.GELU(),
            nn.Linear(hidden_dim, hidden_dim),
        )

    def forward(self, coords: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch features"]:
        """Returns the features of every point."""
        return self.layers(self.domain.embed(coords))


class NoFeatures(nn.Module):
    """Leaves the position out, so that the encoder commutes with translations."""

    num_features = 0

    def forward(self, coords: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch 0"]:
        """Returns no features."""
        return coords[..., :0]


PositionFeatures = FourierFeatures | LearnedFeatures | NoFeatures


def make_features(config: AnyConfig, domain: Domain, hidden_dim: int) -> PositionFeatures:
    """Builds what `config.features` names."""
    if config.features == "fourier":
        return FourierFeatures(config, domain)
    return LearnedFeatures(domain, hidden_dim) if config.features == "mlp" else NoFeatures()


@dataclass(frozen=True)
class PointFeatures:
    r"""$\eta_j=[a_j,\gamma(x_j)]$ of every point, in two parts."""

    values: Float[Tensor, "batch points channels"]
    position: Float[Tensor, "#batch points features"]
    """One set where all samples have the same points, as most data have."""

    def project(self, layer: nn.Linear) -> Float[Tensor, "batch points out"]:
        r"""Returns $W\eta_j+b$; the part of the position is computed once for all samples."""
        channels = self.values.shape[-1]
        position = linear(self.position, layer.weight[:, channels:], layer.bias)
        return linear(self.values, layer.weight[:, :channels]) + position


def describe_points(
    features: PositionFeatures,
    values: Float[Tensor, "batch points channels"],
    coords: Float[Tensor, "#batch points dim"],
) -> PointFeatures:
    """Returns values and position features of every point."""
    return PointFeatures(values, features(coords))
