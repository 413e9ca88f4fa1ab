"""The layers of the paper's variant: attention through windows that see what a site holds."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear

from gpo.model.ablation import Ablation
from gpo.model.abstract_layers import AbstractLayers, Chunk, Numbers, Visit
from gpo.model.config import OperatorConfig
from gpo.model.encoder import SiteFeatures
from gpo.model.paper import Modes, PGGaussianAttention, Stage, measure
from gpo.model.particles import AbstractLatent
from gpo.model.sites import Sites
from gpo.numerics.neighbours import Neighbours
from gpo.parallel.shard import SpatialShard


@dataclass(frozen=True)
class Look:
    """How points look to windows."""

    descriptor: Float[Tensor, "batch points features"] | None = None
    """All that windows see of particles, where these are not kept themselves."""
    described: tuple[Float[Tensor, "batch points hidden"], ...] = ()
    """What the windows of every layer make of the particles, which no layer changes."""
    windows: Float[Tensor, "batch heads points modes"] | None = None
    """Of the next layer."""


class ContentLayers(nn.ModuleList, AbstractLayers):
    """The stages of Gaussian-basis attention; the basis is the state."""

    def __init__(self, config: OperatorConfig) -> None:
        num_owned = min(config.num_layers, 1) if config.share_layers else config.num_layers
        super().__init__(PGGaussianAttention(config) for _ in range(num_owned))
        self.config = config

    @property
    def stages(self) -> list[PGGaussianAttention]:
        """The layers in the order of application; the same one n times where they are shared."""
        layers = [layer for layer in self if isinstance(layer, PGGaussianAttention)]
        return layers * self.config.num_layers if self.config.share_layers else layers

    @property
    def num_layers(self) -> int:
        """How often modes are coupled."""
        return self.config.num_layers

    @property
    def num_modes(self) -> int:
        """Modes of all heads."""
        return self.config.num_heads * self.config.num_modes

    @property
    def numbers(self) -> Numbers:
        """How many numbers there are of a site."""
        gaussians, hidden = self.config.num_gaussians, self.config.hidden_dim
        return Numbers(
            state=gaussians,
            beside=gaussians * (1 + 2 * self.config.dim),
            windows=self.num_modes,
            layer=2 * hidden + 8 * gaussians,
            encoder=8 * hidden + 20 * gaussians,
        )

    def written(self, sites: Sites) -> int:
        """Returns the number of windows there."""
        return self.num_modes

    def chunks(self, sites: Sites, size: int) -> list[Chunk]:
        """Returns the sites in portions, with their quadrature weights."""
        return [
            Chunk(slice(start, start + size), sites.weights[:, start : start + size])
            for start in range(0, sites.values.shape[1], size)
        ]

    def asked(
        self, sites: Sites, queries: Float[Tensor, "#batch queries dim"], neighbours: Neighbours
    ) -> Chunk:
        """Returns queries, which have no weight."""
        return Chunk(slice(None), None)

    def begin(
        self,
        latent: AbstractLatent,
        described: SiteFeatures,
        coords: Float[Tensor, "#batch points dim"],
    ) -> Visit:
        """Returns the basis as the encoder makes it."""
        return Visit(latent.basis(coords, self.config.space), latent)

    def prepare(self, visit: Visit) -> Visit:
        """Returns the basis with the part of all windows that does not change, in one product."""
        if not len(self):
            return visit
        windows = [stage.windows for stage in self if isinstance(stage, PGGaussianAttention)]
        weight = torch.cat([one.particle_weight for one in windows])
        bias = torch.cat([one.describe.bias for one in windows])
        parts = linear(self._descriptor(visit), weight, bias).split(self.config.hidden_dim, dim=-1)
        times = self.num_layers // len(parts)
        return replace(visit, kept=Look(described=parts * times))

    def held(self, visit: Visit) -> tuple[Tensor, ...]:
        """Returns the basis, and what windows see of particles in place of these."""
        return visit.state, self._descriptor(visit)

    def recall(self, held: tuple[Tensor, ...]) -> Visit:
        """Returns the basis with what windows see of particles."""
        basis, descriptor = held
        return Visit(basis, kept=Look(descriptor))

    def parameters_of(self, number: int) -> list[nn.Parameter]:
        """Returns those of a stage."""
        return list(self.stages[number].parameters())

    def look(self, number: int, visit: Visit, known: Visit | None = None) -> Visit:
        """Returns the basis with the windows of a layer."""
        windows, look = self.stages[number].windows, visit.kept or Look()
        if known is not None:
            found = windows.known(visit.state, self._descriptor(visit), known.kept.windows)
        elif look.described:
            found = windows(visit.state, look.described[number])
        else:
            found = windows(visit.state, windows.described(self._descriptor(visit)))
        return replace(visit, kept=replace(look, windows=found))

    def measure(
        self, number: int, visit: Visit, chunk: Chunk
    ) -> Float[Tensor, "batch heads modes gaussians_and_mass"]:
        """Returns the moments of the windows."""
        return measure(visit.kept.windows, visit.state, chunk.windows)

    def couple(
        self, number: int, moments: Tensor, shard: SpatialShard, ablation: Ablation
    ) -> Modes:
        """Returns the modes of all sites."""
        modes = self.stages[number].couple(moments, shard)
        loud = ablation.tokens(number, modes.coupled.flatten(1, 2), dim=1)
        return replace(modes, coupled=loud.view_as(modes.coupled))

    def update(self, number: int, visit: Visit, scattered: Tensor, chunk: Chunk) -> Visit:
        """Returns the basis after modes were scattered into it."""
        basis = self.stages[number].update(visit.state, visit.kept.windows, scattered)
        return Visit(basis, visit.latent, replace(visit.kept, windows=None))

    def channels(self, state: Tensor) -> Float[Tensor, "batch points gaussians"]:
        """Returns the basis."""
        return state

    def seen(self, visit: Visit, stage: Modes) -> Stage:
        """Returns a stage with the windows at the sites."""
        return Stage(stage.tokens, stage.coupling, stage.coupled, visit.kept.windows)

    def _descriptor(self, visit: Visit) -> Float[Tensor, "batch points features"]:
        if visit.kept is not None and visit.kept.descriptor is not None:
            return visit.kept.descriptor
        assert visit.latent is not None
        return visit.latent.descriptor(self.config.space)
