"""What lies between encoder and decoder, as things done to a few sites at a time.

A layer needs of all sites only a sum: what its windows measure. So sites are visited in chunks,
what they measure is added up, over chunks and over processes, the sums are coupled, and every
chunk takes its own share of the result (`sweep.py`).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from gpo.model.ablation import Ablation
from gpo.model.encoder import SiteFeatures
from gpo.model.particles import AbstractLatent
from gpo.model.sites import Sites
from gpo.numerics.neighbours import Neighbours
from gpo.parallel.shard import SpatialShard


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
    latent: AbstractLatent | None = None
    """What the encoder left; None where nothing needs it any more."""
    kept: Any = None
    """What could be computed again from the rest."""


class AbstractStage(ABC):
    """The modes of a layer, measured and coupled."""

    @property
    @abstractmethod
    def scattered(self) -> Tensor:
        """What is scattered back."""


@dataclass(frozen=True)
class Numbers:
    """How many numbers there are of a site, roughly."""

    state: int
    """In its state."""
    beside: int
    """That layers need of the encoder beside the state."""
    windows: int
    """In the windows of a layer, where these depend on what is at the site."""
    layer: int
    """That training keeps within a layer beside windows."""
    encoder: int
    """That training keeps within the encoder."""


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
    def numbers(self) -> Numbers:
        """How many numbers there are of a site, to tell what there is memory for."""

    @abstractmethod
    def written(self, sites: Sites) -> int:
        """Returns how many numbers of a site a layer writes at a time, to tell what a cache holds."""

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
        described: SiteFeatures,
        coords: Float[Tensor, "#batch points dim"],
    ) -> Visit:
        """Returns points as they come from the encoder."""

    @abstractmethod
    def prepare(self, visit: Visit) -> Visit:
        """Returns points with what all layers need of them, kept."""

    @abstractmethod
    def held(self, visit: Visit) -> tuple[Tensor, ...]:
        """Returns the state, and what else layers need of points that come from the encoder."""

    @abstractmethod
    def recall(self, held: tuple[Tensor, ...]) -> Visit:
        """Returns points of which this is held."""

    @abstractmethod
    def parameters_of(self, number: int) -> list[nn.Parameter]:
        """Returns the parameters of a layer."""

    @abstractmethod
    def look(self, number: int, visit: Visit, known: Visit | None = None) -> Visit:
        """Returns points with the windows of a layer there, where these depend on what is there.

        Args:
            number: Of the layer.
            visit: The points.
            known: The same points, where they were looked at before.
        """

    @abstractmethod
    def measure(self, number: int, visit: Visit, chunk: Chunk) -> Tensor:
        """Returns the moments of a layer: what its windows measure, which adds up over sites."""

    @abstractmethod
    def couple(
        self, number: int, moments: Tensor, shard: SpatialShard, ablation: Ablation
    ) -> AbstractStage:
        """Returns the stage of a layer: the modes of all sites.

        Args:
            number: Of the layer.
            moments: Sums over the sites that are here.
            shard: Adds what other processes measured.
            ablation: Modes that are switched off.
        """

    @abstractmethod
    def update(self, number: int, visit: Visit, scattered: Tensor, chunk: Chunk) -> Visit:
        """Returns points after modes were scattered to them."""

    @abstractmethod
    def channels(self, state: Tensor) -> Float[Tensor, "batch points channels"]:
        """Returns a state as the decoder reads it."""

    @abstractmethod
    def seen(self, visit: Visit, stage: Any) -> AbstractStage:
        """Returns a stage with what is at the sites too, for a trace."""
