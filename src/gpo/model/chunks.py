"""Sites and queries in chunks that fit the cache, with what depends on their positions alone.

Waves at the points, their places on the lattice that particles look at (`transforms/fit.py`), and
the sites next to a query are found once per geometry.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gpo.model.config import OperatorConfig
from gpo.model.memory import chunk_points
from gpo.model.sites import Sites
from gpo.numerics.neighbours import Neighbours, NeighbourSearch
from gpo.transforms.fit import CachedGeometry, synthesis_at
from gpo.transforms.lattice import LatticePoints
from gpo.transforms.site_geometry import CountedSites, SiteGeometry
from gpo.transforms.transform import AbstractWaveTransform
from gpo.transforms.waves import Waves


@dataclass(frozen=True)
class Chunk:
    """Some points that are worked on together."""

    values: Float[Tensor, "batch points channels"]
    """The input field there."""
    coords: Float[Tensor, "#batch points dim"]
    weights: Float[Tensor, "#batch points"] | None
    """Quadrature weights of sites; none at queries, where nothing is measured."""
    transform: AbstractWaveTransform | None
    """Waves at these points; none where test functions depend on the field."""
    points: slice
    """Which sites these are."""
    on_lattice: LatticePoints | None = None
    """Where particles look from; none where no layer transports."""
    are_sites: bool = True
    """False for queries, which only receive."""


class Chunker:
    """Makes chunks of sites and of queries."""

    def __init__(
        self, config: OperatorConfig, waves: Waves | None, *, num_nodes: int | None
    ) -> None:
        """Keeps the geometries that are met.

        Args:
            config: The architecture.
            waves: The test functions, where they are waves.
            num_nodes: Of the lattice of scattered sites; none where no layer looks through particles.
        """
        self.config, self.waves = config, waves
        self.geometry = None if waves is None else CachedGeometry(waves, num_nodes=num_nodes)
        self.find_neighbours = NeighbourSearch(config.domain, config.query_neighbours)

    def geometry_at(self, sites: Sites) -> SiteGeometry | None:
        """Returns waves at the sites and the lattice that particles look at; nothing without waves."""
        if self.geometry is None:
            return None
        if sites.fixed is not None:
            return sites.fixed.geometry
        if sites.geometry is not None:
            return sites.geometry
        return self.geometry.at(sites.coords, sites.weights, sites.shard)

    def counted(self, sites: Sites) -> CountedSites | None:
        """Returns the sites at which alone anything has to be done; None where that is all."""
        geometry = None if sites.fixed is not None else self.geometry_at(sites)
        return None if geometry is None else geometry.counted

    def split(self, sites: Sites, chunk_size: int | None, *, is_whole: bool) -> list[Chunk]:
        """Returns the sites in chunks.

        Args:
            sites: All sites of this process.
            chunk_size: How many of all samples together make a chunk; as fit the cache where None.
            is_whole: Whether all sites are to be one chunk.
        """
        geometry, num_points = self.geometry_at(sites), sites.values.shape[1]
        transform = None if geometry is None else geometry.transform
        points = None if geometry is None else geometry.on_lattice
        size = num_points
        if not (is_whole or sites.fixed is not None or torch.compiler.is_compiling()):
            size = chunk_points(self.config, len(sites.values), chunk_size, transform)
        if transform is None:
            starts = range(0, num_points, size)
            parts = [(slice(start, min(start + size, num_points)), None) for start in starts]
        else:
            parts = transform.split(size)
        lengths = [points.stop - points.start for points, _ in parts]
        given = (part.split(lengths, 1) for part in (sites.values, sites.coords, sites.weights))
        return [
            Chunk(values, coords, weights, transform, part, points and points[part])
            for values, coords, weights, (part, transform) in zip(*given, parts, strict=True)
        ]

    def at_queries(
        self, sites: Sites, queries: Float[Tensor, "#batch queries dim"]
    ) -> tuple[Chunk, Neighbours]:
        """Returns queries as points that only receive, and the sites next to them."""
        fixed, geometry = sites.fixed, None
        if fixed is not None and fixed.neighbours is not None:
            neighbours, geometry = fixed.neighbours, fixed.query_geometry
        else:
            neighbours = self.find_neighbours(queries, sites.coords, sites.is_counted, sites.shard)
        if geometry is None:
            geometry = self._query_geometry(sites, queries, neighbours)
        transform = None if geometry is None else geometry.transform
        points = None if geometry is None else geometry.on_lattice
        values = neighbours.blend(neighbours.gather(sites.values))
        chunk = Chunk(values, queries, None, transform, slice(None), points, are_sites=False)
        return chunk, neighbours

    def _query_geometry(
        self, sites: Sites, queries: Tensor, neighbours: Neighbours
    ) -> SiteGeometry | None:
        """Returns waves at queries, and where these are on the lattice of the sites."""
        if self.waves is None:
            return None
        if self.waves.mesh_shape:
            positions = self.waves.positions(sites.coords, sites.shard)
            positions = neighbours.blend(neighbours.gather(positions))
        else:
            positions = self.waves.positions(queries)
        there, points = self.geometry_at(sites), None
        if there is not None and there.on_lattice is not None:
            points = there.on_lattice.lattice.locate(positions, queries)
        return SiteGeometry(synthesis_at(self.waves, positions), points)
