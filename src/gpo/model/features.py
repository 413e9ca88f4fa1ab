r"""How a site's position enters encoder or lift: the map $\gamma(x)$ of section 2.1."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear

from gpo.model.config import AnyConfig, PaperConfig
from gpo.numerics.domain import Domain


class FourierFeatures(nn.Module):
    r"""$\gamma(x)=[\sin(2\pi Bx),\cos(2\pi Bx)]$ with $B$ drawn once from $N(0,\sigma_B^2)$.

    Rounded to whole turns on periodic axes, frequencies give a $\gamma$ without a seam.
    """

    frequencies: Tensor

    def __init__(self, config: AnyConfig, domain: Domain, *, is_rounded: bool) -> None:
        """Draws the frequencies.

        Args:
            config: Their number, standard deviation and seed.
            domain: Where the points lie.
            is_rounded: Whether frequencies are whole numbers on periodic axes.
        """
        super().__init__()
        self.domain = domain
        self.num_features = 2 * config.num_frequencies
        generator = torch.Generator().manual_seed(config.fourier_seed or 0)
        shape = (config.num_frequencies, domain.dim)
        frequencies = torch.randn(shape, generator=generator, device="cpu") * config.fourier_std
        whole = torch.tensor(domain.periodic, device="cpu") & is_rounded
        # Saved with the weights: they mean nothing with other frequencies.
        self.register_buffer("frequencies", torch.where(whole, frequencies.round(), frequencies))

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


class WithCoordinates(nn.Module):
    """Appends the coordinates of a point, in unit lengths, to other features."""

    def __init__(self, features: "PositionFeatures", domain: Domain) -> None:
        super().__init__()
        self.features, self.domain = features, domain
        self.num_features = features.num_features + domain.dim

    def forward(self, coords: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch features"]:
        """Returns the features of every point."""
        return torch.cat([self.features(coords), self.domain.to_unit(coords)], dim=-1)


PositionFeatures = FourierFeatures | LearnedFeatures | NoFeatures | WithCoordinates


def make_features(
    config: AnyConfig, domain: Domain, hidden_dim: int, *, is_rounded: bool = True
) -> PositionFeatures:
    """Builds what `config.features` names.

    Args:
        config: The configuration of the model.
        domain: Where the points lie.
        hidden_dim: Width of learned features.
        is_rounded: Whether Fourier features have whole frequencies on periodic axes.
    """
    if config.features == "fourier":
        return FourierFeatures(config, domain, is_rounded=is_rounded)
    return LearnedFeatures(domain, hidden_dim) if config.features == "mlp" else NoFeatures()


def num_features(config: PaperConfig, domain: Domain) -> int:
    """Returns how many features of its position a point has in the paper's encoder."""
    counts = {"fourier": 2 * config.num_frequencies, "mlp": config.hidden_dim, "none": 0}
    return counts[config.features] + config.input_coordinates * domain.dim


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
