r"""The geometric operator: particles first, then layers of wave windows on what they carry.

A site starts with $h=W[Gz,\,Gz\otimes a,\,\gamma(x)]$: its Gaussian basis, the values that every
particle carries, and its place; what the field holds is known through particles only. Layers
(`gated_layer.py`) couple all sites through modes. Tokens are measured at the sites only, so
queries never change each other's answers.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gpo.model.abstract_encoder import Described
from gpo.model.config import OperatorConfig
from gpo.model.gated_layer import GatedLayer
from gpo.model.projection import AbstractProjection, project, scatter_at
from gpo.model.silence import Silence
from gpo.model.sites import Sites
from gpo.model.wave_windows import WaveWindows
from gpo.numerics.neighbours import Neighbours


@dataclass(frozen=True)
class WaveStage:
    """What one layer measured and made of it."""

    tokens: Float[Tensor, "2 modes batch channels"]
    """Real and imaginary part of what every window measured."""
    response: Float[Tensor, "2 modes fields"]
    """The coupling: by what every mode of every field is multiplied, real and imaginary part."""
    filtered: Float[Tensor, "2 modes batch fields"]
    """What is scattered back: the gate p in the first half of the fields, what it lets pass, r, in the second."""


@dataclass(frozen=True)
class Start:
    """What a set of points begins with."""

    basis: Float[Tensor, "batch points gaussians"]
    described: Described
    """Values and features of the place."""


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
    ) -> "Placed":
        """Places windows at sites, only once where all samples have the same."""
        is_shared = bool((places == places[:1]).all()) and bool((weights == weights[:1]).all())
        sets = slice(0, 1) if is_shared else slice(None)
        places, weights = places[sets].clone(), weights[sets].clone()
        return cls(places, weights, project(windows, places, weights))

    def suits(
        self, places: Float[Tensor, "batch points axes"], weights: Float[Tensor, "batch points"]
    ) -> bool:
        """Tells whether a batch has these sites."""
        if self.places.device != places.device or self.places.dtype != places.dtype:
            return False
        if self.places.shape[1:] != places.shape[1:] or len(self.places) not in (1, len(places)):
            return False
        return bool((self.places == places).all()) and bool((self.weights == weights).all())


class GeometricLayers(nn.Module):
    """Everything between the encoder and the decoder."""

    def __init__(self, config: OperatorConfig, num_features: int) -> None:
        super().__init__()
        self.windows = WaveWindows.of(config)
        self.num_gaussians = config.num_gaussians
        num_carried = config.num_gaussians * (1 + config.in_channels)
        self.lift = nn.Linear(num_carried + num_features, config.hidden_dim)
        self.stages = nn.ModuleList(
            GatedLayer(self.windows.num_modes, config.hidden_dim, config.gate)
            for _ in range(config.num_layers)
        )
        self._last: Placed | None = None

    def forward(
        self,
        sites: Sites,
        start: Start,
        queries: tuple[Start, Neighbours] | None = None,
        silence: Silence = Silence(),
    ) -> tuple[list[Float[Tensor, "batch targets channels"]], list[WaveStage]]:
        """Returns the state before and after every layer, at the sites or at queries.

        Args:
            sites: The context.
            start: What the sites begin with.
            queries: What other points begin with, and the sites next to them.
            silence: Modes and layers that are switched off.
        """
        windows: AbstractProjection = self._windows_at(sites)
        state = self._lifted(start)
        states, stages = [state], []
        asked, places = None, windows
        if queries is not None:
            asked, places = self._lifted(queries[0]), self._windows_between(sites, queries[1])
            states = [asked]
        for number, layer in enumerate(self.stages):
            assert isinstance(layer, GatedLayer)
            tokens, filtered = layer.couple(state, windows)
            stage = WaveStage(
                tokens, layer.filter.transfer, silence.tokens(number, filtered, dim=1)
            )
            if number not in silence.layers:
                state = layer.update(state, windows, stage.filtered)
                if asked is not None:
                    asked = layer.update(asked, places, stage.filtered)
            states.append(state if asked is None else asked)
            stages.append(stage)
        return [state.transpose(0, 1) for state in states], stages

    def _lifted(self, start: Start) -> Float[Tensor, "points batch channels"]:
        basis = self.num_gaussians * start.basis
        carried = basis.unsqueeze(-1) * start.described.values.unsqueeze(-2)
        held = torch.cat([basis, carried.flatten(-2)], dim=-1)
        state = replace(start.described, values=held).through(self.lift)
        return state.transpose(0, 1).contiguous()

    def _windows_at(self, sites: Sites) -> AbstractProjection:
        """Returns the windows at the sites, those of the last batch where its sites were the same."""
        if torch.compiler.is_compiling():
            # What kind of sites these are is looked up, which no graph can hold.
            torch._dynamo.graph_break()
        places = self.windows.places(sites.coords)
        if self._last is None or not self._last.suits(places, sites.weights):
            # Windows that were placed while scoring serve in training too.
            with torch.inference_mode(False), torch.no_grad():
                self._last = Placed.at(self.windows, places, sites.weights)
        return self._last.projection

    def _windows_between(self, sites: Sites, neighbours: Neighbours) -> AbstractProjection:
        assert sites.queries is not None
        if not self.windows.mesh_shape:
            return scatter_at(self.windows, self.windows.places(sites.queries))
        places = self.windows.places(sites.coords)
        return scatter_at(self.windows, neighbours.blend(neighbours.gather(places)))
