"""Drawn coordinates of sites and particles: domain coordinates, or longitude and latitude on a sphere.

Grids are drawn cell by cell along their axes, meshes by their triangles, and unstructured points by
nearest neighbour. Three-dimensional fields are drawn as slices.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from gpo.data.geometry import Geometry, focus_box
from gpo.data.units import readable
from gpo.numerics.domain import longitude_latitude, unit_vectors
from gpo.numerics.footprints import longitude_stretch, tangent_frame
from gpo_explore.arrays import Packet


@dataclass(frozen=True)
class Plane:
    """The drawn coordinates of a geometry, in one to three dimensions."""

    geometry: Geometry

    @property
    def num_axes(self) -> int:
        """Number of drawn coordinates."""
        return self.geometry.domain.dim - self.geometry.domain.is_sphere

    @property
    def file_axes(self) -> list[int]:
        """Grid axis of every drawn axis; in files, latitude comes before longitude."""
        return [1, 0] if self.geometry.domain.is_sphere else list(range(self.num_axes))

    @cached_property
    def positions(self) -> np.ndarray:
        """Drawn coordinates of the sites, points by axes."""
        return self.flat(self.geometry.coords)

    def flat(self, coords: np.ndarray) -> np.ndarray:
        """Returns the drawn coordinates of points of the domain; periodic axes are wrapped."""
        domain = self.geometry.domain
        points = torch.from_numpy(np.asarray(coords, dtype=np.float64))
        if not domain.is_sphere:
            return domain.wrap(points).numpy()
        longitude, latitude = (angle.numpy() for angle in longitude_latitude(points))
        east = (longitude - self._central_longitude + 180) % 360 - 180
        return np.stack([self._central_longitude + east, latitude], -1)

    def flat_scales(self, scales: np.ndarray, centers: np.ndarray) -> np.ndarray:
        """Returns the scales of particles along the drawn axes.

        Args:
            scales: Standard deviations along the axes of the domain.
            centers: Drawn coordinates of the particles.
        """
        if not self.geometry.domain.is_sphere:
            return scales
        return map_degrees(scales, centers[..., 0], centers[..., 1])

    def coords_of(self, point: tuple[float, ...]) -> np.ndarray:
        """Returns the point of the domain with these drawn coordinates."""
        if len(point) != self.num_axes:
            raise ValueError(f"`point` must have {self.num_axes} coordinates, got {len(point)}.")
        if not self.geometry.domain.is_sphere:
            return np.array(point)
        longitude, latitude = (torch.tensor(angle, dtype=torch.double) for angle in point)
        if abs(point[1]) > 90:
            raise ValueError(f"`point` must have a latitude from -90 to 90, got {point[1]:g}.")
        return unit_vectors(longitude, latitude).numpy()

    def nearest_site(self, point: tuple[float, ...]) -> int:
        """Returns the index of the active site nearest to a drawn point."""
        geometry = self.geometry
        offset = geometry.domain.offset(
            torch.from_numpy(geometry.coords), torch.from_numpy(self.coords_of(point))
        )
        squared = offset.square().sum(-1).numpy()
        return int(np.where(geometry.is_masked, np.inf, squared).argmin())

    @property
    def kind(self) -> str:
        """How sites are drawn: "axes", "cells" or "points"."""
        if self.geometry.axes:
            return "axes"
        return "points" if self.cells is None else "cells"

    @cached_property
    def cells(self) -> np.ndarray | None:
        """Triangles of the plane, as indices of their corner sites; None if there are none."""
        geometry = self.geometry
        if self.num_axes != 2 or geometry.axes:
            return None
        triangles = geometry.triangles
        if triangles is None and len(geometry.grid_shape) == 2:
            triangles = _halved_quadrilaterals(geometry.grid_shape)
        if triangles is None or triangles.shape[1] != 3:
            return None
        if geometry.domain.is_sphere:
            # A cell across the edge of the map would be drawn over its whole width.
            spans = np.ptp(self.positions[triangles][..., 0], axis=1)
            triangles = triangles[spans < 180]
        return triangles

    def packet(self, is_active: np.ndarray) -> Packet:
        """Returns the coordinates, axes, cells and limits that are needed to draw fields.

        Args:
            is_active: False at masked sites.
        """
        geometry, domain = self.geometry, self.geometry.domain
        lower, upper = self._box()
        home = np.stack([lower, upper])
        if self.kind == "cells" and not domain.is_sphere:
            home = focus_box(geometry)
        arrays: dict[str, np.ndarray] = {
            "positions": self.positions,
            "known": is_active.astype(int),
        }
        for axis, values in enumerate(geometry.axes):
            arrays[f"axis{axis}"] = values
        if self.cells is not None:
            arrays["cells"] = self.cells
        if self.kind == "points":
            arrays["coords"] = domain.wrap(torch.from_numpy(geometry.coords)).numpy()
        names, units = self._names()
        periodic = [False, False] if domain.is_sphere else list(domain.periodic)
        metadata = {
            "kind": self.kind, "names": names, "units": units, "lower": lower.tolist(),
            "upper": upper.tolist(), "home": home.tolist(), "is_sphere": domain.is_sphere,
            "periodic": periodic, "shape": list(geometry.grid_shape),
            "file_axes": self.file_axes, "domain_lower": list(domain.lower),
            "domain_upper": list(domain.upper),
        }  # fmt: skip
        return Packet(arrays, metadata)

    @cached_property
    def _central_longitude(self) -> float:
        """The longitude at the center of the map."""
        if self.geometry.axes:
            longitude = self.geometry.axes[1]
            return float(longitude.min() + longitude.max()) / 2
        mean = self.geometry.coords.mean(0)
        if np.linalg.norm(mean[:2]) < 0.3:
            return 0.0
        return float(np.rad2deg(np.arctan2(mean[1], mean[0])))

    def _box(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the corners of the drawn box: the outer edges of cells, inside the domain."""
        geometry, domain = self.geometry, self.geometry.domain
        if geometry.axes:
            low, high = np.array([_outer_edges(geometry.axes[axis]) for axis in self.file_axes]).T
            # Cells at a boundary or at a pole are cut in half.
            lower, upper = (
                ((-np.inf, -90), (np.inf, 90)) if domain.is_sphere else (domain.lower, domain.upper)
            )
            is_open = ~np.array(domain.periodic[: self.num_axes])
            low = np.where(is_open, np.maximum(low, lower), low)
            return low, np.where(is_open, np.minimum(high, upper), high)
        if domain.is_sphere:
            low, high = self.positions.min(0), self.positions.max(0)
            margin = 0.02 * np.maximum(high - low, 1e-6)
            return low - margin, high + margin
        return np.array(domain.lower), np.array(domain.upper)

    def _names(self) -> tuple[list[str], list[str]]:
        geometry = self.geometry
        if geometry.domain.is_sphere:
            return ["longitude", "latitude"], ["°", "°"]
        names = [*geometry.axis_names, "x", "y", "z"][: self.num_axes]
        units = [*geometry.axis_units, "", "", ""][: self.num_axes]
        return names, [readable(unit) for unit in units]


def _outer_edges(axis: np.ndarray) -> tuple[float, float]:
    """Returns the outer edges of the first and the last cell along an axis."""
    ordered = np.sort(axis)
    if len(ordered) == 1:
        return float(ordered[0]) - 0.5, float(ordered[0]) + 0.5
    first, last = ordered[1] - ordered[0], ordered[-1] - ordered[-2]
    return float(ordered[0] - first / 2), float(ordered[-1] + last / 2)


def _halved_quadrilaterals(shape: tuple[int, ...]) -> np.ndarray:
    """Returns two triangles for every cell of a two-dimensional curvilinear grid."""
    numbers = np.arange(shape[0] * shape[1]).reshape(shape)
    first, right = numbers[:-1, :-1].ravel(), numbers[1:, :-1].ravel()
    above, across = numbers[:-1, 1:].ravel(), numbers[1:, 1:].ravel()
    lower, upper = np.stack([first, right, across], -1), np.stack([first, across, above], -1)
    return np.concatenate([lower, upper])


def map_degrees(scales: np.ndarray, longitude: np.ndarray, latitude: np.ndarray) -> np.ndarray:
    """Returns the scales in degrees of longitude and latitude of ellipsoids on the sphere.

    Args:
        scales: Half axes along x, y and z, on the last axis.
        longitude: Longitude of the centers, in degrees.
        latitude: Latitude of the centers, in degrees.
    """
    centers = unit_vectors(torch.from_numpy(longitude), torch.from_numpy(latitude))
    extent = np.linalg.norm(scales[..., None, :] * tangent_frame(centers).numpy(), axis=-1)
    extent[..., 0] *= longitude_stretch(latitude)
    return np.rad2deg(extent)
