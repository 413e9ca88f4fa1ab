"""Fits a lattice to sites, once per geometry.

Where sites are nodes of a tensor grid, some of which may be missing or masked, that grid is the
lattice; what the other nodes take is in `gaps.py`.
Unstructured points get a regular lattice, whose nodes interpolate linearly in the Delaunay
triangulation of the points; outside of it the nearest point is used. Masked sites contribute nowhere.
"""

import math
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.spatial import Delaunay, KDTree, QhullError
from torch import Tensor

from gpo.parallel.shard import SINGLE_PROCESS, SpatialShard
from gpo.transforms.axis_lines import RESOLUTION, ascending_lines
from gpo.transforms.diffusion import AxisDiffusion, Flux
from gpo.transforms.gaps import gap_weights
from gpo.transforms.globe_smoothing import GlobeSmoothing
from gpo.transforms.lattice import Lattice, LatticeAxis, LatticePoints
from gpo.transforms.smoothing import AbstractSmoothing, BoxSmoothing
from gpo.transforms.stencil import NodeStencil
from gpo.transforms.waves import Region, Waves

MAX_NODES_PER_SITE = 3
"""Nodes per site up to which sites form a grid with gaps; beyond, they are unstructured."""

MARGIN = 6.0
"""Width of the periodic images that are triangulated too, in mean distances of points."""


def fit_lattice(
    waves: Waves,
    num_nodes: int,
    coords: Float[Tensor, "sets points dim"],
    positions: Float[Tensor, "sets points axes"],
    is_active: Bool[Tensor, "sets points"],
    shard: SpatialShard = SINGLE_PROCESS,
) -> LatticePoints:
    """Returns the positions of sites on the lattice that is fitted to them.

    Args:
        waves: Their axes are those of the lattice.
        num_nodes: About how many nodes it has where sites form no grid.
        coords: The sites: one set for all samples, or one per sample.
        positions: Where they are along the axes.
        is_active: False at masked sites, which must not contribute.
        shard: Which part of all sites this process holds.
    """
    if shard.is_whole:
        return _fit_lattice(waves, num_nodes, coords, positions, is_active)
    starts = shard.starts(positions.shape[1])
    own = slice(*starts[shard.rank : shard.rank + 2])
    everywhere = (shard.gathered(part, 1) for part in (coords, positions, is_active))
    points = _fit_lattice(waves, num_nodes, *everywhere)
    if points.lattice.stencil is None:
        return points[own]
    return replace(points[own], lattice=points.lattice.part(own))


def _fit_lattice(
    waves: Waves, num_nodes: int, coords: Tensor, positions: Tensor, is_active: Tensor
) -> LatticePoints:
    exact = _inside(waves, positions.double())
    region = Region.of(waves.domain) if _is_spherical(waves) else None
    found = [ascending_lines(along) for along in exact[is_active].unbind(-1)]
    shape = [len(nodes) for _, nodes in found]
    is_sparse = math.prod(shape) > MAX_NODES_PER_SITE * int(is_active.sum(1).max())
    if is_sparse and not _is_whole_grid(exact):
        axes = _regular_axes(waves, num_nodes, exact)
        stencil, coefficients = _interpolation(waves, axes, exact, is_active)
        nodes = NodeStencil(stencil, coefficients.to(positions))
        lattice = Lattice(axes, nodes, False, _smoothing(axes, region), region)
        return lattice.locate(positions, coords)
    axes = tuple(_axis(waves, number, nodes) for number, (_, nodes) in enumerate(found))
    number = torch.zeros_like(found[0][0])
    for (line, _), count in zip(found, shape, strict=True):
        number = number * count + line
    sites = _site_of_node(number, is_active, exact, math.prod(shape))
    # Where two sites coincide, a node takes the value of one of them only.
    has_nodes_at_sites = bool(((sites >= 0).sum(1) == is_active.sum(1)).all())
    lattice = Lattice(axes, None, has_nodes_at_sites, _smoothing(axes, region), region)
    lattice = _with_gaps(waves, lattice, sites, positions, exact[~is_active])
    points = lattice.locate(positions, coords)
    # Active sites lie on their nodes, whatever the rounding.
    for cells, fractions, (line, _) in zip(points.cells, points.fractions, found, strict=True):
        fractions.squeeze(-1).mT[is_active] = 0
        cells.squeeze(-1).mT[is_active] = line.to(cells.dtype)
    return points


def _is_whole_grid(positions: Float[Tensor, "sets points axes"]) -> bool:
    """Returns whether the sites of every set, masked ones too, are all nodes of one tensor grid."""
    number, num_nodes = torch.zeros_like(positions[..., 0], dtype=torch.long), 1
    for along in positions.unbind(-1):
        lines, coords = ascending_lines(along.flatten())
        number = number * len(coords) + lines.view_as(number)
        num_nodes *= len(coords)
    if num_nodes != positions.shape[1]:
        return False
    return bool((number.sort(1).values == torch.arange(num_nodes, device=number.device)).all())


def _with_gaps(
    waves: Waves,
    lattice: Lattice,
    sites: Int[Tensor, "sets nodes"],
    positions: Float[Tensor, "sets points axes"],
    masked: Float[Tensor, "masked axes"],
) -> Lattice:
    """Returns a grid with stencil and mask; unchanged where nodes are the sites in their order.

    Args:
        waves: Their axes are those of the grid.
        lattice: The grid.
        sites: The active site at every node, -1 where there is none.
        positions: Of all sites.
        masked: Positions of masked sites.
    """
    num_sets, num_nodes = sites.shape
    is_site, device = sites >= 0, sites.device
    is_own = sites == torch.arange(num_nodes, device=device)
    has_order = num_nodes == positions.shape[1] and bool((is_own | ~is_site).all())
    if has_order and bool(is_site.all()):
        return lattice
    nodes = torch.cartesian_prod(*(axis.nodes.cpu() for axis in lattice.axes))
    lengths, periodic = np.array(_lengths(waves)), np.array(waves.periods) == 1
    coords = _within(nodes.reshape(num_nodes, -1).numpy(), periodic) * lengths
    is_masked = _at_nodes(lattice.axes, masked)
    gap_fits = [
        gap_weights(coords, np.where(periodic, lengths, 0.0), nodes_sites.cpu().numpy(), is_masked)
        for nodes_sites in sites
    ]
    # For every node, first its own site; `known` tells which nodes have a value before smoothing.
    taps = max(fit.sites.shape[1] for fit in gap_fits)
    index, known = sites.new_zeros(num_sets, num_nodes, taps), is_site.clone()
    coefficients = positions.new_zeros(num_sets, num_nodes, taps)
    index[..., 0], coefficients[..., 0] = sites, 1
    for number, (has_site, fit) in enumerate(zip(is_site, gap_fits, strict=True)):
        missing, count = (~has_site).nonzero().flatten(), fit.sites.shape[1]
        index[number, missing, :count] = fit.sites.to(device)
        coefficients[number, missing, :count] = fit.weights.to(coefficients)
        known[number, missing] = fit.is_gap.to(device)
    whole = NodeStencil(index, coefficients)
    stencil, mask, gaps = whole, None, None
    if num_sets == 1:
        missing, there = ((part[0]).nonzero().flatten() for part in (~is_site, is_site))
        own = None
        if not has_order:
            own = sites.new_full(positions.shape[1:2], num_nodes)
            own[sites[0, there]] = there
        stencil = NodeStencil(index[:, missing], coefficients[:, missing], missing, own)
    if not bool(known.all()):
        mask = known.to(positions).mT.unsqueeze(-1)
        gaps = _between_nodes(whole, sites, known)
    return replace(lattice, stencil=stencil, mask=mask, gaps=gaps)


def _at_nodes(
    axes: tuple[LatticeAxis, ...], positions: Float[Tensor, "masked axes"]
) -> Bool[np.ndarray, " nodes"]:
    """Returns which nodes of a grid some positions are at."""
    number = torch.zeros_like(positions[:, 0], dtype=torch.long)
    is_node = torch.ones_like(number, dtype=torch.bool)
    for axis, along in zip(axes, positions.unbind(-1), strict=True):
        cells, fractions = axis.locate(along)
        nearest = axis.resolve(cells + fractions.round().to(cells))[0].long()
        distance = (along - axis.nodes[nearest]).abs()
        distance = torch.minimum(distance, 1 - distance) if axis.is_periodic else distance
        number, is_node = number * axis.count + nearest, is_node & (distance < RESOLUTION)
    found = np.zeros(math.prod(axis.count for axis in axes), dtype=bool)
    found[number[is_node].cpu().numpy()] = True
    return found


def _between_nodes(
    whole: NodeStencil, sites: Int[Tensor, "sets nodes"], known: Bool[Tensor, "sets nodes"]
) -> NodeStencil:
    """Returns how nodes without a value are interpolated from the nodes at sites.

    Args:
        whole: How all nodes are interpolated from sites.
        sites: The active site at every node, -1 where there is none.
        known: Which nodes have a value.
    """
    num_sets, num_nodes = sites.shape
    nodes = torch.arange(num_nodes, device=sites.device).expand(num_sets, -1)
    node_of_site = nodes.new_zeros(num_sets, int(sites.max()) + 1)
    for own, site, node in zip(node_of_site, sites, nodes, strict=True):
        own[site[site >= 0]] = node[site >= 0]
    rows = node_of_site.unsqueeze(1).expand(-1, num_nodes, -1).gather(2, whole.index.clamp_min(0))
    first = torch.zeros_like(whole.coefficients)
    first[..., 0] = 1
    rows = torch.where(known.unsqueeze(-1), nodes.unsqueeze(-1), rows)
    coefficients = torch.where(known.unsqueeze(-1), first, whole.coefficients)
    if num_sets > 1:
        return NodeStencil(rows, coefficients)
    interpolated = (~known[0]).nonzero().flatten()
    return NodeStencil(rows[:, interpolated], coefficients[:, interpolated], interpolated)


def _smoothing(axes: tuple[LatticeAxis, ...], region: Region | None) -> AbstractSmoothing:
    """Returns what smooths fields on the nodes."""
    if region is None:
        return BoxSmoothing(tuple(_diffusion(axis) for axis in axes))
    rows, columns = (axis.nodes for axis in axes)
    height, is_round = math.radians(region.north - region.south), region.is_round
    return GlobeSmoothing.of(
        math.radians(region.north) - height * rows, columns, math.radians(region.width),
        is_round=is_round, poles=(region.has_pole(north=True), region.has_pole(north=False)),
    )  # fmt: skip


def _diffusion(axis: LatticeAxis) -> AxisDiffusion:
    gap = 1 / axis.count if axis.is_periodic else float(axis.nodes.diff().mean())
    return AxisDiffusion(Flux.along(axis.nodes, is_periodic=axis.is_periodic), gap)


def _inside(waves: Waves, positions: Tensor) -> Tensor:
    """Wraps positions along periodic axes into one period, which starts at the first site."""
    periodic = torch.tensor([period == 1 for period in waves.periods], device=positions.device)
    origin = positions[:1, :1]
    along = positions - origin
    along = along - along.floor()
    along = torch.where(along > 1 - RESOLUTION, 0.0, along)
    return torch.where(periodic, origin + along, positions)


def _is_spherical(waves: Waves) -> bool:
    return waves.domain.is_sphere and not waves.mesh_shape


def _axis(waves: Waves, number: int, nodes: Tensor) -> LatticeAxis:
    """Returns the axis through some nodes."""
    poles = (False, False)
    if number == 0 and _is_spherical(waves):
        region = Region.of(waves.domain)
        poles = (
            region.has_pole(north=True) and float(nodes[0]) > RESOLUTION,
            region.has_pole(north=False) and float(nodes[-1]) < 1 - RESOLUTION,
        )
    return LatticeAxis.through(nodes, is_periodic=waves.periods[number] == 1, poles=poles)


def _regular_axes(waves: Waves, num_nodes: int, like: Tensor) -> tuple[LatticeAxis, ...]:
    """Returns the axes of a lattice whose cells are about as long as wide."""
    lengths = _lengths(waves)
    spacing = (math.prod(lengths) / num_nodes) ** (1 / len(lengths))
    axes: list[LatticeAxis] = []
    for number, (length, period) in enumerate(zip(lengths, waves.periods, strict=True)):
        count = max(2, math.ceil(length / spacing))
        ends = count + 1 if period == 1 else count
        nodes = torch.linspace(0, 1, ends, dtype=torch.double, device=like.device)[:count]
        axes.append(_axis(waves, number, nodes))
    return tuple(axes)


def _lengths(waves: Waves) -> list[float]:
    """Returns the lengths of the axes in one unit; longitudes at the middle latitude."""
    if waves.mesh_shape:
        return [1.0] * len(waves.mesh_shape)
    if not waves.domain.is_sphere:
        pairs = zip(waves.domain.lower, waves.domain.upper, strict=True)
        return [high - low for low, high in pairs]
    region = Region.of(waves.domain)
    middle = math.radians((region.north + region.south) / 2)
    return [region.north - region.south, region.width * max(0.1, math.cos(middle))]


def _site_of_node(
    number: Int[Tensor, " counted"],
    is_active: Bool[Tensor, "sets points"],
    exact: Float[Tensor, "sets points axes"],
    num_nodes: int,
) -> Int[Tensor, "sets nodes"]:
    """Returns the active site at every node, -1 where there is none.

    Args:
        number: The node of every active site, of all sets.
        is_active: Which these are.
        exact: Positions of all sites: of several at a node the first by position is taken, whatever
            their order.
        num_nodes: How many nodes there are.
    """
    num_sets, num_sites = is_active.shape
    order = torch.arange(num_sites, device=number.device).expand(num_sets, -1)
    for along in reversed(exact.unbind(-1)):
        order = order.gather(1, along.gather(1, order).argsort(dim=1, stable=True))
    own, site = is_active.nonzero(as_tuple=True)
    rank = order.argsort(1)[own, site]
    first = torch.full((num_sets * num_nodes,), num_sites, device=number.device)
    first = first.scatter_reduce(0, own * num_nodes + number, rank, "amin").view(num_sets, -1)
    padded = torch.nn.functional.pad(order, (0, 1), value=-1)
    return padded.gather(1, first)


def _interpolation(
    waves: Waves, axes: tuple[LatticeAxis, ...], positions: Tensor, is_active: Tensor
) -> tuple[Int[Tensor, "sets nodes sites"], Float[Tensor, "sets nodes sites"]]:
    """Returns the sites that contribute to every node, and their coefficients."""
    lengths = np.array(_lengths(waves))
    nodes = torch.cartesian_prod(*(axis.nodes.cpu() for axis in axes)).reshape(-1, len(axes))
    periodic = np.array([period == 1 for period in waves.periods])
    targets, known = (_within(part.cpu().numpy(), periodic) for part in (nodes, positions))
    periods = np.where(periodic, lengths, 0.0)
    rows: list[np.ndarray] = []
    parts: list[np.ndarray] = []
    for coords, counts in zip(known, is_active.cpu().numpy(), strict=True):
        sites = np.flatnonzero(counts)
        sites = sites[np.unique(coords[sites], axis=0, return_index=True)[1]]
        chosen, weights = interpolate_between(targets * lengths, coords[sites] * lengths, periods)
        rows.append(sites[chosen])
        parts.append(weights)
    device = is_active.device
    return (
        torch.from_numpy(np.stack(rows)).to(device),
        torch.from_numpy(np.stack(parts)).to(device),
    )


def _within(coords: np.ndarray, periodic: np.ndarray) -> np.ndarray:
    """Wraps positions along periodic axes into [0, 1)."""
    return np.where(periodic, coords - np.floor(coords), coords)


def interpolate_between(
    nodes: np.ndarray, sites: np.ndarray, periods: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns, for every node, sites and weights of linear interpolation.

    Args:
        nodes: Where to interpolate, (nodes, axes).
        sites: The points, (sites, axes), all different.
        periods: Of every axis, zero where it is open.
    """
    images, owners = _with_images(sites, periods)
    taps = nodes.shape[1] + 1
    _, nearest = KDTree(images).query(nodes)
    chosen = np.repeat(owners[nearest][:, None], taps, axis=1)
    weights = np.zeros(chosen.shape)
    weights[:, 0] = 1
    if nodes.shape[1] == 1:
        order = np.argsort(images[:, 0])
        line = images[order, 0]
        above = np.clip(np.searchsorted(line, nodes[:, 0]), 1, max(1, len(line) - 1))
        if len(line) > 1:
            low, high = line[above - 1], line[above]
            share = np.clip((nodes[:, 0] - low) / (high - low), 0, 1)
            chosen = owners[order[np.stack([above - 1, above], axis=1)]]
            weights = np.stack([1 - share, share], axis=1)
        return chosen, weights
    try:
        triangles = Delaunay(images)
    except (QhullError, ValueError):
        # Too few sites for a triangle, or all on one line.
        return chosen, weights
    found = triangles.find_simplex(nodes)
    is_inside = found >= 0
    maps = triangles.transform[found[is_inside]]
    first = np.einsum("nij,nj->ni", maps[:, :-1], nodes[is_inside] - maps[:, -1])
    inner = np.concatenate([first, 1 - first.sum(1, keepdims=True)], axis=1)
    # Degenerate triangles have no weights; the nearest point is used there.
    is_sound = np.isfinite(inner).all(1) & (np.abs(inner).max(1) < 2)
    rows = np.flatnonzero(is_inside)[is_sound]
    inner = np.clip(inner[is_sound], 0, None)
    weights[rows] = inner / inner.sum(1, keepdims=True)
    chosen[rows] = owners[triangles.simplices[found[rows]]]
    return chosen, weights


def _with_images(sites: np.ndarray, periods: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns points together with their periodic images, and the index of each original."""
    images, owners = sites, np.arange(len(sites))
    spans = np.where(periods > 0, periods, np.ptp(sites, axis=0))
    spacing = (np.prod(np.maximum(spans, 1e-12)) / len(sites)) ** (1 / sites.shape[1])
    for axis, period in enumerate(periods):
        if period == 0:
            continue
        margin = min(period, MARGIN * spacing)
        low, high = images[:, axis] < margin, images[:, axis] > period - margin
        step = np.zeros(sites.shape[1])
        step[axis] = period
        owners = np.concatenate([owners, owners[low], owners[high]])
        images = np.concatenate([images, images[low] + step, images[high] - step])
    return images, owners
