r"""Transport: each point samples the field at learned departure points, a semi-Lagrangian step.

Every point has $G$ Gaussian particles. The displacement $\delta$ of each is the sum of a field of
waves and of a linear map of the state, bounded by the reach $R$. The departure point is its center
$\mu_{ji}=x_j-\delta_{ji}$; its scale $\sigma_i$ along every axis is learned, in units of length:

$\delta=R\tanh(\sum_k\psi_k\,\hat d_k\odot(T_kW)+hW_{\mathrm{loc}})$,
$s_{ji}=\int G(x-\mu_{ji};\sigma_i)\,c^{(i)}(x)\,dx$ with source features $c=hV$,
$h_j\leftarrow h_j+\sum_i(s_{ji}-c_j^{(i)})\,W_i$.

Displacement is advection. The point's own value is subtracted, so that a particle without displacement
diffuses, by $\sigma=\sqrt{2\nu\,\Delta t}$. On a lattice (`transforms/lattice.py`) the field is smoothed
first (`transforms/smoothing.py`) and sampled by the multilinear kernel. A layer with transport wraps
a layer of waves.
"""

from dataclasses import replace
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gpo.execution.points import ChunkedField, Points, Sites
from gpo.model.config import OperatorConfig
from gpo.model.decoder import Decoder
from gpo.model.layer import AbstractLayer, Parts
from gpo.model.mode_filter import ModeFilter
from gpo.model.particles import Particles
from gpo.model.problem import Problem
from gpo.model.scales import initial_scales, num_lattice_nodes
from gpo.model.wave_layer import State, WaveLayer, WaveLift, WaveModes
from gpo.numerics.products import add_product
from gpo.transforms.waves import Waves, wave_limits

INIT_SCALE = 0.1
"""Size of the parameters of displacements at the start, beside those of gates."""

Displacements = Float[Tensor, "points batch gaussians axes"]
"""From the departure point of every particle to its point, in units of the axes of the waves; on a
sphere in the tangent plane, east and north, in radii."""


def build_parts(problem: Problem, config: OperatorConfig) -> Parts:
    """Builds the default operator: layers of waves, the last ones with transport."""
    limits = wave_limits(problem.domain, config.num_waves, problem.grid_shape, problem.mesh_shape)
    waves = Waves.on(problem.domain, limits, problem.mesh_shape)
    first = config.num_layers - config.num_transports
    layers = [
        TransportLayer(problem, config, waves) if number >= first else WaveLayer(config, waves)
        for number in range(config.num_layers)
    ]
    num_nodes = num_lattice_nodes(problem, config, limits) if config.has_transport else None
    lift = WaveLift(problem, config, waves)
    decoder = Decoder(config.hidden_dim, config.hidden_dim, problem.out_channels)
    return Parts(lift, layers, decoder, waves, num_nodes)


class TransportLayer(AbstractLayer):
    """A layer of waves whose points also sample the field through particles."""

    has_particles = True
    adamw_parameters = ("source", "arrive")  # With Muon, motion in radar images is never found.

    def __init__(self, problem: Problem, config: OperatorConfig, waves: Waves) -> None:
        super().__init__()
        self.problem = problem
        self.num_gaussians, self.num_axes = config.num_gaussians, problem.num_axes
        self.reach = config.reach * problem.reach_unit
        channels, displacements = config.hidden_dim, self.num_gaussians * self.num_axes
        source_channels = self.num_gaussians * max(1, channels // self.num_gaussians)
        bound = channels**-0.5
        self.filter = ModeFilter(waves.shape, channels, displacements, config.packet_widths)
        self.local = nn.Parameter(torch.empty(channels, displacements).uniform_(-bound, bound))
        with torch.no_grad():
            self.local.mul_(INIT_SCALE)
            self.filter.mix.mul_(INIT_SCALE)
        self.source = nn.Parameter(torch.empty(channels, source_channels).uniform_(-bound, bound))
        self.arrive = nn.Parameter(
            torch.empty(source_channels, channels).uniform_(-bound / 2, bound / 2)
        )
        start = initial_scales(problem, config, waves.limits)
        self.log_scale = nn.Parameter(start.log().expand(self.num_gaussians, -1).clone())
        self.waves = WaveLayer(config, waves)
        corners = 8 * 2**self.num_axes * self.num_gaussians
        kept = self.waves.sizes.kept + 4 * channels + corners
        self.sizes = replace(self.waves.sizes, kept=kept)

    def scales(self) -> Float[Tensor, "gaussians axes"]:
        r"""Returns standard deviations $\sigma$, in units of the axes; on a sphere one each, in radii."""
        return self.log_scale.exp()

    def couple(self, state: ChunkedField, sites: Sites) -> WaveModes:
        r"""Returns the modes of waves and displacements, and $c=hV$ on the lattice, smoothed."""
        modes, features = self.modes(state, sites), sites.map(self.source_features, state)
        displacements = partial(sites.map, self.displacement, state, modes)
        return replace(modes, source=sites.lattice(features, self.scales(), displacements))

    def modes(self, state: ChunkedField, sites: Sites) -> WaveModes:
        """Returns the modes of the layer of waves, and those of the displacements."""
        modes = self.waves.modes(state, sites)
        return replace(modes, displacement=self.filter(modes.tokens)[0])

    def update(self, state: State, points: Points, modes: WaveModes) -> State:
        r"""Returns $h+\sum_i(s_i-c^{(i)})W_i+(\tanh p\odot r)W_{\mathrm{out}}$."""
        displacement = self.displacement(state, points, modes)
        contribution = self.contribution(state, points, modes, displacement)
        transported = add_product(state, contribution, self.arrive)
        return self.waves.update(state, points, modes, transported)

    def source_features(
        self, state: State, points: Points
    ) -> Float[Tensor, "points batch source_channels"]:
        """Returns $c=hV$."""
        return state @ self.source

    def displacement(self, state: State, points: Points, modes: WaveModes) -> Displacements:
        r"""Returns $\delta=R\tanh(\sum_k\psi_k\,\hat d_k\odot(T_kW)+hW_{\mathrm{loc}})$."""
        assert modes.displacement is not None
        raw = add_product(points.synthesise(modes.displacement), state, self.local)
        return self.reach * torch.tanh(raw).unflatten(-1, (self.num_gaussians, self.num_axes))

    def contribution(
        self, state: State, points: Points, modes: WaveModes, displacement: Displacements
    ) -> Float[Tensor, "points batch source_channels"]:
        r"""Returns $s-c$: the smoothed field at the departure points, minus the field at the point."""
        source = modes.source
        assert source is not None
        own = state @ self.source if source.unsmoothed is None else points.sample(source)
        return points.sample(source, displacement) - own

    def particles(
        self,
        displacement: Displacements,
        scales: Float[Tensor, "gaussians _"],
        contribution: Float[Tensor, "points batch source_channels"],
        points: Points,
    ) -> Particles:
        """Returns the particles; the weight is the fraction of the contribution that each makes."""
        contributions = torch.einsum(
            "nbgc,gcd->nbgd",
            contribution.unflatten(-1, (self.num_gaussians, -1)),
            self.arrive.unflatten(0, (self.num_gaussians, -1)),
        )
        sizes = contributions.norm(dim=-1).transpose(0, 1)
        total = sizes.sum(-1, keepdim=True)
        weights = torch.where(total > 0, sizes / total, 1 / self.num_gaussians)
        domain, is_fitted = self.problem.domain, self.problem.is_fitted
        centers, scales = points.departures(displacement, scales, domain, is_fitted=is_fitted)
        return Particles(centers, scales, weights)
