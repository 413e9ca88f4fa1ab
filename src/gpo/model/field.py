"""The Gaussian field (section 2.1): encoder, basis and decoder, an auto-encoder of its own."""

from pathlib import Path

from jaxtyping import Float
from torch import Tensor, nn

from gpo.model import checkpoint
from gpo.model.config import FieldConfig, PaperConfig
from gpo.model.operator import GaussianParticleOperator
from gpo.model.particles import Particles


class GaussianField(nn.Module):
    r"""$\hat a(x)=f^{\mathrm{dec}}_\phi(\mathcal{Z}(x;E_\theta(a)))$: the paper's operator without layers."""

    def __init__(self, config: FieldConfig) -> None:
        super().__init__()
        self.config = config
        self.operator = GaussianParticleOperator(
            PaperConfig(
                in_channels=config.in_channels,
                out_channels=config.out_channels,
                domain=config.domain,
                hidden_dim=config.hidden_dim,
                num_layers=0,
                num_heads=1,
                encoder=config.encoder,
                query_neighbours=config.query_neighbours,
            )
        )

    def forward(
        self,
        values: Float[Tensor, "batch points in_channels"],
        coords: Float[Tensor, "*#batch points dim"],
        *,
        weights: Float[Tensor, "*#batch points"] | None = None,
        queries: Float[Tensor, "*#batch queries dim"] | None = None,
    ) -> Float[Tensor, "batch targets out_channels"]:
        """Returns the reconstructed field at the sites, or at `queries`.

        Args:
            values: The field at the sites.
            coords: The sites, shared by the batch or one set per sample.
            weights: Quadrature weights; 0 masks a site.
            queries: Any other points to decode at.
        """
        return self.operator(values, coords, weights=weights, queries=queries)

    def particles(
        self,
        values: Float[Tensor, "batch points in_channels"],
        coords: Float[Tensor, "*#batch points dim"],
        *,
        weights: Float[Tensor, "*#batch points"] | None = None,
    ) -> Particles:
        """Returns the particles that the encoder makes of a field."""
        return self.operator.particles(values, coords, weights=weights)[0]

    def save_pretrained(self, folder: str | Path) -> None:
        """Writes `config.json` and `model.safetensors` into `folder`."""
        checkpoint.save(self, self.config, folder)

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> "GaussianField":
        """Returns the model that `save_pretrained` wrote."""
        return checkpoint.load(cls, folder)
