r"""The decoder $f^{\mathrm{dec}}_\phi$ (eq. decoder): a two-layer perceptron with ReLU."""

from jaxtyping import Float
from torch import Tensor, nn

from gpo.model.config import OperatorConfig


class Decoder(nn.Module):
    """Regresses the value of the field at a point from its basis, or from its state."""

    def __init__(self, config: OperatorConfig, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(channels, config.hidden_dim),
            nn.ReLU(),
            nn.Linear(config.hidden_dim, config.out_channels),
        )

    def forward(
        self, state: Float[Tensor, "batch points channels"]
    ) -> Float[Tensor, "batch points out_channels"]:
        """Returns the field's values."""
        return self.layers(state)
