r"""Petrov-Galerkin Gaussian attention (section 2.2): test, couple, scatter.

$\tilde Z = A\,\mathcal{K}\,\bar A^\top(Z W_z)W_{\mathrm{out}}$ with windows $A$ from
`windows.py` and the kernel $\mathcal{K}$ from `coupling.py`. Sums over sites are done in the
basis's G channels: $\bar A^\top(ZW_z)=(\bar A^\top Z)W_z$ projects tokens, not sites, and
$A(UW_{\mathrm{out}})$ scatters straight into the basis.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear, softplus

from gpo.model.abstract_layers import AbstractStage
from gpo.model.config import OperatorConfig
from gpo.parallel.shard import SINGLE_PROCESS, SpatialShard


@dataclass(frozen=True)
class Modes(AbstractStage):
    """What a stage measured at all sites and made of it: all that a query needs from them."""

    tokens: Float[Tensor, "batch heads modes head_dim"]
    coupling: Float[Tensor, "batch heads modes modes"]
    coupled: Float[Tensor, "batch heads modes head_dim"]

    @property
    def scattered(self) -> Float[Tensor, "batch heads modes head_dim"]:
        """What is scattered back."""
        return self.coupled


@dataclass(frozen=True)
class Stage(Modes):
    """The same with the windows at the sites: all there is to draw."""

    windows: Float[Tensor, "batch heads points modes"]


class PGGaussianAttention(nn.Module):
    r"""One stage $Z\mapsto Z'$ of the Gaussian-basis operator."""

    mixing_logit: Tensor

    def __init__(self, config: OperatorConfig) -> None:
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

    def forward(
        self,
        basis: Float[Tensor, "batch points gaussians"],
        descriptor: Float[Tensor, "batch points features"],
        weights: Float[Tensor, "#batch points"],
    ) -> Float[Tensor, "batch points gaussians"]:
        """Returns the updated basis at the sites."""
        windows = self.windows(basis, self.windows.described(descriptor))
        modes = self.couple(measure(windows, basis, weights))
        return self.update(basis, windows, modes.coupled)

    def couple(
        self,
        moments: Float[Tensor, "batch heads modes gaussians_and_mass"],
        shard: SpatialShard = SINGLE_PROCESS,
    ) -> Modes:
        """Returns the modes of the field, from what was measured of it here and elsewhere."""
        projected = torch.cat([moments[..., :-1] @ self.project, moments[..., -1:]], dim=-1)
        tokens = means(shard.sum(projected))
        coupled, coupling = self.coupling(tokens)
        return Modes(tokens, coupling, coupled)

    def update(
        self,
        basis: Float[Tensor, "batch points gaussians"],
        windows: Float[Tensor, "batch heads points modes"],
        coupled: Float[Tensor, "batch heads modes head_dim"],
    ) -> Float[Tensor, "batch points gaussians"]:
        """Scatters coupled modes to points and blends them into the basis there."""
        update = scatter(windows, coupled @ self.readout)
        update = update if self.signed_readout else softplus(update)
        blended = (1 - self.mixing) * basis + self.mixing * update
        return renormalise(blended, basis) if self.renormalises else blended


def measure(
    windows: Float[Tensor, "batch heads points modes"],
    basis: Float[Tensor, "batch points gaussians"],
    weights: Float[Tensor, "#batch points"],
) -> Float[Tensor, "batch heads modes gaussians_and_mass"]:
    r"""Returns $\sum_j q_jp_{jg}z_j$ and, last, $\sum_j q_jp_{jg}$, which add up over sites."""
    counted = torch.cat([basis, torch.ones_like(basis[..., :1])], dim=-1) * weights.unsqueeze(-1)
    return torch.einsum("bhnm,bng->bhmg", windows, counted)


def means(moments: Float[Tensor, "*modes channels_and_mass"]) -> Float[Tensor, "*modes channels"]:
    r"""Returns $\sum_j q_jp_{jg}z_j\,/\,\sum_j q_jp_{jg}$: the mean over each window."""
    mass = moments[..., -1:]
    return moments[..., :-1] / (mass + torch.finfo(mass.dtype).tiny)


def scatter(
    windows: Float[Tensor, "batch heads points modes"],
    modes: Float[Tensor, "batch heads modes gaussians"],
) -> Float[Tensor, "batch points gaussians"]:
    r"""Returns $\sum_h\sum_g p^{(h)}_{jg}\,U^{(h)}_g$: every point's share of the modes of all heads."""
    return torch.einsum("bhnm,bhmg->bng", windows, modes)


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


# >>> r"""Gaussian modal windows (eq. attn-win): the discrete test functions.
#
# A form of windows is one file: a module that maps the basis and the descriptor of points to
# row-stochastic assignments `batch heads points modes`.
# """


class ContentWindows(nn.Module):
    r"""The paper's windows: $p_{jg}=\mathrm{softmax}_g(W_p h_j)$, $h_j$ linear in $[z_j,w_j,\mu_j,\sigma_j]$."""

    def __init__(self, config: OperatorConfig) -> None:
        super().__init__()
        num_gaussians, domain = config.num_gaussians, config.space
        self.num_heads, self.num_gaussians = config.num_heads, num_gaussians
        num_described = num_gaussians * (1 + domain.embedding_dim + domain.dim)
        if not config.has_gaussian_field:
            num_described = 0
        self.describe = nn.Linear(num_gaussians + num_described, config.hidden_dim)
        shape = (config.num_heads, config.head_dim, config.num_modes)
        self.logits = nn.Parameter(torch.empty(shape).uniform_(-1, 1) * config.head_dim**-0.5)

    @property
    def particle_weight(self) -> Float[Tensor, "hidden features"]:
        """The part of the projection that sees particles, which are the same in all layers."""
        return self.describe.weight[:, self.num_gaussians :]

    def described(
        self, descriptor: Float[Tensor, "batch points features"]
    ) -> Float[Tensor, "batch points hidden"]:
        r"""Returns the part of $h_j$ that comes from $[w_j,\mu_j,\sigma_j]$."""
        return linear(descriptor, self.particle_weight, self.describe.bias)

    def forward(
        self,
        basis: Float[Tensor, "batch points gaussians"],
        described: Float[Tensor, "batch points hidden"],
    ) -> Float[Tensor, "batch heads points modes"]:
        """Returns the assignment of every point to the modes of every head; rows sum to one."""
        weight = self.describe.weight[:, : self.num_gaussians]
        hidden = torch.addmm(described.flatten(0, 1), basis.flatten(0, 1), weight.T)
        hidden = hidden.view(*described.shape[:2], self.num_heads, -1)
        # Points before heads in memory: measuring and scattering are then one product each.
        logits = torch.einsum("bnhc,hcm->bnhm", hidden, self.logits)
        return torch.softmax(logits, dim=-1).transpose(1, 2)

    def known(
        self,
        basis: Float[Tensor, "batch points gaussians"],
        descriptor: Float[Tensor, "batch points features"],
        windows: Float[Tensor, "batch heads points modes"],
    ) -> Float[Tensor, "batch heads points modes"]:
        """Returns windows that these points are known to have, for what follows to differentiate."""
        parts = (self.describe.weight, self.describe.bias, self.logits)
        return KnownWindows.apply(windows, basis, descriptor, *parts)


class KnownWindows(torch.autograd.Function):
    r"""Windows that were computed before, and their derivatives by all they were computed from.

    Nothing but the windows is needed of the points again: with both projections as one,
    $h_jW_p=[z_j,d_j]M+b$, derivatives by them follow from $S=\sum_j[z_j,d_j]^\top\dot\ell_j$ and
    $s=\sum_j\dot\ell_j$, where $\dot\ell_j$ is the one by the logits.
    """

    @staticmethod
    def forward(ctx: Any, windows: Tensor, *given: Tensor) -> Tensor:
        """Returns the windows."""
        ctx.save_for_backward(windows, *given)
        return windows.view_as(windows)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *grads: Tensor
    ) -> tuple[Tensor | None, ...]:
        """Returns derivatives by basis, descriptor, weight, bias and logits."""
        windows, basis, descriptor, weight, bias, logits = ctx.saved_tensors
        heads, width, modes = logits.shape
        by_logits = (
            torch.ops.aten._softmax_backward_data(
                grads[0].transpose(1, 2), windows.transpose(1, 2), -1, windows.dtype
            )
            .reshape(-1, heads * modes)
            .to(weight)
        )
        both = weight.view(heads, width, -1)
        one = torch.einsum("hcf,hcm->fhm", both, logits).flatten(1)
        by_points = [
            (by_logits @ part.mT).view_as(points)
            for points, part in zip(
                (basis, descriptor), one.split((basis.shape[-1], descriptor.shape[-1])), strict=True
            )
        ]
        sums = [points.flatten(0, 1).mT.to(by_logits) @ by_logits for points in (basis, descriptor)]
        sums = torch.cat(sums).view(-1, heads, modes)
        total = by_logits.sum(0).view(heads, modes)
        by_weight = torch.einsum("hcm,fhm->hcf", logits, sums).flatten(0, 1)
        by_bias = torch.einsum("hcm,hm->hc", logits, total).flatten()
        by_kept = torch.einsum("hcf,fhm->hcm", both, sums)
        by_kept += bias.view(heads, width, 1) * total.unsqueeze(1)
        return None, *by_points, by_weight, by_bias, by_kept


# >>> r"""Global modal coupling (eq. attn-qkv to attn-out): the kernel $\mathcal{K}$ between modes.
#
# A form of coupling is one file: a module that maps tokens to coupled tokens of the same
# shape, together with the matrix that did it.
# """


class ModalAttention(nn.Module):
    r"""$\tilde T=\mathrm{softmax}(QK^\top/\sqrt D)\,V$ among the modes of each head."""

    def __init__(self, config: OperatorConfig) -> None:
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
