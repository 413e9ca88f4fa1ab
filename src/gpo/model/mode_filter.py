r"""Coupling of modes with geometry: $Y_k=\hat d_k\odot(T_kW)$, a filter per channel.

A channel's numbers $\hat d_k$ over all wave vectors are the transfer function of a convolution:
velocity from vorticity, a derivative and a smoothing are all of this form. Its kernel is a sum of
wave packets, $d(x)=e^{-(2\pi\kappa|x|)^2/2}\sum_kr_k\psi_k(x)$, which decays with distance: so
$\hat d$ is $r$ convolved with a Gaussian of width $\kappa$ in wave numbers, and neighbouring modes
share what they learn. All modes share the mixing $W$ of channels, so there are
few parameters, and each channel's filter can be drawn.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import normalize

LR_MULTIPLIER = 16.0
"""Factor by which filters learn faster than other parameters: there are many, and each matters little."""


class ModeFilter(nn.Module):
    """Mixes the channels of all tokens alike, then scales and turns every mode on its own."""

    def __init__(
        self, shape: tuple[int, ...], channels: int, out_channels: int, widths: tuple[float, ...]
    ) -> None:
        """Makes filters that begin at random.

        Args:
            shape: Wave numbers along every axis.
            channels: Channels of a token.
            out_channels: Channels of a filtered token.
            widths: Widths of the Gaussians in wave numbers, cycled over channels; where empty, every
                mode has a factor of its own.
        """
        super().__init__()
        self.shape, self.widths = shape, widths
        self.mix = nn.Parameter(torch.randn(channels, out_channels) * channels**-0.5)
        spread = (2 * channels) ** -0.5 / LR_MULTIPLIER
        self.packets = nn.Parameter(torch.randn(out_channels, 2, math.prod(shape)) * spread)

    def transfer(self) -> Float[Tensor, "2 modes out_channels"]:
        r"""Returns the transfer function $\hat d_k$ of every channel, real and imaginary part."""
        packets = self._filtered_packets() if self.widths else self.packets
        return LR_MULTIPLIER * packets.permute(1, 2, 0).contiguous()

    def forward(
        self, tokens: Float[Tensor, "2 modes batch channels"]
    ) -> tuple[Float[Tensor, "2 modes batch out_channels"], Float[Tensor, "2 modes out_channels"]]:
        r"""Returns the filtered tokens $\hat d_k\odot(T_kW)$ and the transfer function $\hat d$."""
        transfer = self.transfer()
        real, imaginary = (tokens @ self.mix).unbind(0)
        gain, turn = transfer.unsqueeze(2).unbind(0)
        filtered = torch.stack(
            [
                torch.addcmul(real * gain, imaginary, turn, value=-1),
                torch.addcmul(real * turn, imaginary, gain),
            ]
        )
        return filtered, transfer

    def _filtered_packets(self) -> Float[Tensor, "out_channels 2 modes"]:
        """Returns the packets convolved with their Gaussians, which factor into those along the axes."""
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

        Their Euclidean norm is one, so that convolved packets keep their variance.
        """
        numbers = torch.arange(count).to(self.packets)
        widths = torch.tensor(self.widths).to(self.packets).reshape(-1, 1, 1)
        gaussians = torch.exp(-((numbers.unsqueeze(-1) - numbers) ** 2) / (2 * widths**2))
        return normalize(gaussians, dim=-1)[torch.arange(len(self.packets)) % len(widths)]
