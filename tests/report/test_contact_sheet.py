"""A contact sheet shows where the sites are."""

import numpy as np

from gpo.data.geometry import Geometry, focus_box
from gpo.numerics.domain import Domain
from gpo.report.contact_sheet import panel_height


def _around_a_body(reach: float) -> Geometry:
    """Returns rings around a body of length one, each as much wider as the last was."""
    radius = np.geomspace(0.5, reach, 24)[:, None]
    angle = 2 * np.pi * np.arange(48) / 48
    coords = np.stack([radius * np.cos(angle), radius * np.sin(angle)], -1).reshape(-1, 2)
    weights = np.repeat(radius[:, 0] ** 2, 48)
    domain = Domain.box([-reach, -reach], [reach, reach])
    return Geometry(coords, weights / weights.sum(), domain, ("x", "y"), ("", ""))


def test_a_far_boundary_does_not_make_the_body_a_dot() -> None:
    low, high = focus_box(_around_a_body(reach=50.0))
    assert min(*-low, *high) > 0.5, "the body is seen"
    assert max(*-low, *high) < 12, "and is more than a dot"


def test_everything_is_shown_where_no_part_is_much_denser() -> None:
    geometry = _around_a_body(reach=1.5)
    np.testing.assert_allclose(focus_box(geometry), [[-1.5, -1.5], [1.5, 1.5]])
    assert panel_height(geometry) == 3.0, "a square panel and its title"
