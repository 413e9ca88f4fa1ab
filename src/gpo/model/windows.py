r"""Gaussian modal windows (eq. attn-win): the discrete test functions.

A form of windows is one file: a module that maps the basis and the descriptor of points to
row-stochastic assignments `batch heads points modes`.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
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
