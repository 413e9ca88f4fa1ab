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

    def forward(
        self,
        basis: Float[Tensor, "batch points gaussians"],
        descriptor: Float[Tensor, "batch points features"],
    ) -> Float[Tensor, "batch heads points modes"]:
        """Returns the assignment of every point to the modes of every head; rows sum to one."""
        weight, bias = self.describe.weight, self.describe.bias
        # Two products instead of one concatenation: the descriptor is the larger part by far.
        hidden = linear(basis, weight[:, : self.num_gaussians], bias)
        hidden = hidden + linear(descriptor, weight[:, self.num_gaussians :])
        hidden = hidden.unflatten(-1, (self.num_heads, -1))
        # Points before heads in memory: measuring and scattering are then one product each.
        logits = torch.einsum("bnhc,hcm->bnhm", hidden, self.logits)
        return torch.softmax(logits, dim=-1).transpose(1, 2)
