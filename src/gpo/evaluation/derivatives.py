r"""Gradient and Laplacian of a field on any sites, by a quadratic fit to the neighbours of each site.

Neighbours are the block around a site on a grid of any spacing, and the nearest sites elsewhere. On
the sphere the fit is done in the tangent plane.
"""

import itertools
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.spatial import KDTree

from gpo.data.geometry import Geometry
from gpo.numerics.domain import Domain
from gpo.numerics.footprints import tangent_frame

CHUNK = 65536
"""Sites that are fitted at a time."""
LINEAR_RIDGE, QUADRATIC_RIDGE = 1e-13, 1e-9
"""Regularise the fit where neighbours cannot separate slope and curvature, next to masks: the second
is larger, so the fit becomes linear there."""


@dataclass(frozen=True)
class LocalFits:
    """Linear maps from the values at the neighbours of a site to its derivatives."""

    neighbours: Int[np.ndarray, "points neighbours"]
    gradients: Float[np.ndarray, "points axes neighbours"]
    laplacians: Float[np.ndarray, "points neighbours"]
    directions: Float[np.ndarray, "points axes dim"]
    """Unit vectors along which gradients are taken: the axes, or east and north."""
    reach: Float[np.ndarray, " points"]
    """Distance of the farthest neighbour."""
    is_fitted: Bool[np.ndarray, " points"]
    """False at masked sites, and where too many neighbours are masked."""

    @classmethod
    def of(cls, geometry: Geometry, is_known: Bool[np.ndarray, " points"]) -> "LocalFits":
        """Fits a quadratic around every site to its known neighbours."""
        domain = geometry.domain
        num_axes = domain.dim - domain.is_sphere
        num_terms = (num_axes + 1) * (num_axes + 2) // 2
        if geometry.grid_shape:
            neighbours = _blocks(geometry)
        else:
            known = np.flatnonzero(is_known)
            count = min(2 * num_terms, len(known))
            _, nearest = nearest_sites(geometry.coords[known], geometry.coords, domain, count)
            neighbours = known[nearest.reshape(geometry.num_points, -1)]
        directions = tangent_axes(geometry.coords, domain)
        is_used = is_known[neighbours]
        coords = torch.from_numpy(geometry.coords)
        parts = []
        for start in range(0, len(neighbours), CHUNK):
            some = slice(start, start + CHUNK)
            offsets = domain.offset(coords[neighbours[some]], coords[some].unsqueeze(1)).numpy()
            reach = np.sqrt((offsets**2).sum(-1)).max(1)
            offsets = np.einsum("nkd,nad->nka", offsets, directions[some])
            parts.append((*_fit(offsets, is_used[some]), reach))
        gradients, laplacians, reach = (np.concatenate(part) for part in zip(*parts, strict=True))
        is_fitted = is_known & (is_used.sum(1) >= min(num_terms, is_used.shape[1]))
        return cls(neighbours, gradients, laplacians, directions, reach, is_fitted)

    def gradient(
        self, values: Float[np.ndarray, "points variables"]
    ) -> Float[np.ndarray, "points axes variables"]:
        """Returns the derivatives of every variable along the axes."""
        return np.einsum("nak,nkc->nac", self.gradients, values[self.neighbours])

    def laplacian(
        self, values: Float[np.ndarray, "points variables"]
    ) -> Float[np.ndarray, "points variables"]:
        """Returns the sum of second derivatives of every variable."""
        return np.einsum("nk,nkc->nc", self.laplacians, values[self.neighbours])


def tangent_axes(
    coords: Float[np.ndarray, "points dim"], domain: Domain
) -> Float[np.ndarray, "points axes dim"]:
    """Returns unit vectors along the axes of a box; east and north on the sphere."""
    if not domain.is_sphere:
        return np.broadcast_to(np.eye(domain.dim), (len(coords), domain.dim, domain.dim))
    return tangent_frame(torch.from_numpy(coords)).numpy()


def nearest_sites(
    sites: Float[np.ndarray, "sites dim"],
    coords: Float[np.ndarray, "points dim"],
    domain: Domain,
    count: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the distances and numbers of the nearest sites of every point, minimum image."""
    origin = np.where(domain.periodic, domain.lower, 0.0)

    def wrapped(points: np.ndarray) -> np.ndarray:
        return domain.wrap(torch.from_numpy(np.ascontiguousarray(points))).numpy() - origin

    lengths = np.subtract(domain.upper, domain.lower) * np.asarray(domain.periodic)
    tree = KDTree(wrapped(sites), boxsize=lengths if any(domain.periodic) else None)
    distances, numbers = tree.query(wrapped(coords), k=count)
    return np.asarray(distances), np.asarray(numbers)


def _fit(offsets: np.ndarray, is_used: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows of the least-squares solution that are derivatives."""
    num_axes = offsets.shape[-1]
    lengths = np.abs(offsets).max(1, keepdims=True)
    lengths = np.where(lengths > 0, lengths, 1.0)
    x = offsets / lengths
    pairs = list(itertools.combinations_with_replacement(range(num_axes), 2))
    quadratic = [x[..., a] * x[..., b] / (2 if a == b else 1) for a, b in pairs]
    terms = np.stack([np.ones_like(x[..., 0]), *np.moveaxis(x, -1, 0), *quadratic], axis=-1)
    used = terms * is_used[..., None]
    squares = np.einsum("nkt,nks->nts", used, terms)
    is_quadratic = np.arange(squares.shape[-1]) > num_axes
    squares += np.diag(np.where(is_quadratic, QUADRATIC_RIDGE, LINEAR_RIDGE))
    solution = np.linalg.solve(squares, np.swapaxes(used, 1, 2))
    gradients = solution[:, 1 : num_axes + 1] / np.swapaxes(lengths, 1, 2)
    laplacians = np.zeros_like(solution[:, 0])
    for number, (a, b) in enumerate(pairs, start=num_axes + 1):
        if a == b:
            laplacians += solution[:, number] / lengths[..., a] ** 2
    return gradients, laplacians


def _blocks(geometry: Geometry) -> np.ndarray:
    """Returns the three sites along every axis around each site, one-sided at open ends."""
    lines = []
    for size, wraps in zip(geometry.grid_shape, geometry.wraps(), strict=True):
        steps = np.arange(-1, 2) if size > 2 else np.arange(size)
        middle = np.arange(size)[:, None] if size > 2 else np.zeros((size, 1), dtype=int)
        if not wraps and size > 2:
            middle = middle.clip(1, size - 2)
        lines.append((middle + steps) % size)
    numbers = np.arange(geometry.num_points).reshape(geometry.grid_shape)
    num_axes, indices = len(lines), []
    for axis, line in enumerate(lines):
        shape = [1] * (2 * num_axes)
        shape[axis], shape[num_axes + axis] = line.shape
        indices.append(line.reshape(shape))
    return numbers[tuple(indices)].reshape(geometry.num_points, -1)
