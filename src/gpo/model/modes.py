"""What a layer measured at all sites and made of it, for both variants."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from gpo.model.ablation import without


class AbstractModes(ABC):
    """What a layer measured at all sites and made of it: all that a query needs from them."""

    scattered: Tensor
    """The modes that are scattered back to the points."""

    @property
    def outgoing(self) -> Tensor:
        """All that is scattered, particles' guides included."""
        return self.scattered

    @abstractmethod
    def without(self, modes: Iterable[int]) -> "AbstractModes":
        """Returns the same with some modes zero on their way back."""


@dataclass(frozen=True)
class WaveModes(AbstractModes):
    """What one layer measured and made of it."""

    tokens: Float[Tensor, "2 modes batch channels"]
    """Real and imaginary part of what every wave measured."""
    response: Float[Tensor, "2 modes fields"]
    """The coupling: by what every mode of every field is multiplied, real and imaginary part."""
    scattered: Float[Tensor, "2 modes batch fields"]
    """The filtered tokens: the gate p in the first half of the fields, what it lets pass, r, in the second."""
    guides: Float[Tensor, "2 modes batch numbers"] | None = None
    """Likewise what particles are read off, where a layer transports."""

    @property
    def outgoing(self) -> Tensor:
        """All that is scattered."""
        if self.guides is None:
            return self.scattered
        return torch.cat([self.scattered, self.guides], dim=-1)

    def without(self, modes: Iterable[int]) -> "WaveModes":
        """Returns the same with some waves zero on their way back."""
        chosen = list(modes)
        guides = None if self.guides is None else without(self.guides, chosen, dim=1)
        return replace(self, scattered=without(self.scattered, chosen, dim=1), guides=guides)


@dataclass(frozen=True)
class ContentModes(AbstractModes):
    """What one layer measured and made of it."""

    tokens: Float[Tensor, "batch heads modes head_dim"]
    """What every window measured."""
    coupling: Float[Tensor, "batch heads modes modes"]
    """How much every mode takes of every other."""
    coupled: Float[Tensor, "batch heads modes head_dim"]
    """The tokens after coupling."""
    scattered: Float[Tensor, "batch heads modes gaussians"]
    """The same in the channels of the basis, on their way back."""

    def without(self, modes: Iterable[int]) -> "ContentModes":
        """Returns the same with some modes zero on their way back; those of all heads are numbered."""
        chosen = list(modes)
        coupled, scattered = (
            without(part.flatten(1, 2), chosen, dim=1).view_as(part)
            for part in (self.coupled, self.scattered)
        )
        return replace(self, coupled=coupled, scattered=scattered)
