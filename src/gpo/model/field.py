"""The Gaussian field (section 2.1): encoder, basis and decoder, an auto-encoder of its own."""

from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gpo.model import artifact
from gpo.model.config import OperatorConfig
from gpo.model.decoder import Decoder
from gpo.model.encoder import Encoder
from gpo.model.latent import AbstractLatent
from gpo.model.particles import Particles
from gpo.model.plain import PlainEncoder
from gpo.model.sites import Sites, check_sites
from gpo.numerics.neighbours import Neighbours, NeighbourSearch


class GaussianField(nn.Module):
    r"""$\hat a(x)=f^{\mathrm{dec}}_\phi(\mathcal{Z}(x;E_\theta(a)))$: a field as Gaussian particles."""

    def __init__(self, config: OperatorConfig, decoded_channels: int | None = None) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config) if config.has_gaussian_field else PlainEncoder(config)
        self.decoder = Decoder(config, decoded_channels or config.num_gaussians)
        self._find_neighbours = NeighbourSearch(config.space, config.query_neighbours)

    @property
    def dtype(self) -> torch.dtype:
        """The type of the parameters, which `values` must have too."""
        return next(self.parameters()).dtype

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
        sites = self.check(values, coords, weights, queries)
        latent = self.encoder(sites.values, sites.coords)
        if sites.queries is None:
            return self.decoder(latent.basis(sites.coords, self.config.space))
        seen = self.seen_from(sites, latent)
        return self.decoder(seen.basis(sites.queries, self.config.space))

    def particles(
        self,
        values: Float[Tensor, "batch points in_channels"],
        coords: Float[Tensor, "*#batch points dim"],
        *,
        weights: Float[Tensor, "*#batch points"] | None = None,
    ) -> Particles:
        """Returns the particles that the encoder makes of a field."""
        if not isinstance(self.encoder, Encoder):
            raise ValueError(
                "A model with has_gaussian_field=False has no particles: it is the ablation "
                "that replaces them by a plain MLP."
            )
        sites = self.check(values, coords, weights, None)
        return self.encoder(sites.values, sites.coords)

    def check(
        self, values: Tensor, coords: Tensor, weights: Tensor | None, queries: Tensor | None
    ) -> Sites:
        """Returns the sites in one shape, or raises a `ValueError` that says what is wrong."""
        given = values, coords, weights, queries
        return check_sites(self.config.in_channels, self.config.space, self.dtype, *given)

    def seen_from(self, sites: Sites, latent: AbstractLatent) -> AbstractLatent:
        """Returns the state that the queries see: that of their nearest sites, blended."""
        if sites.queries is None:
            return latent
        return latent.blend(self.neighbours(sites), self.config.space)

    def neighbours(self, sites: Sites) -> Neighbours:
        """Returns the sites next to every query."""
        assert sites.queries is not None
        return self._find_neighbours(sites.queries, sites.coords, sites.is_counted)

    def save_pretrained(self, folder: str | Path) -> None:
        """Writes `config.json` and `model.safetensors` into `folder`."""
        artifact.save(self, self.config, folder)

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> "GaussianField":
        """Returns the model that `save_pretrained` wrote."""
        return artifact.load(cls, folder)
