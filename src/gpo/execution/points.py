"""Points and their verbs: all that layers do with positions, and none of their equations.

`Sites` are all points that hold the input field. Layers couple them: `analyse` projects a field
onto the waves, `lattice` interpolates it onto the lattice that particles sample, `sum` adds up over
the sites, in all cases over chunks and over the processes that share the sites. `Points` are those
that are worked on together, a chunk of the sites or queries: `synthesise` evaluates modes there,
`sample` evaluates a field on the lattice at departure points. `map` applies a function to all
chunks, `locate` makes points of queries.

States have points first, then samples, then channels: products with matrices that all samples
share need no copies then. Values and coordinates come as users have them, samples first.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache, partial
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from gpo.execution.geometry import GeometryCache, PointGeometry
from gpo.execution.inputs import check_queries
from gpo.execution.recompute import Deferred, Keeps, Rows, evaluate, joined, recomputed
from gpo.numerics.domain import Domain
from gpo.numerics.neighbours import Neighbours
from gpo.numerics.weighted_rows import RowTable
from gpo.parallel.shard import SINGLE_PROCESS, SpatialShard

Part = TypeVar("Part")


class Chunked(list[Part]):
    """What the sites hold: an entry for every chunk of them."""

    _joined: Any = None

    def joined(self, join: Callable[[Sequence[Part]], Part]) -> Part:
        """Returns one object for all sites, made once by a function of the entries."""
        if self._joined is None:
            self._joined = join([evaluate(part) for part in self])
        return self._joined


ChunkedField = Chunked[Float[Tensor, "_ batch channels"]]
"""A field at the sites; chunks may differ in their number of points."""


@dataclass(frozen=True)
class LatticeField:
    """A field on the nodes of the lattice, which particles sample."""

    nearby: RowTable
    """Smoothed by the Gaussian of every particle. Complete where the sites of this process sample
    it; everywhere if it is the only process."""
    unsmoothed: RowTable | None = None
    """Not smoothed; None where every active site is a node, which knows its own value."""
    everywhere: Callable[[], RowTable] | None = None
    """Smoothed on all nodes, for points that may lie anywhere, where others hold the rest of a grid."""


@dataclass(frozen=True)
class Points:
    """Points that are worked on together: a chunk of the sites, or queries."""

    values: Float[Tensor, "batch points channels"]
    """The input field there; at queries interpolated from the sites next to them."""
    geometry: PointGeometry
    are_sites: bool = True
    """False for queries, which only receive."""

    @property
    def coords(self) -> Float[Tensor, "#batch points dim"]:
        """Positions, counted from the corner of the domain."""
        return self.geometry.coords

    @property
    def weights(self) -> Float[Tensor, "#batch points"]:
        """Quadrature weights of sites."""
        assert self.geometry.weights is not None
        return self.geometry.weights

    def synthesise(
        self, modes: Float[Tensor, "2 modes batch channels"]
    ) -> Float[Tensor, "points batch channels"]:
        r"""Evaluates $\mathrm{Re}\sum_kc_k\psi_k(x)\,U_k$, the field that modes make."""
        assert self.geometry.transform is not None
        return self.geometry.transform.synthesise(modes)

    def sample(
        self,
        field: LatticeField,
        displacement: Float[Tensor, "points batch gaussians axes"] | None = None,
    ) -> Float[Tensor, "points batch channels"]:
        """Evaluates a smoothed field at departure points, by multilinear interpolation.

        Args:
            field: On the lattice; its channels are divided among the particles.
            displacement: From the departure point of every particle to the point, in units of the
                axes; on a sphere east and north, in radii. When not given, the field itself is
                evaluated at the points.
        """
        points = self.geometry.on_lattice
        assert points is not None
        table = field.nearby
        if displacement is None and field.unsmoothed is not None:
            table = field.unsmoothed
        elif not self.are_sites and field.everywhere is not None:
            table = field.everywhere()
        if displacement is None:
            batch, num_points, _ = self.values.shape
            shape = (num_points, batch, 1, len(points.cells))
            displacement = self.values.new_zeros(()).expand(shape)
        return table.sample(*points.corners(displacement))

    def departures(
        self,
        displacement: Float[Tensor, "points batch gaussians axes"],
        scales: Float[Tensor, "gaussians _"],
        domain: Domain,
        *,
        is_fitted: bool,
    ) -> tuple[
        Float[Tensor, "batch points gaussians dim"], Float[Tensor, "batch points gaussians dim"]
    ]:
        """Returns centers and scales of particles, in coordinates of the domain.

        Args:
            displacement: That of `sample`.
            scales: That of `Sites.lattice`.
            domain: Where the points lie.
            is_fitted: Whether they are the nodes of a body-fitted mesh.
        """
        points = self.geometry.on_lattice
        assert points is not None
        departures = points.mesh_departures if is_fitted else points.departures
        return departures(displacement, scales, self.coords, domain)

    def blend(self, field: Tensor) -> Float[Tensor, "batch queries *rest"]:
        """Interpolates what sites hold to queries, from the sites next to each."""
        neighbours = self.geometry.neighbours
        assert neighbours is not None
        return neighbours.blend(neighbours.gather(field))


@dataclass(frozen=True)
class Sites:
    """All sites of a forward pass, in chunks that fit the cache."""

    values: Float[Tensor, "batch points channels"]
    """The input field at all sites."""
    geometry: PointGeometry
    """Of all sites."""
    domain: Domain
    cache: GeometryCache
    """Finds the geometry of queries."""
    coords_dtype: torch.dtype
    """The type of the coordinates that came in."""
    shard: SpatialShard = SINGLE_PROCESS
    """Which part of all sites this process holds."""
    keeps: Keeps = Keeps.ALL
    """What stays for the backward pass."""
    size: int | None = None
    """Points of every sample in a chunk; all where None."""
    query_size: int | None = None
    """Queries of every sample in a chunk; all where None."""
    has_active: bool = False
    """Whether the active sites alone are worked on."""
    chunks: Chunked[Points] = field(init=False, repr=False)
    """The sites in chunks."""

    def __post_init__(self) -> None:
        """Divides the sites into chunks."""
        object.__setattr__(self, "chunks", self._split())

    @property
    def weights(self) -> Float[Tensor, "#batch points"]:
        """Quadrature weights of all sites."""
        assert self.geometry.weights is not None
        return self.geometry.weights

    def _split(self) -> Chunked[Points]:
        """Returns the sites in chunks."""
        values, geometry = self.values, self.geometry
        if self.has_active and geometry.active is not None:
            values, geometry = values[:, geometry.active.index], geometry.active.geometry
        num_points = values.shape[1]
        if self.size is None or self.size >= num_points:
            return Chunked([Points(values, geometry)])
        if geometry.transform is None:
            starts = range(0, num_points, self.size)
            parts = [(slice(start, start + self.size), None) for start in starts]
        else:
            parts = geometry.transform.split(self.size)
        return Chunked(
            [
                Points(values[:, points], geometry.part(points, transform))
                for points, transform in parts
            ]
        )

    def map(self, function: Callable[..., Part], *arguments: object) -> Chunked[Part]:
        """Applies a function to every chunk.

        Args:
            function: Called as `function(argument, points, *arguments)`; a method of a module, or
                a function without parameters.
            arguments: Of the function. What is `Chunked`, or has a field that is, comes by chunk.
        """
        parts = [self._arguments(number, arguments) for number in range(len(self.chunks))]
        if self.keeps == Keeps.ALL:
            return Chunked([function(*part) for part in parts])
        rows = Rows([chunk.values.shape[1] for chunk in self.chunks])
        return Chunked(
            [
                recomputed(function, *part, keep=partial(rows.keep, number))
                for number, part in enumerate(parts)
            ]
        )

    def defer(
        self, function: Callable[..., Part], *arguments: object, kept: Keeps = Keeps.ALL
    ) -> Chunked[Part]:
        """Returns the same, computed again wherever it is used if memory is short.

        Args:
            function: As in `map`.
            arguments: As in `map`.
            kept: It stays for the backward pass where at least this much is kept.
        """
        if self.keeps >= kept:
            return self.map(function, *arguments)
        numbers = range(len(self.chunks))
        deferred: Any = [Deferred(function, self._arguments(n, arguments)) for n in numbers]
        return Chunked(deferred)

    def sum(self, function: Callable[..., Tensor], *arguments: object) -> Tensor:
        """Returns the sum over all chunks, and over processes, of what a function makes of each."""
        part = total(self.map(function, *arguments))
        return part if self.shard.is_whole else self.shard.sum(part)

    def analyse(self, state: ChunkedField) -> Float[Tensor, "2 modes batch channels"]:
        r"""Returns the tokens $T_k=\langle\psi_k,h\rangle$ of a field: its projection onto the waves."""
        transform = self.geometry.transform
        assert transform is not None
        return transform.tokens(self.sum(_analyse, state))

    def lattice(
        self,
        field: ChunkedField,
        scales: Float[Tensor, "gaussians axes"],
        displacements: Callable[[], Chunked[Float[Tensor, "_ batch gaussians axes"]]],
    ) -> LatticeField:
        """Interpolates a field onto the lattice that particles sample, and smooths it there.

        Args:
            field: At the sites; its channels are divided among the particles.
            scales: Standard deviations of the particles' Gaussians, in units of the axes; on a
                sphere in radii.
            displacements: Returns those of all particles. Where several processes share a grid,
                only the lines that are sampled are exchanged.
        """
        points = self.chunks[0].geometry.on_lattice
        assert points is not None
        lattice, shard, features = points.lattice, self.shard, joined(field)
        if shard.is_whole or lattice.stencil is not None:
            nodes = lattice.interpolate(features)
            nodes = nodes if shard.is_whole else shard.sum(nodes)
            unsmoothed = None if lattice.has_nodes_at_sites else RowTable.of(nodes)
            return LatticeField(RowTable.of(lattice.smooth(nodes, scales)), unsmoothed)
        with torch.no_grad():
            lines = max(
                chunk.geometry.on_lattice.lines_to(displacement)
                for chunk, displacement in zip(self.chunks, displacements(), strict=True)
                if chunk.geometry.on_lattice is not None
            )
        lines = int(shard.gathered(torch.tensor([lines], device=features.device), 0).max())
        lines += lattice.smoothing.lines(lattice.smoothing.variance(scales))
        is_periodic = lattice.axes[0].is_periodic

        @cache
        def within(reach: int, has_gradients: bool) -> RowTable:
            nodes = shard.with_neighbours(features, reach, is_periodic=is_periodic)
            return RowTable.of(lattice.smooth(nodes, scales))

        return LatticeField(
            within(lines * lattice.nodes_per_line, torch.is_grad_enabled()),
            everywhere=lambda: within(lattice.num_nodes, torch.is_grad_enabled()),
        )

    def locate(
        self, queries: Float[Tensor, "*#batch queries dim"] | PointGeometry
    ) -> Iterator[Points]:
        """Yields queries, or points whose geometry is known, in chunks that receive from these sites."""
        if isinstance(queries, PointGeometry):
            yield self._at(queries)
            return
        local = check_queries(queries, self.values, self.domain)
        for part in (local,) if self.query_size is None else local.split(self.query_size, dim=1):
            yield self._at(self.cache.at_queries(part, self.geometry, self.shard))

    def neighbours(self, queries: Float[Tensor, "*#batch queries dim"]) -> Neighbours:
        """Returns the sites next to every query."""
        local = check_queries(queries, self.values, self.domain)
        return self.cache.neighbours(local, self.geometry, self.shard)

    def _at(self, geometry: PointGeometry) -> Points:
        queries = Points(self.values, geometry, are_sites=False)
        return replace(queries, values=queries.blend(self.values))

    def restore(self, field: ChunkedField) -> Float[Tensor, "batch points channels"]:
        """Returns a field at all sites, samples first; zero at masked sites that were left out."""
        active = (field[0] if len(field) == 1 else torch.cat(field)).transpose(0, 1)
        if not self.has_active or self.geometry.active is None:
            return active
        whole = active.new_zeros(len(active), self.values.shape[1], active.shape[2])
        return whole.index_copy(1, self.geometry.active.index, active)

    def _arguments(self, number: int, arguments: Sequence[object]) -> tuple[object, ...]:
        """Returns the arguments of a function for one chunk: the first, the points, the others."""
        first, *others = [_part(argument, number) for argument in arguments or (None,)]
        return first, self.chunks[number], *others


def total(parts: Sequence[Tensor]) -> Tensor:
    """Returns the sum over chunks."""
    return parts[0] if len(parts) == 1 else torch.stack(list(parts)).sum(0)


def _part(argument: Any, number: int) -> Any:
    """Returns what an argument is for one chunk."""
    if isinstance(argument, Chunked):
        return argument[number]
    if not is_dataclass(argument) or isinstance(argument, type):
        return argument
    named = {field.name: getattr(argument, field.name) for field in fields(argument)}
    chunked = {name: part[number] for name, part in named.items() if isinstance(part, Chunked)}
    return replace(argument, **chunked) if chunked else argument


def _analyse(state: Tensor, points: Points) -> Tensor:
    assert points.geometry.transform is not None
    return points.geometry.transform.analyse(state)
