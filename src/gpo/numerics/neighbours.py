"""Nearest sites of a query point, and the weights that interpolate between them.

The weights interpolate: a query at a site has weight one there. They are
Shepard weights that fade out at the first site left out, so they are continuous while
the query moves and its set of neighbours changes.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int64
from scipy.spatial import KDTree
from torch import Tensor

from gpo.numerics.domain import Domain
from gpo.parallel.shard import SINGLE_PROCESS, SpatialShard

Value = TypeVar("Value")


@dataclass(frozen=True)
class Neighbours:
    """The nearest sites of every query, and their weights."""

    index: Int64[Tensor, "sets queries neighbours"]
    """One set where all samples share sites and queries, else one per sample."""
    weights: Float[Tensor, "sets queries neighbours"]
    shard: SpatialShard = SINGLE_PROCESS
    """Which part of the sites this process holds."""

    def gather(self, site_values: Float[Tensor, "batch points *rest"]) -> Tensor:
        """Gathers values at the neighbours, with axes `batch queries neighbours ...`."""
        if self.shard.is_whole and len(self.index) == 1:
            return site_values[:, self.index[0]]
        batch = torch.arange(self.index.shape[0], device=self.index.device)[:, None, None]
        if self.shard.is_whole:
            return site_values[batch, self.index]
        num_sites = site_values.shape[1]
        start = self.shard.starts(num_sites)[self.shard.rank]
        is_local = (self.index >= start) & (self.index < start + num_sites)
        held = site_values[batch, (self.index - start).clamp(0, num_sites - 1)]
        is_local = is_local.reshape(is_local.shape + (1,) * (held.ndim - is_local.ndim))
        return self.shard.sum(torch.where(is_local, held, torch.zeros_like(held)))

    def blend(self, neighbour_values: Float[Tensor, "batch queries neighbours *rest"]) -> Tensor:
        """Returns the weighted sum over neighbours."""
        extra = neighbour_values.ndim - self.weights.ndim
        weights = self.weights.reshape(self.weights.shape + (1,) * extra)
        return (weights * neighbour_values).sum(2)


class NeighbourSearch:
    """Finds nearest sites with a k-d tree and remembers the last few geometries."""

    def __init__(self, domain: Domain, num_neighbours: int, num_remembered: int = 16) -> None:
        self.domain = domain
        self.num_neighbours = num_neighbours
        self._num_remembered = num_remembered
        self._indices: OrderedDict[bytes, np.ndarray] = OrderedDict()
        self._trees: OrderedDict[bytes, tuple[KDTree, np.ndarray]] = OrderedDict()

    def __call__(
        self,
        queries: Float[Tensor, "batch queries dim"],
        coords: Float[Tensor, "batch points dim"],
        is_active: Tensor,
        shard: SpatialShard = SINGLE_PROCESS,
    ) -> Neighbours:
        """Returns the neighbours of `queries` among the active sites.

        Args:
            queries: Where to interpolate.
            coords: The sites.
            is_active: False for masked sites, which are no neighbours.
            shard: Which part of all sites these are; neighbours are searched among all.
        """
        coords, is_active = shard.gathered(coords, 1), shard.gathered(is_active, 1)
        queries, coords = self.domain.wrap(queries), self.domain.wrap(coords)
        indices = [
            self._indices_of(
                query.detach().double().cpu().numpy(),
                site.detach().double().cpu().numpy(),
                active.cpu().numpy(),
            )
            for query, site, active in zip(queries, coords, is_active, strict=True)
        ]
        # Samples may have different numbers of sites: padded with site 0 at a distance without weight.
        width = max(index.shape[1] for index in indices)
        padded = [
            np.pad(index, ((0, 0), (0, width - index.shape[1])), constant_values=-1)
            for index in indices
        ]
        index = torch.from_numpy(np.stack(padded)).to(queries.device)
        is_filler, index = index < 0, index.clamp_min(0)
        batch = torch.arange(len(indices), device=queries.device)[:, None, None]
        offset = self.domain.offset(queries.unsqueeze(2), coords[batch, index])
        squared_distances = torch.where(
            is_filler, torch.finfo(offset.dtype).max ** 0.5, offset.square().sum(-1)
        )
        weights = partition_of_unity(squared_distances, self.num_neighbours)
        kept = weights.shape[-1]
        return Neighbours(index[..., :kept], weights, shard)

    def _indices_of(
        self, queries: np.ndarray, coords: np.ndarray, is_active: np.ndarray
    ) -> np.ndarray:
        """Returns the `num_neighbours + 1` nearest sites, fewer where there are not as many."""
        sites_key = _digest(coords, is_active)
        key = sites_key + _digest(queries)

        def search() -> np.ndarray:
            tree, site = self._remembered(
                self._trees, sites_key, lambda: self._tree(coords, is_active)
            )
            count = min(self.num_neighbours + 1, len(site))
            _, nearest = tree.query(queries - self._shift, k=count)
            return site[nearest.reshape(len(queries), count)]

        return self._remembered(self._indices, key, search)

    def _remembered(
        self, known: OrderedDict[bytes, Value], key: bytes, find: Callable[[], Value]
    ) -> Value:
        if key not in known:
            known[key] = find()
            if len(known) > self._num_remembered:
                known.popitem(last=False)
        known.move_to_end(key)
        return known[key]

    @property
    def _shift(self) -> np.ndarray:
        return np.where(self.domain.periodic, self.domain.lower, 0.0)

    def _tree(self, coords: np.ndarray, is_active: np.ndarray) -> tuple[KDTree, np.ndarray]:
        """Returns a tree of the active sites, and their indices."""
        site = np.flatnonzero(is_active)
        site = site[_first_of_each(coords[site])]
        lengths = np.subtract(self.domain.upper, self.domain.lower)
        lengths = lengths * np.asarray(self.domain.periodic)
        boxsize = lengths if any(self.domain.periodic) else None
        return KDTree(coords[site] - self._shift, boxsize=boxsize), site


def _digest(*parts: np.ndarray) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(repr((part.shape, part.dtype)).encode())
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.digest()


def partition_of_unity(
    squared_distances: Float[Tensor, "*batch candidates"], num_neighbours: int
) -> Float[Tensor, "*batch neighbours"]:
    r"""Returns weights $\propto(1/r_k-1/R)^2$ that sum to one, nearest site first.

    $R$ is the distance of the first candidate beyond `num_neighbours`; without one the
    weights are plain inverse squared distances. A site at distance zero takes all.
    """
    num_candidates = squared_distances.shape[-1]
    kept = squared_distances[..., : min(num_neighbours, num_candidates)]
    if num_neighbours == 1 or num_candidates == 1:
        return torch.ones_like(kept)
    tiny = torch.finfo(kept.dtype).tiny
    nearest = kept[..., :1]
    is_on_site = nearest <= tiny
    # Ratios to the nearest distance stay finite however close the query is to its site.
    unit = torch.where(is_on_site, torch.ones_like(nearest), nearest)
    closeness = (unit / kept.clamp_min(tiny)).clamp_max(1).sqrt()
    if num_candidates > num_neighbours:
        beyond = squared_distances[..., num_neighbours : num_neighbours + 1]
        closeness = closeness - (unit / beyond.clamp_min(tiny)).clamp_max(1).sqrt()
    raw = closeness.clamp_min(0).square()
    total = raw.sum(-1, keepdim=True)
    # All candidates are equally far, so all have the same weight.
    is_even = total <= tiny
    even = torch.full_like(kept, 1 / kept.shape[-1])
    weights = torch.where(is_even, even, raw / torch.where(is_even, torch.ones_like(total), total))
    alone = torch.zeros_like(kept)
    alone[..., 0] = 1
    return torch.where(is_on_site, alone, weights)


def _first_of_each(coords: np.ndarray) -> np.ndarray:
    """Returns the positions of distinct points: a site listed twice is one neighbour."""
    order = np.lexsort(coords.T)
    ordered = coords[order]
    is_new = np.ones(len(order), dtype=bool)
    is_new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    return np.sort(order[is_new])
