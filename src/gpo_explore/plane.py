"""Where sites and particles are drawn: as they lie in a box, by longitude and latitude on a sphere.

Grids are drawn cell by cell along their axes, meshes by their triangles, and scattered points by
the nearest of them. Of three dimensions the page shows slices.
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
    """The drawn coordinates of a geometry: one, two or three of them."""

    geometry: Geometry

    @property
    def num_axes(self) -> int:
        """How many coordinates are drawn."""
        return self.geometry.domain.dim - self.geometry.domain.is_sphere

    @property
    def file_axes(self) -> list[int]:
        """For every drawn axis the axis of the grid; latitude comes first in files."""
        return [1, 0] if self.geometry.domain.is_sphere else list(range(self.num_axes))

    @cached_property
    def positions(self) -> np.ndarray:
        """Where the sites are drawn, points by axes."""
        return self.flat(self.geometry.coords)

    def flat(self, coords: np.ndarray) -> np.ndarray:
        """Returns where points of the domain are drawn; periodic axes are wrapped."""
        domain = self.geometry.domain
        points = torch.from_numpy(np.asarray(coords, dtype=np.float64))
        if not domain.is_sphere:
            return domain.wrap(points).numpy()
        longitude, latitude = (part.numpy() for part in longitude_latitude(points))
        east = (longitude - self._middle + 180) % 360 - 180
        return np.stack([self._middle + east, latitude], -1)

    def flat_scales(self, scales: np.ndarray, centers: np.ndarray) -> np.ndarray:
        """Returns how far particles reach along the drawn axes.

        Args:
            scales: Standard deviations along the axes of the domain.
            centers: Where the particles are drawn.
        """
        if not self.geometry.domain.is_sphere:
            return scales
        return map_degrees(scales, centers[..., 0], centers[..., 1])

    def coords_of(self, point: tuple[float, ...]) -> np.ndarray:
        """Returns the point of the domain that is drawn at a place."""
        if len(point) != self.num_axes:
            raise ValueError(f"`point` must have {self.num_axes} coordinates, got {len(point)}.")
        if not self.geometry.domain.is_sphere:
            return np.array(point)
        longitude, latitude = (torch.tensor(part, dtype=torch.double) for part in point)
        if abs(point[1]) > 90:
            raise ValueError(f"`point` must have a latitude from -90 to 90, got {point[1]:g}.")
        return unit_vectors(longitude, latitude).numpy()

    def nearest_site(self, point: tuple[float, ...]) -> int:
        """Returns the number of the site that counts and is nearest to a drawn place."""
        geometry = self.geometry
        offset = geometry.domain.offset(
            torch.from_numpy(geometry.coords), torch.from_numpy(self.coords_of(point))
        )
        squared = offset.square().sum(-1).numpy()
        return int(np.where(geometry.is_masked, np.inf, squared).argmin())

    @property
    def kind(self) -> str:
        """How sites are drawn: axes, cells or points."""
        if self.geometry.axes:
            return "axes"
        return "points" if self.cells is None else "cells"

    @cached_property
    def cells(self) -> np.ndarray | None:
        """Corners of triangles in the plane, as site numbers; None where there are none."""
        geometry = self.geometry
        if self.num_axes != 2 or geometry.axes:
            return None
        triangles = geometry.triangles
        if triangles is None and len(geometry.grid_shape) == 2:
            triangles = _halved_quadrilaterals(geometry.grid_shape)
        if triangles is None or triangles.shape[1] != 3:
            return None
        if geometry.domain.is_sphere:
            # A cell across the seam of the map would be drawn all over it.
            spans = np.ptp(self.positions[triangles][..., 0], axis=1)
            triangles = triangles[spans < 180]
        return triangles

    def packet(self, is_known: np.ndarray) -> Packet:
        """Returns positions, axes, cells and limits: what drawing fields on these sites needs.

        Args:
            is_known: False where sites hold nothing.
        """
        geometry, domain = self.geometry, self.geometry.domain
        lower, upper = self._box()
        home = np.stack([lower, upper])
        if self.kind == "cells" and not domain.is_sphere:
            home = focus_box(geometry)
        arrays: dict[str, np.ndarray] = {"positions": self.positions, "known": is_known.astype(int)}
        for axis, numbers in enumerate(geometry.axes):
            arrays[f"axis{axis}"] = numbers
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
    def _middle(self) -> float:
        """The longitude around which a sphere is drawn."""
        if self.geometry.axes:
            longitude = self.geometry.axes[1]
            return float(longitude.min() + longitude.max()) / 2
        mean = self.geometry.coords.mean(0)
        if np.linalg.norm(mean[:2]) < 0.3:
            return 0.0
        return float(np.rad2deg(np.arctan2(mean[1], mean[0])))

    def _box(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the corners of what is drawn: the outer edges of cells, inside the domain."""
        geometry, domain = self.geometry, self.geometry.domain
        if geometry.axes:
            low, high = np.array([_ends(geometry.axes[axis]) for axis in self.file_axes]).T
            # A cell at an open end, or at a pole, has no other half.
            least, most = (
                ((-np.inf, -90), (np.inf, 90)) if domain.is_sphere else (domain.lower, domain.upper)
            )
            is_open = ~np.array(domain.periodic[: self.num_axes])
            low = np.where(is_open, np.maximum(low, least), low)
            return low, np.where(is_open, np.minimum(high, most), high)
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
        return names, [readable(part) for part in units]


def _ends(axis: np.ndarray) -> tuple[float, float]:
    """Returns how far the outer cells of an axis reach."""
    ordered = np.sort(axis)
    if len(ordered) == 1:
        return float(ordered[0]) - 0.5, float(ordered[0]) + 0.5
    first, last = ordered[1] - ordered[0], ordered[-1] - ordered[-2]
    return float(ordered[0] - first / 2), float(ordered[-1] + last / 2)


def _halved_quadrilaterals(shape: tuple[int, ...]) -> np.ndarray:
    """Returns two triangles for every cell of a structured grid in the plane."""
    numbers = np.arange(shape[0] * shape[1]).reshape(shape)
    first, right = numbers[:-1, :-1].ravel(), numbers[1:, :-1].ravel()
    above, across = numbers[:-1, 1:].ravel(), numbers[1:, 1:].ravel()
    lower, upper = np.stack([first, right, across], -1), np.stack([first, across, above], -1)
    return np.concatenate([lower, upper])


def map_degrees(scales: np.ndarray, longitude: np.ndarray, latitude: np.ndarray) -> np.ndarray:
    """Returns how far ellipsoids with axes along x, y, z reach in longitude and latitude.

    Args:
        scales: Half axes along x, y, z, last axis of length three.
        longitude: Where they are, in degrees.
        latitude: The same.
    """
    places = unit_vectors(torch.from_numpy(longitude), torch.from_numpy(latitude))
    reach = np.linalg.norm(scales[..., None, :] * tangent_frame(places).numpy(), axis=-1)
    reach[..., 0] *= longitude_stretch(latitude)
    return np.rad2deg(reach)
