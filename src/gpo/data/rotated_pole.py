r"""Grids with a rotated pole: latitudes and longitudes of a sphere that was turned.

With the grid's north pole at latitude $\varphi_p$ and longitude $\lambda_p$, and the true north
pole at the rotated longitude $\lambda_N$, unit vectors of the grid's frame become true ones by
$M = R_z(\lambda_p + 180°)\, R_y(90° - \varphi_p)\, R_z(-\lambda_N)$.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float

from gpo.numerics.domain import longitude_latitude


@dataclass(frozen=True)
class RotatedPole:
    """Where the north pole of a rotated grid is, in degrees, in the words of CF."""

    grid_north_pole_latitude: float
    grid_north_pole_longitude: float
    north_pole_grid_longitude: float = 0.0
    """Rotated longitude of the true north pole."""

    @property
    def matrix(self) -> Float[np.ndarray, "3 3"]:
        """Takes unit vectors of the grid's frame to true ones."""
        spin = np.deg2rad(self.grid_north_pole_longitude + 180)
        tilt = np.deg2rad(90 - self.grid_north_pole_latitude)
        turn = np.deg2rad(self.north_pole_grid_longitude)
        down = np.array(
            [[np.cos(tilt), 0, -np.sin(tilt)], [0, 1, 0], [np.sin(tilt), 0, np.cos(tilt)]]
        )
        return _about_axis(spin) @ down @ _about_axis(-turn)

    def to_true(self, coords: Float[np.ndarray, "points 3"]) -> Float[np.ndarray, "points 3"]:
        """Returns true unit vectors of points in the grid's frame."""
        return coords @ self.matrix.T

    def to_rotated(self, coords: Float[np.ndarray, "points 3"]) -> Float[np.ndarray, "points 3"]:
        """Returns unit vectors in the grid's frame of true ones."""
        return coords @ self.matrix

    @classmethod
    def fitted(
        cls, rotated: Float[np.ndarray, "points 3"], true: Float[np.ndarray, "points 3"]
    ) -> "RotatedPole":
        """Returns the pole whose rotation takes points of the grid's frame closest to true ones."""
        left, _, right = np.linalg.svd(true.T @ rotated)
        # A reflection is no rotation, however close it comes.
        sign = np.diag([1.0, 1.0, np.linalg.det(left) * np.linalg.det(right)])
        matrix = left @ sign @ right
        poles = np.stack([matrix[:, 2], matrix[2]])
        longitude, latitude = (part.numpy() for part in longitude_latitude(torch.tensor(poles)))
        if abs(latitude[0]) > 90 - 1e-6:
            # Both poles are one: all that is left is a turn about it.
            turn = np.arctan2(-matrix[1, 0], np.sign(latitude[0]) * matrix[0, 0])
            return cls(float(latitude[0]), 180.0, float(np.rad2deg(turn)))
        return cls(float(latitude[0]), float(longitude[0]), float(longitude[1]))


def _about_axis(angle: float) -> Float[np.ndarray, "3 3"]:
    cosine, sine = np.cos(angle), np.sin(angle)
    return np.array([[cosine, -sine, 0], [sine, cosine, 0], [0, 0, 1]])
