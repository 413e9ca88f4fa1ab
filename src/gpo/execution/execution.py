"""From the input of a model to sites that layers work on: checks, geometry, chunks, memory, shards."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from gpo.execution.geometry import GeometryCache, PointGeometry
from gpo.execution.inputs import check_sites
from gpo.execution.memory import LayerSizes, choose_kept, chunk_points, needed_bytes
from gpo.execution.points import Sites
from gpo.numerics.domain import Domain
from gpo.numerics.neighbours import NeighbourSearch
from gpo.parallel.shard import SINGLE_PROCESS, SpatialShard
from gpo.transforms.waves import Waves


class Execution:
    """Plans the passes of one model over sites."""

    def __init__(
        self,
        in_channels: int,
        domain: Domain,
        sizes: Sequence[LayerSizes],
        *,
        waves: Waves | None,
        num_nodes: int | None,
        query_neighbours: int,
    ) -> None:
        """Makes an empty cache of geometries.

        Args:
            in_channels: Channels of the input field.
            domain: Where the sites lie.
            sizes: Numbers per point of lift and layers, in the order of application.
            waves: The test functions on the local domain, where they are waves.
            num_nodes: Nodes of the lattice of unstructured points; None where nothing is sampled.
            query_neighbours: Sites that are interpolated at a query.
        """
        if in_channels < 1:
            raise ValueError(f"`in_channels` must be at least 1, got {in_channels}.")
        self.in_channels, self.domain, self.sizes = in_channels, domain, sizes
        search = NeighbourSearch(domain.local, query_neighbours)
        self.cache = GeometryCache(waves, search, num_nodes=num_nodes)
        self.shard: SpatialShard = SINGLE_PROCESS
        self.chunk_size: int | None = None
        """Points, of all samples together, in a chunk; as many as fit the cache where None."""

    def sites(
        self,
        values: Tensor,
        coords: Tensor,
        weights: Tensor | None,
        dtype: torch.dtype,
        *,
        is_local: bool = False,
        is_whole: bool = False,
    ) -> Sites:
        """Returns checked sites with their geometry, or raises a `ValueError` that says what is wrong.

        Args:
            values: The input field.
            coords: The sites.
            weights: Quadrature weights.
            dtype: The type of the model's parameters.
            is_local: Whether coordinates are counted from the corner of the domain already.
            is_whole: Whether all sites make one chunk, of which everything is kept.
        """
        domain = self.domain.local if is_local else self.domain
        checked = check_sites(self.in_channels, domain, dtype, values, coords, weights, self.shard)
        geometry = self.cache.at_sites(checked.shared_coords, checked.weights, self.shard)
        sites = Sites(
            checked.values, geometry, self.domain, self.cache, checked.coords_dtype, self.shard
        )
        if torch.compiler.is_compiling():
            return sites
        size = chunk_points(self.sizes, len(values), self.chunk_size, None)
        sites = replace(sites, query_size=size)
        if is_whole and not self.shard.is_whole:
            raise ValueError(
                "Displacements and ablated sites must be left out where several processes share "
                "the sites: they concern all of them. Run one process."
            )
        if is_whole:
            return sites
        active = geometry if geometry.active is None else geometry.active.geometry
        size = chunk_points(self.sizes, len(values), self.chunk_size, active.transform)
        keeps = choose_kept(self.sizes, checked.values[:, : active.coords.shape[1]])
        has_active = geometry.active is not None
        return replace(sites, keeps=keeps, size=size, has_active=has_active)

    def needed_bytes(self, num_sites: int, num_samples: int, *, is_grid: bool, trains: bool) -> int:
        """Returns about how much memory a pass over sites takes at its peak, beside the fields.

        Args:
            num_sites: Sites of a sample.
            num_samples: In a batch.
            is_grid: Whether the sites form a grid.
            trains: Whether there is a backward pass.
        """
        waves = self.cache.waves
        return needed_bytes(
            self.sizes, num_sites, num_samples,
            num_axes=None if is_grid or waves is None else len(waves.limits),
            has_lattice=self.cache.num_nodes is not None, trains=trains,
        )  # fmt: skip

    def fixed(
        self, values: Float[Tensor, "batch points channels"], geometry: PointGeometry
    ) -> Sites:
        """Returns sites whose geometry is known, such as those of an exported program; unchecked."""
        if geometry.is_masked:
            assert geometry.weights is not None
            values = torch.where(geometry.weights.unsqueeze(-1) > 0, values, 0.0)
        return Sites(values, geometry, self.domain, self.cache, values.dtype)
