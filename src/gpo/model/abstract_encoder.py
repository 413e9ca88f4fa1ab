r"""What every encoder does: describes a site by its values and its place, and reads a state off that."""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gpo.model.config import OperatorConfig
from gpo.model.features import make_features
from gpo.model.latent import AbstractLatent


class AbstractEncoder(nn.Module, ABC):
    """Turns a field at sites into the state of the sites."""

    def __init__(self, config: OperatorConfig) -> None:
        super().__init__()
        self.features = make_features(config)
        self.num_described = config.in_channels + self.features.num_features

    def forward(
        self,
        values: Float[Tensor, "batch points channels"],
        coords: Float[Tensor, "batch points dim"],
    ) -> AbstractLatent:
        """Returns the state of every site."""
        return self.read(self.describe(values, coords), coords)

    def describe(
        self,
        values: Float[Tensor, "batch points channels"],
        coords: Float[Tensor, "batch points dim"],
    ) -> Float[Tensor, "batch points described"]:
        r"""Returns $\eta_j=[a_j,\gamma(x_j)]$."""
        return torch.cat([values, self.features(coords)], dim=-1)

    @abstractmethod
    def read(
        self,
        described: Float[Tensor, "batch points described"],
        coords: Float[Tensor, "batch points dim"],
    ) -> AbstractLatent:
        """Returns the state of sites that were described already."""
