r"""The paper's operator: Petrov-Galerkin Gaussian attention (section 2.2): test, couple, scatter.

$\tilde Z=A\,\mathcal{K}\,\bar A^\top(ZW_z)W_{\mathrm{out}}$ with windows $A$ that see what a site
holds (eq. attn-win) and attention $\mathcal{K}$ among modes (eq. attn-qkv to attn-out). Sums over
sites are done in the basis's G channels: $\bar A^\top(ZW_z)=(\bar A^\top Z)W_z$ projects tokens, not
sites, and $A(UW_{\mathrm{out}})$ scatters straight into the basis.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear, softplus

from gpo.model.ablation import Ablation
from gpo.model.chunks import Chunk
from gpo.model.config import PaperConfig
from gpo.model.encoder import Decoder, make_encoder
from gpo.model.layer import (
    AbstractLayer,
    AbstractLift,
    Lifted,
    State,
    Variant,
)
from gpo.model.modes import ContentModes
from gpo.model.particles import AbstractLatent
from gpo.model.transport import View
from gpo.numerics.neighbours import Neighbours
from gpo.parallel.shard import SINGLE_PROCESS, SpatialShard
from gpo.transforms.transform import AbstractTransform, AbstractWaveTransform


def build_paper(config: PaperConfig) -> Variant:
    """Builds the parts of the paper's variant."""
    num_owned = min(config.num_layers, 1) if config.share_layers else config.num_layers
    lift, decoder = BasisLift(config), Decoder(config, config.state_channels)
    return Variant(lift, decoder, [PGGaussianAttention(config) for _ in range(num_owned)])


class BasisLift(AbstractLift):
    r"""The basis $Z$ is the state; windows also see $[w,\mu,\sigma]$, which no layer changes."""

    def __init__(self, config: PaperConfig) -> None:
        super().__init__()
        self.domain, self.encoder = config.domain, make_encoder(config)

    def forward(self, chunk: Chunk, ablation: Ablation = Ablation()) -> Lifted:
        """Returns the basis as the encoder makes it, and what it was made of."""
        latent = self.encoder(chunk.values, chunk.coords)
        if ablation.sites or ablation.gaussians:
            latent = latent.ablated(ablation.within(chunk.points))
        return Lifted(self._state(latent, chunk), latent)

    def at_queries(
        self, queries: Chunk, neighbours: Neighbours, latent: Callable[[], AbstractLatent]
    ) -> State:
        """Returns the basis of particles that are blended from those of the neighbours."""
        return self._state(latent().blend(neighbours, self.domain), queries)

    def _state(self, latent: AbstractLatent, chunk: Chunk) -> State:
        return State(latent.basis(chunk.coords, self.domain), latent.descriptor(self.domain))

    def read(self, state: State) -> Float[Tensor, "batch points gaussians"]:
        """Returns the basis."""
        return state.channels


@dataclass(frozen=True)
class ContentTransform(AbstractTransform):
    """Windows at points, which depend on what the points hold."""

    windows: Float[Tensor, "batch heads points modes"]
    weights: Float[Tensor, "#batch points"] | None
    """Quadrature weights; none at queries, where nothing is measured."""

    def analyse(
        self, field: Float[Tensor, "batch points gaussians"]
    ) -> Float[Tensor, "batch heads modes gaussians_and_mass"]:
        r"""Returns $\sum_j q_jp_{jg}z_j$ and, last, $\sum_j q_jp_{jg}$, which add up over sites."""
        assert self.weights is not None
        counted = torch.cat([field, torch.ones_like(field[..., :1])], dim=-1)
        return torch.einsum("bhnm,bng->bhmg", self.windows, counted * self.weights.unsqueeze(-1))

    def synthesise(
        self, modes: Float[Tensor, "batch heads modes gaussians"]
    ) -> Float[Tensor, "batch points gaussians"]:
        r"""Returns $\sum_h\sum_g p^{(h)}_{jg}\,U^{(h)}_g$ (eq. attn-scatter)."""
        return torch.einsum("bhnm,bhmg->bng", self.windows, modes)


class PGGaussianAttention(AbstractLayer):
    r"""One layer $Z\mapsto Z'$ of the Gaussian-basis operator."""

    mixing_logit: Tensor

    def __init__(self, config: PaperConfig) -> None:
        super().__init__()
        self.renormalises, self.signed_readout = config.renormalises, config.signed_readout
        self.windows = ContentWindows(config)
        self.coupling = ModalAttention(config)
        heads, gaussians, head_dim = config.num_heads, config.num_gaussians, config.head_dim
        project = torch.empty(heads, gaussians, head_dim).uniform_(-1, 1) * gaussians**-0.5
        readout = torch.empty(heads, head_dim, gaussians).uniform_(-1, 1) * config.hidden_dim**-0.5
        self.project = nn.Parameter(project)
        self.readout = nn.Parameter(readout)
        self.fixed_mixing = None if config.learns_mixing else config.mixing
        if config.learns_mixing:
            self.mixing_logit = nn.Parameter(torch.tensor(config.mixing).logit())

    @property
    def mixing(self) -> Tensor | float:
        r"""The coefficient $\lambda$ of the convex residual."""
        return torch.sigmoid(self.mixing_logit) if self.fixed_mixing is None else self.fixed_mixing

    def transform(self, state: State, chunk: Chunk) -> ContentTransform:
        """Returns the windows at some points."""
        assert state.descriptor is not None
        return ContentTransform(self.windows(state.channels, state.descriptor), chunk.weights)

    def couple(
        self,
        moments: Float[Tensor, "batch heads modes gaussians_and_mass"],
        shard: SpatialShard = SINGLE_PROCESS,
        waves: AbstractWaveTransform | None = None,
    ) -> ContentModes:
        """Returns the modes of the field, from what was measured of it here and elsewhere."""
        projected = torch.cat([moments[..., :-1] @ self.project, moments[..., -1:]], dim=-1)
        tokens = means(shard.sum(projected))
        coupled, coupling = self.coupling(tokens)
        return ContentModes(tokens, coupling, coupled, coupled @ self.readout)

    def update(
        self,
        state: State,
        scattered: Float[Tensor, "batch points gaussians"],
        view: View | None = None,
        *,
        is_gated: bool = True,
    ) -> State:
        """Blends what was scattered into the basis (eq. residual)."""
        basis = state.channels
        scattered = scattered if self.signed_readout else softplus(scattered)
        blended = (1 - self.mixing) * basis + self.mixing * scattered
        blended = renormalise(blended, basis) if self.renormalises else blended
        return replace(state, channels=blended)


class ContentWindows(nn.Module):
    r"""$p_{jg}=\mathrm{softmax}_g(W_p h_j)$, $h_j$ linear in $[z_j,w_j,\mu_j,\sigma_j]$ (eq. attn-win)."""

    def __init__(self, config: PaperConfig) -> None:
        super().__init__()
        num_gaussians, domain = config.num_gaussians, config.domain
        self.num_heads, self.num_gaussians = config.num_heads, num_gaussians
        num_described = num_gaussians * (1 + domain.embedding_dim + domain.dim)
        if not config.encoder.has_gaussian_field:
            num_described = 0
        self.describe = nn.Linear(num_gaussians + num_described, config.hidden_dim)
        shape = (config.num_heads, config.head_dim, num_gaussians)
        self.logits = nn.Parameter(torch.empty(shape).uniform_(-1, 1) * config.head_dim**-0.5)

    def forward(
        self,
        basis: Float[Tensor, "batch points gaussians"],
        descriptor: Float[Tensor, "batch points features"],
    ) -> Float[Tensor, "batch heads points modes"]:
        """Returns the assignment of every point to the modes of every head; rows sum to one."""
        weight, particle_weight = self.describe.weight.tensor_split([self.num_gaussians], dim=1)
        described = linear(descriptor, particle_weight, self.describe.bias)
        hidden = torch.addmm(described.flatten(0, 1), basis.flatten(0, 1), weight.T)
        hidden = hidden.view(*described.shape[:2], self.num_heads, -1)
        # Points before heads in memory: measuring and scattering are then one product each.
        logits = torch.einsum("bnhc,hcm->bnhm", hidden, self.logits)
        return torch.softmax(logits, dim=-1).transpose(1, 2)


class ModalAttention(nn.Module):
    r"""$\tilde T=\mathrm{softmax}(QK^\top/\sqrt D)\,V$ among the modes of each head."""

    def __init__(self, config: PaperConfig) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        shape = (3, config.num_heads, config.head_dim, config.head_dim)
        self.query_key_value = nn.Parameter(
            torch.empty(shape).uniform_(-1, 1) * config.head_dim**-0.5
        )

    def forward(
        self, tokens: Float[Tensor, "batch heads modes head_dim"]
    ) -> tuple[
        Float[Tensor, "batch heads modes head_dim"], Float[Tensor, "batch heads modes modes"]
    ]:
        """Returns the coupled tokens and the coupling, whose rows sum to one."""
        query, key, value = torch.einsum("bhmc,shcd->sbhmd", tokens, self.query_key_value)
        logits = query @ key.transpose(-1, -2) * self.head_dim**-0.5
        coupling = torch.softmax(logits, dim=-1)
        return coupling @ value, coupling


def means(moments: Float[Tensor, "*modes channels_and_mass"]) -> Float[Tensor, "*modes channels"]:
    r"""Returns $\sum_j q_jp_{jg}z_j\,/\,\sum_j q_jp_{jg}$: the mean over each window."""
    mass = moments[..., -1:]
    return moments[..., :-1] / (mass + torch.finfo(mass.dtype).tiny)


def renormalise(
    blended: Float[Tensor, "batch points gaussians"], basis: Float[Tensor, "batch points gaussians"]
) -> Float[Tensor, "batch points gaussians"]:
    r"""Rescales every row so that its sum is what it was before (eq. row-renorm).

    $\varepsilon$ takes the sign of the sum it protects: a signed readout can drive that sum
    through zero from either side.
    """
    total = blended.sum(-1, keepdim=True)
    epsilon = torch.finfo(total.dtype).eps * torch.where(total < 0, -1.0, 1.0).to(total)
    return basis.sum(-1, keepdim=True) / (total + epsilon) * blended
