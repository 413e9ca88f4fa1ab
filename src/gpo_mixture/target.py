"""The field that is fitted: checked, each variable in units of its spread, sites in units of their spacing."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from scipy.spatial import KDTree
from torch import Tensor

from gpo.execution.inputs import check_sites
from gpo.numerics.domain import Domain
from gpo_mixture.shapes import AbstractShapes

CHUNK = 2048
"""Sites that are held at once with all derivatives."""
MAX_SITES = 2**14
"""Places and shapes are fitted to at most so many sites; amplitudes to all of them."""
GRID = 8
"""Sites are called a grid where its lines cross at most this many times per site."""
SHORTEST, LONGEST = 0.7, 0.5
"""Half axes: at least this many distances between sites, at most this fraction of the domain."""


@dataclass(frozen=True)
class Target:
    """A field to be explained."""

    points: Float[Tensor, "points dim"]
    """Sites that count, in units of their usual distance along every axis; unit vectors on the sphere."""
    values: Float[Tensor, "points channels"]
    """Without mean, of variance one where they vary."""
    weights: Float[Tensor, " points"]
    """Sum to one."""
    domain: Domain
    """In the same units."""
    units: Float[Tensor, " dim"]
    """What counts as length one along every axis."""
    mean: Float[Tensor, " channels"]
    spread: Float[Tensor, " channels"]

    @classmethod
    def of(
        cls, values: Tensor, coords: Tensor, weights: Tensor | None, domain: Domain | None
    ) -> "Target":
        """Returns what is to be fitted, or raises a `ValueError` that says what is wrong."""
        if not isinstance(values, Tensor) or values.ndim not in (1, 2) or not values.numel():
            found = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise ValueError(
                f"`values` must be a tensor (points, channels) or (points,), not empty, got {found}."
            )
        values = values.reshape(len(values), -1).double()
        if domain is None:
            is_counted = slice(None) if weights is None else weights > 0
            domain = Domain.around(coords[is_counted].double())
        found = check_sites(values.shape[1], domain, torch.float64, values[None], coords, weights)
        is_counted = found.weights[0] > 0
        q, values = (part[0][is_counted] for part in (found.weights, found.values))
        # Sites are counted from the corner of the domain for models, here from its origin.
        points = domain.wrap(coords[is_counted].double())
        mean = q @ values
        spread = (q @ (values - mean).square()).sqrt()
        # What differs by rounding alone is constant.
        is_flat = spread <= 1e-12 * (mean.abs() + 1e-300)
        spread = torch.where(is_flat, 1.0, spread)
        values = torch.where(is_flat, 0.0, (values - mean) / spread)
        units = _spacing(points, domain)
        if not domain.is_sphere:
            lower, upper = (
                [end / unit for end, unit in zip(side, units.tolist(), strict=True)]
                for side in (domain.lower, domain.upper)
            )
            domain = Domain.box(lower, upper, domain.periodic)
        return cls(points / units, values, q, domain, units, mean, spread)

    def chunks(self) -> list["Target"]:
        """Returns the sites in parts."""
        parts = zip(*(part.split(CHUNK) for part in (self.points, self.values, self.weights)), strict=True)  # fmt: skip
        return [
            replace(self, points=points, values=values, weights=weights)
            for points, values, weights in parts
        ]

    def thinned(self) -> "Target":
        """Returns at most `MAX_SITES` of the sites, evenly in space, each by its weight.

        Sites are put into the order of a tree, in which neighbours are near to each other; every
        one that is kept stands for the same share of all weights.
        """
        if len(self.points) <= MAX_SITES:
            return self
        order = torch.from_numpy(KDTree(self.points.numpy(), leafsize=1).indices)
        reached = self.weights[order].cumsum(0)
        marks = (torch.arange(MAX_SITES).to(reached) + 0.5) / MAX_SITES * reached[-1]
        kept, counts = torch.searchsorted(reached, marks).unique(return_counts=True)
        kept = order[kept.clamp(max=len(order) - 1)]
        weights = counts.to(self.weights) / MAX_SITES
        return replace(self, points=self.points[kept], values=self.values[kept], weights=weights)

    @property
    def num_axes(self) -> int:
        """Directions along which sites can lie."""
        return self.domain.dim - self.domain.is_sphere

    @cached_property
    def num_distinct(self) -> int:
        """Number of sites, each counted once."""
        return len(np.unique(self.points.numpy(), axis=0))

    @cached_property
    def spacing(self) -> Float[Tensor, " points"]:
        """The usual distance from every site to those next to it, in `units`."""
        distinct = np.unique(self._shifted(self.points), axis=0)
        count = min(2 * self.num_axes + 1, len(distinct))
        if count == 1:
            return torch.ones_like(self.weights)
        distances, _ = KDTree(distinct, boxsize=self._periods).query(self._shifted(self.points), count)  # fmt: skip
        return torch.from_numpy(distances[:, 1:].mean(-1))

    def bounded(self, shapes: AbstractShapes) -> AbstractShapes:
        """Returns particles that are neither narrower than sites can tell nor wider than the domain."""
        _, nearest = self._tree.query(self._shifted(shapes.centers))
        smallest = SHORTEST * self.spacing[torch.from_numpy(np.atleast_1d(nearest))]
        extent = 2.0 if self.domain.is_sphere else max(
            high - low for low, high in zip(self.domain.lower, self.domain.upper, strict=True)
        )  # fmt: skip
        return shapes.bounded(smallest.clamp(max=LONGEST * extent), LONGEST * extent)

    @cached_property
    def _tree(self) -> KDTree:
        return KDTree(self._shifted(self.points), boxsize=self._periods)

    @property
    def _periods(self) -> np.ndarray | None:
        lengths = np.subtract(self.domain.upper, self.domain.lower) * self.domain.periodic
        return lengths if any(self.domain.periodic) else None

    def _shifted(self, points: Tensor) -> np.ndarray:
        return points.numpy() - np.where(self.domain.periodic, self.domain.lower, 0.0)


def _spacing(points: Tensor, domain: Domain) -> Tensor:
    """Returns the distance of sites along every axis: of grid lines, else the same for all axes."""
    if domain.is_sphere:
        return torch.ones(3, dtype=torch.float64)
    extent = torch.tensor(domain.upper, dtype=torch.float64) - torch.tensor(domain.lower)
    lines = torch.tensor([len(axis.unique()) for axis in points.mT], dtype=torch.float64)
    count = len(points.unique(dim=0))
    if float(lines.prod()) <= GRID * count:
        return extent / lines
    # Of scattered sites every one has an equal share of the box.
    return (extent.prod() / count).pow(1 / domain.dim).expand(domain.dim).clone()
