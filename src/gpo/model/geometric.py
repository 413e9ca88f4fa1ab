r"""The geometric operator: particles first, then gated layers of waves on what they carry.

A site starts with $h=W[Gz,\,Gz\otimes a,\,\gamma(x)]$: its Gaussian basis, the values that every
particle carries, and its position. Along a periodic axis no position is special, so $\gamma$ sees
open axes only. Every layer then measures, filters, scatters and gates:

$T_k=\langle\psi_k,h\rangle$,
$(p,r)=\sum_k\psi_k\,\hat d_k\odot(T_kW)+hW_{\mathrm{loc}}$,
$h\leftarrow h+(\tanh p\odot r)W_{\mathrm{out}}$.

The product of two fields, each a convolution of the state, has the shape of $u\cdot\nabla\omega$:
what transports and what is transported. The bounded factor keeps rollouts from blowing up. The
filter $\hat d$ is in `mode_filter.py`, the waves $\psi_k$ in `transforms/waves.py`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import gelu

from gpo.model.ablation import without
from gpo.model.config import GeometricConfig
from gpo.model.encoder import SiteFeatures
from gpo.model.features import NoFeatures, make_features
from gpo.model.layer import AbstractLayer, AbstractLift, AbstractModes, Chunk, State, Variant
from gpo.model.mode_filter import ModeFilter
from gpo.model.particles import AbstractLatent
from gpo.parallel.shard import SpatialShard
from gpo.transforms.transform import AbstractWaveTransform
from gpo.transforms.waves import Waves


def build_geometric(config: GeometricConfig, num_features: int) -> Variant:
    """Builds lift and layers of the geometric variant.

    Args:
        config: The architecture.
        num_features: Position features of the encoder.
    """
    waves = Waves.on(config.domain, config.wave_limits, config.mesh_shape)
    lift = GeometricLift(config, num_features)
    return Variant(lift, [GatedLayer(config, waves.shape) for _ in range(config.num_layers)], waves)


class GeometricLift(AbstractLift):
    r"""$h=W[Gz,\,Gz\otimes a,\,\gamma(x)]$; the state has points before samples."""

    def __init__(self, config: GeometricConfig, num_features: int) -> None:
        """Makes a linear map that begins at random.

        Args:
            config: The architecture.
            num_features: Position features of the encoder.
        """
        super().__init__()
        self.domain, self.num_gaussians = config.domain, config.encoder.num_gaussians
        self.features = None
        if all(config.domain.periodic):
            self.features = NoFeatures()
        elif any(config.domain.periodic):
            self.features = make_features(config.encoder, config.domain, config.hidden_dim)
        num_features = num_features if self.features is None else self.features.num_features
        num_carried = self.num_gaussians * (1 + config.in_channels)
        self.linear = nn.Linear(num_carried + num_features, config.hidden_dim)

    def forward(
        self,
        latent: AbstractLatent,
        features: SiteFeatures,
        coords: Float[Tensor, "#batch points dim"],
    ) -> State:
        """Returns the state that particles and what they carry make."""
        if self.features is not None:
            there = self.domain.open_part(coords[: len(features.position)])
            features = replace(features, position=self.features(there))
        basis = self.num_gaussians * latent.basis(coords, self.domain)
        carried = basis.unsqueeze(-1) * features.values.unsqueeze(-2)
        held = torch.cat([basis, carried.flatten(-2)], dim=-1)
        state = replace(features, values=held).project(self.linear)
        return State(state.transpose(0, 1).contiguous())

    def read(self, state: State) -> Float[Tensor, "batch points channels"]:
        """Returns the state, samples first."""
        return state.channels.transpose(0, 1)


@dataclass(frozen=True)
class WaveModes(AbstractModes):
    """What one layer measured and made of it."""

    tokens: Float[Tensor, "2 modes batch channels"]
    """Real and imaginary part of what every wave measured."""
    response: Float[Tensor, "2 modes fields"]
    """The coupling: by what every mode of every field is multiplied, real and imaginary part."""
    scattered: Float[Tensor, "2 modes batch fields"]
    """The filtered tokens: the gate p in the first half of the fields, what it lets pass, r, in the second."""

    def without(self, modes: Iterable[int]) -> "WaveModes":
        """Returns the same with some waves zero on their way back."""
        return replace(self, scattered=without(self.scattered, modes, dim=1))


class GatedLayer(AbstractLayer):
    """Measure, filter, scatter, gate: updates a state of `hidden_dim` channels per site."""

    def __init__(self, config: GeometricConfig, shape: tuple[int, ...]) -> None:
        """Makes a layer that begins at random.

        Args:
            config: The architecture.
            shape: Wave numbers along every axis.
        """
        super().__init__()
        self.gate, channels = config.gate, config.hidden_dim
        fields = channels if self.gate == "none" else 2 * channels
        self.filter = ModeFilter(shape, channels, fields, config.packet_widths)
        bound = channels**-0.5
        self.local = nn.Parameter(torch.empty(channels, fields).uniform_(-bound, bound))
        self.out = nn.Parameter(torch.empty(channels, channels).uniform_(-bound / 2, bound / 2))

    def transform(self, state: State, chunk: Chunk) -> AbstractWaveTransform:
        """Returns the waves at some points, which no field changes."""
        assert chunk.transform is not None
        return chunk.transform

    def couple(
        self, moments: Float[Tensor, "2 modes batch channels"], shard: SpatialShard
    ) -> WaveModes:
        """Returns the tokens of all sites, and what the filters make of them."""
        tokens, transfer = shard.sum(moments), self.filter.transfer()
        return WaveModes(tokens, transfer, self.filter(tokens, transfer))

    def update(self, state: State, scattered: Float[Tensor, "points batch fields"]) -> State:
        """Returns the state after the gated product of two fields was added."""
        flat = state.channels.flatten(0, 1)
        fields = torch.addmm(scattered.flatten(0, 1), flat, self.local)
        if self.gate == "bounded":
            updated = BoundedUpdate.apply(flat, fields, self.out)
        else:
            gate, carried = fields.chunk(2, dim=-1)
            product = gelu(fields) if self.gate == "none" else gate * carried
            updated = torch.addmm(flat, product, self.out)
        return State(updated.view_as(state.channels))


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
