"""From the input of a model to sites that layers work on: checks, geometry, chunks, memory, shards."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from gpo.execution.geometry import GeometryCache, PointGeometry
from gpo.execution.inputs import check_sites
from gpo.execution.memory import (
    KEPT_BYTES,
    LATTICE_BYTES,
    MATRIX_BYTES,
    LayerSizes,
    choose_kept,
    chunk_points,
)
from gpo.execution.points import Sites
from gpo.numerics.domain import Domain
from gpo.numerics.neighbours import NeighbourSearch
from gpo.parallel.shard import SINGLE_PROCESS, SpatialShard
from gpo.transforms.fit import MAX_KEPT_NUMBERS
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
        plan: dict[str, Any] = {}
        if not torch.compiler.is_compiling():
            plan = self._plan(checked.values, geometry, is_whole=is_whole)
        return Sites(
            checked.values,
            geometry,
            self.domain,
            self.cache,
            checked.coords_dtype,
            self.shard,
            **plan,
        )

    def _plan(self, values: Tensor, geometry: PointGeometry, *, is_whole: bool) -> dict[str, Any]:
        """Returns the chunks of sites and queries, and what stays for the backward pass."""
        query_size = chunk_points(self.sizes, len(values), self.chunk_size, None)
        if is_whole and not self.shard.is_whole:
            raise ValueError(
                "Displacements and ablated sites must be left out where several processes share "
                "the sites: they concern all of them. Run one process."
            )
        if is_whole:
            return {"query_size": query_size}
        has_active = geometry.active is not None
        active = geometry if geometry.active is None else geometry.active.geometry
        size = chunk_points(self.sizes, len(values), self.chunk_size, active.transform)
        keeps = choose_kept(self.sizes, values[:, : active.coords.shape[1]])
        return {"keeps": keeps, "size": size, "query_size": query_size, "has_active": has_active}

    def needed_bytes(self, num_sites: int, num_samples: int, *, is_grid: bool, trains: bool) -> int:
        """Returns about how much memory a pass over sites takes at its peak, beside the fields.

        Args:
            num_sites: Sites of a sample.
            num_samples: In a batch.
            is_grid: Whether the sites form a grid.
            trains: Whether there is a backward pass.
        """
        sizes, waves, each = self.sizes, self.cache.waves, num_samples * num_sites * 4
        least = 2 * sum(layer.state + layer.descriptor for layer in sizes) * each
        most = least + sum(layer.windows + layer.kept for layer in sizes) * each
        needed = (most if most <= KEPT_BYTES else least) if trains else 4 * sizes[-1].state * each
        if is_grid or waves is None:
            return needed
        # Of unstructured points, the matrix of the waves and the making of the lattice.
        entries = 2 * sizes[-1].modes * num_sites
        needed += MATRIX_BYTES * entries if entries <= MAX_KEPT_NUMBERS else 0
        has_lattice = self.cache.num_nodes is not None
        return needed + (LATTICE_BYTES[len(waves.limits)] * num_sites if has_lattice else 0)

    def fixed(
        self, values: Float[Tensor, "batch points channels"], geometry: PointGeometry
    ) -> Sites:
        """Returns sites whose geometry is known, such as those of an exported program; unchecked."""
        if geometry.is_masked:
            assert geometry.weights is not None
            values = torch.where(geometry.weights.unsqueeze(-1) > 0, values, 0.0)
        return Sites(values, geometry, self.domain, self.cache, values.dtype)
