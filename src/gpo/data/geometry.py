"""The sites of a data set: coordinates, quadrature weights, and the region to draw first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce

import numpy as np
import torch

from gpo.data.rotated_pole import RotatedPole
from gpo.numerics.domain import Domain, longitude_latitude, unit_vectors

NUM_NEIGHBOURS = 9
"""Neighbours used to fill a gap: the site itself and, on a 2D grid, the 8 around it."""

FOCUS_EXTENT = 0.2
"""Largest extent of the focus box, as a fraction of each axis."""

UPWARDS = ("y", "lat", "rlat", "grid_lat", "north", "projection_y")
"""Prefixes of the names of axes that point north or upwards."""


@dataclass(frozen=True, repr=False)
class Geometry:
    """Sites in the order of the values; grids are flattened with the last axis fastest."""

    coords: np.ndarray
    """Coordinates of shape (points, dim) in the domain; unit vectors on the sphere."""
    weights: np.ndarray
    """Quadrature weights, which sum to one; 0 at masked sites."""
    domain: Domain
    axis_names: tuple[str, ...]
    """Names of the grid axes, or of the coordinates of unstructured points."""
    axis_units: tuple[str, ...]
    """Units of the axes; empty if unknown."""
    axes: tuple[np.ndarray, ...] = ()
    """Coordinates along each axis of a rectilinear grid, as in the file; else empty."""
    grid_shape: tuple[int, ...] = ()
    """Sites along each axis of a structured grid; empty for unstructured points."""
    triangles: np.ndarray | None = None
    """Site indices of the corners of mesh cells, (cells, 3), or (cells, 4) for tetrahedra."""
    axis_attributes: tuple[Mapping[str, str], ...] = ()
    """CF attributes of each axis except its units, such as a standard name."""
    pole: RotatedPole | None = None
    """Pole of a rotated grid, whose `coords` are unit vectors in the rotated frame."""
    projected_from: np.ndarray | None = None
    """Longitude and latitude of sites on a map projection, (points, 2), if known."""
    projection_note: str = ""
    """Why these are unknown although the file states a projection."""
    has_indices: bool = False
    """Whether axes are numbers of sites from zero, because the file has no coordinates."""
    file_axes: tuple[tuple[str, np.ndarray], ...] = ()
    """Name and numbers of each dimension of the sites in the file, where forecasts shall have them."""

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.grid_shape)) or f"{self.num_points} points"
        return f"Geometry({shape}, {', '.join(self.axis_names)})"

    @property
    def num_points(self) -> int:
        """Number of sites, including masked ones."""
        return len(self.coords)

    @property
    def is_masked(self) -> np.ndarray:
        """True at masked sites."""
        return self.weights == 0

    @cached_property
    def nearest_sites(self) -> np.ndarray:
        """Indices of the nearest unmasked sites of each site, (points, neighbours)."""
        from scipy.spatial import KDTree

        active, coords, periods = np.flatnonzero(~self.is_masked), self.coords, None
        if not self.domain.is_sphere:
            lower, upper = np.array(self.domain.lower), np.array(self.domain.upper)
            wraps = np.array(self.domain.periodic)
            periods = np.where(wraps, upper - lower, 0.0)
            coords = coords - lower
            coords = np.where(wraps, coords % np.where(wraps, periods, 1.0), coords)
        count = min(NUM_NEIGHBOURS, len(active))
        nearest = KDTree(coords[active], boxsize=periods).query(coords, k=count)[1]
        return active[np.reshape(nearest, (self.num_points, count))]

    def geographic_degrees(self) -> np.ndarray | None:
        """Returns geographic longitude and latitude, (points, 2); None if unknown."""
        if not self.domain.is_sphere:
            return self.projected_from
        coords = self.coords if self.pole is None else self.pole.to_true(self.coords)
        return torch.stack(longitude_latitude(torch.from_numpy(coords)), -1).numpy()

    @property
    def plot_axes(self) -> tuple[int, int]:
        """Indices of the horizontal and the vertical plot axis; a file may list y before x."""
        first, second = (name.lower() for name in (*self.axis_names, "", "")[:2])
        is_y_first = first.startswith(UPWARDS) and not second.startswith(UPWARDS)
        return (1, 0) if is_y_first and bool(second) else (0, 1)

    def masked(self, is_missing: np.ndarray) -> "Geometry":
        """Returns the geometry with some sites masked; raises a `ValueError` if all would be."""
        weights = np.where(is_missing, 0.0, self.weights)
        if not weights.any():
            raise ValueError("every site is missing")
        return replace(self, weights=weights / weights.sum())

    def with_weights(self, weights: np.ndarray) -> "Geometry":
        """Returns the geometry with other quadrature weights, normalised to sum to one."""
        return replace(self, weights=weights / weights.sum())

    def coarsen(self, factor: int) -> tuple["Geometry", np.ndarray]:
        """Returns every n-th site along each grid axis, and the indices of these sites.

        Unstructured points are thinned by the same ratio, in proportion to their density; each
        remaining point receives the weights of the removed points nearest to it. Raises a
        `ValueError` if the length of a periodic axis is not a multiple of `factor`.
        """
        if not self.grid_shape:
            return self._coarsen_points(factor)
        wraps = self.wraps()
        for size, is_periodic in zip(self.grid_shape, wraps, strict=True):
            if (is_periodic and size % factor) or size < 2 * factor:
                raise ValueError(f"an axis of {size} sites cannot be coarsened by {factor}")
        steps = (slice(None, None, factor),) * len(self.grid_shape)
        numbers = np.arange(self.num_points).reshape(self.grid_shape)[steps]
        axes = [axis[::factor] for axis in self.axes]
        if not self.axes:
            weights = self.weights[numbers].ravel()
        elif self.domain.is_sphere:
            weights = Geometry.latitude_longitude(*axes).weights
        else:
            ends = list(zip(self.domain.lower, self.domain.upper, strict=True))
            weights = Geometry.rectilinear(axes, periodic=wraps, bounds=ends).weights
        shape, numbers = numbers.shape, numbers.ravel()
        coarse = replace(
            self, coords=self.coords[numbers], weights=weights, axes=tuple(axes), grid_shape=shape,
            projected_from=None if self.projected_from is None else self.projected_from[numbers],
            file_axes=tuple((name, values[::factor]) for name, values in self.file_axes),
        )  # fmt: skip
        return coarse.masked(self.is_masked[numbers]), numbers

    def chosen(self, numbers: np.ndarray) -> "Geometry":
        """Returns a subset of the sites as unstructured points of this domain."""
        weights = self.weights[numbers]
        return Geometry(
            self.coords[numbers],
            weights / weights.sum(),
            self.domain,
            ("x", "y", "z")[: self.domain.dim],
            ("",) * self.domain.dim,
            pole=self.pole,
            projected_from=None if self.projected_from is None else self.projected_from[numbers],
        )

    def _coarsen_points(self, factor: int) -> tuple["Geometry", np.ndarray]:
        from scipy.spatial import KDTree

        dim = self.domain.dim - self.domain.is_sphere
        # The order of the leaves of a tree keeps neighbours in space together.
        numbers = np.sort(KDTree(self.coords, leafsize=1).indices[:: factor**dim])
        active = numbers[~self.is_masked[numbers]]
        if not len(active):
            raise ValueError(f"all {len(numbers)} remaining sites are masked")
        nearest = active[KDTree(self.coords[active]).query(self.coords)[1]]
        weights = np.bincount(nearest, self.weights, minlength=self.num_points)
        return replace(self.chosen(numbers), weights=weights[numbers]), numbers

    def wraps(self) -> list[bool]:
        """Returns whether each grid axis is periodic."""
        if not self.domain.is_sphere:
            return list(self.domain.periodic) if self.axes else [False] * len(self.grid_shape)
        return [False, bool(self.axes) and covers_circle(self.axes[1])]

    @classmethod
    def rectilinear(
        cls,
        axes: Sequence[np.ndarray],
        *,
        periodic: bool | Sequence[bool] = False,
        names: Sequence[str] = (),
        units: Sequence[str] = (),
        bounds: Sequence[tuple[float, float]] | None = None,
    ) -> "Geometry":
        """Builds a Cartesian grid from sorted coordinates along every axis.

        Args:
            axes: Coordinates along each axis; spacing may vary.
            periodic: Which axes are periodic. Without `bounds`, their period is the extent of
                the points plus one spacing.
            names: Names of the axes; x, y, z when empty.
            units: Units of the axes.
            bounds: Lower and upper bound of each axis, if the file has them.
        """
        axes = [np.asarray(axis, dtype=np.float64) for axis in axes]
        is_periodic = [periodic] * len(axes) if isinstance(periodic, bool) else list(periodic)
        if bounds is None:
            bounds = [_bounds(axis, wraps) for axis, wraps in zip(axes, is_periodic, strict=True)]
        domain = Domain.box([low for low, _ in bounds], [high for _, high in bounds], is_periodic)
        coords = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(axes))
        lengths = [
            cell_lengths(axis, high - low if wraps else None)
            for axis, wraps, (low, high) in zip(axes, is_periodic, bounds, strict=True)
        ]
        weights = reduce(np.multiply.outer, lengths).ravel()
        return cls(
            coords,
            weights / weights.sum(),
            domain,
            tuple(names) or ("x", "y", "z")[: len(axes)],
            tuple(units) or ("",) * len(axes),
            tuple(axes),
            tuple(len(axis) for axis in axes),
        )

    @classmethod
    def latitude_longitude(
        cls,
        latitude: np.ndarray,
        longitude: np.ndarray,
        *,
        pole: RotatedPole | None = None,
        names: tuple[str, str] = ("latitude", "longitude"),
    ) -> "Geometry":
        """Builds a global or regional grid on the sphere from latitudes and longitudes.

        The weight of a site is the exact area of its cell, whose edges lie midway between
        neighbours and end at the poles. Latitudes may ascend or descend; longitudes may cross
        any meridian.

        Args:
            latitude: Degrees along the first axis.
            longitude: Degrees along the second axis.
            pole: Pole of a rotated grid; its coordinates stay in the rotated frame.
            names: Names of the axes.
        """
        latitude = np.asarray(latitude, dtype=np.float64)
        longitude = np.asarray(longitude, dtype=np.float64)
        rows, columns = (part.ravel() for part in np.meshgrid(latitude, longitude, indexing="ij"))
        coords = sphere_coords(columns, rows)
        edges = np.deg2rad(_edges(latitude).clip(-90, 90))
        area = np.abs(np.diff(np.sin(edges)))
        is_global = covers_circle(longitude)
        widths = cell_lengths(longitude, 360.0) if is_global else np.abs(np.diff(_edges(longitude)))
        weights = np.multiply.outer(area, widths).ravel()
        return cls(
            coords,
            weights / weights.sum(),
            sphere_domain(coords),
            names,
            ("degrees_north", "degrees_east") if pole is None else ("degrees", "degrees"),
            (latitude, longitude),
            (len(latitude), len(longitude)),
            pole=pole,
        )

    @classmethod
    def curvilinear_sphere(cls, latitude: np.ndarray, longitude: np.ndarray) -> "Geometry":
        """Builds a structured grid on the sphere from two-dimensional latitudes and longitudes."""
        coords = sphere_coords(np.ravel(longitude), np.ravel(latitude))
        shape = tuple(np.shape(latitude))
        weights = _quadrilateral_weights(coords.reshape(*shape, 3))
        names, units = ("y", "x"), ("", "")
        return cls(coords, weights, sphere_domain(coords), names, units, (), shape)

    @classmethod
    def on_sphere(
        cls, longitude: np.ndarray, latitude: np.ndarray, domain: Domain | None = None
    ) -> "Geometry":
        """Builds unstructured points of equal weight on the sphere from degrees."""
        coords = sphere_coords(longitude, latitude)
        weights = np.full(len(coords), 1 / len(coords))
        domain = domain or sphere_domain(coords)
        return cls(coords, weights, domain, ("x", "y", "z"), ("", "", ""))

    @classmethod
    def curvilinear(cls, x: np.ndarray, y: np.ndarray) -> "Geometry":
        """Builds a curvilinear (body-fitted) grid in the plane from 2D coordinate arrays."""
        points = np.stack([x, y], -1).astype(np.float64)
        coords = points.reshape(-1, 2)
        weights = _quadrilateral_weights(points)
        domain = Domain.around(torch.from_numpy(coords))
        return cls(coords, weights, domain, ("x", "y"), ("", ""), (), tuple(np.shape(x)))

    @classmethod
    def unstructured(
        cls,
        coords: np.ndarray,
        triangles: np.ndarray | None = None,
        *,
        domain: Domain | None = None,
        units: Sequence[str] = (),
    ) -> "Geometry":
        """Builds unstructured points; with triangles, the weights are lumped cell areas."""
        coords = np.asarray(coords, dtype=np.float64)
        dim = coords.shape[1]
        weights = np.full(len(coords), 1 / len(coords))
        if triangles is not None:
            weights = _lumped_areas(coords, triangles)
        if domain is None:
            domain = Domain.around(torch.from_numpy(coords))
        names = ("x", "y", "z")[:dim]
        return cls(coords, weights, domain, names, tuple(units) or ("",) * dim, triangles=triangles)


def focus_box(geometry: Geometry) -> np.ndarray:
    """Returns the lower and upper corner of the region of the plane to draw first.

    A body-fitted mesh may extend to many times the length of the body, which would then be drawn
    as a dot. If the denser half of the sites lies in a small part of the domain, the box is that
    part with a margin; otherwise it contains all sites.
    """
    from scipy.spatial import KDTree

    coords = geometry.coords[:, :2]
    everything = np.stack([coords.min(axis=0), coords.max(axis=0)])
    distances = KDTree(coords).query(coords, k=min(8, len(coords)))[0][..., -1]
    denser = coords[np.argsort(distances, kind="stable")[: (len(coords) + 1) // 2]]
    focus = np.quantile(denser, [0.05, 0.95], axis=0)
    extent = np.ptp(focus, axis=0)
    if (extent > FOCUS_EXTENT * np.ptp(everything, axis=0)).any():
        return everything
    return focus + np.array([[-0.5], [0.5]]) * extent


def covers_circle(longitude: np.ndarray) -> bool:
    """Returns whether evenly spaced longitudes cover the whole circle."""
    if len(longitude) < 3:
        return False
    spacing = np.diff(longitude).mean()
    return bool(abs(abs(spacing) * len(longitude) - 360) < 0.5 * abs(spacing))


def cell_lengths(axis: np.ndarray, period: float | None = None) -> np.ndarray:
    """Returns cell lengths between midpoints of neighbours; half a cell at open ends."""
    if len(axis) == 1:
        return np.ones(1)
    gaps = np.abs(np.diff(axis))
    if period is None:
        return (np.append(gaps, 0.0) + np.insert(gaps, 0, 0.0)) / 2
    last = period - gaps.sum()
    return (np.append(gaps, last) + np.insert(gaps, 0, last)) / 2


def sphere_domain(coords: np.ndarray) -> Domain:
    """Returns the whole sphere if points surround it, else a patch around the points."""
    mean = coords.mean(0)
    is_global = float(np.linalg.norm(mean)) < 0.3 and float(np.ptp(coords, axis=0).min()) > 1.8
    return Domain.sphere() if is_global else Domain.sphere(torch.from_numpy(coords))


def sphere_coords(longitude: np.ndarray, latitude: np.ndarray) -> np.ndarray:
    """Returns unit vectors from longitudes and latitudes in degrees."""
    degrees = (np.ascontiguousarray(part, dtype=np.float64) for part in (longitude, latitude))
    return unit_vectors(*map(torch.from_numpy, degrees)).numpy()


def _bounds(axis: np.ndarray, is_periodic: bool) -> tuple[float, float]:
    if len(axis) == 1:
        return float(axis[0]), float(axis[0]) + 1
    spacing = float(np.abs(np.diff(axis)).mean()) if is_periodic else 0.0
    return float(axis.min()), float(axis.max()) + spacing


def _edges(axis: np.ndarray) -> np.ndarray:
    """Returns cell edges midway between points; the outermost cells are symmetric."""
    if len(axis) == 1:
        return np.array([axis[0] - 0.5, axis[0] + 0.5])
    middle = (axis[1:] + axis[:-1]) / 2
    return np.concatenate([[2 * axis[0] - middle[0]], middle, [2 * axis[-1] - middle[-1]]])


def _quadrilateral_weights(points: np.ndarray) -> np.ndarray:
    """Returns weights from a quarter of the area of each grid cell around a corner."""
    first, second = points[1:, 1:] - points[:-1, :-1], points[1:, :-1] - points[:-1, 1:]
    area = parallelogram_area(first, second) / 2
    weights = np.zeros(points.shape[:2])
    for rows in (slice(None, -1), slice(1, None)):
        for columns in (slice(None, -1), slice(1, None)):
            weights[rows, columns] += area / 4
    return weights.ravel() / weights.sum()


def _lumped_areas(coords: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Distributes the area of cells, or volume of tetrahedra, equally among their corners."""
    edges = coords[cells[:, 1:]] - coords[cells[:, :1]]
    if cells.shape[1] == 3:
        size = parallelogram_area(edges[:, 0], edges[:, 1])
    else:
        size = np.abs(np.linalg.det(edges))
    weights = np.zeros(len(coords))
    for corner in cells.T:
        np.add.at(weights, corner, size)
    return weights / weights.sum()


def parallelogram_area(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Returns the area that two vectors span, in the plane or in space."""
    squared = (first**2).sum(-1) * (second**2).sum(-1) - (first * second).sum(-1) ** 2
    return np.sqrt(squared.clip(0))
