r"""The lattice on which particles sample a field.

A field is interpolated onto the nodes of a lattice: the grid of the sites where they form one, else
a regular one; nodes without an active site take their values from the sites around
(`lattice_fit.py`). There it is smoothed by the Gaussian of every particle (`smoothing.py`). A departure
point lies in a cell of the lattice, and the field there is the multilinear interpolation between the
corners of the cell: exact for linear fields, at the cost of one gather and without any search.

Beyond an open end the field is that of the last node. Beyond a pole it is that of the opposite meridian.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gpo.numerics.domain import Domain, longitude_latitude, unit_vectors
from gpo.transforms.smoothing import AbstractSmoothing, smoothed
from gpo.transforms.stencil import NodeStencil
from gpo.transforms.waves import Region

SPACING_TOLERANCE = 1e-4
"""Relative tolerance within which nodes are evenly spaced."""

NODE_TOLERANCE = 16.0
"""Distance from a node, in rounding errors of a position, within which a point lies on it."""

Corner = tuple[Tensor | int, Tensor | None]
"""A node around a departure point, and its weight; None is one."""


@dataclass(frozen=True)
class LatticeAxis:
    """The nodes along one axis, which is one unit long."""

    nodes: Float[Tensor, " nodes"]
    """In ascending order, in double precision."""
    is_periodic: bool = False
    """Whether the axis is periodic."""
    poles: tuple[bool, bool] = (False, False)
    """Whether the lower and the upper end are poles, beyond which the opposite meridian follows."""
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
        """The nodes and one more at either end: the periodic image, the node beyond the pole, or a far one."""
        first, last = self.nodes[:1], self.nodes[-1:]
        before = -first if self.poles[0] else first - 1
        after = 2 - last if self.poles[1] else last + 1
        if self.is_periodic:
            before, after = last - 1, first + 1
        return torch.cat([before, self.nodes, after])

    def locate(
        self, coords: Float[Tensor, "*points"]
    ) -> tuple[Int[Tensor, "*points"], Float[Tensor, "*points"]]:
        """Returns the cell of every position and the fraction along the cell."""
        origin = torch.zeros_like(coords, dtype=torch.int32)
        offset = coords.double() - self.nodes[0]
        cells, fractions = self.advance(origin, torch.zeros_like(offset), offset)
        # A point that lies on a node up to rounding lies there exactly.
        nearest, _ = self.resolve(cells + fractions.round().to(torch.int32))
        distance = coords.double() - self.nodes[nearest.long()]
        if self.is_periodic:
            distance, cells = distance - distance.round(), cells.remainder(self.count)
        is_node = distance.abs() < NODE_TOLERANCE * torch.finfo(coords.dtype).eps
        cells, fractions = (
            torch.where(is_node, nearest, cells),
            torch.where(is_node, 0.0, fractions),
        )
        return cells, fractions.to(coords)

    def advance(
        self,
        cells: Int[Tensor, "*#points"],
        fractions: Float[Tensor, "*#points"],
        offset: Float[Tensor, "*points"],
    ) -> tuple[Int[Tensor, "*points"], Float[Tensor, "*points"]]:
        """Returns cell and fraction after a displacement; `resolve` maps cells to nodes."""
        if self.spacing is not None:
            moved = fractions + offset / self.spacing
            steps = moved.detach().floor()
            return cells + steps.to(torch.int32), moved - steps
        line = self.line.to(offset)
        begin = (cells.long() + 1).clamp(0, self.count)
        coords = line[begin] + fractions * (line[begin + 1] - line[begin]) + offset
        turns = torch.zeros_like(coords)
        if self.is_periodic:
            turns = (coords.detach() - line[1]).floor()
        found = torch.searchsorted(line, (coords.detach() - turns).contiguous(), right=True) - 1
        found = found.clamp(0, self.count)
        between = (coords - turns - line[found]) / (line[found + 1] - line[found])
        return (found - 1 + self.count * turns.long()).to(torch.int32), between

    def resolve(self, node: Int[Tensor, "*points"]) -> tuple[Tensor, Tensor | None]:
        """Maps node numbers beyond the ends to nodes, and tells which lie across a pole."""
        if self.is_periodic:
            return node.remainder(self.count), None
        inside = node.clamp(0, self.count - 1)
        if not any(self.poles):
            return inside, None
        below, above = (node < 0) & self.poles[0], (node >= self.count) & self.poles[1]
        return inside, below | above


@dataclass(frozen=True)
class Lattice:
    """A tensor grid of nodes that can be sampled anywhere."""

    axes: tuple[LatticeAxis, ...]
    stencil: NodeStencil | None
    """How nodes are interpolated from sites; None where nodes are the sites in their order."""
    has_nodes_at_sites: bool
    """Whether every active site is a node."""
    smoothing: AbstractSmoothing
    """Smooths fields on the nodes by Gaussians."""
    region: Region | None = None
    """On a sphere: its axes are latitude, from the north, and longitude."""
    mask: Float[Tensor, "nodes sets 1"] | None = None
    """One at nodes with an active site, zero at others; None where all are active."""
    gaps: NodeStencil | None = None
    """How nodes without an active site are interpolated from other nodes."""

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
        self, field: Float[Tensor, "points batch channels"]
    ) -> Float[Tensor, "nodes batch channels"]:
        """Interpolates a field from the sites onto all nodes."""
        return field if self.stencil is None else self.stencil.interpolate(field, self.num_nodes)

    def smooth(
        self,
        field: Float[Tensor, "nodes batch channels"],
        scales: Float[Tensor, "gaussians axes"],
    ) -> Float[Tensor, "nodes batch channels"]:
        """Smooths a field on the nodes, so that sampling it is by Gaussians of these scales.

        Args:
            field: Its channels are divided among the particles.
            scales: Standard deviations, in units of the axes; on a sphere in radii.
        """
        result = smoothed(field, self.smoothing, scales, self.mask)
        return result if self.gaps is None else self.gaps.interpolate(result, self.num_nodes)

    def part(self, points: slice) -> "Lattice":
        """Returns the lattice of a process that holds some of the sites.

        What it interpolates is its part of a sum over processes.
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
    """The cells and fractions of points on a lattice."""

    lattice: Lattice
    cells: tuple[Int[Tensor, "points sets 1"], ...]
    """Along every axis."""
    fractions: tuple[Float[Tensor, "points sets 1"], ...]
    """Fraction of the cell along every axis."""
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
        """Returns the corners of the cell around every departure point, and their weights.

        Args:
            displacement: From there to here, in units of the axes; on a sphere east and north, in
                radii.
        """
        offsets = self._offsets(displacement)
        nodes, weights = zip(*self._corners(0, offsets, None), strict=True)
        return torch.stack(nodes, dim=-1), torch.stack(weights, dim=-1)

    def lines_to(self, displacement: Float[Tensor, "points batch gaussians axes"]) -> int:
        """Returns an upper bound of the grid lines along the first axis between a point and its corners."""
        axis, region = self.lattice.axes[0], self.lattice.region
        gap = float(axis.line[1:-1].diff().min()) if axis.count > 1 else 1.0
        if region is None:
            farthest = displacement[..., 0].abs().max()
        else:
            # The shortest path to another latitude is along the meridian.
            farthest = displacement.norm(dim=-1).max() / math.radians(region.north - region.south)
        return math.ceil(float(farthest) / gap) + 1

    def departures(
        self,
        displacement: Float[Tensor, "points batch gaussians axes"],
        scales: Float[Tensor, "gaussians _"],
        coords: Float[Tensor, "#batch points dim"],
        domain: Domain,
    ) -> tuple[
        Float[Tensor, "batch points gaussians dim"], Float[Tensor, "batch points gaussians dim"]
    ]:
        """Returns centers and scales of particles, in coordinates of the domain.

        Args:
            displacement: From a center to its point, in units of the axes.
            scales: Likewise in units of the axes; on a sphere in radii.
            coords: The points.
            domain: Where they lie.
        """
        displacement = displacement.transpose(0, 1)
        coords = coords.expand(len(displacement), -1, -1)
        scales = self.lattice.smoothing.effective(scales).to(coords)
        if not domain.is_sphere:
            lengths = domain.unit_lengths(coords)
            centers = coords.unsqueeze(-2) - displacement * lengths
            return centers, (scales * lengths).expand_as(centers)
        longitude, latitude = (part.unsqueeze(-1) for part in longitude_latitude(coords))
        north, east = great_circle(latitude.deg2rad(), *(-displacement).unbind(-1))
        centers = unit_vectors(longitude + east.rad2deg(), latitude + north.rad2deg())
        # In radii, along every axis of the space around.
        return centers, scales.expand_as(centers)

    def mesh_departures(
        self,
        displacement: Float[Tensor, "points batch gaussians axes"],
        scales: Float[Tensor, "gaussians axes"],
        coords: Float[Tensor, "#batch points dim"],
        domain: Domain,
    ) -> tuple[
        Float[Tensor, "batch points gaussians dim"], Float[Tensor, "batch points gaussians dim"]
    ]:
        """Returns the same on a body-fitted mesh, whose coordinates are interpolated as fields are.

        Scales are those along the axes of the mesh, as wide as its cells at the center.
        """
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
        cells = self.lattice.smoothing.effective(scales) / scales.new_tensor(self.lattice.spacings)
        widths = widths * cells.to(widths).mean(-1, keepdim=True)
        return centers.transpose(0, 1), widths.transpose(0, 1)

    def _offsets(self, displacement: Tensor) -> tuple[Tensor, ...]:
        """Returns the offsets of departure points along the axes of the lattice."""
        if self.latitude is None or self.lattice.region is None:
            return tuple(-along for along in displacement.unbind(-1))
        north, east = great_circle(self.latitude, *(-displacement).unbind(-1))
        region = self.lattice.region
        height, width = math.radians(region.north - region.south), math.radians(region.width)
        return -north / height, east / width

    def _corners(
        self, number: int, offsets: tuple[Tensor, ...], is_across: Tensor | None
    ) -> Iterator[Corner]:
        """Yields nodes and weights over the axes from `number` on, for points that may be across a pole."""
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
    latitude: Float[Tensor, "*#points"],
    east: Float[Tensor, "*points"],
    north: Float[Tensor, "*points"],
) -> tuple[Float[Tensor, "*points"], Float[Tensor, "*points"]]:
    """Returns the change of latitude and longitude along a great circle, in radians.

    Args:
        latitude: Where it starts.
        east: How far it goes, in radii: the component to the east at its start.
        north: The component to the north.
    """
    # The arguments of the roots stay positive: at zero they have no derivative.
    tiny = 1e-30
    way = (east.square() + north.square() + tiny).sqrt()
    ahead, per_length = way.cos(), way.sin() / way
    cosine, sine = latitude.cos().clamp_min(0), latitude.sin()
    # In a frame at the meridian of the start: outward, east, up.
    out = ahead * cosine - per_length * north * sine
    side, up = per_length * east, ahead * sine + per_length * north * cosine
    flat = (out.square() + side.square() + tiny).sqrt()
    turn = torch.atan2(up * cosine - flat * sine, flat * cosine + up * sine)
    longitude = torch.atan2(side, out)
    # A zero displacement stays exactly where it is, also at a pole.
    stays = (east == 0) & (north == 0)
    return tuple(part - torch.where(stays, part, 0.0).detach() for part in (turn, longitude))  # pyright: ignore[reportReturnType]
