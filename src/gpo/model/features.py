r"""How a site's position enters the encoder: the map $\gamma(x)$ of section 2.1."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gpo.model.config import OperatorConfig


class FourierFeatures(nn.Module):
    r"""$\gamma(x)=[\sin(2\pi Bx),\cos(2\pi Bx)]$ with $B$ drawn once from $N(0,\sigma_B^2)$.

    On a periodic axis frequencies are rounded to whole turns, so that $\gamma$ has no seam.
    """

    frequencies: Tensor

    def __init__(self, config: OperatorConfig) -> None:
        super().__init__()
        self.domain = config.space
        self.num_features = 2 * config.num_frequencies
        generator = torch.Generator().manual_seed(config.fourier_seed)
        shape = (config.num_frequencies, config.dim)
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

    def __init__(self, config: OperatorConfig) -> None:
        super().__init__()
        self.domain = config.space
        self.num_features = config.hidden_dim
        self.layers = nn.Sequential(
            nn.Linear(self.domain.embedding_dim, config.hidden_dim),
            nn.GELU(),
            nn.Linear(config.hidden_dim, config.hidden_dim),
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


FEATURES = {"fourier": FourierFeatures, "mlp": LearnedFeatures, "none": NoFeatures}


def make_features(config: OperatorConfig) -> FourierFeatures | LearnedFeatures | NoFeatures:
    """Builds what `config.features` names."""
    return FEATURES[config.features](config) if config.features != "none" else NoFeatures()


def make_open_features(
    config: OperatorConfig,
) -> FourierFeatures | LearnedFeatures | NoFeatures:
    """Builds the same for positions along open axes alone: nothing where every axis closes."""
    return NoFeatures() if all(config.space.periodic) else make_features(config)
