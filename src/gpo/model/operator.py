r"""The Gaussian Particle Operator (section 2.3, eq. op-def).

$\mathcal{G}_\Theta = f^{\mathrm{dec}}_\phi\circ(\mathcal{O}_\psi)^{\circ n}\circ\mathcal{Z}\circ E_\theta$
"""

from dataclasses import replace
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
from gpo.model.silence import Silence
from gpo.model.sites import Sites
from gpo.model.trace import Trace


class GaussianParticleOperator(nn.Module):
    """Maps a field on any points to a field on any points, through Gaussian particles."""

    def __init__(self, config: OperatorConfig) -> None:
        super().__init__()
        self.config = config
        self.field = GaussianField(config, config.state_channels)
        if config.variant == "geometric":
            self.layers = GeometricLayers(config, self.field.encoder.features.num_features)
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
        silence: Silence = Silence(),
    ) -> Float[Tensor, "batch targets out_channels"]:
        """Returns the predicted field at the sites, or at `queries`.

        An answer at a query does not depend on which other queries are asked.

        Args:
            values: The input field at the sites.
            coords: The sites, shared by the batch or one set per sample.
            weights: Quadrature weights; 0 masks a site, whatever it holds.
            queries: Any other points at which to predict.
            silence: Parts that are switched off.
        """
        sites = self._silenced(self.field.check(values, coords, weights, queries), silence)
        if isinstance(self.layers, GeometricLayers):
            return self._geometric_trace(sites, self.layers, silence).output
        domain = self.config.space
        latent = self.field.encoder(sites.values, sites.coords).silenced(silence)
        basis, descriptor = latent.basis(sites.coords, domain), latent.descriptor(domain)
        if sites.queries is None:
            for number, layer in enumerate(self.stages):
                stage = layer.measure_and_couple(basis, descriptor, sites.weights)
                basis = self._updated(number, basis, stage.windows, stage, silence)
            return self.field.decoder(basis)
        seen = self.field.seen_from(sites, latent)
        asked, seen_descriptor = seen.basis(sites.queries, domain), seen.descriptor(domain)
        for number, layer in enumerate(self.stages):
            stage = layer.measure_and_couple(basis, descriptor, sites.weights)
            windows = layer.windows(asked, seen_descriptor)
            asked = self._updated(number, asked, windows, stage, silence)
            basis = self._updated(number, basis, stage.windows, stage, silence)
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
        silence: Silence = Silence(),
    ) -> Trace:
        """Returns every intermediate of the forward pass together with its output."""
        return self.trace_sites(self.field.check(values, coords, weights, None), silence)

    def trace_sites(self, sites: Sites, silence: Silence = Silence()) -> Trace:
        """Returns the same for sites that were checked already."""
        sites = self._silenced(sites, silence)
        if isinstance(self.layers, GeometricLayers):
            return self._geometric_trace(sites, self.layers, silence)
        domain = self.config.space
        latent = self.field.encoder(sites.values, sites.coords).silenced(silence)
        bases, descriptor = [latent.basis(sites.coords, domain)], latent.descriptor(domain)
        stages: list[Stage] = []
        for number, layer in enumerate(self.stages):
            stage = layer.measure_and_couple(bases[-1], descriptor, sites.weights)
            bases.append(self._updated(number, bases[-1], stage.windows, stage, silence))
            stages.append(stage)
        output = self.field.decoder(bases[-1])
        return Trace(latent, tuple(bases), tuple(stages), output, sites.coords, domain)

    @property
    def num_modes(self) -> int:
        """Modes of a layer, of all its heads."""
        if isinstance(self.layers, GeometricLayers):
            return self.layers.windows.num_modes
        return self.config.num_heads * self.config.num_modes

    def _silenced(self, sites: Sites, silence: Silence) -> Sites:
        config, num_sites = self.config, sites.values.shape[1]
        silence.check(config.num_layers, self.num_modes, num_sites, config.num_gaussians)
        return replace(sites, values=silence.at_sites(sites.values))

    def _updated(
        self, number: int, basis: Tensor, windows: Tensor, stage: Stage, silence: Silence
    ) -> Tensor:
        """Returns the basis at some points after a layer, with what is silent left out."""
        if number in silence.layers:
            return basis
        coupled = silence.tokens(number, stage.coupled.flatten(1, 2), dim=1)
        return self.stages[number].update(basis, windows, coupled.view_as(stage.coupled))

    def _geometric_trace(self, sites: Sites, layers: GeometricLayers, silence: Silence) -> Trace:
        encoder, domain = self.field.encoder, self.config.space
        described = encoder.describe(sites.values, sites.coords)
        latent = encoder.read(described, sites.coords).silenced(silence)
        start = Start(latent.basis(sites.coords, domain), described)
        queries = None
        if sites.queries is not None:
            neighbours = self.field.neighbours(sites)
            values = neighbours.blend(neighbours.gather(sites.values))
            basis = latent.blend(neighbours, domain).basis(sites.queries, domain)
            queries = Start(basis, encoder.describe(values, sites.queries)), neighbours
        states, stages = layers(sites, start, queries, silence)
        output = self.field.decoder(states[-1])
        seen = sites.coords, domain
        return Trace(latent, tuple(states), tuple(stages), output, *seen, layers.windows)

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
