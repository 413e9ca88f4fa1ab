r"""The Gaussian Particle Operator (section 2.3, eq. op-def): lift, layers, decode.

$\mathcal{G}_\Theta=f^{\mathrm{dec}}_\phi\circ(\mathcal{O}_\psi)^{\circ n}\circ\mathcal{Z}\circ E_\theta$

`GaussianParticleOperator.run` is the method. Lift and layers of the default variant are in
`geometric.py`, its particles in `transport.py`; those of the paper's variant in `paper.py`, its
encoder in `encoder.py`. What a layer is stands in `layer.py`, how sites come in chunks in
`chunks.py`, and how they fit into memory in `memory.py`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gpo.model import checkpoint
from gpo.model.ablation import Ablation
from gpo.model.chunks import Chunk, Chunker
from gpo.model.config import GeometricConfig, OperatorConfig, PaperConfig
from gpo.model.geometric import build_geometric
from gpo.model.layer import (
    AbstractLayer,
    LayerOutput,
    Lifted,
    Regularizer,
    State,
    Variant,
    total,
    view_from,
)
from gpo.model.memory import Keeps, Memory, activation_sizes, choose_memory, chunk_points
from gpo.model.modes import AbstractModes
from gpo.model.paper import ContentTransform, build_paper
from gpo.model.particles import AbstractLatent, Particles
from gpo.model.sites import FixedGeometry, Sites, check_sites
from gpo.model.trace import Trace
from gpo.model.transport import Content
from gpo.parallel.shard import SINGLE_PROCESS, SpatialShard
from gpo.transforms.site_geometry import CountedSites, SiteGeometry
from gpo.transforms.transform import AbstractTransform

VARIANTS: dict[type, Callable[..., Variant]] = {
    GeometricConfig: build_geometric,
    PaperConfig: build_paper,
}
"""What builds lift and layers, by configuration; a variant of your own joins with one line."""


class GaussianParticleOperator(nn.Module):
    """Maps a field on any points to a field on any points, through Gaussian particles."""

    def __init__(self, config: OperatorConfig) -> None:
        """Makes an operator that begins at random.

        Args:
            config: A `GeometricConfig` for the default variant, a `PaperConfig` for the paper's.
        """
        super().__init__()
        self.config = config
        # Everything inside counts coordinates from the corner of the domain.
        local = replace(config, domain=config.domain.local)
        variant = VARIANTS[type(config)](local)
        self.lift, self.decoder = variant.lift, variant.decoder
        waves = variant.waves
        self.waves = None if waves is None else replace(waves, domain=config.domain)
        """The test functions, where they are waves, in coordinates of the domain."""
        self.layers = nn.ModuleList(variant.layers)
        self.chunker = Chunker(local, variant.waves, num_nodes=variant.num_nodes)
        self.num_modes = activation_sizes(config).modes
        """Modes of a layer, of all its heads."""
        self.shard: SpatialShard = SINGLE_PROCESS
        self.chunk_size: int | None = None
        """Sites, of all samples together, that are worked on at a time; as fit the cache where None."""

    def forward(
        self,
        values: Float[Tensor, "batch points in_channels"],
        coords: Float[Tensor, "*#batch points dim"],
        *,
        weights: Float[Tensor, "*#batch points"] | None = None,
        queries: Float[Tensor, "*#batch queries dim"] | None = None,
        ablation: Ablation = Ablation(),
    ) -> Float[Tensor, "batch targets out_channels"]:
        """Returns the predicted field at the sites, or at `queries`.

        An answer at a query does not depend on which other queries are asked.

        Args:
            values: The input field at the sites.
            coords: The sites, shared by the batch or one set per sample.
            weights: Quadrature weights; 0 masks a site, whatever it holds.
            queries: Any other points at which to predict.
            ablation: Parts that are switched off.
        """
        return self.run(self.check(values, coords, weights, queries), ablation).answer

    def run(
        self,
        sites: Sites,
        ablation: Ablation = Ablation(),
        *,
        num_layers: int | None = None,
        regularizer: Regularizer | None = None,
        keeps_trace: bool = False,
    ) -> "OperatorOutput":
        """Lifts sites that were checked, and takes them through all layers.

        Args:
            sites: Fields on sites.
            ablation: Parts that are switched off.
            num_layers: How many of the layers are applied; all when not given, 0 for encoder and
                decoder alone.
            regularizer: Says something of the particles that adds up over sites.
            keeps_trace: Whether every intermediate is kept.
        """
        sites = self._ablate(sites, ablation)
        is_whole = keeps_trace or ablation.displacing is not None
        counted = None if is_whole or ablation.sites else self.chunker.counted(sites)
        worked_on = sites if counted is None else sites.chosen(counted)
        keeps_all = keeps_trace or sites.fixed is not None
        memory = Memory() if keeps_all else choose_memory(self.config, worked_on.values)
        chunks = self.chunker.split(worked_on, self.chunk_size, is_whole=is_whole)
        lift = partial(self._lift, ablation, regularizer, memory)
        lifted = memory.map(self, lift, chunks)
        states = [one.state for one, _ in lifted]
        output = OperatorOutput(self, sites, counted, ablation, memory, chunks, lifted, [states])
        for number, layer in enumerate(self.applied_layers[:num_layers]):
            passed: LayerOutput = layer(
                states, chunks, memory=memory, shard=sites.shard, ablation=ablation, number=number
            )
            states = states if number in ablation.layers else passed.states
            output.record(states, passed, keeps_trace)
        return output

    def decode(self, state: State) -> Float[Tensor, "batch points out_channels"]:
        """Returns the field at points in some state."""
        return self.decoder(self.lift.read(state))

    def particles(
        self,
        values: Float[Tensor, "batch points in_channels"],
        coords: Float[Tensor, "*#batch points dim"],
        *,
        weights: Float[Tensor, "*#batch points"] | None = None,
    ) -> tuple[Particles, ...]:
        """Returns the particles that a forward pass uses, layer by layer: centers, scales, weights.

        Those of every layer that transports; in the paper's variant those of the encoder, which
        no layer changes.
        """
        sites = self.check(values, coords, weights, None)
        # Layers with windows on content never change what the encoder left.
        num_layers = None if self.waves is not None else 0
        found = self.run(sites, num_layers=num_layers, keeps_trace=True).trace.particles
        particles = tuple(one for one in found if isinstance(one, Particles))
        if not particles:
            raise ValueError(
                "This model has no particles: it is the ablation without them. Build it with "
                "num_transports=1 or more, or with has_gaussian_field=True."
            )
        return particles

    def trace(
        self,
        values: Float[Tensor, "batch points in_channels"],
        coords: Float[Tensor, "*#batch points dim"],
        *,
        weights: Float[Tensor, "*#batch points"] | None = None,
        ablation: Ablation = Ablation(),
    ) -> Trace:
        """Returns every intermediate of the forward pass together with its output."""
        sites = self.check(values, coords, weights, None)
        return self.run(sites, ablation, keeps_trace=True).trace

    def check(
        self,
        values: Tensor,
        coords: Tensor,
        weights: Tensor | None,
        queries: Tensor | None,
        *,
        is_local: bool = False,
    ) -> Sites:
        """Returns the sites in one shape, or raises a `ValueError` that says what is wrong.

        Args:
            values: The input field.
            coords: The sites.
            weights: Quadrature weights.
            queries: Other points.
            is_local: Whether places are those of other sites, counted from the corner already.
        """
        given, domain = (values, coords, weights, queries), self.config.domain
        expected = self.config.in_channels, domain.local if is_local else domain, self.dtype
        return check_sites(*expected, *given, shard=self.shard)

    @torch.no_grad()
    def fix(
        self,
        coords: Float[Tensor, "points dim"],
        *,
        weights: Float[Tensor, " points"] | None = None,
        queries: Float[Tensor, "queries dim"] | None = None,
    ) -> FixedGeometry:
        """Returns all that depends on positions alone; `run(Sites.at(fixed, values))` uses it."""
        values = coords.new_zeros(1, len(coords), self.config.in_channels, dtype=self.dtype)
        sites = self.check(values, coords, weights, queries)
        has_mask = not bool(sites.is_counted.all())
        fixed = FixedGeometry(sites.coords, sites.weights, has_mask, sites.queries)
        fixed = replace(fixed, geometry=self.chunker.geometry_at(sites))
        if sites.queries is None:
            return fixed
        chunk, neighbours = self.chunker.at_queries(sites, sites.queries)
        fixed = replace(fixed, neighbours=neighbours)
        if chunk.transform is None:
            return fixed
        return replace(fixed, query_geometry=SiteGeometry(chunk.transform, chunk.on_lattice))

    @property
    def applied_layers(self) -> list[AbstractLayer]:
        """The layers in the order of application; the same one n times where they are shared."""
        return list(self.layers) * (self.config.num_layers // max(1, len(self.layers)))  # pyright: ignore[reportReturnType]

    @property
    def dtype(self) -> torch.dtype:
        """The type of the parameters, which `values` must have too."""
        return next(self.parameters()).dtype

    def save_pretrained(self, folder: str | Path) -> None:
        """Writes `config.json` and `model.safetensors` into `folder`."""
        checkpoint.save(self, self.config, folder)

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> "GaussianParticleOperator":
        """Returns the model that `save_pretrained` wrote."""
        return checkpoint.load(cls, folder)

    def _lift(
        self, ablation: Ablation, regularizer: Regularizer | None, memory: Memory, chunk: Chunk
    ) -> tuple[Lifted, Tensor | None]:
        """Returns what is at the sites of a chunk before the first layer, and what is said of it."""
        lifted, penalty = self.lift(chunk, ablation), None
        if regularizer is not None and lifted.latent is not None:
            penalty = regularizer(lifted.latent, chunk)
        if memory.keeps != Keeps.ALL:
            # It takes room, and is computed again for those who ask.
            lifted = replace(lifted, latent=None)
        return lifted, penalty

    def _ablate(self, sites: Sites, ablation: Ablation) -> Sites:
        if ablation == Ablation():
            return sites
        config, num_sites = self.config, sites.values.shape[1]
        ablation.check(config.num_layers, self.num_modes, num_sites, config.num_gaussians)
        moves = ablation.displacing is not None
        if isinstance(config, PaperConfig) and (ablation.gates or moves):
            raise ValueError(
                "`ablation.gates` and `ablation.displacing` must be left out in the paper's variant: "
                "its layers have no gate, and its particles do not move."
            )
        if moves and not sites.shard.is_whole:
            raise ValueError(
                "`ablation.displacing` must be left out where several processes share the sites: "
                "it takes the displacements of all of them. Run one process."
            )
        return replace(sites, values=ablation.at_sites(sites.values))


@dataclass(frozen=True)
class OperatorOutput:
    """What a pass over the sites leaves: states to decode, and modes that answer anywhere."""

    model: GaussianParticleOperator
    sites: Sites
    counted: CountedSites | None
    """Those that states and chunks hold; all where None."""
    ablation: Ablation
    memory: Memory
    chunks: list[Chunk]
    lifted: list[tuple[Lifted, Tensor | None]]
    """Of all chunks, and what the regularizer said of each."""
    states: list[list[State]]
    """Of all chunks, before the first layer and after the last; after every layer in a trace."""
    modes: list[AbstractModes] = field(default_factory=list)
    """Of every layer, measured and coupled."""
    contents: list[Content | None] = field(default_factory=list)
    """Of every layer, what particles look at."""
    transforms: list[AbstractTransform] = field(default_factory=list)
    """Test functions of every layer at the sites; in a trace only."""

    def record(self, states: list[State], passed: LayerOutput, keeps_trace: bool) -> None:
        """Takes down what a layer did; of states the first and the last stay where nothing is traced."""
        self.modes.append(passed.modes)
        self.contents.append(passed.content)
        if keeps_trace:
            found = (one for one in passed.transforms if isinstance(one, AbstractTransform))
            self.transforms.extend(found)
        elif len(self.states) > 1:
            self.states.pop()
        self.states.append(states)

    @property
    def answer(self) -> Float[Tensor, "batch targets out_channels"]:
        """The predicted field where it was asked for: at the queries, or at the sites."""
        return self.decoded(-1) if self.sites.queries is None else self.at(self.sites.queries)

    def decoded(self, number: int) -> Float[Tensor, "batch points out_channels"]:
        """Returns what the decoder makes of a state of the sites; 0 is the first, -1 the last.

        It is zero at masked sites where nothing was done there.
        """
        found = join(self.memory.map(self.model.decoder, self.model.decode, self.states[number]))
        if self.counted is None:
            return found
        nothing = found.new_zeros(len(found), self.sites.values.shape[1], found.shape[2])
        return nothing.index_copy(1, self.counted.index, found)

    def state(self, number: int) -> Float[Tensor, "batch points channels"]:
        """Returns a state of all sites as the decoder reads it; 0 is the first, -1 the last."""
        return join([self.model.lift.read(state) for state in self.states[number]])

    @property
    def regularization(self) -> Tensor | None:
        """What the regularizer said of all sites."""
        penalties = [penalty for _, penalty in self.lifted if penalty is not None]
        return total(penalties) if penalties else None

    @cached_property
    def latent(self) -> AbstractLatent:
        """What the encoder left at all sites, in a model that has one."""
        lifted = [start for start, _ in self.lifted]
        if lifted[0].latent is None:
            lift = partial(self.model.lift, ablation=self.ablation)
            lifted = self.memory.map(self.model.lift, lift, self.chunks)
        latents = [one.latent for one in lifted if one.latent is not None]
        return type(latents[0]).joined(latents)

    def at(
        self, queries: Float[Tensor, "#batch queries dim"]
    ) -> Float[Tensor, "batch queries out_channels"]:
        """Returns the predicted field anywhere; answers do not depend on what else is asked."""
        if self.sites.fixed is not None or torch.compiler.is_compiling():
            return self._at(queries)
        size = chunk_points(self.model.config, len(self.sites.values), self.model.chunk_size, None)
        return join([self._at(portion) for portion in queries.split(size, dim=1)])

    def _at(self, queries: Tensor) -> Tensor:
        model = self.model
        chunk, neighbours = model.chunker.at_queries(self.sites, queries)
        state = model.lift.at_queries(chunk, neighbours, lambda: self.latent)
        passed = zip(model.applied_layers, self.modes, self.contents, strict=False)
        for number, (layer, modes, content) in enumerate(passed):
            if number not in self.ablation.layers:
                view = view_from(chunk, content, replace(self.ablation, sites=frozenset()), number)
                transform = layer.transform(state, chunk)
                is_gated = number not in self.ablation.gates
                state = layer.scatter(modes.outgoing, state, transform, view, is_gated=is_gated)
        return model.decode(state)

    @property
    def trace(self) -> Trace:
        """Every intermediate, of a pass that kept its trace."""
        domain, sites = self.model.config.domain, self.sites
        given = sites.given_type or sites.values.dtype
        coords = domain.from_local(sites.coords).to(given).expand(len(sites.values), -1, -1)
        states = tuple(self.state(number) for number in range(len(self.states)))
        windows = tuple(one.windows for one in self.transforms if isinstance(one, ContentTransform))
        return Trace(
            tuple(one.placed(domain, given) for one in self._particles()), states, tuple(self.modes), windows, self.decoded(-1),
            coords, domain, self.model.waves,
        )  # fmt: skip

    def _particles(self) -> Iterator[AbstractLatent]:
        """Yields what the encoder left, and the particles of every layer that has some."""
        if self.lifted[0][0].latent is not None:
            yield self.latent
        layers = zip(self.model.applied_layers, self.modes, self.contents, strict=False)
        for number, (layer, modes, content) in enumerate(layers):
            (state,), (chunk,) = self.states[number], self.chunks
            view = view_from(chunk, content, self.ablation, number)
            if view is not None:
                transform = layer.transform(state, chunk)
                yield layer.particles(modes.outgoing, state, transform, view, chunk)


def join(portions: list[Tensor]) -> Tensor:
    """Returns the points of all chunks, in an axis after the samples."""
    return portions[0] if len(portions) == 1 else torch.cat(portions, dim=1)


def count_parameters(config: OperatorConfig) -> int:
    """Returns how many parameters the operator of a configuration has, without building it."""
    with torch.device("meta"):
        model = GaussianParticleOperator(config)
    return sum(parameter.numel() for parameter in model.parameters())
