r"""The default operator: a lift and layers of waves with a gate; particles are in `transport.py`.

A point starts with $h=W[a,\gamma(x)]$, its values and its position. Every layer projects the state
onto waves, filters the modes, evaluates them at the points, and gates:

$T_k=\langle\psi_k,h\rangle$,
$(p,r)=\sum_k\psi_k\,\hat d_k\odot(T_kW)+hW_{\mathrm{loc}}$,
$h\leftarrow h+(\tanh p\odot r)W_{\mathrm{out}}$.

The product of two fields, each a convolution of the state, has the shape of $u\cdot\nabla\omega$:
a velocity and what it transports. The bounded factor keeps rollouts from diverging. The filter
$\hat d$ is in `mode_filter.py`, the waves $\psi_k$ are in `transforms/waves.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import gelu

from gpo.execution.memory import LayerSizes
from gpo.execution.points import ChunkedField, LatticeField, Points, Sites
from gpo.model.config import OperatorConfig
from gpo.model.features import describe_points, make_features
from gpo.model.layer import AbstractLayer
from gpo.model.mode_filter import ModeFilter
from gpo.model.problem import Problem
from gpo.numerics.products import BoundedUpdate, add_product, without
from gpo.transforms.waves import Waves

State = Float[Tensor, "points batch channels"]


class WaveLift(AbstractLayer):
    r"""$h=W[a,\gamma(x)]$."""

    def __init__(self, problem: Problem, config: OperatorConfig, waves: Waves) -> None:
        super().__init__()
        self.features = make_features(config, problem.domain, config.hidden_dim)
        num_inputs = problem.in_channels + self.features.num_features
        self.linear = nn.Linear(num_inputs, config.hidden_dim)
        self.sizes = LayerSizes(config.hidden_dim, 4 * config.hidden_dim, modes=waves.num_modes)

    def couple(self, state: None, sites: Sites) -> None:
        """Returns nothing: a point starts on its own."""

    def update(self, state: None, points: Points, coupled: None) -> State:
        """Returns the state that values and positions make."""
        features = describe_points(self.features, points.values, points.coords)
        return features.project(self.linear).transpose(0, 1).contiguous()


@dataclass(frozen=True)
class WaveModes:
    """What a layer takes from all sites."""

    tokens: Float[Tensor, "2 modes batch channels"]
    """The projection of the state onto every wave, real and imaginary part."""
    response: Float[Tensor, "2 modes fields"]
    r"""The filter $\hat d$ of every field."""
    fields: Float[Tensor, "2 modes batch fields"]
    """The filtered tokens: p in the first half of the fields, r in the second."""
    displacement: Float[Tensor, "2 modes batch displacements"] | None = None
    """Likewise the modes of the displacements, in a layer with transport."""
    source: LatticeField | None = None
    """The features that particles sample, on the lattice, in a layer with transport."""

    def without(self, modes: Sequence[int]) -> "WaveModes":
        """Returns the same with some filtered modes zero."""
        fields, displacement = (
            None if part is None else without(part, modes, dim=1)
            for part in (self.fields, self.displacement)
        )
        return replace(self, fields=fields, displacement=displacement)


class WaveLayer(AbstractLayer):
    """Projects onto waves, filters, evaluates and gates: updates a state of `hidden_dim` channels."""

    def __init__(self, config: OperatorConfig, waves: Waves) -> None:
        super().__init__()
        self.gate, channels = config.gate, config.hidden_dim
        fields, bound = channels if self.gate == "none" else 2 * channels, channels**-0.5
        self.filter = ModeFilter(waves.shape, channels, fields, config.packet_widths)
        self.local = nn.Parameter(torch.empty(channels, fields).uniform_(-bound, bound))
        self.out = nn.Parameter(torch.empty(channels, channels).uniform_(-bound / 2, bound / 2))
        self.sizes = LayerSizes(channels, 2 * channels, modes=waves.num_modes)

    def couple(self, state: ChunkedField, sites: Sites) -> WaveModes:
        """Returns the modes."""
        return self.modes(state, sites)

    def modes(self, state: ChunkedField, sites: Sites) -> WaveModes:
        r"""Returns $T_k=\langle\psi_k,h\rangle$ and $\hat d_k\odot(T_kW)$."""
        tokens = sites.analyse(state)
        fields, response = self.filter(tokens)
        return WaveModes(tokens, response, fields)

    def update(
        self, state: State, points: Points, modes: WaveModes, onto: State | None = None
    ) -> State:
        r"""Returns $h+(\tanh p\odot r)W_{\mathrm{out}}$, or the product added `onto` another state."""
        state, fields = (state if onto is None else onto), self.factors(state, points, modes)
        if self.gate == "bounded":
            return BoundedUpdate.apply(state, fields, self.out)
        gate, transported = fields.chunk(2, dim=-1)
        product = gelu(fields) if self.gate == "none" else gate * transported
        return add_product(state, product, self.out)

    def factors(
        self, state: State, points: Points, modes: WaveModes
    ) -> Float[Tensor, "points batch fields"]:
        r"""Returns $(p,r)=\sum_k\psi_k\,\hat d_k\odot(T_kW)+hW_{\mathrm{loc}}$."""
        return add_product(points.synthesise(modes.fields), state, self.local)
