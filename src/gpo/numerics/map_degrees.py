"""Lengths on the sphere as degrees on a map of longitudes and latitudes."""

import numpy as np

LEAST_COSINE = 0.2
"""A length is more degrees of longitude near the poles; close to them it would fill the map."""


def map_degrees(scales: np.ndarray, longitude: np.ndarray, latitude: np.ndarray) -> np.ndarray:
    """Returns how far ellipsoids with axes along x, y, z reach in longitude and latitude.

    Args:
        scales: Half axes along x, y, z, last axis of length three.
        longitude: Where they are, in radians.
        latitude: The same.
    """
    zero = np.zeros_like(longitude)
    east = np.stack([-np.sin(longitude), np.cos(longitude), zero], -1)
    poleward = -np.sin(latitude)
    north = np.stack(
        [poleward * np.cos(longitude), poleward * np.sin(longitude), np.cos(latitude)], -1
    )
    eastward = np.linalg.norm(scales * east, axis=-1) / np.cos(latitude).clip(LEAST_COSINE)
    return np.rad2deg(np.stack([eastward, np.linalg.norm(scales * north, axis=-1)], -1))
