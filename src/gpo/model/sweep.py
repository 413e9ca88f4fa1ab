r"""One sweep of the operator over all sites, a chunk at a time.

Between two layers only sums over sites are needed, so a chunk small enough for the cache goes
through a layer and measures for the next one before the following chunk is touched. Where all
that training would keep is too much, what is inside layers, encoder and decoder is computed again
in the backward pass: of a site, its particles and its state after every layer remain, and its
windows where there is room.
Numbers do not depend on chunks but for the order of sums.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from gpo.model.ablation import Ablation
from gpo.model.abstract_layers import AbstractLayers, AbstractStage, Chunk, Visit
from gpo.model.encoder import AbstractEncoder, Decoder, SiteFeatures
from gpo.model.particles import AbstractLatent
from gpo.model.passage import Passage
from gpo.model.recomputed import RecomputedPassage
from gpo.model.sites import Sites
from gpo.numerics.neighbours import NeighbourSearch

KEPT_BYTES = 3 * 2**30
"""What training keeps for the backward pass at most, where it can be computed again."""

CACHED_NUMBERS = 2**21
"""What one chunk should write at a time, so that the cache holds it."""


class Keeps(Enum):
    """What training keeps for the backward pass; the rest is computed again."""

    ALL = "everything"
    WINDOWS = "states and windows"
    STATES = "states"


@dataclass(frozen=True)
class Parts:
    """What an operator is made of."""

    encoder: AbstractEncoder
    layers: AbstractLayers
    decoder: Decoder
    find_neighbours: NeighbourSearch
    chunk_size: int | None
    """Sites, of all samples together, that are worked on at a time; chosen where None."""


@dataclass(frozen=True)
class Sweep:
    """What a sweep leaves: states to decode and judge, and modes that answer at any point."""

    parts: Parts
    sites: Sites
    ablation: Ablation
    chunks: list[Chunk]
    keeps: Keeps
    stages: list[Any]
    """The modes of every layer, measured and coupled."""
    states: list[list[Tensor]]
    """Of all chunks, before the first layer and after the last; after every layer in a trace."""
    latents: list[AbstractLatent]
    """Of all chunks; none where they are computed again when they are asked for."""
    judged: Tensor | None
    """Sum over all chunks of what `judge` said."""

    @property
    def output(self) -> Float[Tensor, "batch points out_channels"]:
        """The predicted field at the sites."""
        return self.decoded(-1)

    def decoded(self, number: int) -> Float[Tensor, "batch points out_channels"]:
        """Returns what the decoder makes of the state of all sites."""
        return joined([self._run(self._decoded, state) for state in self.states[number]])

    @cached_property
    def latent(self) -> AbstractLatent:
        """What the encoder left at all sites."""
        latents = self.latents
        if not latents:
            pieces = zip(*_pieces(self.sites, self.chunks), self.chunks, strict=True)
            latents = [self._run(self._latent, *piece) for piece in pieces]
        return type(latents[0]).joined(latents)

    def bases(self, number: int) -> Float[Tensor, "batch points channels"]:
        """Returns the state of all sites as the decoder reads it."""
        layers = self.parts.layers
        return joined([layers.channels(state) for state in self.states[number]])

    def at(
        self, queries: Float[Tensor, "#batch queries dim"]
    ) -> Float[Tensor, "batch queries out_channels"]:
        """Returns the predicted field anywhere; answers do not depend on what else is asked."""
        if self.sites.fixed is not None or torch.compiler.is_compiling():
            return self._answers(queries, self.latent)
        size = _chunk_points(self.parts, self.sites, self.parts.layers.num_modes)
        asked = queries.split(size, dim=1)
        return joined([self._run(self._answers, portion, self.latent) for portion in asked])

    def _run(self, function: Callable[..., Any], *given: Any) -> Any:
        return _run(function, self.keeps != Keeps.ALL, *given)

    def _latent(
        self, values: Tensor, coords: Tensor, weights: Tensor, chunk: Chunk
    ) -> AbstractLatent:
        ablation = self.ablation.within(chunk.points)
        return _encoded(self.parts.encoder, values, coords, ablation)[1]

    def _decoded(self, state: Tensor) -> Tensor:
        return self.parts.decoder(self.parts.layers.channels(state))

    def _answers(self, queries: Tensor, latent: AbstractLatent) -> Tensor:
        encoder, layers, sites = self.parts.encoder, self.parts.layers, self.sites
        neighbours = sites.fixed and sites.fixed.neighbours
        if neighbours is None:
            places = queries, sites.coords, sites.is_counted
            neighbours = self.parts.find_neighbours(*places, sites.shard)
        values = neighbours.blend(neighbours.gather(sites.values))
        latent = latent.blend(neighbours, encoder.domain)
        chunk = layers.asked(sites, queries, neighbours)
        visit = layers.begin(latent, encoder.describe(values, queries), queries)
        for number, stage in enumerate(self.stages):
            if number not in self.ablation.layers:
                visit = layers.look(number, visit)
                visit = layers.update(number, visit, stage.scattered, chunk)
        return self._decoded(visit.state)


Regularizer = Callable[[Any, Tensor, Tensor], Tensor]
"""Says something of the latent state, coordinates and weights of sites that adds up over sites."""


def sweep(
    parts: Parts,
    sites: Sites,
    ablation: Ablation = Ablation(),
    *,
    traces: bool = False,
    judge: Regularizer | None = None,
) -> Sweep:
    """Takes all sites through the encoder and all layers.

    Args:
        parts: Encoder, layers and decoder.
        sites: Fields on sites.
        ablation: Parts that are switched off.
        traces: Whether every intermediate is kept.
        judge: Is asked about the particles of every chunk, which need not be kept then.
    """
    layers = parts.layers
    keeps = Keeps.ALL if traces else _keeps(parts, sites)
    recomputes = keeps != Keeps.ALL
    is_whole = traces or sites.fixed is not None or torch.compiler.is_compiling()
    size = sites.values.shape[1]
    if not is_whole:
        size = _chunk_points(parts, sites, layers.written(sites))
    chunks = layers.chunks(sites, size)

    def begin(
        values: Tensor, coords: Tensor, weights: Tensor, chunk: Chunk
    ) -> tuple[Visit, Tensor | None]:
        quiet = ablation.within(chunk.points)
        described, latent = _encoded(parts.encoder, values, coords, quiet)
        visit = layers.begin(latent, described, coords)
        judged = None if judge is None else judge(latent, coords, weights)
        return layers.recall(layers.held(visit)) if recomputes else layers.prepare(visit), judged

    def layer(number: int, visits: list[Visit]) -> tuple[list[Visit], AbstractStage]:
        passage = Passage(layers, number, chunks)
        if recomputes:
            passage = RecomputedPassage(layers, number, chunks, keeps == Keeps.WINDOWS)
        moments = passage.measure(visits)
        stage = layers.couple(number, moments, sites.shard, ablation)
        seen = layers.seen(passage.seen[0], stage) if traces else stage
        if number in ablation.layers:
            passage.seen.clear()
            return visits, seen
        return passage.update(visits, stage.scattered), seen

    pieces = zip(*_pieces(sites, chunks), chunks, strict=True)
    begun = [_run(begin, recomputes, *piece) for piece in pieces]
    visits = [visit for visit, _ in begun]
    judged = None if judge is None else _total([said for _, said in begun])
    states, stages = [[visit.state for visit in visits]], []
    latents = [visit.latent for visit in visits if visit.latent is not None]
    for number in range(layers.num_layers):
        visits, stage = layer(number, visits)
        stages.append(stage)
        if traces or number == layers.num_layers - 1:
            states.append([visit.state for visit in visits])
    return Sweep(parts, sites, ablation, chunks, keeps, stages, states, latents, judged)


def joined(portions: list[Tensor]) -> Tensor:
    """Returns the points of all portions, in an axis after the samples."""
    return portions[0] if len(portions) == 1 else torch.cat(portions, dim=1)


def _run(function: Callable[..., Any], again: bool, *given: Any) -> Any:
    if not again:
        return function(*given)
    return checkpoint(function, *given, use_reentrant=False, preserve_rng_state=False)


def _total(portions: list[Any]) -> Tensor:
    total = portions[0]
    for portion in portions[1:]:
        total = total + portion
    return total


def _pieces(sites: Sites, chunks: list[Chunk]) -> list[tuple[Tensor, ...]]:
    """Returns values, coordinates and weights, each in chunks."""
    lengths = [len(range(*chunk.points.indices(sites.values.shape[1]))) for chunk in chunks]
    return [part.split(lengths, 1) for part in (sites.values, sites.coords, sites.weights)]


def _encoded(
    encoder: AbstractEncoder, values: Tensor, coords: Tensor, ablation: Ablation
) -> tuple[SiteFeatures, AbstractLatent]:
    """Returns values as the encoder sees them, and what it leaves at their sites."""
    described = encoder.describe(values, coords)
    return described, encoder.read(described, coords).ablated(ablation)


def _keeps(parts: Parts, sites: Sites) -> Keeps:
    """Returns what there is memory for."""
    if sites.fixed is not None or torch.compiler.is_compiling() or not torch.is_grad_enabled():
        return Keeps.ALL
    numbers, num_layers = parts.layers.numbers, parts.layers.num_layers
    room = KEPT_BYTES / sites.values.element_size() / sites.values[..., 0].numel()
    # Gradients take as much as what they belong to.
    room -= (num_layers + 1) * numbers.state + 2 * numbers.beside
    needed = {
        Keeps.ALL: num_layers * (numbers.windows + numbers.layer) + numbers.encoder,
        Keeps.WINDOWS: num_layers * numbers.windows,
    }
    return next((keeps for keeps, count in needed.items() if count <= room), Keeps.STATES)


def _chunk_points(parts: Parts, sites: Sites, written: int) -> int:
    """Returns how many points of every sample make a chunk, each of which writes some numbers."""
    size = parts.chunk_size or CACHED_NUMBERS // written
    return max(1, size // len(sites.values))
