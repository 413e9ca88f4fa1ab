r"""The decoder $f^{\mathrm{dec}}_\phi$ (eq. decoder): from the state of a point to the field there."""

from typing import Any

from jaxtyping import Float
from torch import Tensor, nn


class Decoder(nn.Module):
    """Two linear maps with a ReLU between them, the same at every point."""

    def __init__(self, channels: int, hidden_dim: int, out_channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(channels, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, out_channels)
        )

    def decode(self, state: Any, points: object) -> Float[Tensor, "points batch out_channels"]:
        """Returns the values of the field at points, from their state alone."""
        return self.layers(state)
