r"""Global modal coupling (eq. attn-qkv to attn-out): the kernel $\mathcal{K}$ between modes.

A form of coupling is one file: a module that maps tokens to coupled tokens of the same
shape, together with the matrix that did it.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gpo.model.config import OperatorConfig


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
