r"""Graphs on batched point clouds: farthest points, nearest neighbours and graph attention.

All functions are vectorised over the batch. Masked points stay in the arrays but are never
neighbours. Ties are broken by the lowest index, so that padding does not change the result.

Graph attention is GATv2. Its messages need many times the memory of the node features, so they are
computed for a few nodes at a time, and again in the backward pass, to fit into the cache.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn
from torch.nn.functional import leaky_relu, linear, normalize

MAX_PAIRS = {"cpu": 2**20, "cuda": 2**26}
"""Number of query-site pairs in memory at once, by device type."""
SLOPE = 0.2
"""Negative slope of the leaky ReLU."""
MAX_MESSAGES = {"cpu": 2**19, "cuda": 2**26}
"""Number of message values in memory at once, by device type; on a CPU they fit into the cache."""

Similarity = Callable[[Tensor, Tensor], Tensor]
"""Returns the similarity of queries `batch queries c` and sites `batch sites c`."""


def position_similarity(
    queries: Float[Tensor, "batch queries dim"], sites: Float[Tensor, "batch sites dim"]
) -> Float[Tensor, "batch queries sites"]:
    """Returns minus the squared Euclidean distance."""
    # A matrix product would lose digits, so that equal distances would differ.
    first, *others = (
        query.unsqueeze(2) - site.unsqueeze(1)
        for query, site in zip(queries.unbind(-1), sites.mT.contiguous().unbind(1), strict=True)
    )
    squared = first.square()
    for offset in others:
        squared.addcmul_(offset, offset)
    return squared.neg_()


def cosine_similarity(
    queries: Float[Tensor, "batch queries channels"], sites: Float[Tensor, "batch sites channels"]
) -> Float[Tensor, "batch queries sites"]:
    """Returns the cosine similarity of features."""
    return normalize(queries, dim=-1) @ normalize(sites, dim=-1).mT


@torch.no_grad()
def nearest(
    similarity: Similarity,
    queries: Float[Tensor, "batch queries channels"],
    sites: Float[Tensor, "batch sites channels"],
    is_site: Bool[Tensor, "batch sites"],
    num_neighbours: int,
    *,
    excludes_self: bool = False,
) -> tuple[Int64[Tensor, "batch queries k"], Bool[Tensor, "batch queries k"]]:
    """Returns the indices of the nearest sites of each query, nearest first, and which are valid.

    Args:
        similarity: Similarity of queries and sites.
        queries: Positions or features of the queries.
        sites: Positions or features of the sites.
        is_site: False at masked sites.
        num_neighbours: Number of neighbours, at most the number of sites.
        excludes_self: Whether queries are the sites, and no site is its own neighbour.
    """
    batch, num_sites = is_site.shape
    count = min(num_neighbours, num_sites - excludes_self)
    index = is_site.new_zeros((batch, queries.shape[1], count), dtype=torch.int64)
    is_valid = is_site.new_zeros(index.shape)
    chunk = max(1, MAX_PAIRS.get(sites.device.type, 2**26) // (batch * num_sites))
    for first in range(0, queries.shape[1], chunk):
        rows = slice(first, first + chunk)
        scores = similarity(queries[:, rows], sites)
        scores.masked_fill_(~is_site.unsqueeze(1), -math.inf)
        if excludes_self:
            scores.diagonal(offset=first, dim1=1, dim2=2).fill_(-math.inf)
        for slot in range(count):
            value, position = scores.max(-1, keepdim=True)
            scores.scatter_(-1, position, -math.inf)
            index[:, rows, slot : slot + 1] = position
            is_valid[:, rows, slot : slot + 1] = value > -math.inf
    return index, is_valid


@torch.no_grad()
def farthest_points(
    coords: Float[Tensor, "batch points dim"],
    is_active: Bool[Tensor, "batch points"],
    start: Int64[Tensor, " batch"],
    num_samples: int,
) -> Int64[Tensor, "batch samples"]:
    """Returns the indices of a farthest-point sample; masked points come last.

    Args:
        coords: Coordinates of the points.
        is_active: False at masked points.
        start: Index of the first point in each sample.
        num_samples: Number of points to return.
    """
    masked, selected = -1.0, -2.0
    distance = torch.full_like(coords[..., 0], math.inf).masked_fill_(~is_active, masked)
    index = start.new_empty((len(start), num_samples))
    current = start.unsqueeze(1)
    axes = coords.movedim(-1, 0).contiguous()
    for slot in range(num_samples):
        index[:, slot : slot + 1] = current
        position = axes.gather(2, current.expand(len(axes), -1, -1))
        distance = torch.minimum(distance, (axes - position).square_().sum(0))
        distance.scatter_(1, current, selected)
        current = distance.argmax(1, keepdim=True)
    return index


def random_start(is_active: Bool[Tensor, "batch points"]) -> Int64[Tensor, " batch"]:
    """Returns the index of a random active point in each sample, drawn with torch's generator."""
    rank = torch.rand(len(is_active), device=is_active.device) * is_active.sum(1)
    return (is_active.cumsum(1) > rank.long().unsqueeze(1)).byte().argmax(1)


def fixed_start(
    coords: Float[Tensor, "batch points dim"], is_active: Bool[Tensor, "batch points"]
) -> Int64[Tensor, " batch"]:
    """Returns the index of the outermost active point along an oblique direction.

    Unlike the point nearest to the mean, it is unique on grids and on the sphere, and does not
    depend on the order of the points.
    """
    direction = coords.new_tensor([1.0, math.sqrt(2), math.sqrt(3)])[: coords.shape[-1]]
    return (coords * direction).sum(-1).masked_fill(~is_active, math.inf).argmin(1)


def gather_rows(
    values: Float[Tensor, "batch points channels"], index: Int64[Tensor, "batch some *more"]
) -> Float[Tensor, "batch some *more channels"]:
    """Returns the rows of each sample at the indices of the same sample."""
    flat = flat_index(index, values.shape[1])
    return values.flatten(0, 1).index_select(0, flat.flatten()).unflatten(0, index.shape)


def flat_index(
    index: Int64[Tensor, "batch some *more"], num_points: int
) -> Int64[Tensor, "batch some *more"]:
    """Returns indices into the array of all samples' rows from indices into each sample."""
    first = torch.arange(0, len(index) * num_points, num_points, device=index.device)
    return index + first.view(-1, *[1] * (index.ndim - 1))


@torch.no_grad()
def interpolate(
    values: Float[Tensor, "batch points channels"],
    coords: Float[Tensor, "batch points dim"],
    sites: Int64[Tensor, "batch sites"],
    is_site: Bool[Tensor, "batch sites"],
    num_neighbours: int = 3,
) -> Float[Tensor, "batch points channels"]:
    r"""Returns values at all points, interpolated from some of the points.

    The interpolant is $\sum_k w_k u_k/\sum_k w_k$ with $w_k=1/\max(r_k^2, 10^{-16})$ over the
    nearest sites.
    """
    positions = gather_rows(coords, sites)
    slot, is_valid = nearest(position_similarity, coords, positions, is_site, num_neighbours)
    squared = (coords.unsqueeze(2) - gather_rows(positions, slot)).square().sum(-1)
    weights = squared.clamp_min(1e-16).reciprocal() * is_valid
    weights = weights / weights.sum(-1, keepdim=True)
    return (weights.unsqueeze(2) @ gather_rows(gather_rows(values, sites), slot)).squeeze(2)


@dataclass(frozen=True)
class Graph:
    """Edges between some of the points; all other points have only a self-loop."""

    nodes: Int64[Tensor, "batch nodes"]
    """Indices of the points in the graph, without repetition."""
    senders: Int64[Tensor, "batch nodes edges"]
    """Indices into `nodes` of each node's senders: the node itself, then its neighbours."""
    is_edge: Bool[Tensor, "batch nodes edges"]
    """False at surplus entries of nodes with fewer neighbours."""


def neighbour_graph(
    similarity: Similarity,
    values: Float[Tensor, "batch points channels"],
    nodes: Int64[Tensor, "batch nodes"],
    is_node: Bool[Tensor, "batch nodes"],
    num_neighbours: int,
) -> Graph:
    """Returns the graph in which each node receives messages from its nearest nodes.

    Args:
        similarity: Similarity of nodes.
        values: Positions or features of all points.
        nodes: Indices of the points in the graph.
        is_node: False for padding entries, which have only a self-loop.
        num_neighbours: Number of neighbours of a node.
    """
    features = gather_rows(values.detach(), nodes)
    senders, is_edge = nearest(
        similarity, features, features, is_node, num_neighbours, excludes_self=True
    )
    self_loops = torch.arange(nodes.shape[1], device=nodes.device).expand_as(nodes).unsqueeze(-1)
    is_edge = is_edge & is_node.unsqueeze(-1)
    return Graph(
        nodes,
        torch.cat([self_loops, senders], dim=-1),
        torch.cat([torch.ones_like(is_node).unsqueeze(-1), is_edge], dim=-1),
    )


class GraphAttention(nn.Module):
    r"""GATv2 (Brody et al., 2022) with averaged heads.

    $x_i'=\frac1H\sum_h\sum_j\alpha^h_{ij}\,W_l^hx_j+b$ with
    $\alpha^h_{ij}=\mathrm{softmax}_j\,a_h\cdot\mathrm{LeakyReLU}_{0.2}(W_l^hx_j+W_r^hx_i)$
    over the edges into $i$, its self-loop included.
    """

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.by_head = (num_heads, width)
        self.sender = nn.Linear(width, num_heads * width)
        self.receiver = nn.Linear(width, num_heads * width)
        self.attention = nn.Parameter(torch.empty(num_heads, width))
        self.bias = nn.Parameter(torch.zeros(width))
        for weight in (self.sender.weight, self.receiver.weight, self.attention):
            nn.init.xavier_uniform_(weight)

    def forward(
        self, values: Float[Tensor, "batch points width"], graph: Graph
    ) -> Float[Tensor, "batch points width"]:
        """Returns the sum of messages to each point."""
        nodes = gather_rows(values, graph.nodes).flatten(0, 1)
        output = edge_attention(
            self.sender(nodes),
            self.receiver(nodes),
            self.attention,
            flat_index(graph.senders, graph.nodes.shape[1]).flatten(0, 1),
            graph.is_edge.flatten(0, 1),
        ).unflatten(0, graph.nodes.shape)
        # The attention of a point with only a self-loop is one in each head.
        weight = self.sender.weight.unflatten(0, self.by_head).mean(0)
        bias = self.sender.bias.unflatten(0, self.by_head).mean(0)
        isolated = linear(values, weight, bias)
        return isolated.scatter(1, graph.nodes.unsqueeze(-1).expand_as(output), output) + self.bias


def edge_attention(
    sent: Float[Tensor, "nodes features"],
    received: Float[Tensor, "nodes features"],
    attention: Float[Tensor, "heads width"],
    senders: Int64[Tensor, "nodes edges"],
    is_edge: Bool[Tensor, "nodes edges"],
) -> Float[Tensor, "nodes width"]:
    r"""Returns the messages to each node, weighted by attention and averaged over heads.

    $y_i=\frac1H\sum_h\sum_j\alpha^h_{ij}\,l^h_j$ with
    $\alpha^h_{ij}=\mathrm{softmax}_j\,a_h\cdot\mathrm{LeakyReLU}_{0.2}(l^h_j+r^h_i)$.

    Args:
        sent: Sender features $l$ of each node, all heads concatenated.
        received: Receiver features $r$ of each node, all heads concatenated.
        attention: The vectors $a_h$.
        senders: Indices of the senders of each node.
        is_edge: False at surplus entries; each node must have at least one sender.
    """
    return EdgeAttention.apply(sent, received, attention.to(sent), senders, is_edge)


class EdgeAttention(torch.autograd.Function):
    """`edge_attention` and its gradient, computed for chunks of nodes."""

    @staticmethod
    def forward(*inputs: Tensor) -> Tensor:
        """Returns the attention-weighted messages to each node."""
        sent, received, attention, senders, is_edge = inputs
        output = sent.new_empty(len(sent), attention.shape[1])
        for nodes in _chunks(sent, senders):
            chunk = (sent, received[nodes], attention, senders[nodes], is_edge[nodes])
            messages, _, alphas = _messages_and_weights(*chunk)
            rows = alphas.flatten(1).unsqueeze(1) @ messages.flatten(1, 2)
            output[nodes] = rows.squeeze(1) / len(attention)
        return output

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        """Saves node features only; messages are recomputed in the backward pass."""
        ctx.save_for_backward(*inputs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, grad_output: Tensor
    ) -> tuple[Tensor | None, ...]:
        """Returns the gradients with respect to `sent`, `received` and `attention`."""
        sent, received, attention, senders, is_edge = ctx.saved_tensors
        grad_output = grad_output / len(attention)
        grad_sent, grad_received = torch.zeros_like(sent), torch.empty_like(received)
        grad_attention = torch.zeros_like(attention)
        for nodes in _chunks(sent, senders):
            chunk = (sent, received[nodes], attention, senders[nodes], is_edge[nodes])
            messages, joined, alphas = _messages_and_weights(*chunk)
            grad_nodes = grad_output[nodes]
            grad_alphas = (messages.flatten(1, 2) @ grad_nodes.unsqueeze(-1)).view_as(alphas)
            grad_logits = alphas * (grad_alphas - (alphas * grad_alphas).sum(1, keepdim=True))
            grad_logits = grad_logits.unsqueeze(-1)
            grad_attention += (grad_logits * joined).sum((0, 1))
            grad_joined = torch.ops.aten.leaky_relu_backward(
                grad_logits * attention, joined, SLOPE, self_is_result=True
            )
            grad_received[nodes] = grad_joined.sum(1).flatten(1)
            grad_messages = grad_joined.addcmul_(alphas.unsqueeze(-1), grad_nodes[:, None, None])
            grad_sent.index_add_(
                0, senders[nodes].flatten(), grad_messages.flatten(2).flatten(0, 1)
            )
        return grad_sent, grad_received, grad_attention, None, None


def _chunks(sent: Tensor, senders: Tensor) -> list[slice]:
    num_messages = senders.shape[1] * sent.shape[1]
    size = max(1, MAX_MESSAGES.get(sent.device.type, 2**26) // num_messages)
    return [slice(first, first + size) for first in range(0, len(senders), size)]


def _messages_and_weights(
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
    r"""Returns $l_j$, $\mathrm{LeakyReLU}(l_j+r_i)$ and $\alpha_{ij}$ on edges of a chunk of nodes."""
    messages = sent.index_select(0, senders.flatten()).unflatten(0, senders.shape)
    joined = leaky_relu(messages + received.unsqueeze(1), SLOPE, inplace=True)
    messages, joined = (part.unflatten(-1, attention.shape) for part in (messages, joined))
    logits = torch.linalg.vecdot(joined, attention)
    alphas = logits.masked_fill(~is_edge.unsqueeze(-1), -math.inf).softmax(dim=1)
    return messages, joined, alphas
