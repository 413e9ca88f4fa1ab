"""The layers of the paper's variant: attention through windows that see what a site holds."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear

from gpo.model.abstract_encoder import Described
from gpo.model.abstract_layers import AbstractLayers, Chunk, Visit
from gpo.model.attention import Modes, PGGaussianAttention, Stage, measure
from gpo.model.config import OperatorConfig
from gpo.model.latent import AbstractLatent
from gpo.model.silence import Silence
from gpo.model.sites import Sites
from gpo.numerics.neighbours import Neighbours
from gpo.numerics.share import AbstractShare


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
    def numbers_per_site(self) -> tuple[int, int, int]:
        """The basis; windows and what leads to them in a layer; particles and what leads to them."""
        gaussians, hidden = self.config.num_gaussians, self.config.hidden_dim
        return gaussians, self.num_modes + 2 * hidden + 8 * gaussians, 8 * hidden + 20 * gaussians

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
        described: Described,
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
        assert visit.latent is not None
        descriptor = visit.latent.descriptor(self.config.space)
        parts = linear(descriptor, weight, bias).split(self.config.hidden_dim, dim=-1)
        times = self.num_layers // len(parts)
        return replace(visit, kept=Look(described=parts * times))

    def forget(self, visit: Visit) -> Visit:
        """Returns the basis with what windows see of particles, in place of these."""
        assert visit.latent is not None
        return replace(visit, latent=None, kept=Look(visit.latent.descriptor(self.config.space)))

    def measure(self, number: int, visit: Visit, chunk: Chunk) -> Visit:
        """Returns the basis with the windows of a layer and their moments."""
        windows = self._windows(number, visit)
        look = replace(visit.kept or Look(), windows=windows)
        return replace(visit, moments=measure(windows, visit.state, chunk.windows), kept=look)

    def couple(self, number: int, moments: Tensor, share: AbstractShare, silence: Silence) -> Modes:
        """Returns the modes of all sites."""
        modes = self.stages[number].couple(moments, share)
        loud = silence.tokens(number, modes.coupled.flatten(1, 2), dim=1)
        return replace(modes, coupled=loud.view_as(modes.coupled))

    def update(self, number: int, visit: Visit, stage: Modes, chunk: Chunk) -> Visit:
        """Returns the basis after modes were scattered into it."""
        look = visit.kept or Look()
        windows = self._windows(number, visit) if look.windows is None else look.windows
        basis = self.stages[number].update(visit.state, windows, stage.coupled)
        return Visit(basis, visit.latent, kept=replace(look, windows=None))

    def channels(self, state: Tensor) -> Float[Tensor, "batch points gaussians"]:
        """Returns the basis."""
        return state

    def seen(self, visit: Visit, stage: Modes) -> Stage:
        """Returns a stage with the windows at the sites."""
        return Stage(stage.tokens, stage.coupling, stage.coupled, visit.kept.windows)

    def _windows(self, number: int, visit: Visit) -> Float[Tensor, "batch heads points modes"]:
        windows, look = self.stages[number].windows, visit.kept or Look()
        if look.described:
            return windows(visit.state, look.described[number])
        descriptor = look.descriptor
        if descriptor is None:
            assert visit.latent is not None
            descriptor = visit.latent.descriptor(self.config.space)
        return windows(visit.state, windows.described(descriptor))
