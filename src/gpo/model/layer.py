r"""A layer, by the verbs of its mathematics: transform, couple, update; and carry, where particles look.

$T=\sum_j\psi(x_j)\,h_j$ is measured through test functions, $U=\mathcal{K}(T)$ couples the modes,
and $h_j\leftarrow F(h_j,\psi(x_j)\,U,c)$ takes up what is scattered back, and what particles see of
the content $c$ around them. Of all sites a layer needs a sum and, for particles, that content; so
sites come in chunks (`memory.py`) and may lie in several processes.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gpo.model.ablation import Ablation
from gpo.model.chunks import Chunk
from gpo.model.encoder import Decoder
from gpo.model.memory import Memory
from gpo.model.modes import AbstractModes
from gpo.model.particles import AbstractLatent, Particles
from gpo.model.transport import Content, View
from gpo.numerics.neighbours import Neighbours
from gpo.parallel.shard import SpatialShard
from gpo.transforms.transform import AbstractTransform, AbstractWaveTransform
from gpo.transforms.waves import Waves


@dataclass(frozen=True)
class State:
    """What points hold between two layers."""

    channels: Tensor
    """What layers change: the state $h$, points before samples, or the basis $Z$, samples first."""
    descriptor: Float[Tensor, "batch points features"] | None = None
    """What content windows see of particles, which no layer changes."""


@dataclass(frozen=True)
class Lifted:
    """What is at the points of a chunk before the first layer."""

    state: State
    latent: AbstractLatent | None
    """What the encoder left, where there is one."""


class AbstractLift(nn.Module, ABC):
    """Makes the state of points of the values there."""

    @abstractmethod
    def forward(self, chunk: Chunk, ablation: Ablation = Ablation()) -> Lifted:
        """Returns the state before the first layer."""

    @abstractmethod
    def at_queries(
        self, queries: Chunk, neighbours: Neighbours, latent: Callable[[], AbstractLatent]
    ) -> State:
        """Returns the state of queries before the first layer.

        Args:
            queries: The points, with values blended from their neighbours.
            neighbours: The sites next to them.
            latent: Returns what the encoder left at all sites.
        """

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
    content: Content | None
    """What particles looked at; none where the layer does not transport."""
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
        ablation: Ablation = Ablation(),
        number: int = 0,
    ) -> LayerOutput:
        """Takes all sites through the layer.

        Args:
            states: Of the sites, chunk by chunk.
            chunks: The sites.
            memory: What stays for the backward pass.
            shard: Adds what other processes measured.
            ablation: Parts that are switched off.
            number: Which of the layers this is, for an ablation.
        """
        transforms = memory.defer(self, self.transform, states, chunks)
        moments = memory.map(self, _analyse, transforms, states)
        modes = self.couple(total(moments), shard, chunks[0].transform)
        ablated = ablation.modes_of(number)
        modes = modes.without(ablated) if ablated else modes
        content = self.carry(modes, states, transforms, chunks, memory=memory, shard=shard)
        views = [view_from(chunk, content, ablation, number) for chunk in chunks]
        outgoing = [modes.outgoing] * len(chunks)
        scatter = partial(self.scatter, is_gated=number not in ablation.gates)
        updated = memory.map(self, scatter, outgoing, states, transforms, views)
        return LayerOutput(updated, modes, content, transforms)

    def scatter(
        self,
        modes: Tensor,
        state: State,
        transform: AbstractTransform,
        view: View | None,
        *,
        is_gated: bool = True,
    ) -> State:
        """Returns the state of points after modes were scattered to them."""
        return self.update(state, transform.synthesise(modes), view, is_gated=is_gated)

    def carry(
        self,
        modes: AbstractModes,
        states: list[State],
        transforms: Sequence[object],
        chunks: list[Chunk],
        *,
        memory: Memory,
        shard: SpatialShard,
    ) -> Content | None:
        """Returns what particles may look at, of all sites; nothing where a layer has none."""
        return None

    def particles(
        self, modes: Tensor, state: State, transform: AbstractTransform, view: View, chunk: Chunk
    ) -> Particles:
        """Returns the particles of points, in a layer that has some."""
        raise NotImplementedError

    @abstractmethod
    def transform(self, state: State, chunk: Chunk) -> AbstractTransform:
        """Returns the test functions at some points."""

    @abstractmethod
    def couple(
        self, moments: Tensor, shard: SpatialShard, waves: AbstractWaveTransform | None
    ) -> AbstractModes:
        """Returns the coupled modes.

        Args:
            moments: What the test functions measured at the sites of this process.
            shard: Adds what other processes measured.
            waves: Those that measured it, which make tokens of what adds up; none where test
                functions depend on the field.
        """

    @abstractmethod
    def update(
        self, state: State, scattered: Tensor, view: View | None, *, is_gated: bool = True
    ) -> State:
        """Returns the state of points that take up what was scattered to them, and what they see.

        Args:
            state: Before.
            scattered: From the modes.
            view: What particles look at, in a layer that has some.
            is_gated: Whether the gated product is added, in a layer that has one.
        """


@dataclass(frozen=True)
class Variant:
    """The parts of one variant of the operator."""

    lift: AbstractLift
    decoder: Decoder
    layers: Sequence[AbstractLayer]
    """Those that own parameters; fewer than are applied where layers are shared."""
    waves: Waves | None = None
    """The test functions, where they are waves; none where they depend on the field."""
    num_nodes: int | None = None
    """Of the lattice of scattered sites; none where no layer looks through particles."""


Regularizer = Callable[[AbstractLatent, Chunk], Tensor]
"""Says something of what the sites of a chunk own that adds up over sites."""


def view_from(chunk: Chunk, content: Content | None, ablation: Ablation, layer: int) -> View | None:
    """Returns what particles of some points look at, where there is content to look at."""
    if content is None:
        return None
    assert chunk.on_lattice is not None
    table = content.within_reach if chunk.are_sites else content.everywhere()
    return View(table, chunk.on_lattice, chunk.are_sites, ablation.within(chunk.points), layer)


def total(portions: list[Tensor]) -> Tensor:
    """Returns the sum over chunks."""
    return portions[0] if len(portions) == 1 else torch.stack(portions).sum(0)


def _analyse(transform: AbstractTransform, state: State) -> Tensor:
    return transform.analyse(state.channels)
