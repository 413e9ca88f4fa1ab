r"""The decoder $f^{\mathrm{dec}}_\phi$ (eq. decoder): a two-layer perceptron with ReLU."""

from jaxtyping import Float
from torch import Tensor, nn

from gpo.model.config import OperatorConfig


class Decoder(nn.Module):
    """Regresses the value of the field at a point from its basis."""

    def __init__(self, config: OperatorConfig) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(config.num_gaussians, config.hidden_dim),
            nn.ReLU(),
            nn.Linear(config.hidden_dim, config.out_channels),
        )

    def forward(
        self, basis: Float[Tensor, "batch points gaussians"]
    ) -> Float[Tensor, "batch points channels"]:
        """Returns the field's values."""
        return self.layers(basis)
