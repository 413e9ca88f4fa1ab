r"""The Gaussian Particle Operator (section 2.3, eq. op-def).

$\mathcal{G}_\Theta = f^{\mathrm{dec}}_\phi\circ(\mathcal{O}_\psi)^{\circ n}\circ\mathcal{Z}\circ E_\theta$
"""

from dataclasses import replace
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gpo.model import checkpoint as artifact
from gpo.model.ablation import Ablation
from gpo.model.config import OperatorConfig
from gpo.model.content_layers import ContentLayers
from gpo.model.field import GaussianField
from gpo.model.geometric import GeometricLayers
from gpo.model.particles import Particles
from gpo.model.sites import FixedGeometry, Sites
from gpo.model.sweep import Regularizer, Sweep, sweep
from gpo.model.trace import Trace


class GaussianParticleOperator(nn.Module):
    """Maps a field on any points to a field on any points, through Gaussian particles."""

    def __init__(self, config: OperatorConfig) -> None:
        super().__init__()
        self.config = config
        self.field = GaussianField(config, config.state_channels)
        self.layers: GeometricLayers | ContentLayers = (
            GeometricLayers(config, self.field.encoder.features.num_features)
            if config.variant == "geometric"
            else ContentLayers(config)
        )

    def forward(
        self,
        values: Float[Tensor, "batch points in_channels"],
        coords: Float[Tensor, "*#batch points dim"],
        *,
        weights: Float[Tensor, "*#batch points"] | None = None,
        queries: Float[Tensor, "*#batch queries dim"] | None = None,
        ablation: Ablation = Ablation(),
    ) -> Float[Tensor, "batch targets out_channels"]:
        """Returns the predicted field at the sites, or at `queries`.

        An answer at a query does not depend on which other queries are asked.

        Args:
            values: The input field at the sites.
            coords: The sites, shared by the batch or one set per sample.
            weights: Quadrature weights; 0 masks a site, whatever it holds.
            queries: Any other points at which to predict.
            ablation: Parts that are switched off.
        """
        return self.predict(self.field.check(values, coords, weights, queries), ablation)

    def predict(
        self, sites: Sites, ablation: Ablation = Ablation()
    ) -> Float[Tensor, "batch targets out_channels"]:
        """Returns the same for sites that were checked already."""
        swept = self.sweep(sites, ablation)
        return swept.output if sites.queries is None else swept.at(sites.queries)

    @torch.no_grad()
    def fix(
        self,
        coords: Float[Tensor, "points dim"],
        *,
        weights: Float[Tensor, " points"] | None = None,
        queries: Float[Tensor, "queries dim"] | None = None,
    ) -> FixedGeometry:
        """Returns all that depends on places alone; `predict(Sites.at(fixed, values))` uses it."""
        values = coords.new_zeros(1, len(coords), self.config.in_channels, dtype=self.field.dtype)
        sites = self.field.check(values, coords, weights, queries)
        has_mask = not bool(sites.is_counted.all())
        neighbours = None if queries is None else self.field.neighbours(sites)
        places = sites.coords, sites.weights, has_mask, sites.queries
        fixed = FixedGeometry(*places, neighbours)
        return self.layers.fix(fixed) if isinstance(self.layers, GeometricLayers) else fixed

    def sweep(
        self,
        sites: Sites,
        ablation: Ablation = Ablation(),
        *,
        traces: bool = False,
        judge: Regularizer | None = None,
    ) -> Sweep:
        """Takes sites that were checked through encoder and layers.

        What comes out decodes them, and answers at any number of queries, chunk by chunk.

        Args:
            sites: Fields on sites.
            ablation: Parts that are switched off.
            traces: Whether every intermediate is kept.
            judge: Is asked about the particles of every chunk, which need not be kept then.
        """
        config, num_sites = self.config, sites.values.shape[1]
        ablation.check(config.num_layers, self.num_modes, num_sites, config.num_gaussians)
        sites = replace(sites, values=ablation.at_sites(sites.values))
        return sweep(self.field.parts(self.layers), sites, ablation, traces=traces, judge=judge)

    def particles(
        self,
        values: Float[Tensor, "batch points in_channels"],
        coords: Float[Tensor, "*#batch points dim"],
        *,
        weights: Float[Tensor, "*#batch points"] | None = None,
    ) -> Particles:
        """Returns the particles that the encoder makes of a field: centers, scales, weights."""
        return self.field.particles(values, coords, weights=weights)

    def trace(
        self,
        values: Float[Tensor, "batch points in_channels"],
        coords: Float[Tensor, "*#batch points dim"],
        *,
        weights: Float[Tensor, "*#batch points"] | None = None,
        ablation: Ablation = Ablation(),
    ) -> Trace:
        """Returns every intermediate of the forward pass together with its output."""
        return self.trace_sites(self.field.check(values, coords, weights, None), ablation)

    def trace_sites(self, sites: Sites, ablation: Ablation = Ablation()) -> Trace:
        """Returns the same for sites that were checked already."""
        swept = self.sweep(sites, ablation, traces=True)
        states = tuple(swept.bases(number) for number in range(len(swept.states)))
        waves = self.layers.windows if isinstance(self.layers, GeometricLayers) else None
        seen = sites.coords.expand(sites.values.shape[0], -1, -1), self.config.space, waves
        return Trace(swept.latent, states, tuple(swept.stages), swept.output, *seen)

    @property
    def chunk_size(self) -> int | None:
        """Sites, of all samples together, that are worked on at a time; as fit the cache where None."""
        return self.field.chunk_size

    @chunk_size.setter
    def chunk_size(self, size: int | None) -> None:
        self.field.chunk_size = size

    @property
    def num_modes(self) -> int:
        """Modes of a layer, of all its heads."""
        return self.layers.num_modes

    def save_pretrained(self, folder: str | Path) -> None:
        """Writes `config.json` and `model.safetensors` into `folder`."""
        artifact.save(self, self.config, folder)

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> "GaussianParticleOperator":
        """Returns the model that `save_pretrained` wrote."""
        return artifact.load(cls, folder)


def count_parameters(config: OperatorConfig) -> int:
    """Returns how many parameters the operator of a configuration has, without building it."""
    with torch.device("meta"):
        model = GaussianParticleOperator(config)
    return sum(parameter.numel() for parameter in model.parameters())
