"""Which part of a mesh to show first."""

import numpy as np
from scipy.spatial import KDTree

from gpo.data.geometry import Geometry

CROWDED = 0.2
"""Sites crowd where the denser half of them needs less than this part of every axis."""


def crowded_box(geometry: Geometry) -> np.ndarray:
    """Returns the lower and upper corner of what to show: where the sites are.

    A mesh that is fitted to a body and reaches many times its length would show the body as a
    dot: where the denser half of the sites crowds in a small part, that part is shown.
    """
    coords = geometry.coords[:, :2]
    everything = np.stack([coords.min(axis=0), coords.max(axis=0)])
    reach = KDTree(coords).query(coords, k=min(8, len(coords)))[0][..., -1]
    denser = coords[np.argsort(reach, kind="stable")[: (len(coords) + 1) // 2]]
    crowd = np.quantile(denser, [0.05, 0.95], axis=0)
    extent = np.ptp(crowd, axis=0)
    if (extent > CROWDED * np.ptp(everything, axis=0)).any():
        return everything
    return crowd + np.array([[-0.5], [0.5]]) * extent
