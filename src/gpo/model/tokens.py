r"""What happens between measurement and evaluation: attention among modes, and networks on tokens.

The paper evaluates $U^{(h)}$ at the sites (eq. attn-scatter) and does not define it in the form of
attention. Without `TokenNetwork` it is the output of attention, $U^{(h)}=\tilde T^{(h)}$.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import gelu

from gpo.model.config import PaperConfig


def optional_bias(config: PaperConfig, *shape: int, inputs: int) -> nn.Parameter | None:
    """Returns a random bias of a linear map, None where maps have none.

    Args:
        config: Whether they have one.
        *shape: Its shape.
        inputs: Number of inputs of the map.
    """
    if not config.has_biases:
        return None
    return nn.Parameter(torch.empty(shape).uniform_(-1, 1) * inputs**-0.5)


class ModalAttention(nn.Module):
    r"""$\tilde T=\mathrm{softmax}(QK^\top/\sqrt D)\,V$ among the modes of each head."""

    def __init__(self, config: PaperConfig) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        shape = (3, config.num_heads, config.head_dim, config.head_dim)
        self.query_key_value = nn.Parameter(
            torch.empty(shape).uniform_(-1, 1) * config.head_dim**-0.5
        )
        bias = (3, 1, config.num_heads, 1, config.head_dim)
        self.bias = optional_bias(config, *bias, inputs=config.head_dim)

    def forward(
        self, tokens: Float[Tensor, "batch heads modes head_dim"]
    ) -> tuple[
        Float[Tensor, "batch heads modes head_dim"], Float[Tensor, "batch heads modes modes"]
    ]:
        """Returns the coupled tokens and the coupling, whose rows sum to one."""
        projected = torch.einsum("bhmc,shcd->sbhmd", tokens, self.query_key_value)
        query, key, value = projected if self.bias is None else projected + self.bias
        logits = query @ key.transpose(-1, -2) * self.head_dim**-0.5
        coupling = torch.softmax(logits, dim=-1)
        return coupling @ value, coupling


class TokenNetwork(nn.Module):
    r"""The rest of a transformer block: $T_1=T+\tilde TW_O+b_O$ and $U=T_1+F(T_1)$ of every mode.

    The tokens of one mode in all heads stand side by side, and $F$ has one hidden layer.
    """

    def __init__(self, config: PaperConfig) -> None:
        super().__init__()
        self.project = nn.Linear(config.hidden_dim, config.hidden_dim)
        self.widen = nn.Linear(config.hidden_dim, config.token_width)
        self.narrow = nn.Linear(config.token_width, config.hidden_dim)

    def forward(
        self,
        tokens: Float[Tensor, "batch heads modes head_dim"],
        coupled: Float[Tensor, "batch heads modes head_dim"],
    ) -> Float[Tensor, "batch heads modes head_dim"]:
        """Returns $U$ from the tokens before and after attention."""
        before, after = (part.transpose(1, 2).flatten(2) for part in (tokens, coupled))
        hidden = before + self.project(after)
        hidden = hidden + self.narrow(gelu(self.widen(hidden)))
        return hidden.unflatten(2, (tokens.shape[1], -1)).transpose(1, 2)
