r"""The Gaussian Particle Operator (section 2.3, eq. op-def): lift, layers, decode.

$\mathcal{G}_\Theta=f^{\mathrm{dec}}_\phi\circ(\mathcal{O}_\psi)^{\circ n}\circ\mathcal{Z}\circ E_\theta$

`run` is the method. What a layer is stands in `layer.py`; the layers of the default operator are in
`wave_layer.py` and `transport.py`, those of the paper's in `attention.py`. `Sites` and `Points`
(`execution/points.py`) have the verbs that layers call.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from gpo.execution.execution import Execution
from gpo.execution.geometry import PointGeometry
from gpo.execution.points import Chunked, Points, Sites
from gpo.model.config import OperatorConfig
from gpo.model.layer import AbstractLayer, Parts
from gpo.model.model import AbstractModel
from gpo.model.particles import Particles
from gpo.model.problem import Problem
from gpo.model.taps import Taps, active_taps, tapped, tapped_layers
from gpo.model.trace import Trace, record
from gpo.registry import resolve


class GaussianParticleOperator(AbstractModel):
    """Maps a field on any points to a field on any points, through Gaussian particles."""

    def __init__(
        self, problem: Problem, config: Any = OperatorConfig(), *, name: str | None = None
    ) -> None:
        """Makes an operator with random parameters.

        Args:
            problem: Channels, domain and kind of sites.
            config: An `OperatorConfig`, a `PaperConfig`, or your own with `MODEL` and `PARTS`.
            name: How it is registered, where that is not `config.MODEL`.
        """
        super().__init__(name or config.MODEL, problem, config)
        # Inside, coordinates are counted from the corner of the domain.
        parts: Parts = resolve(config.PARTS)(problem.local, config)
        self.lift, self.decoder = parts.lift, parts.decoder
        self.layers = torch.nn.ModuleList(dict.fromkeys(parts.layers))
        self.num_repeats = len(parts.layers) // max(1, len(self.layers))
        self.waves, self.further_losses = parts.waves_on(problem.domain), parts.losses
        self.num_modes = parts.lift.sizes.modes
        self.execution = Execution(
            problem.in_channels, problem.domain, parts.sizes, waves=parts.waves,
            num_nodes=parts.num_nodes, query_neighbours=config.query_neighbours,
        )  # fmt: skip

    def forward(
        self,
        values: Float[Tensor, "batch points in_channels"],
        coords: Float[Tensor, "*#batch points dim"],
        *,
        weights: Float[Tensor, "*#batch points"] | None = None,
        queries: Float[Tensor, "*#batch queries dim"] | None = None,
    ) -> Float[Tensor, "batch targets out_channels"]:
        """Returns the predicted field at the sites, or at `queries`.

        The answer at a query does not depend on the other queries.

        Args:
            values: The input field at the sites.
            coords: The sites, shared by the batch or one set per sample.
            weights: Quadrature weights; 0 masks a site, whatever its value.
            queries: Any other points at which to predict.
        """
        output = self.run(self.sites(values, coords, weights))
        return output.at_sites() if queries is None else output.at(queries)

    def run(self, sites: Sites, *, num_layers: int | None = None) -> "OperatorOutput":
        """Applies the lift and the layers, all of them or the first ones, to checked sites."""
        state: Any = None
        coupled: list[Any] = []
        for layer in self.steps(num_layers):
            coupled.append(layer.couple(state, sites))
            state = sites.map(layer.update, state, coupled[-1])
        return OperatorOutput(self, sites, state, coupled, active_taps())

    def steps(self, num_layers: int | None = None) -> Iterable[AbstractLayer]:
        """Returns the lift, then the layers in the order of application."""
        return tapped_layers([self.lift, *self.applied_layers[:num_layers]])

    @property
    def applied_layers(self) -> list[AbstractLayer]:
        """The layers in the order of application; the same one n times where it is shared."""
        return list(self.layers) * self.num_repeats  # pyright: ignore[reportReturnType]

    @property
    def transports(self) -> list[int]:
        """The numbers of the layers with transport."""
        return [n for n, layer in enumerate(self.applied_layers) if layer.has_particles]

    @property
    def has_particles(self) -> bool:
        """Whether points have Gaussian particles, in a layer or from the encoder."""
        return self.lift.has_particles or bool(self.transports)

    @property
    def operator(self) -> "GaussianParticleOperator":
        """This model."""
        return self

    def sites(
        self, values: Tensor, coords: Tensor, weights: Tensor | None = None, **how: bool
    ) -> Sites:
        """Returns checked sites with their geometry; `how` are options of `Execution.sites`."""
        taps = active_taps()
        how.setdefault("is_whole", taps.needs_all_sites)
        sites = self.execution.sites(values, coords, weights, self.dtype, **how)
        return replace(sites, values=taps("values", sites.values, -1)) if taps.taps else sites

    def particles(
        self,
        values: Float[Tensor, "batch points in_channels"],
        coords: Float[Tensor, "*#batch points dim"],
        *,
        weights: Float[Tensor, "*#batch points"] | None = None,
    ) -> tuple[Particles, ...]:
        """Returns the particles of every layer with transport, or those of the paper's encoder."""
        # Layers do not change the particles of an encoder.
        num_layers = 0 if self.lift.has_particles else None
        particles = record(self, values, coords, weights, num_layers=num_layers).gaussians
        if not particles:
            raise ValueError(
                "This model has no particles: it is the ablation without them. Build it with "
                "num_transports=1 or more, or with has_gaussian_field=True."
            )
        return particles

    def trace(
        self,
        values: Float[Tensor, "batch points in_channels"],
        coords: Float[Tensor, "*#batch points dim"],
        *,
        weights: Float[Tensor, "*#batch points"] | None = None,
    ) -> Trace:
        """Returns the intermediates of the forward pass together with its output."""
        return record(self, values, coords, weights)


@dataclass(frozen=True)
class OperatorOutput:
    """The result of a pass over the sites, which can be evaluated at them or anywhere."""

    model: GaussianParticleOperator
    sites: Sites
    state: Chunked[Any]
    """Of all sites, after the last layer."""
    coupled: list[Any]
    """What every layer took from the sites, the lift first."""
    taps: Taps
    """Those that were active, and are again at queries."""

    def at_sites(self) -> Float[Tensor, "batch points out_channels"]:
        """Returns the predicted field at the sites; zero at masked sites that were left out."""
        return self.sites.restore(self.sites.map(self.model.decoder.decode, self.state))

    def at(
        self, queries: Float[Tensor, "*#batch queries dim"] | PointGeometry
    ) -> Float[Tensor, "batch queries out_channels"]:
        """Returns the predicted field anywhere: at queries, or where their geometry is known."""
        with tapped(self.taps.at_queries()):
            fields = [self._at(points) for points in self.sites.locate(queries)]
        return (fields[0] if len(fields) == 1 else torch.cat(fields)).transpose(0, 1)

    def _at(self, points: Points) -> Float[Tensor, "queries batch out_channels"]:
        state = None
        for layer, coupled in zip(self.model.steps(), self.coupled, strict=False):
            state = layer.update(state, points, coupled)
        return self.model.decoder.decode(state, points)
