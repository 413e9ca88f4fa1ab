r"""Graphs on batched point clouds: farthest points, nearest neighbours, and attention along edges.

Everything is vectorised over the batch. Masked points stay in the arrays, but are no one's
neighbours. Among equally near or far points the first counts, so that padding changes nothing.

Attention along edges is that of GATv2. Its messages are many times larger than the features at
nodes: they are made for a few nodes at a time, and made anew for the gradient, so that they
never leave the cache.
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
"""Pairs of queries and sites that are held at once, by kind of device."""
SLOPE = 0.2
"""Of the leaky ReLU where it is negative."""
MAX_MESSAGES = {"cpu": 2**19, "cuda": 2**26}
"""Numbers on edges that are held at once, by kind of device: the cache, or a part of memory."""

Closeness = Callable[[Tensor, Tensor], Tensor]
"""How close queries `batch queries c` are to sites `batch sites c`; larger is closer."""


def by_position(
    queries: Float[Tensor, "batch queries dim"], sites: Float[Tensor, "batch sites dim"]
) -> Float[Tensor, "batch queries sites"]:
    """Returns minus the squared Euclidean distance."""
    # Not by a matrix product, which loses digits: equal distances would differ.
    first, *others = (
        query.unsqueeze(2) - site.unsqueeze(1)
        for query, site in zip(queries.unbind(-1), sites.mT.contiguous().unbind(1), strict=True)
    )
    squared = first.square()
    for offset in others:
        squared.addcmul_(offset, offset)
    return squared.neg_()


def by_cosine(
    queries: Float[Tensor, "batch queries channels"], sites: Float[Tensor, "batch sites channels"]
) -> Float[Tensor, "batch queries sites"]:
    """Returns the cosine of the angle between features."""
    return normalize(queries, dim=-1) @ normalize(sites, dim=-1).mT


@torch.no_grad()
def nearest(
    closeness: Closeness,
    queries: Float[Tensor, "batch queries channels"],
    sites: Float[Tensor, "batch sites channels"],
    is_site: Bool[Tensor, "batch sites"],
    num_neighbours: int,
    *,
    excludes_itself: bool = False,
) -> tuple[Int64[Tensor, "batch queries k"], Bool[Tensor, "batch queries k"]]:
    """Returns the closest sites of every query, closest first, and which of them exist.

    Args:
        closeness: What close means.
        queries: Positions or features of what looks for neighbours.
        sites: Positions or features of what can be one.
        is_site: False for those that cannot.
        num_neighbours: How many to find, fewer where there are fewer sites.
        excludes_itself: Whether queries are the sites, and none is its own neighbour.
    """
    batch, num_sites = is_site.shape
    count = min(num_neighbours, num_sites - excludes_itself)
    index = is_site.new_zeros((batch, queries.shape[1], count), dtype=torch.int64)
    is_found = is_site.new_zeros(index.shape)
    chunk = max(1, MAX_PAIRS.get(sites.device.type, 2**26) // (batch * num_sites))
    for first in range(0, queries.shape[1], chunk):
        rows = slice(first, first + chunk)
        close = closeness(queries[:, rows], sites)
        close.masked_fill_(~is_site.unsqueeze(1), -math.inf)
        if excludes_itself:
            close.diagonal(offset=first, dim1=1, dim2=2).fill_(-math.inf)
        for slot in range(count):
            value, position = close.max(-1, keepdim=True)
            close.scatter_(-1, position, -math.inf)
            index[:, rows, slot : slot + 1] = position
            is_found[:, rows, slot : slot + 1] = value > -math.inf
    return index, is_found


@torch.no_grad()
def farthest_points(
    coords: Float[Tensor, "batch points dim"],
    is_counted: Bool[Tensor, "batch points"],
    start: Int64[Tensor, " batch"],
    num_samples: int,
) -> Int64[Tensor, "batch samples"]:
    """Returns distinct points, each as far as can be from all before it; masked ones come last.

    Args:
        coords: Where the points are.
        is_counted: False at masked points.
        start: The first point of every sample.
        num_samples: How many points to return, at most all.
    """
    masked, taken = -1.0, -2.0
    distance = torch.full_like(coords[..., 0], math.inf).masked_fill_(~is_counted, masked)
    index = start.new_empty((len(start), num_samples))
    current = start.unsqueeze(1)
    axes = coords.movedim(-1, 0).contiguous()
    for slot in range(num_samples):
        index[:, slot : slot + 1] = current
        here = axes.gather(2, current.expand(len(axes), -1, -1))
        distance = torch.minimum(distance, (axes - here).square_().sum(0))
        distance.scatter_(1, current, taken)
        current = distance.argmax(1, keepdim=True)
    return index


def random_start(is_counted: Bool[Tensor, "batch points"]) -> Int64[Tensor, " batch"]:
    """Returns a counted point of every sample, drawn with torch's generator."""
    rank = torch.rand(len(is_counted), device=is_counted.device) * is_counted.sum(1)
    return (is_counted.cumsum(1) > rank.long().unsqueeze(1)).byte().argmax(1)


def fixed_start(
    coords: Float[Tensor, "batch points dim"], is_counted: Bool[Tensor, "batch points"]
) -> Int64[Tensor, " batch"]:
    """Returns the outermost counted point along a slanted direction.

    Unlike the point nearest to the mean it is unique on grids and on the sphere, and the
    order of the points does not matter.
    """
    slant = coords.new_tensor([1.0, math.sqrt(2), math.sqrt(3)])[: coords.shape[-1]]
    return (coords * slant).sum(-1).masked_fill(~is_counted, math.inf).argmin(1)


def take(
    values: Float[Tensor, "batch points channels"], index: Int64[Tensor, "batch some *more"]
) -> Float[Tensor, "batch some *more channels"]:
    """Returns the rows of every sample that an index of the same sample names."""
    flat = flat_index(index, values.shape[1])
    return values.flatten(0, 1).index_select(0, flat.flatten()).unflatten(0, index.shape)


def flat_index(
    index: Int64[Tensor, "batch some *more"], num_points: int
) -> Int64[Tensor, "batch some *more"]:
    """Returns where the rows that an index names are when all samples are one array."""
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
    r"""Interpolates from some of the points to all of them.

    $\sum_k w_k u_k/\sum_k w_k$ with $w_k=1/\max(r_k^2, 10^{-16})$ over its nearest sites.
    """
    positions = take(coords, sites)
    slot, is_found = nearest(by_position, coords, positions, is_site, num_neighbours)
    squared = (coords.unsqueeze(2) - take(positions, slot)).square().sum(-1)
    weights = squared.clamp_min(1e-16).reciprocal() * is_found
    weights = weights / weights.sum(-1, keepdim=True)
    return (weights.unsqueeze(2) @ take(take(values, sites), slot)).squeeze(2)


@dataclass(frozen=True)
class Graph:
    """Edges between some points; all the others see only themselves."""

    nodes: Int64[Tensor, "batch nodes"]
    """Which points these are, each named once."""
    senders: Int64[Tensor, "batch nodes edges"]
    """For every node the indices, into `nodes`, of those it hears: itself, then its neighbours."""
    is_edge: Bool[Tensor, "batch nodes edges"]
    """False where a node has fewer neighbours."""


def neighbour_graph(
    closeness: Closeness,
    values: Float[Tensor, "batch points channels"],
    nodes: Int64[Tensor, "batch nodes"],
    is_node: Bool[Tensor, "batch nodes"],
    num_neighbours: int,
) -> Graph:
    """Returns the graph in which every node hears the nodes closest to it.

    Args:
        closeness: What close means.
        values: Positions or features of all points.
        nodes: The points in the graph.
        is_node: False for those that only fill up the array: they hear and are heard by none.
        num_neighbours: How many others a node hears.
    """
    some = take(values.detach(), nodes)
    senders, is_edge = nearest(closeness, some, some, is_node, num_neighbours, excludes_itself=True)
    itself = torch.arange(nodes.shape[1], device=nodes.device).expand_as(nodes).unsqueeze(-1)
    is_edge = is_edge & is_node.unsqueeze(-1)
    return Graph(
        nodes,
        torch.cat([itself, senders], dim=-1),
        torch.cat([torch.ones_like(is_node).unsqueeze(-1), is_edge], dim=-1),
    )


class GraphAttention(nn.Module):
    r"""GATv2 (Brody et al., 2022), heads averaged.

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
        """Returns what every point heard."""
        nodes = take(values, graph.nodes).flatten(0, 1)
        heard = edge_attention(
            self.sender(nodes),
            self.receiver(nodes),
            self.attention,
            flat_index(graph.senders, graph.nodes.shape[1]).flatten(0, 1),
            graph.is_edge.flatten(0, 1),
        ).unflatten(0, graph.nodes.shape)
        # Who hears only itself gives its message full weight in every head.
        weight = self.sender.weight.unflatten(0, self.by_head).mean(0)
        bias = self.sender.bias.unflatten(0, self.by_head).mean(0)
        alone = linear(values, weight, bias)
        return alone.scatter(1, graph.nodes.unsqueeze(-1).expand_as(heard), heard) + self.bias


def edge_attention(
    sent: Float[Tensor, "nodes features"],
    received: Float[Tensor, "nodes features"],
    attention: Float[Tensor, "heads width"],
    senders: Int64[Tensor, "nodes edges"],
    is_edge: Bool[Tensor, "nodes edges"],
) -> Float[Tensor, "nodes width"]:
    r"""Returns the mean over heads of what every node hears.

    $y_i=\frac1H\sum_h\sum_j\alpha^h_{ij}\,l^h_j$ with
    $\alpha^h_{ij}=\mathrm{softmax}_j\,a_h\cdot\mathrm{LeakyReLU}_{0.2}(l^h_j+r^h_i)$.

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
            messages, _, alphas = _messages_and_weights(*chunk)
            rows = alphas.flatten(1).unsqueeze(1) @ messages.flatten(1, 2)
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
            messages, joined, alphas = _messages_and_weights(*chunk)
            by_node = by_heard[nodes]
            by_alphas = (messages.flatten(1, 2) @ by_node.unsqueeze(-1)).view_as(alphas)
            by_logits = alphas * (by_alphas - (alphas * by_alphas).sum(1, keepdim=True))
            by_logits = by_logits.unsqueeze(-1)
            by_attention += (by_logits * joined).sum((0, 1))
            by_joined = torch.ops.aten.leaky_relu_backward(
                by_logits * attention, joined, SLOPE, self_is_result=True
            )
            by_received[nodes] = by_joined.sum(1).flatten(1)
            by_messages = by_joined.addcmul_(alphas.unsqueeze(-1), by_node[:, None, None])
            by_sent.index_add_(0, senders[nodes].flatten(), by_messages.flatten(2).flatten(0, 1))
        return by_sent, by_received, by_attention, None, None


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
    r"""Returns $l_j$, $\mathrm{LeakyReLU}(l_j+r_i)$ and $\alpha_{ij}$ on the edges of some nodes."""
    messages = sent.index_select(0, senders.flatten()).unflatten(0, senders.shape)
    joined = leaky_relu(messages + received.unsqueeze(1), SLOPE, inplace=True)
    messages, joined = (part.unflatten(-1, attention.shape) for part in (messages, joined))
    logits = torch.linalg.vecdot(joined, attention)
    alphas = logits.masked_fill(~is_edge.unsqueeze(-1), -math.inf).softmax(dim=1)
    return messages, joined, alphas
