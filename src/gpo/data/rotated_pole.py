r"""Grids with a rotated pole: latitudes and longitudes in a rotated frame.

With the grid's north pole at latitude $\varphi_p$ and longitude $\lambda_p$, and the geographic
north pole at the rotated longitude $\lambda_N$, the matrix from the rotated to the geographic frame
is $M = R_z(\lambda_p + 180°)\, R_y(90° - \varphi_p)\, R_z(-\lambda_N)$.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True)
class RotatedPole:
    """Position of the north pole of a rotated grid in degrees, with CF attribute names."""

    grid_north_pole_latitude: float
    grid_north_pole_longitude: float
    north_pole_grid_longitude: float = 0.0
    """Rotated longitude of the geographic north pole."""

    @property
    def matrix(self) -> Float[np.ndarray, "3 3"]:
        """Rotation matrix from the rotated to the geographic frame."""
        first = np.deg2rad(self.grid_north_pole_longitude + 180)
        tilt = np.deg2rad(90 - self.grid_north_pole_latitude)
        last = np.deg2rad(self.north_pole_grid_longitude)
        about_y = np.array(
            [[np.cos(tilt), 0, -np.sin(tilt)], [0, 1, 0], [np.sin(tilt), 0, np.cos(tilt)]]
        )
        return _rotation_about_z(first) @ about_y @ _rotation_about_z(-last)

    def to_true(self, coords: Float[np.ndarray, "points 3"]) -> Float[np.ndarray, "points 3"]:
        """Transforms unit vectors from the rotated to the geographic frame."""
        return coords @ self.matrix.T

    def to_rotated(self, coords: Float[np.ndarray, "points 3"]) -> Float[np.ndarray, "points 3"]:
        """Transforms unit vectors from the geographic to the rotated frame."""
        return coords @ self.matrix

    @classmethod
    def fitted(
        cls, rotated: Float[np.ndarray, "points 3"], true: Float[np.ndarray, "points 3"]
    ) -> "RotatedPole":
        """Returns the pole whose rotation maps rotated to geographic points in the least-squares sense."""
        left, _, right = np.linalg.svd(true.T @ rotated)
        # Exclude reflections.
        sign = np.diag([1.0, 1.0, np.linalg.det(left) * np.linalg.det(right)])
        matrix = left @ sign @ right
        x, y, z = np.stack([matrix[:, 2], matrix[2]], axis=1)
        longitude, latitude = (
            np.rad2deg(np.arctan2(y, x)),
            np.rad2deg(np.arctan2(z, np.hypot(x, y))),
        )
        if abs(latitude[0]) > 90 - 1e-6:
            # The poles coincide: only a rotation about the axis remains.
            angle = np.arctan2(-matrix[1, 0], np.sign(latitude[0]) * matrix[0, 0])
            return cls(float(latitude[0]), 180.0, float(np.rad2deg(angle)))
        return cls(float(latitude[0]), float(longitude[0]), float(longitude[1]))


def _rotation_about_z(angle: float) -> Float[np.ndarray, "3 3"]:
    cosine, sine = np.cos(angle), np.sin(angle)
    return np.array([[cosine, -sine, 0], [sine, cosine, 0], [0, 0, 1]])
