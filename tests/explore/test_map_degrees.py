"""Lengths on the sphere, in degrees of a map."""

import numpy as np
import pytest

from gpo.numerics.footprints import LEAST_COSINE
from gpo_explore.plane import map_degrees


@pytest.mark.parametrize(
    ("longitude", "latitude", "expected"),
    [
        (0, 0, (0.2, 0.3)),
        (90, 0, (0.1, 0.3)),
        (0, 60, (0.2 / 0.5, np.hypot(0.1 * np.sin(np.pi / 3), 0.3 * 0.5))),
        (0, 89.9, (0.2 / LEAST_COSINE, 0.1)),
    ],
)
def test_an_ellipsoid_reaches_as_far_east_and_north_as_its_axes_do(longitude, latitude, expected):
    scales = np.array([[0.1, 0.2, 0.3]])
    place = np.array([float(longitude)]), np.array([float(latitude)])
    found = np.deg2rad(map_degrees(scales, *place))
    np.testing.assert_allclose(found[0], expected, rtol=1e-2)
