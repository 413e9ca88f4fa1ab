"""The Gaussian field (section 2.1): encoder, basis and decoder, an auto-encoder of its own."""

from dataclasses import replace
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gpo.model import checkpoint as artifact
from gpo.model.abstract_layers import AbstractLayers
from gpo.model.config import OperatorConfig
from gpo.model.content_layers import ContentLayers
from gpo.model.encoder import Decoder, Encoder, MLPEncoder
from gpo.model.particles import Particles
from gpo.model.sites import Sites, check_sites
from gpo.model.sweep import Parts, Regularizer, Sweep, sweep
from gpo.numerics.neighbours import Neighbours, NeighbourSearch
from gpo.parallel.shard import SINGLE_PROCESS, SpatialShard


class GaussianField(nn.Module):
    r"""$\hat a(x)=f^{\mathrm{dec}}_\phi(\mathcal{Z}(x;E_\theta(a)))$: a field as Gaussian particles."""

    def __init__(self, config: OperatorConfig, decoded_channels: int | None = None) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config) if config.has_gaussian_field else MLPEncoder(config)
        self.decoder = Decoder(config, decoded_channels or config.num_gaussians)
        self.layers = ContentLayers(replace(config, num_layers=0))
        self.shard: SpatialShard = SINGLE_PROCESS
        self.chunk_size: int | None = None
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
        swept = self.sweep(sites)
        return swept.output if sites.queries is None else swept.at(sites.queries)

    def sweep(self, sites: Sites, *, judge: Regularizer | None = None) -> Sweep:
        """Takes sites that were checked through the encoder; `judge` is asked about particles."""
        return sweep(self.parts(self.layers), sites, judge=judge)

    def parts(self, layers: AbstractLayers) -> Parts:
        """Returns the field's parts with layers between encoder and decoder."""
        return Parts(self.encoder, layers, self.decoder, self._find_neighbours, self.chunk_size)

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
        expected = self.config.in_channels, self.config.space, self.dtype
        return check_sites(*expected, *given, shard=self.shard)

    def neighbours(self, sites: Sites) -> Neighbours:
        """Returns the sites next to every query."""
        assert sites.queries is not None
        return self._find_neighbours(sites.queries, sites.coords, sites.is_counted, sites.shard)

    def save_pretrained(self, folder: str | Path) -> None:
        """Writes `config.json` and `model.safetensors` into `folder`."""
        artifact.save(self, self.config, folder)

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> "GaussianField":
        """Returns the model that `save_pretrained` wrote."""
        return artifact.load(cls, folder)
