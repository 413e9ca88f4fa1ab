r"""A layer, by the verbs of its mathematics: transform, couple, update.

$T=\sum_j\psi(x_j)\,h_j$ is measured through test functions, $U=\mathcal{K}(T)$ couples the modes,
and $h_j\leftarrow F(h_j,\psi(x_j)\,U)$ takes up what is scattered back. Of all sites a layer needs
a sum and nothing else, so sites come in chunks (`memory.py`) and may lie in several processes.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gpo.model.encoder import SiteFeatures
from gpo.model.memory import Memory
from gpo.model.particles import AbstractLatent
from gpo.parallel.shard import SpatialShard
from gpo.transforms.transform import AbstractTransform, AbstractWaveTransform
from gpo.transforms.waves import Waves


@dataclass(frozen=True)
class Chunk:
    """Some points that are worked on together."""

    values: Float[Tensor, "batch points channels"]
    """The input field there."""
    coords: Float[Tensor, "#batch points dim"]
    weights: Float[Tensor, "#batch points"] | None
    """Quadrature weights of sites; none at queries, where nothing is measured."""
    transform: AbstractWaveTransform | None
    """Waves at these points; none where test functions depend on the field."""
    points: slice
    """Which sites these are."""


@dataclass(frozen=True)
class State:
    """What points hold between two layers."""

    channels: Tensor
    """What layers change: the state $h$, points before samples, or the basis $Z$, samples first."""
    descriptor: Float[Tensor, "batch points features"] | None = None
    """What content windows see of particles, which no layer changes."""


class AbstractModes(ABC):
    """What a layer measured at all sites and made of it: all that a query needs from them."""

    scattered: Tensor
    """The modes that are scattered back to the points."""

    @abstractmethod
    def without(self, modes: Iterable[int]) -> "AbstractModes":
        """Returns the same with some modes zero on their way back."""


class AbstractLift(nn.Module, ABC):
    """Makes the state of points of what the encoder says of them."""

    @abstractmethod
    def forward(
        self,
        latent: AbstractLatent,
        features: SiteFeatures,
        coords: Float[Tensor, "#batch points dim"],
    ) -> State:
        """Returns the state before the first layer."""

    @abstractmethod
    def read(self, state: State) -> Float[Tensor, "batch points channels"]:
        """Returns a state as the decoder takes it."""


@dataclass(frozen=True)
class LayerOutput:
    """What one layer did to all sites."""

    states: list[State]
    """Of all chunks, after the layer."""
    modes: AbstractModes
    """Measured, coupled, and scattered back."""
    transforms: Sequence[object]
    """Test functions at the chunks, or how to compute them again."""


class AbstractLayer(nn.Module, ABC):
    """One layer of the operator: measure, couple, scatter."""

    def forward(
        self,
        states: list[State],
        chunks: list[Chunk],
        *,
        memory: Memory,
        shard: SpatialShard,
        ablated: Sequence[int] = (),
    ) -> LayerOutput:
        """Takes all sites through the layer.

        Args:
            states: Of the sites, chunk by chunk.
            chunks: The sites.
            memory: What stays for the backward pass.
            shard: Adds what other processes measured.
            ablated: Modes that are not scattered back.
        """
        transforms = memory.defer(self, self.transform, states, chunks)
        moments = memory.map(self, _analyse, transforms, states)
        modes = self.couple(total(moments), shard)
        modes = modes.without(ablated) if ablated else modes
        scattered = [modes.scattered] * len(chunks)
        updated = memory.map(self, self.scatter, scattered, states, transforms)
        return LayerOutput(updated, modes, transforms)

    def scatter(self, modes: Tensor, state: State, transform: AbstractTransform) -> State:
        """Returns the state of points after modes were scattered to them."""
        return self.update(state, transform.synthesise(modes))

    @abstractmethod
    def transform(self, state: State, chunk: Chunk) -> AbstractTransform:
        """Returns the test functions at some points."""

    @abstractmethod
    def couple(self, moments: Tensor, shard: SpatialShard) -> AbstractModes:
        """Returns the coupled modes.

        Args:
            moments: What the test functions measured at the sites of this process.
            shard: Adds what other processes measured.
        """

    @abstractmethod
    def update(self, state: State, scattered: Tensor) -> State:
        """Returns the state of points that take up what was scattered to them."""


@dataclass(frozen=True)
class Variant:
    """What lies between encoder and decoder in one variant of the operator."""

    lift: AbstractLift
    layers: Sequence[AbstractLayer]
    """Those that own parameters; fewer than are applied where layers are shared."""
    waves: Waves | None
    """The test functions, where they are waves; none where they depend on the field."""


Regularizer = Callable[[AbstractLatent, Chunk], Tensor]
"""Says something of what the sites of a chunk own that adds up over sites."""


def total(portions: list[Tensor]) -> Tensor:
    """Returns the sum over chunks."""
    return portions[0] if len(portions) == 1 else torch.stack(portions).sum(0)


def _analyse(transform: AbstractTransform, state: State) -> Tensor:
    return transform.analyse(state.channels)
