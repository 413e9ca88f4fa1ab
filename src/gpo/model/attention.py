r"""Petrov-Galerkin Gaussian attention (section 2.2): test, couple, scatter.

$\tilde Z = A\,\mathcal{K}\,\bar A^\top(Z W_z)W_{\mathrm{out}}$ with windows $A$ from
`windows.py` and the kernel $\mathcal{K}$ from `coupling.py`. Sums over sites are done in the
basis's G channels: $\bar A^\top(ZW_z)=(\bar A^\top Z)W_z$ projects tokens, not sites, and
$A(UW_{\mathrm{out}})$ scatters straight into the basis.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import softplus

from gpo.model.abstract_layers import AbstractStage
from gpo.model.config import OperatorConfig
from gpo.model.coupling import ModalAttention
from gpo.model.windows import ContentWindows
from gpo.numerics.share import WHOLE, AbstractShare


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
        share: AbstractShare = WHOLE,
    ) -> Modes:
        """Returns the modes of the field, from what was measured of it here and elsewhere."""
        projected = torch.cat([moments[..., :-1] @ self.project, moments[..., -1:]], dim=-1)
        tokens = means(share.sum(projected))
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
