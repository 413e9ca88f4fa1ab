r"""Moves points along displacements, or in a flow, that are known at the sites of a model.

Where what arrives at a site came from is its center, so a tracer at $X$ arrives at the $X'$ whose center
is $X$: $X'-\delta(X')=X$, found by iteration. In a flow, whose velocity changes linearly from frame to
frame, it goes by the classical Runge-Kutta method.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gpo.execution.points import Sites
from gpo.model.operator import GaussianParticleOperator
from gpo.numerics.domain import Domain
from gpo.transforms.lattice import LatticePoints

ITERATIONS = 12
"""Steps in which the place of arrival is found."""
SUBSTEPS = 8
"""Steps of Runge-Kutta from frame to frame."""


@dataclass(frozen=True)
class Carrier:
    """Moves points along vectors that are known at sites, blended on the lattice of a model."""

    model: GaussianParticleOperator
    sites: Sites
    """Of one sample; those of all others are the same."""

    @property
    def domain(self) -> Domain:
        """Where all of it happens."""
        return self.model.problem.domain

    def at(
        self,
        vectors: Float[Tensor, "batch points dim"],
        positions: Float[Tensor, "batch tracers dim"],
    ) -> Float[Tensor, "batch tracers dim"]:
        """Returns the vectors where tracers are, multilinear; on the sphere they are tangent there."""
        batch, tracers, dim = positions.shape
        places = self.domain.wrap(positions.reshape(1, -1, dim))
        asked = self.domain.to_local(places).to(self.model.dtype)
        points = self._located(asked)
        laid = points.lattice.interpolate(vectors.transpose(0, 1).to(self.model.dtype).contiguous())
        nodes, weights = points.corners(asked.new_zeros(batch * tracers, 1, 1, len(points.cells)))
        sample = torch.arange(batch).repeat_interleave(tracers)[:, None]
        corners = laid[nodes[:, 0, 0].long(), sample]
        seen = (weights[:, 0, 0, :, None] * corners).sum(1).view(batch, tracers, -1).double()
        if self.domain.is_sphere:
            seen = seen - (seen * positions).sum(-1, keepdim=True) * positions
        return seen

    def _located(self, asked: Float[Tensor, "1 points dim"]) -> LatticePoints:
        """Returns where points are on the lattice of the sites; on a mesh its next nodes tell."""
        cache, geometry = self.sites.cache, self.sites.geometry
        if self.model.problem.is_fitted:
            points = cache.at_queries(asked, geometry).on_lattice
        else:
            assert cache.waves is not None
            assert geometry.on_lattice is not None
            points = geometry.on_lattice.lattice.locate(cache.waves.positions(asked), asked)
        assert points is not None
        return points

    def carry(
        self,
        ways: Float[Tensor, "batch points dim"],
        positions: Float[Tensor, "batch tracers dim"],
    ) -> Float[Tensor, "batch tracers dim"]:
        """Returns where tracers arrive whose centers are where they are now.

        Args:
            ways: Displacements, from a center to its site.
            positions: Of the tracers.
        """
        arrived = positions
        for _ in range(ITERATIONS):
            departed = self._moved(arrived, -self.at(ways, arrived))
            arrived = arrived + positions - departed
            if self.domain.is_sphere:
                arrived = self.domain.wrap(arrived)
        return arrived

    def flow(
        self,
        before: Float[Tensor, "batch points dim"],
        after: Float[Tensor, "batch points dim"],
        duration: Float[Tensor, " batch"],
        positions: Float[Tensor, "batch tracers dim"],
    ) -> Float[Tensor, "batch tracers dim"]:
        """Returns where a velocity takes tracers from one frame to the next.

        Args:
            before: The velocity in the first frame, in lengths per time.
            after: In the next one.
            duration: From frame to frame.
            positions: Of the tracers in the first.
        """
        step = duration.double().view(-1, 1, 1) / SUBSTEPS

        def speed(places: Tensor, time: float) -> Tensor:
            return self.at((1 - time) * before + time * after, places)

        for number in range(SUBSTEPS):
            start, middle, end = (SUBSTEPS**-1 * (number + part) for part in (0.0, 0.5, 1.0))
            first = speed(positions, start)
            second = speed(self._moved(positions, step / 2 * first), middle)
            third = speed(self._moved(positions, step / 2 * second), middle)
            fourth = speed(self._moved(positions, step * third), end)
            way = step / 6 * (first + 2 * second + 2 * third + fourth)
            positions = self._moved(positions, way)
        return positions

    def _moved(self, positions: Tensor, ways: Tensor) -> Tensor:
        """Returns places a way from others: straight, on the sphere along a great circle."""
        if not self.domain.is_sphere:
            return positions + ways
        length = ways.norm(dim=-1, keepdim=True)
        ahead = ways / length.clamp_min(torch.finfo(length.dtype).tiny)
        return self.domain.wrap(length.cos() * positions + length.sin() * ahead)
