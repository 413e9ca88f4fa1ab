r"""What every encoder does: describes a site by its values and its place, and reads a state off that."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear

from gpo.model.config import OperatorConfig
from gpo.model.features import make_features
from gpo.model.latent import AbstractLatent


@dataclass(frozen=True)
class Described:
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
    ) -> Described:
        """Returns what is known of every site."""
        if not torch.compiler.is_compiling() and bool((coords == coords[:1]).all()):
            coords = coords[:1]
        return Described(values, self.features(coords))

    @abstractmethod
    def read(
        self, described: Described, coords: Float[Tensor, "#batch points dim"]
    ) -> AbstractLatent:
        """Returns the state of sites that were described already."""
