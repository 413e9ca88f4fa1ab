r"""The paper's operator: Petrov-Galerkin Gaussian attention (section 2.2).

The state is the Gaussian basis $Z$ of every site. A layer is
$\tilde Z=A\,\mathcal{K}\,\bar A^\top(ZW_z)W_{\mathrm{out}}$ with windows $A$ that depend on the
field (eq. attn-win) and attention $\mathcal{K}$ among modes (eq. attn-qkv to attn-out, `tokens.py`).
Sums over sites are done in the basis's G channels: $\bar A^\top(ZW_z)=(\bar A^\top Z)W_z$ projects
tokens, not sites, and $A(UW_{\mathrm{out}})$ evaluates the modes in the channels of the basis.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear, softplus

from gpo.execution.memory import LayerSizes
from gpo.execution.points import Chunked, Points, Sites
from gpo.execution.recompute import Keeps
from gpo.model.config import PaperConfig
from gpo.model.decoder import Decoder
from gpo.model.encoder import geometry_of, make_encoder
from gpo.model.features import num_features
from gpo.model.layer import AbstractLayer, Parts
from gpo.model.particle_losses import paper_losses, particle_penalties
from gpo.model.particles import AbstractLatent, join_latents
from gpo.model.problem import Problem
from gpo.model.tokens import ModalAttention, TokenNetwork, optional_bias
from gpo.numerics.products import without


def build_parts(problem: Problem, config: PaperConfig) -> Parts:
    """Builds the paper's operator."""
    num_owned = min(config.num_layers, 1) if config.share_layers else config.num_layers
    lift = ParticleLift(problem, config)
    decoder = BasisDecoder(config.num_gaussians, config.hidden_dim, problem.out_channels)
    layers = [GaussianAttention(problem, config) for _ in range(num_owned)]
    repeats = config.num_layers // max(1, num_owned)
    return Parts(lift, layers * repeats, decoder, losses=paper_losses)


@dataclass(frozen=True)
class Basis:
    r"""The state: the basis $Z$, and what windows use beside it, which no layer changes."""

    values: Float[Tensor, "points batch gaussians"]
    descriptor: Float[Tensor, "points batch features"]
    r"""$[w,\mu,\sigma]$ of the particles."""
    penalties: Float[Tensor, " penalties"] | None = None
    r"""$L_\mu$ and $L_\sigma$ of these sites; None at queries."""


class BasisDecoder(Decoder):
    """Decodes the basis."""

    def decode(self, state: Basis, points: object) -> Float[Tensor, "points batch out_channels"]:
        """Returns the values of the field at points, from their basis."""
        return self.layers(state.values)


class ParticleLift(AbstractLayer):
    """Encodes values as particles, and evaluates their basis."""

    def __init__(self, problem: Problem, config: PaperConfig) -> None:
        super().__init__()
        self.domain = geometry_of(problem, config)
        self.bounds = (config.sigma_min, config.sigma_max)
        self.encoder, gaussians = make_encoder(problem, config), config.num_gaussians
        self.has_particles = config.has_gaussian_field
        self.places_windows = config.places_windows
        self.sizes = LayerSizes(
            state=gaussians,
            kept=8 * config.hidden_dim + 20 * gaussians,
            descriptor=num_described(problem, config),
            modes=config.num_heads * gaussians,
        )

    def couple(self, state: None, sites: Sites) -> Chunked[Any]:
        """Returns the particles of all sites, deferred or not; queries interpolate them."""
        return sites.defer(self.encode, None, kept=Keeps.ALL)

    def encode(self, state: None, points: Points) -> AbstractLatent:
        r"""Returns $E_\theta(a)$ at some sites."""
        return self.encoder(points.values, points.coords)

    def update(self, state: None, points: Points, coupled: AbstractLatent | Chunked[Any]) -> Basis:
        r"""Returns $z_{ji}=w_{ji}\,G(x_j;\mu_{ji},\sigma_{ji})$; queries interpolate particles."""
        penalties = None
        if isinstance(coupled, Chunked):
            assert points.geometry.neighbours is not None
            latent = coupled.joined(join_latents).blend(points.geometry.neighbours, self.domain)
        else:
            latent = coupled
            penalties = particle_penalties(latent, points, self.domain, self.bounds)
        basis, descriptor = latent.basis(points.coords, self.domain), latent.descriptor(self.domain)
        if self.places_windows:
            position = self.encoder.features(points.coords).expand(len(basis), -1, -1)
            descriptor = torch.cat([descriptor, position], dim=-1)
        # Samples stay first in memory: sums over sites are one product per sample then.
        return Basis(basis.transpose(0, 1), descriptor.transpose(0, 1), penalties)


@dataclass(frozen=True)
class AttentionModes:
    """What a layer takes from all sites."""

    tokens: Float[Tensor, "batch heads modes head_dim"]
    """What every window measures."""
    coupling: Float[Tensor, "batch heads modes modes"]
    """How much every mode takes of every other."""
    coupled: Float[Tensor, "batch heads modes head_dim"]
    """The tokens after coupling."""
    fields: Float[Tensor, "batch heads modes gaussians"]
    """The same in the channels of the basis."""
    windows: Any = None
    """At the sites, by chunk; None at queries, which compute their own."""

    def without(self, modes: Sequence[int]) -> "AttentionModes":
        """Returns the same with some modes zero; the modes of all heads are numbered."""
        coupled, fields = (
            without(part.flatten(1, 2), modes, dim=1).view_as(part)
            for part in (self.coupled, self.fields)
        )
        return replace(self, coupled=coupled, fields=fields)


def num_described(problem: Problem, config: PaperConfig) -> int:
    """Returns how many numbers of a site its windows use besides its basis."""
    domain, count = geometry_of(problem, config), 0
    if config.has_gaussian_field:
        count = config.num_gaussians * (1 + domain.embedding_dim + domain.dim)
    return count + config.places_windows * num_features(config, domain)


class GaussianAttention(AbstractLayer):
    r"""One layer $Z\mapsto Z'$ of the Gaussian-basis operator."""

    mixing_logit: Tensor

    def __init__(self, problem: Problem, config: PaperConfig) -> None:
        super().__init__()
        self.renormalises, self.is_positive = config.renormalises, config.readout == "softplus"
        self.windows = FieldWindows(problem, config)
        self.coupling = ModalAttention(config)
        heads, gaussians, head_dim = config.num_heads, config.num_gaussians, config.head_dim
        project = torch.empty(heads, gaussians, head_dim).uniform_(-1, 1) * gaussians**-0.5
        readout = torch.empty(heads, head_dim, gaussians).uniform_(-1, 1) * config.hidden_dim**-0.5
        self.project = nn.Parameter(project)
        self.readout = nn.Parameter(readout)
        self.project_bias = optional_bias(config, heads, 1, head_dim, inputs=gaussians)
        self.readout_bias = optional_bias(config, gaussians, inputs=config.hidden_dim)
        self.norm = nn.LayerNorm(gaussians) if config.layer_norm else nn.Identity()
        names = torch.randn(heads, gaussians, head_dim) if config.names_modes else None
        self.names = None if names is None else nn.Parameter(names)
        self.network = TokenNetwork(config) if config.token_width else None
        self.fixed_mixing = None if config.learns_mixing else config.mixing
        if config.learns_mixing:
            self.mixing_logit = nn.Parameter(torch.tensor(config.mixing).logit())
        modes, kept = heads * gaussians, 2 * config.hidden_dim + 8 * gaussians
        self.sizes = LayerSizes(gaussians, kept, windows=modes, modes=modes)

    @property
    def mixing(self) -> Tensor | float:
        r"""The coefficient $\lambda$ of the convex residual."""
        return torch.sigmoid(self.mixing_logit) if self.fixed_mixing is None else self.fixed_mixing

    def couple(self, state: Chunked[Basis], sites: Sites) -> AttentionModes:
        """Returns the modes, and the windows that evaluate them at the sites."""
        windows = sites.defer(self.test_functions, state, kept=Keeps.WINDOWS)
        return replace(self.modes(state, windows, sites), windows=windows)

    def modes(self, state: Chunked[Basis], windows: Chunked[Any], sites: Sites) -> AttentionModes:
        r"""Returns $T=\bar A^\top ZW_z$ and $U=\mathcal{K}(T)W_{\mathrm{out}}$."""
        moments = sites.sum(self.measure, state, windows)
        tokens = means(torch.cat([moments[..., :-1] @ self.project, moments[..., -1:]], dim=-1))
        tokens = tokens if self.project_bias is None else tokens + self.project_bias
        tokens = tokens if self.names is None else tokens + self.names
        coupled, coupling = self.coupling(tokens)
        coupled = coupled if self.network is None else self.network(tokens, coupled)
        return AttentionModes(tokens, coupling, coupled, coupled @ self.readout)

    def test_functions(
        self, state: Basis, points: Points
    ) -> Float[Tensor, "points batch heads modes"]:
        """Returns the windows at some points."""
        return self.windows(self.norm(state.values), state.descriptor)

    def measure(
        self, state: Basis, points: Points, windows: Float[Tensor, "points batch heads modes"]
    ) -> Float[Tensor, "batch heads modes gaussians_and_mass"]:
        r"""Returns $\sum_j q_jp_{jg}z_j$ and $\sum_j q_jp_{jg}$ of some sites."""
        return measure(replace(state, values=self.norm(state.values)), points, windows)

    def update(self, state: Basis, points: Points, modes: AttentionModes) -> Basis:
        r"""Returns $(1-\lambda)Z+\lambda AU$, with the sum of every row as before (eq. residual)."""
        windows = modes.windows if points.are_sites else self.test_functions(state, points)
        # Every head adds to the same channels (eq. attn-scatter).
        readout = torch.einsum("nbhm,bhmg->nbg", windows, modes.fields)
        readout = readout if self.readout_bias is None else readout + self.readout_bias
        readout, basis = softplus(readout) if self.is_positive else readout, state.values
        blended = (1 - self.mixing) * basis + self.mixing * readout
        blended = renormalise(blended, basis) if self.renormalises else blended
        return replace(state, values=blended)


def measure(
    state: Basis, points: Points, windows: Float[Tensor, "points batch heads modes"]
) -> Float[Tensor, "batch heads modes gaussians_and_mass"]:
    r"""Returns $\sum_j q_jp_{jg}z_j$ and, last, $\sum_j q_jp_{jg}$, which add up over sites."""
    with_mass = torch.cat([state.values, torch.ones_like(state.values[..., :1])], dim=-1)
    weighted = with_mass * points.weights.T.unsqueeze(-1)
    return torch.einsum("nbhm,nbg->bhmg", windows, weighted)


class FieldWindows(nn.Module):
    r"""$p_{jg}=\mathrm{softmax}_g(W_p h_j/\tau)$, $h_j$ linear in $[z_j,w_j,\mu_j,\sigma_j]$ (eq. attn-win).

    The paper has the temperature $\tau=1$.
    """

    log_temperature: Tensor

    def __init__(self, problem: Problem, config: PaperConfig) -> None:
        super().__init__()
        num_gaussians = config.num_gaussians
        self.num_heads, self.num_gaussians = config.num_heads, num_gaussians
        num_inputs = num_gaussians + num_described(problem, config)
        self.describe = nn.Linear(num_inputs, config.hidden_dim)
        num_projections = 1 if config.shares_windows else config.num_heads
        shape = (num_projections, config.head_dim, num_gaussians)
        self.logits = nn.Parameter(torch.empty(shape).uniform_(-1, 1) * config.head_dim**-0.5)
        self.bias = optional_bias(config, num_projections, num_gaussians, inputs=config.head_dim)
        self.fixed_temperature = None if config.learns_temperature else config.temperature
        if config.learns_temperature:
            self.log_temperature = nn.Parameter(torch.tensor(config.temperature).log())

    @property
    def temperature(self) -> Tensor | float:
        r"""The temperature $\tau$."""
        fixed = self.fixed_temperature
        return torch.exp(self.log_temperature) if fixed is None else fixed

    def forward(
        self,
        basis: Float[Tensor, "points batch gaussians"],
        descriptor: Float[Tensor, "points batch features"],
    ) -> Float[Tensor, "points batch heads modes"]:
        """Returns the assignment of every point to the modes of every head; rows sum to one."""
        weight, particle_weight = self.describe.weight.tensor_split([self.num_gaussians], dim=1)
        basis, descriptor = basis.transpose(0, 1), descriptor.transpose(0, 1)
        described = linear(descriptor, particle_weight, self.describe.bias)
        hidden = torch.addmm(described.flatten(0, 1), basis.flatten(0, 1), weight.T)
        hidden = hidden.view(*described.shape[:2], self.num_heads, -1)
        projections = self.logits.expand(self.num_heads, -1, -1)
        logits = torch.einsum("bnhc,hcm->bnhm", hidden, projections)
        logits = logits if self.bias is None else logits + self.bias
        return torch.softmax(logits / self.temperature, dim=-1).transpose(0, 1)


def means(moments: Float[Tensor, "*modes channels_and_mass"]) -> Float[Tensor, "*modes channels"]:
    r"""Returns $\sum_j q_jp_{jg}z_j\,/\,\sum_j q_jp_{jg}$: the mean over each window."""
    mass = moments[..., -1:]
    return moments[..., :-1] / (mass + torch.finfo(mass.dtype).tiny)


def renormalise(
    blended: Float[Tensor, "*points gaussians"], basis: Float[Tensor, "*points gaussians"]
) -> Float[Tensor, "*points gaussians"]:
    r"""Rescales every row so that its sum is what it was before (eq. row-renorm).

    $\varepsilon$ takes the sign of the sum it protects: a signed readout can drive that sum
    through zero from either side.
    """
    total = blended.sum(-1, keepdim=True)
    epsilon = torch.finfo(total.dtype).eps * torch.where(total < 0, -1.0, 1.0).to(total)
    return basis.sum(-1, keepdim=True) / (total + epsilon) * blended
