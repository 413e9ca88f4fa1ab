"""Coastlines of the Earth in the plane of a map projection.

The page itself draws them by longitude and latitude. On a projected grid, each of their points is
placed by the sites around it, whose longitudes and latitudes are known.
"""

import json
from importlib.resources import files

import numpy as np
import torch

from gpo.data.geometry import Geometry
from gpo.numerics.domain import unit_vectors

STORED = "coastline.json"
NUM_NEIGHBOURS = 9
"""Sites that place a point."""
REACH = 2.0
"""Distance from the nearest site, in spacings, beyond which points are left out."""


def stored_coastlines() -> list[np.ndarray]:
    """Returns polylines of longitudes and latitudes in degrees, (points, 2)."""
    content = json.loads((files("gpo_explore") / "static" / STORED).read_text(encoding="utf-8"))
    lines: list[np.ndarray] = []
    for text in content["lines"]:
        integers, value, power = list[int](), 0, 1
        for digit in map(content["digits"].index, text):
            value, power = value + digit % 32 * power, 32 * power
            if digit < 32:
                integers.append(-(value + 1) // 2 if value % 2 else value // 2)
                value, power = 0, 1
        lines.append(content["unit"] * np.cumsum(np.reshape(integers, (-1, 2)), axis=0))
    return lines


def projected_coastlines(geometry: Geometry) -> list[list[float]]:
    """Returns polylines of alternating coordinates of the plane; empty without degrees of sites."""
    from scipy.spatial import KDTree

    degrees = geometry.projected_from
    if degrees is None or geometry.domain.dim != 2:
        return []
    sites = _vectors(degrees)
    tree = KDTree(sites)
    spacing = float(np.median(tree.query(sites, k=2)[0][:, 1]))
    lines: list[list[float]] = []
    for line in stored_coastlines():
        points = _vectors(line)
        distances, nearest = map(np.asarray, tree.query(points, k=NUM_NEIGHBOURS))
        is_near = distances[:, 0] < REACH * spacing
        placed = _placed(points[is_near], sites, geometry.coords, nearest[is_near])
        breaks = np.flatnonzero(np.diff(np.flatnonzero(is_near)) > 1) + 1
        lines += [part.ravel().tolist() for part in np.split(placed, breaks) if len(part) > 1]
    return lines


def _vectors(degrees: np.ndarray) -> np.ndarray:
    longitude, latitude = (torch.from_numpy(part.astype(float)) for part in degrees.T)
    return unit_vectors(longitude, latitude).numpy()


def _placed(
    points: np.ndarray, sites: np.ndarray, coords: np.ndarray, nearest: np.ndarray
) -> np.ndarray:
    """Returns the coordinates of points by a linear map that is fitted to the sites around each."""
    offsets = sites[nearest] - sites[nearest].mean(1, keepdims=True)
    targets = coords[nearest] - coords[nearest].mean(1, keepdims=True)
    maps = np.linalg.pinv(offsets, rcond=1e-3) @ targets
    shifts = (points - sites[nearest].mean(1))[:, None]
    return (shifts @ maps)[:, 0] + coords[nearest].mean(1)
