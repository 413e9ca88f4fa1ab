r"""The Gaussian Particle Operator (section 2.3, eq. op-def).

$\mathcal{G}_\Theta = f^{\mathrm{dec}}_\phi\circ(\mathcal{O}_\psi)^{\circ n}\circ\mathcal{Z}\circ E_\theta$
"""

from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gpo.model import artifact
from gpo.model.attention import PGGaussianAttention, Stage
from gpo.model.config import OperatorConfig
from gpo.model.field import GaussianField
from gpo.model.geometric import GeometricLayers, Start
from gpo.model.particles import Particles
from gpo.model.sites import Sites
from gpo.model.trace import Trace


class GaussianParticleOperator(nn.Module):
    """Maps a field on any points to a field on any points, through Gaussian particles."""

    def __init__(self, config: OperatorConfig) -> None:
        super().__init__()
        self.config = config
        self.field = GaussianField(config, config.state_channels)
        if config.variant == "geometric":
            self.layers = GeometricLayers(config, self.field.encoder.num_described)
        else:
            num_owned = min(config.num_layers, 1) if config.share_layers else config.num_layers
            self.layers = nn.ModuleList(PGGaussianAttention(config) for _ in range(num_owned))

    def forward(
        self,
        values: Float[Tensor, "batch points in_channels"],
        coords: Float[Tensor, "*#batch points dim"],
        *,
        weights: Float[Tensor, "*#batch points"] | None = None,
        queries: Float[Tensor, "*#batch queries dim"] | None = None,
    ) -> Float[Tensor, "batch targets out_channels"]:
        """Returns the predicted field at the sites, or at `queries`.

        An answer at a query does not depend on which other queries are asked.

        Args:
            values: The input field at the sites.
            coords: The sites, shared by the batch or one set per sample.
            weights: Quadrature weights; 0 masks a site, whatever it holds.
            queries: Any other points at which to predict.
        """
        sites = self.field.check(values, coords, weights, queries)
        if isinstance(self.layers, GeometricLayers):
            return self._geometric_trace(sites, self.layers).output
        domain = self.config.space
        latent = self.field.encoder(sites.values, sites.coords)
        basis, descriptor = latent.basis(sites.coords, domain), latent.descriptor(domain)
        if sites.queries is None:
            for layer in self.stages:
                basis = layer(basis, descriptor, sites.weights)
            return self.field.decoder(basis)
        seen = self.field.seen_from(sites, latent)
        asked, seen_descriptor = seen.basis(sites.queries, domain), seen.descriptor(domain)
        for layer in self.stages:
            stage = layer.measure_and_couple(basis, descriptor, sites.weights)
            asked = layer.update(asked, layer.windows(asked, seen_descriptor), stage.coupled)
            basis = layer.update(basis, stage.windows, stage.coupled)
        return self.field.decoder(asked)

    @property
    def stages(self) -> list[PGGaussianAttention]:
        """The layers in the order of application; the same one n times where they are shared."""
        assert isinstance(self.layers, nn.ModuleList)
        layers = [layer for layer in self.layers if isinstance(layer, PGGaussianAttention)]
        return layers * self.config.num_layers if self.config.share_layers else layers

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
    ) -> Trace:
        """Returns every intermediate of the forward pass together with its output."""
        return self.trace_sites(self.field.check(values, coords, weights, None))

    def trace_sites(self, sites: Sites) -> Trace:
        """Returns the same for sites that were checked already."""
        if isinstance(self.layers, GeometricLayers):
            return self._geometric_trace(sites, self.layers)
        domain = self.config.space
        latent = self.field.encoder(sites.values, sites.coords)
        bases, descriptor = [latent.basis(sites.coords, domain)], latent.descriptor(domain)
        stages: list[Stage] = []
        for layer in self.stages:
            stages.append(layer.measure_and_couple(bases[-1], descriptor, sites.weights))
            bases.append(layer.update(bases[-1], stages[-1].windows, stages[-1].coupled))
        return Trace(latent, tuple(bases), tuple(stages), self.field.decoder(bases[-1]))

    def _geometric_trace(self, sites: Sites, layers: GeometricLayers) -> Trace:
        encoder, domain = self.field.encoder, self.config.space
        described = encoder.describe(sites.values, sites.coords)
        latent = encoder.read(described, sites.coords)
        start = Start(latent.basis(sites.coords, domain), described)
        queries = None
        if sites.queries is not None:
            neighbours = self.field.neighbours(sites)
            values = neighbours.blend(neighbours.gather(sites.values))
            basis = latent.blend(neighbours, domain).basis(sites.queries, domain)
            queries = Start(basis, encoder.describe(values, sites.queries)), neighbours
        states, stages = layers(sites, start, queries)
        return Trace(latent, tuple(states), tuple(stages), self.field.decoder(states[-1]))

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
