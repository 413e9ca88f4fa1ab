r"""How departure points find their sites: a lattice over the axes of the waves.

A particle looks at the content around its center $\mu$, wherever that is. So content is laid on
the nodes of a lattice: the grid of the sites where they form one, else a regular one; nodes that are
no sites, or masked ones, are made of the sites around (`lattice_fit.py`). A point is a cell of the lattice and a fraction along
every axis, and content there is the multilinear blend of the cell's corners: exact where content
is linear, at the price of a gather and without any search.

Beyond an open end lies the last node. Beyond a pole lies the other side of the globe.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gpo.numerics.domain import Domain, longitude_latitude, unit_vectors
from gpo.numerics.weighted_rows import RowTable
from gpo.transforms.waves import Region

SPACING_TOLERANCE = 1e-4
"""How much, relatively, the gaps between evenly spaced nodes may differ."""

NODE_TOLERANCE = 16.0
"""Points that are closer to a node than so many roundings of a position lie on it."""

Corner = tuple[Tensor | int, Tensor | None]
"""A node around a departure point, and its weight; None is one."""


@dataclass(frozen=True)
class LatticeAxis:
    """The nodes along one axis, which is one unit long."""

    nodes: Float[Tensor, " nodes"]
    """In ascending order, in double precision."""
    is_periodic: bool = False
    """Whether the axis closes on itself."""
    poles: tuple[bool, bool] = (False, False)
    """Whether beyond its lower and its upper end the same nodes follow again, half way round."""
    spacing: float | None = None
    """The distance of neighbouring nodes; None where it varies."""

    @classmethod
    def through(
        cls,
        nodes: Float[Tensor, " nodes"],
        *,
        is_periodic: bool = False,
        poles: tuple[bool, bool] = (False, False),
    ) -> "LatticeAxis":
        """Returns the axis through some nodes, evenly spaced or not."""
        axis = cls(nodes, is_periodic, poles)
        inner = slice(int(not poles[0]), axis.count + 1 + (is_periodic or poles[1]))
        gaps = axis.line[inner].diff()
        mean = float(gaps.mean()) if len(gaps) else 1.0
        is_even = len(gaps) == 0 or float((gaps - mean).abs().max()) < SPACING_TOLERANCE * mean
        return replace(axis, spacing=mean if is_even else None)

    @property
    def count(self) -> int:
        """How many nodes there are."""
        return self.nodes.shape[0]

    @property
    def line(self) -> Float[Tensor, " nodes_and_two"]:
        """The nodes and one more at either end: of the next turn, beyond a pole, or far away."""
        first, last = self.nodes[:1], self.nodes[-1:]
        before = -first if self.poles[0] else first - 1
        after = 2 - last if self.poles[1] else last + 1
        if self.is_periodic:
            before, after = last - 1, first + 1
        return torch.cat([before, self.nodes, after])

    def locate(
        self, places: Float[Tensor, "*points"]
    ) -> tuple[Int[Tensor, "*points"], Float[Tensor, "*points"]]:
        """Returns the cell of every place and how far along in the cell it lies."""
        origin = torch.zeros_like(places, dtype=torch.int32)
        offset = places.double() - self.nodes[0]
        cells, fractions = self.advance(origin, torch.zeros_like(offset), offset)
        # What lies on a node, but for rounding, lies there exactly.
        nearest, _ = self.resolve(cells + fractions.round().to(torch.int32))
        distance = places.double() - self.nodes[nearest.long()]
        if self.is_periodic:
            distance, cells = distance - distance.round(), cells.remainder(self.count)
        is_node = distance.abs() < NODE_TOLERANCE * torch.finfo(places.dtype).eps
        cells, fractions = (
            torch.where(is_node, nearest, cells),
            torch.where(is_node, 0.0, fractions),
        )
        return cells, fractions.to(places)

    def advance(
        self,
        cells: Int[Tensor, "*#places"],
        fractions: Float[Tensor, "*#places"],
        offset: Float[Tensor, "*places"],
    ) -> tuple[Int[Tensor, "*places"], Float[Tensor, "*places"]]:
        """Returns cell and fraction after a move; `resolve` says which nodes a cell lies between."""
        if self.spacing is not None:
            moved = fractions + offset / self.spacing
            steps = moved.detach().floor()
            return cells + steps.to(torch.int32), moved - steps
        line = self.line.to(offset)
        begin = (cells.long() + 1).clamp(0, self.count)
        places = line[begin] + fractions * (line[begin + 1] - line[begin]) + offset
        turns = torch.zeros_like(places)
        if self.is_periodic:
            turns = (places.detach() - line[1]).floor()
        found = torch.searchsorted(line, (places.detach() - turns).contiguous(), right=True) - 1
        found = found.clamp(0, self.count)
        between = (places - turns - line[found]) / (line[found + 1] - line[found])
        return (found - 1 + self.count * turns.long()).to(torch.int32), between

    def resolve(self, node: Int[Tensor, "*places"]) -> tuple[Tensor, Tensor | None]:
        """Returns the node that a number beyond the ends stands for, and whether it is across a pole."""
        if self.is_periodic:
            return node.remainder(self.count), None
        inside = node.clamp(0, self.count - 1)
        if not any(self.poles):
            return inside, None
        below, above = (node < 0) & self.poles[0], (node >= self.count) & self.poles[1]
        return inside, below | above


@dataclass(frozen=True)
class NodeStencil:
    """Which sites make up the nodes of a lattice, some of them or all."""

    index: Int[Tensor, "sets made sites"]
    """Sites that make up each of these nodes."""
    coefficients: Float[Tensor, "sets made sites"]
    """How much each of them counts."""
    nodes: Int[Tensor, " made"] | None = None
    """Which nodes these are, where the others are sites; None for all."""
    own: Int[Tensor, " points"] | None = None
    """The node of every site, one beyond the last where it has none; None where both have one number."""

    def interpolate(
        self, content: Float[Tensor, "points batch channels"], num_nodes: int
    ) -> Float[Tensor, "nodes batch channels"]:
        """Returns the content of all nodes."""
        batch, channels = content.shape[1:]
        num_sets, num_made, taps = self.index.shape
        index, coefficients, width = self.index, self.coefficients.to(content), batch * channels
        if num_sets > 1:
            samples = torch.arange(batch, device=content.device).view(-1, 1, 1)
            index, width = index * batch + samples, channels
        index, coefficients = (
            part.transpose(0, 1).reshape(-1, taps) for part in (index, coefficients)
        )
        made = None
        if num_made > 0:
            made = RowTable.of(content).weighted(index, coefficients, width)
            made = made.view(num_made, batch, channels)
        if self.nodes is None:
            assert made is not None
            return made
        if self.own is not None:
            nothing = content.new_zeros(num_nodes + 1, batch, channels)
            content = nothing.index_copy(0, self.own, content)[:num_nodes]
        return content if made is None else content.index_copy(0, self.nodes, made)

    def at_sites(self, kept: Int[Tensor, " kept"]) -> "NodeStencil":
        """Returns the same where only some sites are there, all those that make up nodes among them."""
        own = kept if self.own is None else self.own[kept]
        return replace(self, index=torch.searchsorted(kept, self.index), own=own)

    def of_all(self, num_nodes: int) -> "NodeStencil":
        """Returns the same for every node, those that are sites included."""
        if self.nodes is None:
            return self
        site = torch.arange(num_nodes, device=self.index.device)
        if self.own is not None:
            numbers = torch.arange(len(self.own), device=site.device)
            site = site.new_zeros(num_nodes + 1).index_copy(0, self.own, numbers)[:num_nodes]
        index = site.view(1, -1, 1).expand(1, -1, self.index.shape[2])
        coefficients = self.coefficients.new_zeros(index.shape)
        coefficients[..., 0] = 1
        return NodeStencil(
            index.index_copy(1, self.nodes, self.index),
            coefficients.index_copy(1, self.nodes, self.coefficients),
        )


@dataclass(frozen=True)
class Lattice:
    """Nodes that content is laid on, to be looked at from anywhere."""

    axes: tuple[LatticeAxis, ...]
    stencil: NodeStencil | None
    """What makes up the nodes; None where node and site are one and the same."""
    has_nodes_at_sites: bool
    """Whether every site that counts is a node, whose content is its own."""
    region: Region | None = None
    """On a sphere: its axes are latitude, from the north, and longitude."""

    @property
    def num_nodes(self) -> int:
        """How many nodes there are."""
        return math.prod(axis.count for axis in self.axes)

    @property
    def nodes_per_line(self) -> int:
        """Nodes in a line across the first axis."""
        return math.prod(axis.count for axis in self.axes[1:])

    @property
    def spacings(self) -> list[float]:
        """How far neighbouring nodes are from each other, on average; on a sphere in radii."""
        gaps = [1 / axis.count if axis.is_periodic else _mean_gap(axis.nodes) for axis in self.axes]
        if self.region is None:
            return gaps
        height, width = self.region.north - self.region.south, self.region.width
        return [math.radians(height) * gaps[0], math.radians(width) * gaps[1]]

    def interpolate(
        self, content: Float[Tensor, "points batch channels"]
    ) -> Float[Tensor, "nodes batch channels"]:
        """Returns the content of all nodes."""
        return (
            content if self.stencil is None else self.stencil.interpolate(content, self.num_nodes)
        )

    def part(self, points: slice) -> "Lattice":
        """Returns the lattice as a process sees it that holds some of the sites.

        What it lays is its part of a sum over processes.
        """
        assert self.stencil is not None
        whole = self.stencil.of_all(self.num_nodes)
        is_here = (whole.index >= points.start) & (whole.index < points.stop)
        index = torch.where(is_here, whole.index - points.start, 0)
        return replace(
            self, stencil=NodeStencil(index, torch.where(is_here, whole.coefficients, 0.0))
        )

    def locate(
        self,
        positions: Float[Tensor, "sets points axes"],
        coords: Float[Tensor, "sets points dim"],
    ) -> "LatticePoints":
        """Returns where points are on the lattice.

        Args:
            positions: Along the axes of the waves.
            coords: The points themselves.
        """
        columns = (column.unsqueeze(-1) for column in positions.permute(2, 1, 0).unbind(0))
        located = [axis.locate(column) for axis, column in zip(self.axes, columns, strict=True)]
        cells, fractions = zip(*located, strict=True)
        return LatticePoints(self, cells, fractions, self.latitude(coords))

    def latitude(
        self, coords: Float[Tensor, "sets points dim"]
    ) -> Float[Tensor, "points sets 1"] | None:
        """Returns the latitude of points in radians, None where there is no sphere."""
        if self.region is None:
            return None
        return longitude_latitude(coords)[1].deg2rad().mT.unsqueeze(-1)


@dataclass(frozen=True)
class LatticePoints:
    """Points on a lattice, from which particles look around."""

    lattice: Lattice
    cells: tuple[Int[Tensor, "points sets 1"], ...]
    """Along every axis."""
    fractions: tuple[Float[Tensor, "points sets 1"], ...]
    """How far along in their cells the points lie."""
    latitude: Float[Tensor, "points sets 1"] | None
    """On a sphere, in radians."""

    def __getitem__(self, points: slice | Int[Tensor, " chosen"]) -> "LatticePoints":
        """Returns some of the points."""
        return LatticePoints(
            self.lattice,
            tuple(cells[points] for cells in self.cells),
            tuple(fractions[points] for fractions in self.fractions),
            None if self.latitude is None else self.latitude[points],
        )

    def corners(
        self, displacement: Float[Tensor, "points batch gaussians axes"]
    ) -> tuple[
        Int[Tensor, "points batch gaussians taps"], Float[Tensor, "points batch gaussians taps"]
    ]:
        """Returns the nodes around every departure point and the weights that blend them.

        Args:
            displacement: From there to here, in units of the axes; on a sphere east and north, in
                radii.
        """
        offsets = self._offsets(displacement)
        nodes, weights = zip(*self._corners(0, offsets, None), strict=True)
        return torch.stack(nodes, dim=-1), torch.stack(weights, dim=-1)

    def lines_to(self, displacement: Float[Tensor, "points batch gaussians axes"]) -> int:
        """Returns how many lines across the first axis any corner is away from its point, at most."""
        axis, region = self.lattice.axes[0], self.lattice.region
        gap = float(axis.line[1:-1].diff().min()) if axis.count > 1 else 1.0
        if region is None:
            farthest = displacement[..., 0].abs().max()
        else:
            # No way leads to another latitude faster than straight there.
            farthest = displacement.norm(dim=-1).max() / math.radians(region.north - region.south)
        return math.ceil(float(farthest) / gap) + 1

    def departures(
        self,
        displacement: Float[Tensor, "points batch gaussians axes"],
        coords: Float[Tensor, "#batch points dim"],
        domain: Domain,
    ) -> tuple[
        Float[Tensor, "batch points gaussians dim"], Float[Tensor, "batch points gaussians dim"]
    ]:
        """Returns departure points and the widths of cells there, in coordinates of the domain."""
        displacement = displacement.transpose(0, 1)
        coords = coords.expand(len(displacement), -1, -1)
        widths = torch.tensor(self.lattice.spacings, dtype=coords.dtype, device=coords.device)
        if not domain.is_sphere:
            lengths = domain.unit_lengths(coords)
            centers = coords.unsqueeze(-2) - displacement * lengths
            return centers, (widths * lengths).expand_as(centers)
        longitude, latitude = (part.unsqueeze(-1) for part in longitude_latitude(coords))
        north, east = great_circle(latitude.deg2rad(), *(-displacement).unbind(-1))
        centers = unit_vectors(longitude + east.rad2deg(), latitude + north.rad2deg())
        # In radii, along every axis of the space around.
        return centers, widths.min().expand_as(centers)

    def mesh_departures(
        self,
        displacement: Float[Tensor, "points batch gaussians axes"],
        coords: Float[Tensor, "#batch points dim"],
        domain: Domain,
    ) -> tuple[
        Float[Tensor, "batch points gaussians dim"], Float[Tensor, "batch points gaussians dim"]
    ]:
        """Returns the same on a body-fitted mesh, whose coordinates are interpolated as fields are."""
        batch = displacement.shape[1]
        coords = coords.expand(batch, -1, -1)
        nodes, weights = self.corners(displacement)
        at_nodes = self.lattice.interpolate(coords.transpose(0, 1).contiguous())
        samples = torch.arange(batch, device=nodes.device).view(-1, 1, 1)
        corners = at_nodes[nodes.long(), samples]
        centers = (weights.unsqueeze(-1) * corners).sum(-2)
        widths = corners.amax(-2) - corners.amin(-2)
        # Beyond an end all corners are one.
        widths = widths.clamp_min(1e-3 * domain.unit_lengths(coords).min())
        return centers.transpose(0, 1), widths.transpose(0, 1)

    def _offsets(self, displacement: Tensor) -> tuple[Tensor, ...]:
        """Returns the way to the departure points along the axes of the lattice."""
        if self.latitude is None or self.lattice.region is None:
            return tuple(-along for along in displacement.unbind(-1))
        north, east = great_circle(self.latitude, *(-displacement).unbind(-1))
        region = self.lattice.region
        height, width = math.radians(region.north - region.south), math.radians(region.width)
        return -north / height, east / width

    def _corners(
        self, number: int, offsets: tuple[Tensor, ...], is_across: Tensor | None
    ) -> Iterator[Corner]:
        """Yields nodes and weights over the axes from one on, for points that may be across a pole."""
        if number == len(offsets):
            yield 0, None
            return
        axis, offset = self.lattice.axes[number], offsets[number]
        if is_across is not None:
            offset = offset + 0.5 * is_across
        stride = math.prod(other.count for other in self.lattice.axes[number + 1 :])
        lower, between = axis.advance(self.cells[number], self.fractions[number], offset)
        others: list[Corner] | None = None
        for node, share in ((lower, 1 - between), (lower + 1, between)):
            inside, is_across = axis.resolve(node)
            if others is None or is_across is not None:
                others = list(self._corners(number + 1, offsets, is_across))
            for other, weight in others:
                yield inside * stride + other, share if weight is None else share * weight


def _mean_gap(nodes: Tensor) -> float:
    return float(nodes.diff().mean()) if len(nodes) > 1 else 1.0


def great_circle(
    latitude: Float[Tensor, "*#places"],
    east: Float[Tensor, "*places"],
    north: Float[Tensor, "*places"],
) -> tuple[Float[Tensor, "*places"], Float[Tensor, "*places"]]:
    """Returns the change of latitude and longitude along a great circle, in radians.

    Args:
        latitude: Where it starts.
        east: How far it goes, in radii: the component to the east at its start.
        north: The component to the north.
    """
    # What is under the roots is never zero, where they have no slope.
    tiny = 1e-30
    way = (east.square() + north.square() + tiny).sqrt()
    ahead, per_length = way.cos(), way.sin() / way
    cosine, sine = latitude.cos().clamp_min(0), latitude.sin()
    # Seen from the meridian of the start: outwards, to the east, up.
    out = ahead * cosine - per_length * north * sine
    side, up = per_length * east, ahead * sine + per_length * north * cosine
    flat = (out.square() + side.square() + tiny).sqrt()
    turn = torch.atan2(up * cosine - flat * sine, flat * cosine + up * sine)
    longitude = torch.atan2(side, out)
    # No way leads nowhere, exactly, at a pole too.
    stays = (east == 0) & (north == 0)
    return tuple(part - torch.where(stays, part, 0.0).detach() for part in (turn, longitude))  # pyright: ignore[reportReturnType]
