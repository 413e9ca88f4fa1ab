"""What lies between encoder and decoder, as things done to a few sites at a time.

A layer needs of all sites only a sum: what its windows measure. So sites are visited in chunks,
what they measure is added up, over chunks and over processes, the sums are coupled, and every
chunk takes its own share of the result (`sweep.py`).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor

from gpo.model.abstract_encoder import Described
from gpo.model.latent import AbstractLatent
from gpo.model.silence import Silence
from gpo.model.sites import Sites
from gpo.numerics.neighbours import Neighbours
from gpo.numerics.share import AbstractShare


@dataclass(frozen=True)
class Chunk:
    """Some points that are worked on together."""

    points: slice
    """Which ones."""
    windows: Any
    """All that windows know of these points before anything is at them."""


@dataclass(frozen=True)
class Visit:
    """A chunk between two layers."""

    state: Tensor
    """What layers change; what is decoded in the end."""
    latent: AbstractLatent | None
    """What the encoder left; None where nothing needs it any more."""
    moments: Tensor | None = None
    """What the windows of the next layer measured here."""
    kept: Any = None
    """What could be computed again from the rest."""


class AbstractLayers(ABC):
    """All layers of one variant of the operator."""

    @property
    @abstractmethod
    def num_layers(self) -> int:
        """How often modes are coupled."""

    @property
    @abstractmethod
    def num_modes(self) -> int:
        """Modes of a layer, of all its heads."""

    @property
    @abstractmethod
    def numbers_per_site(self) -> tuple[int, int, int]:
        """How many numbers training keeps of a site, roughly: its state, in a layer, in the encoder."""

    @abstractmethod
    def chunks(self, sites: Sites, size: int) -> list[Chunk]:
        """Returns the sites in portions of at most about `size` sites."""

    @abstractmethod
    def asked(
        self, sites: Sites, queries: Float[Tensor, "#batch queries dim"], neighbours: Neighbours
    ) -> Chunk:
        """Returns one chunk of queries, at which nothing is measured."""

    @abstractmethod
    def begin(
        self,
        latent: AbstractLatent,
        described: Described,
        coords: Float[Tensor, "#batch points dim"],
    ) -> Visit:
        """Returns points as they come from the encoder."""

    @abstractmethod
    def prepare(self, visit: Visit) -> Visit:
        """Returns points with what all layers need of them, kept."""

    @abstractmethod
    def forget(self, visit: Visit) -> Visit:
        """Returns points that remember of the encoder only what layers need."""

    @abstractmethod
    def measure(self, number: int, visit: Visit, chunk: Chunk) -> Visit:
        """Returns points with what the windows of a layer measure there."""

    @abstractmethod
    def couple(self, number: int, moments: Tensor, share: AbstractShare, silence: Silence) -> Any:
        """Returns the stage of a layer: the modes of all sites, measured and coupled.

        Args:
            number: Of the layer.
            moments: Sums over the sites that are here.
            share: Adds what other processes measured.
            silence: Modes that are switched off.
        """

    @abstractmethod
    def update(self, number: int, visit: Visit, stage: Any, chunk: Chunk) -> Visit:
        """Returns points after modes were scattered to them."""

    @abstractmethod
    def channels(self, state: Tensor) -> Float[Tensor, "batch points channels"]:
        """Returns a state as the decoder reads it."""

    @abstractmethod
    def seen(self, visit: Visit, stage: Any) -> Any:
        """Returns a stage with what is at the sites too, for a trace."""
