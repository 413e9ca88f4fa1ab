r"""Coupling of modes with geometry: $Y_k=\hat d_k\odot(T_kW)$, a filter per channel.

A channel's numbers $\hat d_k$ over all wave vectors are the transfer function of a convolution:
velocity from vorticity, a derivative and a smoothing are all of this form. All modes share the
mixing $W$ of channels, so there are few parameters, and each channel's filter can be drawn.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

STRIDE = 16.0
"""How much faster than other parameters the filters learn; there are many, each of which matters little."""


class ModeFilter(nn.Module):
    """Mixes the channels of all tokens alike, then scales and turns every mode on its own."""

    def __init__(self, num_modes: int, channels: int, out_channels: int) -> None:
        super().__init__()
        self.mix = nn.Parameter(torch.randn(channels, out_channels) * channels**-0.5)
        spread = (2 * channels) ** -0.5 / STRIDE
        self.response = nn.Parameter(torch.randn(2, num_modes, 1, out_channels) * spread)

    @property
    def transfer(self) -> Float[Tensor, "2 modes out_channels"]:
        r"""The numbers $\hat d_k$ of every channel, real and imaginary part."""
        return STRIDE * self.response.squeeze(2)

    def forward(
        self, tokens: Float[Tensor, "2 modes batch channels"]
    ) -> Float[Tensor, "2 modes batch out_channels"]:
        """Returns the filtered tokens."""
        real, imaginary = (tokens @ self.mix).unbind(0)
        gain, turn = self.transfer.unsqueeze(2).unbind(0)
        return torch.stack(
            [
                torch.addcmul(real * gain, imaginary, turn, value=-1),
                torch.addcmul(real * turn, imaginary, gain),
            ]
        )
