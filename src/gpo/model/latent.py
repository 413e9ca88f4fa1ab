"""What an encoder leaves at every site, and what a stage of the operator asks of it."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import fields

import torch
from jaxtyping import Float
from torch import Tensor

from gpo.model.silence import Silence
from gpo.numerics.domain import Domain
from gpo.numerics.neighbours import Neighbours


class AbstractLatent(ABC):
    """The state of all sites: particles, or what the ablation puts in their place."""

    @abstractmethod
    def basis(
        self, coords: Float[Tensor, "#batch points dim"], domain: Domain
    ) -> Float[Tensor, "batch points gaussians"]:
        """Evaluates every site's own basis at `coords`, one point per site."""

    @abstractmethod
    def descriptor(self, domain: Domain) -> Float[Tensor, "batch points features"]:
        """Returns what windows see of a site besides its basis."""

    @abstractmethod
    def blend(self, neighbours: Neighbours, domain: Domain) -> "AbstractLatent":
        """Returns the state that free queries see: that of their neighbours, blended."""

    @classmethod
    def joined(cls, parts: Sequence["AbstractLatent"]) -> "AbstractLatent":
        """Returns the state of all sites from those of portions of them."""
        if len(parts) == 1:
            return parts[0]
        names = [field.name for field in fields(cls)]  # pyright: ignore[reportArgumentType]
        return cls(*(torch.cat([getattr(part, name) for part in parts], dim=1) for name in names))

    @abstractmethod
    def silenced(self, silence: Silence) -> "AbstractLatent":
        """Returns the state in which silent sites hold nothing."""
