r"""A mesh that wraps around an airfoil like the letter C, in sheared parabolic coordinates.

$z=z_0+\zeta^2/2$ with $z=x+iy$ opens the plane, cut from a point $z_0$ inside the nose to
infinity downstream, into the half plane $\mathrm{Im}\,\zeta>0$. Airfoil and wake become one
shallow bump above the real axis; mesh lines go straight up from it to the outer boundary, a
parabola around the airfoil. The map keeps angles, so cells are nearly rectangular.
"""

import numpy as np
from scipy.optimize import brentq

from gpo.data.solvers.airfoil_section import Section

TAIL = 0.4
"""How much nodes gather towards the trailing edge, from 0 to below 1/2."""


def c_mesh(
    section: Section,
    num_around: int = 220,
    num_out: int = 50,
    *,
    radius: float = 25.0,
    first: float = 0.75,
) -> np.ndarray:
    """Returns nodes, (around, out, 2), from downstream below the wake to downstream above it.

    The first nodes of all lines lie on wake, airfoil, and wake again. Those on the wake come
    twice, once from below and once from above.

    Args:
        section: The airfoil.
        num_around: Cells around; `num_wake` of them at either end lie along the wake.
        num_out: Cells from the airfoil to the outer boundary.
        radius: Distance of the outer boundary from the nose, upstream and downstream.
        first: Cells next to the airfoil reach out this many times 1 / num_out.
    """
    wake_cells = num_wake(num_around)
    body_cells = num_around // 2 - wake_cells
    share = np.linspace(0, 1, body_cells + 1)
    x = ((1 + TAIL) * share - TAIL * share**3) ** 2
    upper, lower = (x + 1j * side(x) for side in (section.upper, section.lower))
    upper[-1] = lower[-1] = (upper[-1] + lower[-1]) / 2
    wake = _wake(upper, lower, wake_cells, radius)
    nose_radius, tilt = section.nose
    inside = nose_radius / 2 + 1j * tilt * np.sqrt(nose_radius / 2)
    outline = np.concatenate([wake[::-1], lower[::-1], upper[1:], wake]) - inside
    angle = np.unwrap(np.angle(outline))
    angle += np.angle(outline[-1]) - angle[-1]
    opened = np.sqrt(2 * np.abs(outline)) * np.exp(0.5j * angle)
    outer = np.sqrt(2 * radius)
    heights = (
        np.concatenate([[0], np.cumsum(_growth(first / num_out, num_out, outer))])[None] / outer
    )
    bump = opened.imag[:, None]
    lines = opened.real[:, None] + 1j * (bump + (outer - bump) * heights)
    nodes = inside + lines**2 / 2
    return np.stack([nodes.real, nodes.imag], -1)


def num_wake(num_around: int) -> int:
    """Returns how many cells at either end of a line lie along the wake, an even number."""
    return 2 * round(num_around * 3 / 44)


def joined_at_wake(num_around: int, num_out: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns which nodes are left when those on the wake count once, and every node's new number.

    Args:
        num_around: Cells around.
        num_out: Cells outwards.
    """
    numbers = np.arange((num_around + 1) * (num_out + 1)).reshape(num_around + 1, num_out + 1)
    wake = num_wake(num_around)
    numbers[num_around - wake :, 0] = numbers[wake::-1, 0]
    kept, renumbered = np.unique(numbers, return_inverse=True)
    return kept, renumbered.reshape(numbers.shape)


def mesh_triangles(num_around: int, num_out: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the nodes that `joined_at_wake` leaves, and triangles of these."""
    kept, numbers = joined_at_wake(num_around, num_out)
    a, b = numbers[:-1, :-1].ravel(), numbers[1:, :-1].ravel()
    c, d = numbers[1:, 1:].ravel(), numbers[:-1, 1:].ravel()
    return kept, np.concatenate([np.stack([a, b, c], 1), np.stack([a, c, d], 1)])


def _wake(upper: np.ndarray, lower: np.ndarray, count: int, radius: float) -> np.ndarray:
    """Returns points that leave the trailing edge along its bisector and bend to the horizontal."""
    tail = upper[-1]
    directions = tail - np.array([upper[-2], lower[-2]])
    slope = np.tan(np.angle(directions / np.abs(directions)).mean())
    distance = np.cumsum(_growth(float(abs(directions[0])), count, radius))
    return tail + distance + 1j * slope * (1 - np.exp(-distance))


def _growth(first: float, count: int, total: float) -> np.ndarray:
    """Returns lengths that start with `first`, grow by one ratio and sum to `total`."""
    steps = np.arange(count)
    ratio = brentq(lambda ratio: first * (ratio**steps).sum() - total, 0.5, 5)
    return first * np.power(float(ratio), steps)  # type: ignore[arg-type]
