"""The field to fit: validated, with normalised variables and sites in units of their spacing."""

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

CHUNK_SIZE = 2048
"""Sites for which all derivatives are computed at once."""
MAX_SITES = 2**14
"""Largest number of sites to which centers and covariances are fitted; amplitudes use all sites."""
MAX_GRID_RATIO = 8
"""Sites count as a grid if the lines through them cross at most this many times per site."""
MIN_SPACINGS, MAX_FRACTION = 0.7, 0.5
"""Bounds of standard deviations: in site spacings, and as a fraction of the domain."""


@dataclass(frozen=True)
class Target:
    """A field to fit, at its active sites."""

    points: Float[Tensor, "points dim"]
    """Coordinates divided by `units`; unit vectors on the sphere."""
    values: Float[Tensor, "points channels"]
    """Zero mean, unit variance unless constant."""
    weights: Float[Tensor, " points"]
    """Quadrature weights, which sum to one."""
    domain: Domain
    """Domain in the units of `points`."""
    data_domain: Domain
    """Domain in the units of the data."""
    units: Float[Tensor, " dim"]
    """Site spacing along every axis, in the units of the data."""
    mean: Float[Tensor, " channels"]
    spread: Float[Tensor, " channels"]
    """Standard deviation of every variable; 1 for constant ones."""

    @classmethod
    def of(
        cls, values: Tensor, coords: Tensor, weights: Tensor | None, domain: Domain | None
    ) -> "Target":
        """Validates a field and returns its target; raises a `ValueError` for invalid input.

        Args:
            values: The field at its sites.
            coords: Coordinates of the sites.
            weights: Quadrature weights; 0 masks a site. Equal weights if None.
            domain: Domain of the sites; their bounding box if None.
        """
        if not isinstance(values, Tensor) or values.ndim not in (1, 2) or not values.numel():
            actual = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise ValueError(
                f"`values` must be a tensor (points, channels) or (points,), not empty, got {actual}."
            )
        values = values.reshape(len(values), -1).double()
        if domain is None:
            is_active = slice(None) if weights is None else weights > 0
            domain = Domain.around(coords[is_active].double())
        sites = check_sites(values.shape[1], domain, torch.float64, values[None], coords, weights)
        is_active = sites.weights[0] > 0
        weights, values = sites.weights[0][is_active], sites.values[0][is_active]
        # `check_sites` returns coordinates relative to the corner of the domain.
        points = domain.wrap(coords[is_active].double())
        mean = weights @ values
        spread = (weights @ (values - mean).square()).sqrt()
        # Variables that vary by rounding errors alone count as constant.
        is_constant = spread <= 1e-12 * (mean.abs() + 1e-300)
        spread = torch.where(is_constant, 1.0, spread)
        values = torch.where(is_constant, 0.0, (values - mean) / spread)
        units = _axis_spacing(points, domain)
        scaled = domain
        if not domain.is_sphere:
            lower, upper = (
                [bound / unit for bound, unit in zip(bounds, units.tolist(), strict=True)]
                for bounds in (domain.lower, domain.upper)
            )
            scaled = Domain.box(lower, upper, domain.periodic)
        return cls(points / units, values, weights, scaled, domain, units, mean, spread)

    def chunks(self) -> list["Target"]:
        """Returns the target in parts of at most `CHUNK_SIZE` sites."""
        columns = self.points, self.values, self.weights
        return [
            replace(self, points=points, values=values, weights=weights)
            for points, values, weights in zip(*(c.split(CHUNK_SIZE) for c in columns), strict=True)
        ]

    def subsampled(self) -> "Target":
        """Returns at most `MAX_SITES` of the sites, evenly distributed by weight.

        Sites are sorted by a k-d tree, in which neighbours are close together; every site that is
        kept represents the same fraction of the total weight.
        """
        if len(self.points) <= MAX_SITES:
            return self
        order = torch.from_numpy(KDTree(self.points.numpy(), leafsize=1).indices)
        cumulative = self.weights[order].cumsum(0)
        quantiles = (torch.arange(MAX_SITES).to(cumulative) + 0.5) / MAX_SITES * cumulative[-1]
        kept, counts = torch.searchsorted(cumulative, quantiles).unique(return_counts=True)
        kept = order[kept.clamp(max=len(order) - 1)]
        weights = counts.to(self.weights) / MAX_SITES
        return replace(self, points=self.points[kept], values=self.values[kept], weights=weights)

    @property
    def num_axes(self) -> int:
        """Dimension of the box or surface that the sites lie in."""
        return self.domain.dim - self.domain.is_sphere

    @cached_property
    def num_distinct(self) -> int:
        """Number of distinct sites."""
        return len(np.unique(self.points.numpy(), axis=0))

    @cached_property
    def spacing(self) -> Float[Tensor, " points"]:
        """Mean distance of every site to its nearest neighbours, in `units`."""
        points = self._shifted(self.points)
        distinct = np.unique(points, axis=0)
        count = min(2 * self.num_axes + 1, len(distinct))
        if count == 1:
            return torch.ones_like(self.weights)
        distances, _ = KDTree(distinct, boxsize=self._periods).query(points, count)
        return torch.from_numpy(distances[:, 1:].mean(-1))

    def clamp(self, shapes: AbstractShapes) -> AbstractShapes:
        """Returns Gaussians neither narrower than the sites resolve nor wider than the domain."""
        _, nearest = self._tree.query(self._shifted(shapes.centers))
        smallest = MIN_SPACINGS * self.spacing[torch.from_numpy(np.atleast_1d(nearest))]
        lengths = np.subtract(self.domain.upper, self.domain.lower)
        largest = MAX_FRACTION * (2.0 if self.domain.is_sphere else float(lengths.max()))
        return shapes.clamped(smallest.clamp(max=largest), largest)

    @cached_property
    def _tree(self) -> KDTree:
        return KDTree(self._shifted(self.points), boxsize=self._periods)

    @property
    def _periods(self) -> np.ndarray | None:
        lengths = np.subtract(self.domain.upper, self.domain.lower) * self.domain.periodic
        return lengths if any(self.domain.periodic) else None

    def _shifted(self, points: Tensor) -> np.ndarray:
        """Returns coordinates that start at zero on periodic axes, as `KDTree` requires."""
        return points.numpy() - np.where(self.domain.periodic, self.domain.lower, 0.0)


def _axis_spacing(points: Tensor, domain: Domain) -> Tensor:
    """Returns the spacing of grid lines along every axis; for unstructured points, a common one."""
    if domain.is_sphere:
        return torch.ones(3, dtype=torch.float64)
    extent = torch.tensor(domain.upper, dtype=torch.float64) - torch.tensor(domain.lower)
    lines = torch.tensor([len(axis.unique()) for axis in points.mT], dtype=torch.float64)
    count = len(points.unique(dim=0))
    if float(lines.prod()) <= MAX_GRID_RATIO * count:
        return extent / lines
    return (extent.prod() / count).pow(1 / domain.dim).expand(domain.dim).clone()
