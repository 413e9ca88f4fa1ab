"""What depends on positions alone: the waves at points, and where the points lie on the lattice.

There is one type, for sites and for queries, whether it is found in a forward pass, taken from the
last one, or fixed in an exported program.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gpo.numerics.neighbours import Neighbours, NeighbourSearch
from gpo.parallel.shard import SINGLE_PROCESS, SpatialShard
from gpo.transforms.fit import fit_transform, synthesis_at
from gpo.transforms.lattice import LatticePoints
from gpo.transforms.lattice_fit import fit_lattice
from gpo.transforms.transform import AbstractWaveTransform, MaskedGridTransform
from gpo.transforms.waves import Waves

MAX_ACTIVE_FRACTION = 0.8
"""Masked sites of a grid are left out where at most this fraction of the sites is active."""


@dataclass(frozen=True)
class PointGeometry:
    """Positions of points, and all that has to be searched or solved for there."""

    coords: Float[Tensor, "#batch points dim"]
    """Counted from the corner of the domain; one set where all samples have the same."""
    weights: Float[Tensor, "#batch points"] | None = None
    """Quadrature weights of sites, which sum to one, zero where masked; None at queries."""
    transform: AbstractWaveTransform | None = None
    """Waves at the points; None in a model without waves."""
    on_lattice: LatticePoints | None = None
    """The points on the lattice that particles sample; None in a model without such particles."""
    neighbours: Neighbours | None = None
    """The sites next to every query; None at sites."""
    active: "ActiveSites | None" = None
    """The unmasked sites of a grid, where it is worth to work on these alone."""
    is_masked: bool = True
    """Whether any site may be masked."""

    def part(self, points: slice, transform: AbstractWaveTransform | None) -> "PointGeometry":
        """Returns the geometry of some of the points, given their waves."""
        return PointGeometry(
            self.coords[:, points],
            None if self.weights is None else self.weights[:, points],
            transform,
            None if self.on_lattice is None else self.on_lattice[points],
        )


@dataclass(frozen=True)
class ActiveSites:
    """The unmasked sites of a masked grid."""

    index: Int[Tensor, " active"]
    geometry: PointGeometry
    """Of these alone, on the grid and the lattice of all."""

    @classmethod
    def of(cls, geometry: PointGeometry) -> "ActiveSites | None":
        """Returns those of a grid in order; None where there is no such grid, or few are masked."""
        transform, points, weights = geometry.transform, geometry.on_lattice, geometry.weights
        if not isinstance(transform, MaskedGridTransform) or transform.order is not None:
            return None
        assert weights is not None
        index = (weights[0] > 0).nonzero().flatten()
        if len(index) > MAX_ACTIVE_FRACTION * weights.shape[1]:
            return None
        if points is not None:
            stencil = points.lattice.stencil
            if stencil is None or stencil.nodes is None:
                return None
            lattice = replace(points.lattice, stencil=stencil.at_sites(index))
            points = replace(points[index], lattice=lattice)
        columns = geometry.coords[:, index], weights[:, index]
        return cls(index, PointGeometry(*columns, transform.at_nodes(index), points))


class GeometryCache:
    """Finds the geometry of points; that of the last sites is kept for as long as sites stay."""

    def __init__(
        self, waves: Waves | None, search: NeighbourSearch, *, num_nodes: int | None
    ) -> None:
        """Makes an empty cache.

        Args:
            waves: The test functions; None in a model whose test functions depend on the field.
            search: Finds the sites next to queries.
            num_nodes: Nodes of the lattice of unstructured points; None where nothing is sampled.
        """
        self.waves, self.search, self.num_nodes = waves, search, num_nodes
        self._last: _Fitted | None = None

    def at_sites(
        self,
        coords: Float[Tensor, "#batch points dim"],
        weights: Float[Tensor, "batch points"],
        shard: SpatialShard = SINGLE_PROCESS,
    ) -> PointGeometry:
        """Returns the geometry of sites, that of the last call where its sites were the same."""
        if self.waves is None:
            return PointGeometry(coords, weights)
        if torch.compiler.is_compiling():
            # Which kind of sites these are is looked up, which no graph can hold.
            torch._dynamo.graph_break()
        positions = self.waves.positions(coords, shard)
        is_known = self._last is not None and self._last.suits(positions, weights)
        if not _holds_everywhere(is_known, shard, positions):
            # What is found while scoring serves in training too.
            with torch.inference_mode(False), torch.no_grad():
                self._last = self._fit(self.waves, coords, positions, weights, shard)
        assert self._last is not None
        return replace(self._last.geometry, coords=coords, weights=weights)

    def at_queries(
        self,
        queries: Float[Tensor, "#batch queries dim"],
        sites: PointGeometry,
        shard: SpatialShard = SINGLE_PROCESS,
    ) -> PointGeometry:
        """Returns the geometry of queries: their neighbours, waves there, their place on the lattice."""
        assert sites.weights is not None
        neighbours = self.neighbours(queries, sites, shard)
        if self.waves is None:
            return PointGeometry(queries, neighbours=neighbours)
        if self.waves.mesh_shape:
            positions = self.waves.positions(sites.coords, shard)
            positions = positions.expand(len(neighbours.index), -1, -1)
            positions = neighbours.blend(neighbours.gather(positions))
        else:
            positions = self.waves.positions(queries)
        points = None
        if sites.on_lattice is not None:
            coords = queries.expand(len(positions), -1, -1)
            points = sites.on_lattice.lattice.locate(positions, coords)
        return PointGeometry(queries, None, synthesis_at(self.waves, positions), points, neighbours)

    def neighbours(
        self,
        queries: Float[Tensor, "#batch queries dim"],
        sites: PointGeometry,
        shard: SpatialShard = SINGLE_PROCESS,
    ) -> Neighbours:
        """Returns the unmasked sites next to every query, once where all samples have the same."""
        assert sites.weights is not None
        is_active = sites.weights > 0
        if shard.is_whole and bool((is_active == is_active[:1]).all()):
            is_active = is_active[:1]
        parts = queries, sites.coords, is_active
        batch = max(map(len, parts))
        queries, coords, is_active = (part.expand(batch, *part.shape[1:]) for part in parts)
        return self.search(queries, coords, is_active, shard)

    def _fit(
        self, waves: Waves, coords: Tensor, positions: Tensor, weights: Tensor, shard: SpatialShard
    ) -> "_Fitted":
        """Fits waves and lattice to sites, only once where all samples have the same."""
        is_shared = bool((positions == positions[:1]).all()) and bool(
            (weights == weights[:1]).all()
        )
        if _holds_everywhere(is_shared, shard, weights):
            coords, positions, weights = coords[:1], positions[:1], weights[:1]
        coords, positions = (
            part.expand(len(weights), -1, -1).clone() for part in (coords, positions)
        )
        weights, points = weights.clone(), None
        transform = fit_transform(waves, positions, weights, shard)
        if self.num_nodes is not None:
            points = fit_lattice(waves, self.num_nodes, coords, positions, weights > 0, shard)
        geometry = PointGeometry(coords, weights, transform, points)
        if shard.is_whole and len(weights) == 1:
            geometry = replace(geometry, active=ActiveSites.of(geometry))
        return _Fitted(positions, weights, geometry)


@dataclass(frozen=True)
class _Fitted:
    """A geometry, and the sites it was found for."""

    positions: Float[Tensor, "sets points axes"]
    """One set where all samples have the same."""
    weights: Float[Tensor, "sets points"]
    geometry: PointGeometry

    def suits(
        self, positions: Float[Tensor, "#batch points axes"], weights: Float[Tensor, "batch points"]
    ) -> bool:
        """Returns whether a batch has these sites."""
        known = self.positions
        if known.device != positions.device or known.dtype != positions.dtype:
            return False
        if known.shape[1:] != positions.shape[1:] or len(known) not in (1, len(weights)):
            return False
        return bool((known == positions).all()) and bool((self.weights == weights).all())


def _holds_everywhere(claim: bool, shard: SpatialShard, like: Tensor) -> bool:
    """Returns whether a claim holds in all processes, so that all of them do the same."""
    if shard.is_whole:
        return claim
    return shard.sum(like.new_tensor(0.0 if claim else 1.0)).item() == 0
