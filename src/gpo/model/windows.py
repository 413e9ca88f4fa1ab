r"""Gaussian modal windows (eq. attn-win): the discrete test functions.

A form of windows is one file: a module that maps the basis and the descriptor of points to
row-stochastic assignments `batch heads points modes`.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

from gpo.model.config import OperatorConfig


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
