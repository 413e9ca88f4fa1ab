"""Patches of neighbouring sites, of about equal size: the regions that are ablated one by one."""

import numpy as np
from jaxtyping import Int

from gpo.data.geometry import Geometry

NUM_REGIONS = 64
"""Patches of a geometry."""


def patches(geometry: Geometry, count: int = NUM_REGIONS) -> Int[np.ndarray, " points"]:
    """Returns the number of the patch that every site belongs to; -1 at masked sites.

    The sites are bisected across their longest side until there are `count` patches.
    """
    positions = geometry.coords
    if geometry.domain.is_sphere and geometry.axes:
        latitude, longitude = (part.ravel() for part in np.meshgrid(*geometry.axes, indexing="ij"))
        shortening = np.cos(np.deg2rad(latitude.mean()))
        positions = np.stack([latitude, longitude * shortening], axis=-1)
    pieces = [np.flatnonzero(~geometry.is_masked)]
    while len(pieces) < count:
        halves = [half for piece in pieces for half in _bisected(piece, positions[piece])]
        if len(halves) == len(pieces):
            break
        pieces = halves
    number_of = np.full(geometry.num_points, -1)
    for number, piece in enumerate(pieces):
        number_of[piece] = number
    return number_of


def _bisected(piece: np.ndarray, positions: np.ndarray) -> list[np.ndarray]:
    """Cuts sites across their longest side, never through a line of a grid."""
    along = positions[:, int(np.ptp(positions, axis=0).argmax())]
    middle = np.sort(along)[len(along) // 2]
    is_first = along < middle if (along < middle).any() else along <= middle
    return [half for half in (piece[is_first], piece[~is_first]) if len(half)]
