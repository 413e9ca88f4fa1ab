r"""The geometric operator: particles first, then layers of wave windows on what they carry.

A site starts with $h=W[Gz,\,Gz\otimes a,\,\gamma(x)]$: its Gaussian basis, the values that every
particle carries, and its place; what the field holds is known through particles only. Along an
axis that closes on itself no place is special, so $\gamma$ sees open axes only; what does vary
along the others, such as a forcing, particles know. Layers (`gated_layer.py`) couple all sites
through modes. Tokens are measured at the sites only, so
queries never change each other's answers.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import gelu, normalize

from gpo.model.ablation import Ablation
from gpo.model.abstract_layers import AbstractLayers, AbstractStage, Chunk, Numbers, Visit
from gpo.model.config import OperatorConfig
from gpo.model.encoder import SiteFeatures
from gpo.model.features import make_open_features
from gpo.model.particles import AbstractLatent
from gpo.model.sites import FixedGeometry, Sites
from gpo.numerics.neighbours import Neighbours
from gpo.parallel.shard import SpatialShard
from gpo.transforms.fit import project, scatter_at
from gpo.transforms.transform import AbstractTransform, GridTransform
from gpo.transforms.waves import Waves

# >>> r"""One layer of the geometric operator: measure, filter, scatter, gate.
#
# $(p,r)=\sum_k\psi_k\,\hat d_k\odot(T_kW)+hW_{\mathrm{loc}}$ and $h\leftarrow h+(\tanh p\odot r)W_{\mathrm{out}}$.
# The product of two fields, each a convolution of the state, has the shape of $u\cdot\nabla\omega$:
# what transports and what is transported. The bounded factor keeps rollouts from blowing up.
# The other gates are ablations.
# """


class GatedLayer(nn.Module):
    """Updates a state of `channels` numbers per site."""

    def __init__(
        self,
        shape: tuple[int, ...],
        channels: int,
        gate: Literal["bounded", "product", "none"],
        widths: tuple[float, ...],
    ) -> None:
        """Makes a layer that begins at random.

        Args:
            shape: Wave numbers along every axis.
            channels: Numbers of a site.
            gate: What is done to the first field before it multiplies the second.
            widths: Of wave packets, in wave numbers.
        """
        super().__init__()
        self.gate = gate
        fields = channels if gate == "none" else 2 * channels
        self.filter = ModeFilter(shape, channels, fields, widths)
        bound = channels**-0.5
        self.local = nn.Parameter(torch.empty(channels, fields).uniform_(-bound, bound))
        self.out = nn.Parameter(torch.empty(channels, channels).uniform_(-bound / 2, bound / 2))

    def update(
        self,
        state: Float[Tensor, "points batch channels"],
        windows: AbstractTransform,
        filtered: Float[Tensor, "2 modes batch fields"],
    ) -> Float[Tensor, "points batch channels"]:
        """Returns the state after tokens were scattered to its points."""
        flat = state.flatten(0, 1)
        fields = torch.addmm(windows.scatter(filtered).flatten(0, 1), flat, self.local)
        if self.gate == "bounded":
            return BoundedUpdate.apply(flat, fields, self.out).view_as(state)
        gate, carried = fields.chunk(2, dim=-1)
        product = gelu(fields) if self.gate == "none" else gate * carried
        return torch.addmm(flat, product, self.out).view_as(state)


class BoundedUpdate(torch.autograd.Function):
    r"""$h+(\tanh p\odot r)W$ of both halves $(p,r)$ of the fields, which alone are kept.

    Half the time of its parts one by one, and 2 numbers per channel in place of 4.
    """

    @staticmethod
    def forward(
        ctx: Any,
        state: Float[Tensor, "sites channels"],
        fields: Float[Tensor, "sites fields"],
        out: Float[Tensor, "channels channels"],
    ) -> Float[Tensor, "sites channels"]:
        """Returns the state after the product was added."""
        ctx.save_for_backward(fields, out)
        gate, carried = fields.chunk(2, dim=-1)
        return torch.addmm(state, _bounded(gate).mul_(carried), out)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        r"""Returns, with $g=\dot h'W^\top$, $\dot h'$, $(g\odot r\odot(1-\tanh^2p),\,g\odot\tanh p)$, $(\tanh p\odot r)^\top\dot h'$."""
        (grad,) = grads
        fields, out = ctx.saved_tensors
        gate, carried = fields.chunk(2, dim=-1)
        bounded = _bounded(gate)
        by_product = grad @ out.T.to(grad)
        by_carried = by_product * bounded
        by_gate = torch.addcmul(by_product * carried, by_carried * carried, bounded, value=-1)
        by_out = (bounded * carried).T @ grad
        return grad, torch.cat([by_gate, by_carried], dim=-1), by_out


def _bounded(gate: Tensor) -> Tensor:
    """Returns tanh(p) = 2 sigmoid(2 p) - 1, which a CPU does in a third of the time of tanh."""
    return torch.sigmoid(2 * gate).mul_(2).sub_(1)


# >>> r"""Coupling of modes with geometry: $Y_k=\hat d_k\odot(T_kW)$, a filter per channel.
#
# A channel's numbers $\hat d_k$ over all wave vectors are the transfer function of a convolution:
# velocity from vorticity, a derivative and a smoothing are all of this form. Its kernel is a sum of
# wave packets, $d(x)=e^{-(2\pi\kappa|x|)^2/2}\sum_kr_k\psi_k(x)$, since what is near matters more
# than what is far: so $\hat d$ is $r$ seen through a Gaussian of width $\kappa$ in wave numbers, and
# neighbouring modes learn from each other. All modes share the mixing $W$ of channels, so there are
# few parameters, and each channel's filter can be drawn.
# """

STRIDE = 16.0
"""How much faster than other parameters the filters learn; there are many, each of which matters little."""


class ModeFilter(nn.Module):
    """Mixes the channels of all tokens alike, then scales and turns every mode on its own."""

    def __init__(
        self, shape: tuple[int, ...], channels: int, out_channels: int, widths: tuple[float, ...]
    ) -> None:
        """Makes filters that begin at random.

        Args:
            shape: Wave numbers along every axis.
            channels: Numbers of a token.
            out_channels: Numbers of a filtered token.
            widths: How many wave numbers packets are wide, one channel after the other; none
                leaves every mode on its own.
        """
        super().__init__()
        self.shape, self.widths = shape, widths
        self.mix = nn.Parameter(torch.randn(channels, out_channels) * channels**-0.5)
        spread = (2 * channels) ** -0.5 / STRIDE
        self.packets = nn.Parameter(torch.randn(out_channels, 2, math.prod(shape)) * spread)

    def transfer(self) -> Float[Tensor, "2 modes out_channels"]:
        r"""Returns the numbers $\hat d_k$ of every channel, real and imaginary part."""
        numbers = self._seen() if self.widths else self.packets
        return STRIDE * numbers.permute(1, 2, 0).contiguous()

    def forward(
        self,
        tokens: Float[Tensor, "2 modes batch channels"],
        transfer: Float[Tensor, "2 modes out_channels"],
    ) -> Float[Tensor, "2 modes batch out_channels"]:
        """Returns the filtered tokens.

        Args:
            tokens: What was measured.
            transfer: What `transfer()` returned.
        """
        real, imaginary = (tokens @ self.mix).unbind(0)
        gain, turn = transfer.unsqueeze(2).unbind(0)
        return torch.stack(
            [
                torch.addcmul(real * gain, imaginary, turn, value=-1),
                torch.addcmul(real * turn, imaginary, gain),
            ]
        )

    def _seen(self) -> Float[Tensor, "out_channels 2 modes"]:
        """Returns the packets seen through their Gaussians, which factor into those along the axes."""
        numbers, before = self.packets, 2
        for count in self.shape[:-1]:
            lines = numbers.reshape(len(numbers), before, count, -1)
            numbers = self._gaussians(count).unsqueeze(1) @ lines
            before *= count
        last = self.shape[-1]
        numbers = numbers.reshape(len(numbers), before, last) @ self._gaussians(last).mT
        return numbers.reshape(self.packets.shape)

    def _gaussians(self, count: int) -> Float[Tensor, "out_channels count count"]:
        """Returns, for every channel, a Gaussian around every wave number along an axis.

        They have length one: what is seen through them varies as before.
        """
        numbers = torch.arange(count).to(self.packets)
        widths = torch.tensor(self.widths).to(self.packets).reshape(-1, 1, 1)
        seen = torch.exp(-((numbers.unsqueeze(-1) - numbers) ** 2) / (2 * widths**2))
        return normalize(seen, dim=-1)[torch.arange(len(self.packets)) % len(widths)]


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
class CachedTransform:
    """Windows at sites, and the sites they were placed at."""

    places: Float[Tensor, "sets points axes"]
    """One set where all samples have the same."""
    weights: Float[Tensor, "sets points"]
    projection: AbstractTransform

    @classmethod
    def at(
        cls,
        windows: Waves,
        places: Float[Tensor, "batch points axes"],
        weights: Float[Tensor, "batch points"],
        shard: SpatialShard,
    ) -> "CachedTransform":
        """Places windows at sites, only once where all samples have the same."""
        is_shared = bool((places == places[:1]).all()) and bool((weights == weights[:1]).all())
        sets = slice(0, 1) if _holds_everywhere(is_shared, shard, weights) else slice(None)
        places, weights = places[sets].clone(), weights[sets].clone()
        return cls(places, weights, project(windows, places, weights, shard))

    def suits(
        self, places: Float[Tensor, "batch points axes"], weights: Float[Tensor, "batch points"]
    ) -> bool:
        """Tells whether a batch has these sites."""
        if self.places.device != places.device or self.places.dtype != places.dtype:
            return False
        if self.places.shape[1:] != places.shape[1:] or len(self.places) not in (1, len(places)):
            return False
        return bool((self.places == places).all()) and bool((self.weights == weights).all())


def _holds_everywhere(claim: bool, shard: SpatialShard, like: Tensor) -> bool:
    """Tells whether a claim holds in all processes, so that all of them do the same."""
    if shard.is_whole:
        return claim
    return shard.sum(like.new_tensor(0.0 if claim else 1.0)).item() == 0


class GeometricLayers(nn.Module, AbstractLayers):
    """Layers of wave windows; the state has sites before samples."""

    def __init__(self, config: OperatorConfig, num_features: int) -> None:
        super().__init__()
        self.domain = config.space
        self.windows = Waves.of(config)
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
        self._last: CachedTransform | None = None

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
        on_grid = isinstance(self._windows_at(sites), GridTransform)
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
            places = self.windows.places(sites.coords, sites.shard)
            places = neighbours.blend(neighbours.gather(places))
        else:
            places = self.windows.places(queries)
        return Chunk(slice(None), scatter_at(self.windows, places))

    def begin(
        self,
        latent: AbstractLatent,
        described: SiteFeatures,
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
        self, number: int, moments: Tensor, shard: SpatialShard, ablation: Ablation
    ) -> WaveStage:
        """Returns the tokens of all sites, and the same filtered."""
        tokens, layer = shard.sum(moments), self._layer(number)
        transfer = layer.filter.transfer()
        filtered = ablation.tokens(number, layer.filter(tokens, transfer), dim=1)
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
        self, basis: Float[Tensor, "batch points gaussians"], described: SiteFeatures
    ) -> Float[Tensor, "points batch channels"]:
        basis = self.num_gaussians * basis
        carried = basis.unsqueeze(-1) * described.values.unsqueeze(-2)
        held = torch.cat([basis, carried.flatten(-2)], dim=-1)
        state = replace(described, values=held).through(self.lift)
        return state.transpose(0, 1).contiguous()

    def _windows_at(self, sites: Sites) -> AbstractTransform:
        """Returns the windows at the sites, those of the last batch where its sites were the same."""
        if sites.fixed is not None and sites.fixed.windows is not None:
            return sites.fixed.windows
        if torch.compiler.is_compiling():
            # What kind of sites these are is looked up, which no graph can hold.
            torch._dynamo.graph_break()
        places, shard = self.windows.places(sites.coords, sites.shard), sites.shard
        is_known = self._last is not None and self._last.suits(places, sites.weights)
        if not _holds_everywhere(is_known, shard, places):
            # Windows that were placed while scoring serve in training too.
            with torch.inference_mode(False), torch.no_grad():
                self._last = CachedTransform.at(self.windows, places, sites.weights, shard)
        assert self._last is not None
        return self._last.projection
