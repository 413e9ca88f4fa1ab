"""Lengths on the sphere as degrees on a map of longitudes and latitudes."""

import numpy as np
import torch

from gpo.numerics.domain import unit_vectors
from gpo.numerics.footprints import tangent_frame

LEAST_COSINE = 0.2
"""A length is more degrees of longitude near the poles; close to them it would fill the map."""


def map_degrees(scales: np.ndarray, longitude: np.ndarray, latitude: np.ndarray) -> np.ndarray:
    """Returns how far ellipsoids with axes along x, y, z reach in longitude and latitude.

    Args:
        scales: Half axes along x, y, z, last axis of length three.
        longitude: Where they are, in degrees.
        latitude: The same.
    """
    places = unit_vectors(torch.from_numpy(longitude), torch.from_numpy(latitude))
    reach = np.linalg.norm(scales[..., None, :] * tangent_frame(places).numpy(), axis=-1)
    reach[..., 0] /= np.cos(np.deg2rad(latitude)).clip(LEAST_COSINE)
    return np.rad2deg(reach)
