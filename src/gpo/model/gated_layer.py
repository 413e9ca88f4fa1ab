r"""One layer of the geometric operator: measure, filter, scatter, gate.

$(p,r)=\sum_k\psi_k\,\hat d_k\odot(T_kW)+hW_{\mathrm{loc}}$ and $h\leftarrow h+(\tanh p\odot r)W_{\mathrm{out}}$.
The product of two fields, each a convolution of the state, has the shape of $u\cdot\nabla\omega$:
what transports and what is transported. The bounded factor keeps rollouts from blowing up.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gpo.model.mode_filter import ModeFilter
from gpo.model.projection import AbstractProjection


class GatedLayer(nn.Module):
    """Updates a state of `channels` numbers per site."""

    def __init__(self, num_modes: int, channels: int) -> None:
        super().__init__()
        self.filter = ModeFilter(num_modes, channels, 2 * channels)
        bound = channels**-0.5
        self.local = nn.Parameter(torch.empty(channels, 2 * channels).uniform_(-bound, bound))
        self.out = nn.Parameter(torch.empty(channels, channels).uniform_(-bound / 2, bound / 2))

    def couple(
        self,
        state: Float[Tensor, "points batch channels"],
        windows: AbstractProjection,
    ) -> tuple[Float[Tensor, "2 modes batch channels"], Float[Tensor, "2 modes batch fields"]]:
        """Returns the tokens of the state, and the same filtered."""
        tokens = windows.measure(state)
        return tokens, self.filter(tokens)

    def update(
        self,
        state: Float[Tensor, "points batch channels"],
        windows: AbstractProjection,
        filtered: Float[Tensor, "2 modes batch fields"],
    ) -> Float[Tensor, "points batch channels"]:
        """Returns the state after tokens were scattered to its points."""
        flat = state.flatten(0, 1)
        fields = torch.addmm(windows.scatter(filtered).flatten(0, 1), flat, self.local)
        gate, carried = fields.chunk(2, dim=-1)
        return torch.addmm(flat, torch.tanh(gate) * carried, self.out).view_as(state)
