r"""Attention along the edges of a graph, the heart of GATv2, in little memory.

$y_i=\frac1H\sum_h\sum_j\alpha^h_{ij}\,l^h_j$ with
$\alpha^h_{ij}=\mathrm{softmax}_j\,a_h\cdot\mathrm{LeakyReLU}_{0.2}(l^h_j+r^h_i)$.

Messages $l_j$ on edges are many times larger than the features $l, r$ at nodes. They are made
for a few nodes at a time, and made anew for the gradient, so that they never leave the cache.
"""

import math
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.nn.functional import leaky_relu

SLOPE = 0.2
"""Of the leaky ReLU where it is negative."""

MAX_MESSAGES = {"cpu": 2**19, "cuda": 2**26}
"""Numbers on edges that are held at once, by kind of device: the cache, or a part of memory."""


def edge_attention(
    sent: Float[Tensor, "nodes features"],
    received: Float[Tensor, "nodes features"],
    attention: Float[Tensor, "heads width"],
    senders: Int64[Tensor, "nodes edges"],
    is_edge: Bool[Tensor, "nodes edges"],
) -> Float[Tensor, "nodes width"]:
    """Returns the mean over heads of what every node hears.

    Args:
        sent: What every node tells its neighbours, $l$, head by head.
        received: How every node listens, $r$, head by head.
        attention: The vectors $a_h$.
        senders: For every node those it hears.
        is_edge: False where it hears fewer; every node must hear at least one.
    """
    return EdgeAttention.apply(sent, received, attention.to(sent), senders, is_edge)


class EdgeAttention(torch.autograd.Function):
    """`edge_attention` and its gradient, chunk by chunk."""

    @staticmethod
    def forward(*inputs: Tensor) -> Tensor:
        """Returns what every node hears."""
        sent, received, attention, senders, is_edge = inputs
        heard = sent.new_empty(len(sent), attention.shape[1])
        for nodes in _chunks(sent, senders):
            chunk = (sent, received[nodes], attention, senders[nodes], is_edge[nodes])
            messages, _, shares = _messages_and_shares(*chunk)
            rows = shares.flatten(1).unsqueeze(1) @ messages.flatten(1, 2)
            heard[nodes] = rows.squeeze(1) / len(attention)
        return heard

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        """Keeps the features at nodes, and nothing on edges."""
        ctx.save_for_backward(*inputs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, by_heard: Tensor
    ) -> tuple[Tensor | None, ...]:
        """Returns the gradients with respect to `sent`, `received` and `attention`."""
        sent, received, attention, senders, is_edge = ctx.saved_tensors
        by_heard = by_heard / len(attention)
        by_sent, by_received = torch.zeros_like(sent), torch.empty_like(received)
        by_attention = torch.zeros_like(attention)
        for nodes in _chunks(sent, senders):
            chunk = (sent, received[nodes], attention, senders[nodes], is_edge[nodes])
            messages, joined, shares = _messages_and_shares(*chunk)
            by_node = by_heard[nodes]
            by_shares = (messages.flatten(1, 2) @ by_node.unsqueeze(-1)).view_as(shares)
            by_logits = shares * (by_shares - (shares * by_shares).sum(1, keepdim=True))
            by_logits = by_logits.unsqueeze(-1)
            by_attention += (by_logits * joined).sum((0, 1))
            by_joined = torch.ops.aten.leaky_relu_backward(
                by_logits * attention, joined, SLOPE, self_is_result=True
            )
            by_received[nodes] = by_joined.sum(1).flatten(1)
            by_messages = by_joined.addcmul_(shares.unsqueeze(-1), by_node[:, None, None])
            by_sent.index_add_(0, senders[nodes].flatten(), by_messages.flatten(2).flatten(0, 1))
        return by_sent, by_received, by_attention, None, None


def _chunks(sent: Tensor, senders: Tensor) -> list[slice]:
    num_messages = senders.shape[1] * sent.shape[1]
    size = max(1, MAX_MESSAGES.get(sent.device.type, 2**26) // num_messages)
    return [slice(first, first + size) for first in range(0, len(senders), size)]


def _messages_and_shares(
    sent: Float[Tensor, "nodes features"],
    received: Float[Tensor, "chunk features"],
    attention: Float[Tensor, "heads width"],
    senders: Int64[Tensor, "chunk edges"],
    is_edge: Bool[Tensor, "chunk edges"],
) -> tuple[
    Float[Tensor, "chunk edges heads width"],
    Float[Tensor, "chunk edges heads width"],
    Float[Tensor, "chunk edges heads"],
]:
    r"""Returns $l_j$, $\mathrm{LeakyReLU}(l_j+r_i)$ and $\alpha_{ij}$ on the edges of some nodes."""
    messages = sent.index_select(0, senders.flatten()).unflatten(0, senders.shape)
    joined = leaky_relu(messages + received.unsqueeze(1), SLOPE, inplace=True)
    messages, joined = (part.unflatten(-1, attention.shape) for part in (messages, joined))
    logits = torch.linalg.vecdot(joined, attention)
    shares = logits.masked_fill(~is_edge.unsqueeze(-1), -math.inf).softmax(dim=1)
    return messages, joined, shares
