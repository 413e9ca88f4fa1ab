r"""The geometric operator: particles first, then layers of wave windows on what they carry.

A site starts with $h=W[Gz,\,Gz\otimes a,\,\gamma(x)]$: its Gaussian basis, the values that every
particle carries, and its place; what the field holds is known through particles only. Along an
axis that closes on itself no place is special, so $\gamma$ sees open axes only; what does vary
along the others, such as a forcing, particles know. Layers (`gated_layer.py`) couple all sites
through modes. Tokens are measured at the sites only, so
queries never change each other's answers.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gpo.model.abstract_encoder import Described
from gpo.model.abstract_layers import AbstractLayers, AbstractStage, Chunk, Numbers, Visit
from gpo.model.config import OperatorConfig
from gpo.model.features import make_open_features
from gpo.model.fixed_geometry import FixedGeometry
from gpo.model.gated_layer import GatedLayer
from gpo.model.latent import AbstractLatent
from gpo.model.placement import project, scatter_at
from gpo.model.projection import AbstractProjection, GridProjection
from gpo.model.silence import Silence
from gpo.model.sites import Sites
from gpo.model.wave_windows import WaveWindows
from gpo.numerics.neighbours import Neighbours
from gpo.numerics.share import AbstractShare


@dataclass(frozen=True)
class WaveStage(AbstractStage):
    """What one layer measured and made of it."""

    tokens: Float[Tensor, "2 modes batch channels"]
    """Real and imaginary part of what every window measured."""
    response: Float[Tensor, "2 modes fields"]
    """The coupling: by what every mode of every field is multiplied, real and imaginary part."""
    filtered: Float[Tensor, "2 modes batch fields"]
    """What is scattered back: the gate p in the first half of the fields, what it lets pass, r, in the second."""

    @property
    def scattered(self) -> Float[Tensor, "2 modes batch fields"]:
        """What is scattered back."""
        return self.filtered


@dataclass(frozen=True)
class Placed:
    """Windows at sites, and the sites they were placed at."""

    places: Float[Tensor, "sets points axes"]
    """One set where all samples have the same."""
    weights: Float[Tensor, "sets points"]
    projection: AbstractProjection

    @classmethod
    def at(
        cls,
        windows: WaveWindows,
        places: Float[Tensor, "batch points axes"],
        weights: Float[Tensor, "batch points"],
        share: AbstractShare,
    ) -> "Placed":
        """Places windows at sites, only once where all samples have the same."""
        is_shared = bool((places == places[:1]).all()) and bool((weights == weights[:1]).all())
        sets = slice(0, 1) if _holds_everywhere(is_shared, share, weights) else slice(None)
        places, weights = places[sets].clone(), weights[sets].clone()
        return cls(places, weights, project(windows, places, weights, share))

    def suits(
        self, places: Float[Tensor, "batch points axes"], weights: Float[Tensor, "batch points"]
    ) -> bool:
        """Tells whether a batch has these sites."""
        if self.places.device != places.device or self.places.dtype != places.dtype:
            return False
        if self.places.shape[1:] != places.shape[1:] or len(self.places) not in (1, len(places)):
            return False
        return bool((self.places == places).all()) and bool((self.weights == weights).all())


def _holds_everywhere(claim: bool, share: AbstractShare, like: Tensor) -> bool:
    """Tells whether a claim holds in all processes, so that all of them do the same."""
    if share.is_whole:
        return claim
    return share.sum(like.new_tensor(0.0 if claim else 1.0)).item() == 0


class GeometricLayers(nn.Module, AbstractLayers):
    """Layers of wave windows; the state has sites before samples."""

    def __init__(self, config: OperatorConfig, num_features: int) -> None:
        super().__init__()
        self.domain = config.space
        self.windows = WaveWindows.of(config)
        self.num_gaussians = config.num_gaussians
        num_carried = config.num_gaussians * (1 + config.in_channels)
        self.place = make_open_features(config) if any(self.domain.periodic) else None
        if self.place is not None:
            num_features = self.place.num_features
        self.lift = nn.Linear(num_carried + num_features, config.hidden_dim)
        self.stages = nn.ModuleList(
            GatedLayer(self.windows.shape, config.hidden_dim, config.gate, config.packet_widths)
            for _ in range(config.num_layers)
        )
        self._last: Placed | None = None

    @property
    def num_layers(self) -> int:
        """How often modes are coupled."""
        return len(self.stages)

    @property
    def num_modes(self) -> int:
        """Waves."""
        return self.windows.num_modes

    @property
    def numbers(self) -> Numbers:
        """How many numbers there are of a site: in a layer, those of two fields."""
        channels = self.lift.out_features
        return Numbers(channels, 0, 0, layer=2 * channels, encoder=20 * channels)

    def written(self, sites: Sites) -> int:
        """Returns the numbers of two fields, their product and the state; off a grid, of windows."""
        on_grid = isinstance(self._windows_at(sites), GridProjection)
        return 4 * self.lift.out_features if on_grid else self.num_modes

    def chunks(self, sites: Sites, size: int) -> list[Chunk]:
        """Returns the sites in portions, with the windows at them."""
        return [Chunk(*part) for part in self._windows_at(sites).parts(size)]

    def asked(
        self, sites: Sites, queries: Float[Tensor, "#batch queries dim"], neighbours: Neighbours
    ) -> Chunk:
        """Returns queries with the windows there, which only scatter."""
        if sites.fixed is not None and sites.fixed.query_windows is not None:
            return Chunk(slice(None), sites.fixed.query_windows)
        if self.windows.mesh_shape:
            places = self.windows.places(sites.coords, sites.share)
            places = neighbours.blend(neighbours.gather(places))
        else:
            places = self.windows.places(queries)
        return Chunk(slice(None), scatter_at(self.windows, places))

    def begin(
        self,
        latent: AbstractLatent,
        described: Described,
        coords: Float[Tensor, "#batch points dim"],
    ) -> Visit:
        """Returns the state that particles and what they carry make."""
        if self.place is not None:
            there = self.domain.open_part(coords[: len(described.place)])
            described = replace(described, place=self.place(there))
        return Visit(self._lifted(latent.basis(coords, self.domain), described), latent)

    def prepare(self, visit: Visit) -> Visit:
        """Returns the same: waves need nothing but the state."""
        return visit

    def held(self, visit: Visit) -> tuple[Tensor, ...]:
        """Returns the state alone: all that particles carry is in it."""
        return (visit.state,)

    def recall(self, held: tuple[Tensor, ...]) -> Visit:
        """Returns the state."""
        (state,) = held
        return Visit(state)

    def parameters_of(self, number: int) -> list[nn.Parameter]:
        """Returns those of a layer."""
        return list(self._layer(number).parameters())

    def look(self, number: int, visit: Visit, known: Visit | None = None) -> Visit:
        """Returns the same: waves are the same whatever is at the sites."""
        return visit

    def measure(
        self, number: int, visit: Visit, chunk: Chunk
    ) -> Float[Tensor, "2 modes batch channels"]:
        """Returns the tokens."""
        return chunk.windows.measure(visit.state)

    def couple(
        self, number: int, moments: Tensor, share: AbstractShare, silence: Silence
    ) -> WaveStage:
        """Returns the tokens of all sites, and the same filtered."""
        tokens, layer = share.sum(moments), self._layer(number)
        transfer = layer.filter.transfer()
        filtered = silence.tokens(number, layer.filter(tokens, transfer), dim=1)
        return WaveStage(tokens, transfer, filtered)

    def update(self, number: int, visit: Visit, scattered: Tensor, chunk: Chunk) -> Visit:
        """Returns the state after tokens were scattered to it."""
        state = self._layer(number).update(visit.state, chunk.windows, scattered)
        return Visit(state, visit.latent)

    def channels(
        self, state: Float[Tensor, "points batch channels"]
    ) -> Float[Tensor, "batch points channels"]:
        """Returns the state, samples first."""
        return state.transpose(0, 1)

    def seen(self, visit: Visit, stage: WaveStage) -> WaveStage:
        """Returns the stage: waves are the same whatever is at the sites."""
        return stage

    def fix(self, fixed: FixedGeometry) -> FixedGeometry:
        """Returns the same places with the windows there."""
        sites = Sites.at(fixed, fixed.coords[..., :0])
        fixed = replace(fixed, windows=self._windows_at(sites))
        if fixed.queries is None or fixed.neighbours is None:
            return fixed
        asked = self.asked(sites, fixed.queries, fixed.neighbours)
        return replace(fixed, query_windows=asked.windows)

    def _layer(self, number: int) -> GatedLayer:
        layer = self.stages[number]
        assert isinstance(layer, GatedLayer)
        return layer

    def _lifted(
        self, basis: Float[Tensor, "batch points gaussians"], described: Described
    ) -> Float[Tensor, "points batch channels"]:
        basis = self.num_gaussians * basis
        carried = basis.unsqueeze(-1) * described.values.unsqueeze(-2)
        held = torch.cat([basis, carried.flatten(-2)], dim=-1)
        state = replace(described, values=held).through(self.lift)
        return state.transpose(0, 1).contiguous()

    def _windows_at(self, sites: Sites) -> AbstractProjection:
        """Returns the windows at the sites, those of the last batch where its sites were the same."""
        if sites.fixed is not None and sites.fixed.windows is not None:
            return sites.fixed.windows
        if torch.compiler.is_compiling():
            # What kind of sites these are is looked up, which no graph can hold.
            torch._dynamo.graph_break()
        places, share = self.windows.places(sites.coords, sites.share), sites.share
        is_known = self._last is not None and self._last.suits(places, sites.weights)
        if not _holds_everywhere(is_known, share, places):
            # Windows that were placed while scoring serve in training too.
            with torch.inference_mode(False), torch.no_grad():
                self._last = Placed.at(self.windows, places, sites.weights, share)
        assert self._last is not None
        return self._last.projection
