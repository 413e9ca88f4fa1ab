r"""Airfoil sections and C-meshes around them.

A section comes from the NACA formula, from a file, or from a smooth random deformation of either.
Its chord has length one, from the leading edge at x = 0 to a closed trailing edge at x = 1. Its
surfaces are $y_\pm(x)=\sqrt x\,(1-x)\,s_\pm(x)+x\,y_1$ with smooth shape functions $s_\pm$ and the
height $y_1$ of the trailing edge, so that a change of $s_\pm$ keeps the nose round and the trailing
edge sharp.

The mesh wraps around the section like the letter C, in sheared parabolic coordinates. The map
$z=z_0+\zeta^2/2$ with $z=x+iy$ takes the half plane $\mathrm{Im}\,\zeta>0$ to the plane cut from a
point $z_0$ inside the nose to infinity downstream. In the half plane, airfoil and wake form a
shallow bump above the real axis; mesh lines run vertically from it to the outer boundary, which is
a parabola around the airfoil. The map is conformal, so cells are nearly rectangular.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.optimize import brentq
from scipy.stats import binom

from gpo.data.dataset import DataError

Surface = Callable[[np.ndarray], np.ndarray]
"""Returns the height of a surface at positions along the chord."""
MIN_THICKNESS = 0.03
"""Smallest thickness of a deformed section at mid chord."""
TRAILING_EDGE_CLUSTERING = 0.4
"""Clustering of nodes towards the trailing edge, from 0 to below 1/2."""


@dataclass(frozen=True)
class Section:
    """Upper and lower surface of an airfoil."""

    upper: Surface
    lower: Surface

    @property
    def nose(self) -> tuple[float, float]:
        r"""Radius of the leading edge, and the limit $y_m/\sqrt x$ of the mean line $y_m$ there."""
        x = np.array([1e-4])
        up, down = (float(side(x)[0]) / 1e-2 for side in (self.upper, self.lower))
        return ((up - down) / 2) ** 2 / 2, (up + down) / 2


def naca(thickness: float = 0.12, camber: float = 0.0, camber_at: float = 0.4) -> Section:
    """Returns a section of the NACA four-digit family with a closed trailing edge.

    Args:
        thickness: Maximum thickness, as a fraction of the chord.
        camber: Maximum height of the mean line, as a fraction of the chord.
        camber_at: Position of the maximum camber along the chord.
    """

    def half(x: np.ndarray) -> np.ndarray:
        polynomial = -0.1260 * x - 0.3516 * x**2 + 0.2843 * x**3 - 0.1036 * x**4
        return 5 * thickness * (0.2969 * np.sqrt(x) + polynomial)

    def mean(x: np.ndarray) -> np.ndarray:
        front = camber / camber_at**2 * (2 * camber_at * x - x**2)
        behind = camber / (1 - camber_at) ** 2 * (1 - 2 * camber_at + 2 * camber_at * x - x**2)
        return np.where(x < camber_at, front, behind)

    return Section(lambda x: mean(x) + half(x), lambda x: mean(x) - half(x))


def named_section(text: str) -> Section:
    """Returns a NACA section from its four digits, or reads a section from a file."""
    if len(text) == 4 and text.isdigit():
        camber, at, thickness = int(text[0]) / 100, int(text[1]) / 10, int(text[2:]) / 100
        return naca(thickness, camber, at or 0.4)
    if not Path(text).is_file():
        raise ValueError(
            f"`section` must be the four digits of a NACA section or a file, got {text!r}. "
            "Example: 0012."
        )
    return read_section(Path(text))


def read_section(path: Path) -> Section:
    """Reads a section from lines of x and y.

    Points go from the trailing edge along the upper surface to the nose and back along the lower
    surface. Lines other than two numbers, such as a title, are skipped. The section is shifted and
    scaled to a chord of one; an open trailing edge is closed by a wedge.
    """
    points = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        words = line.replace(",", " ").split()
        try:
            point = [float(word) for word in words]
        except ValueError:
            continue
        if len(point) == 2:
            points.append(point)
    outline = np.array(points)
    if len(outline) < 10:
        problem = f"must have at least 10 lines of two numbers, got {len(outline)}."
        raise DataError(path, "section", problem)
    nose = int(outline[:, 0].argmin())
    outline = (outline - outline[nose]) / np.ptp(outline[:, 0])
    upper, lower = outline[nose::-1], outline[nose:]
    for side in (upper, lower):
        if len(side) < 5 or not (np.diff(side[:, 0]) > 0).all():
            raise DataError(
                path, "section",
                "must go from the trailing edge along the upper surface to the nose and back along "
                "the lower surface, with x decreasing and then increasing.",
            )  # fmt: skip
    gap = upper[-1, 1] - lower[-1, 1]
    if gap < 0:
        upper, lower, gap = lower, upper, -gap
    return Section(_interpolate_surface(upper, -gap / 2), _interpolate_surface(lower, gap / 2))


def deformed(section: Section, generator: np.random.Generator, strength: float) -> Section:
    """Returns a smooth random variation of a section.

    Args:
        section: The undeformed section.
        generator: Random number generator.
        strength: Standard deviation of the change of each shape function, whose value is about
            0.17 for NACA 0012.
    """
    while True:
        up, down = (_bernstein(generator.normal(0, strength, 6)) for _ in range(2))
        changed = Section(
            lambda x, up=up: section.upper(x) + np.sqrt(x) * (1 - x) * up(x),
            lambda x, down=down: section.lower(x) + np.sqrt(x) * (1 - x) * down(x),
        )
        x = np.linspace(0.02, 0.9, 89)
        if (changed.upper(x) - changed.lower(x) > 2 * MIN_THICKNESS * np.sqrt(x) * (1 - x)).all():
            return changed


def c_mesh(
    section: Section,
    num_around: int = 220,
    num_out: int = 50,
    *,
    radius: float = 25.0,
    first: float = 0.75,
) -> np.ndarray:
    """Returns mesh nodes with axes (around, out, 2).

    The first axis runs from downstream below the wake, around the airfoil, to downstream above the
    wake. Nodes at index 0 of the second axis lie on the wake, the airfoil, and the wake again;
    those on the wake occur twice, once from below and once from above.

    Args:
        section: The airfoil.
        num_around: Number of cells around; `num_wake` of them at either end lie along the wake.
        num_out: Number of cells from the airfoil to the outer boundary.
        radius: Distance of the outer boundary from the nose, upstream and downstream.
        first: Height of the cells next to the airfoil, in units of 1 / num_out.
    """
    num_wake_cells = num_wake(num_around)
    num_body_cells = num_around // 2 - num_wake_cells
    fraction = np.linspace(0, 1, num_body_cells + 1)
    x = ((1 + TRAILING_EDGE_CLUSTERING) * fraction - TRAILING_EDGE_CLUSTERING * fraction**3) ** 2
    upper, lower = (x + 1j * side(x) for side in (section.upper, section.lower))
    upper[-1] = lower[-1] = (upper[-1] + lower[-1]) / 2
    wake = _wake(upper, lower, num_wake_cells, radius)
    nose_radius, tilt = section.nose
    focus = nose_radius / 2 + 1j * tilt * np.sqrt(nose_radius / 2)
    outline = np.concatenate([wake[::-1], lower[::-1], upper[1:], wake]) - focus
    angle = np.unwrap(np.angle(outline))
    angle += np.angle(outline[-1]) - angle[-1]
    unfolded = np.sqrt(2 * np.abs(outline)) * np.exp(0.5j * angle)
    outer = np.sqrt(2 * radius)
    heights = (
        np.concatenate([[0], np.cumsum(_geometric_spacing(first / num_out, num_out, outer))])[None]
        / outer
    )
    bump = unfolded.imag[:, None]
    lines = unfolded.real[:, None] + 1j * (bump + (outer - bump) * heights)
    nodes = focus + lines**2 / 2
    return np.stack([nodes.real, nodes.imag], -1)


def num_wake(num_around: int) -> int:
    """Returns the number of cells along the wake at either end of a mesh line; it is even."""
    return 2 * round(num_around * 3 / 44)


def merge_wake_nodes(num_around: int, num_out: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the indices of nodes without duplicates on the wake, and each node's new index.

    Args:
        num_around: Number of cells around the airfoil.
        num_out: Number of cells from the airfoil outwards.
    """
    numbers = np.arange((num_around + 1) * (num_out + 1)).reshape(num_around + 1, num_out + 1)
    wake = num_wake(num_around)
    numbers[num_around - wake :, 0] = numbers[wake::-1, 0]
    kept, renumbered = np.unique(numbers, return_inverse=True)
    return kept, renumbered.reshape(numbers.shape)


def mesh_triangles(num_around: int, num_out: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the indices of unique nodes as in `merge_wake_nodes`, and triangles between them."""
    kept, numbers = merge_wake_nodes(num_around, num_out)
    a, b = numbers[:-1, :-1].ravel(), numbers[1:, :-1].ravel()
    c, d = numbers[1:, 1:].ravel(), numbers[:-1, 1:].ravel()
    return kept, np.concatenate([np.stack([a, b, c], 1), np.stack([a, c, d], 1)])


def _interpolate_surface(points: np.ndarray, closing: float) -> Surface:
    """Returns a smooth curve through points, interpolated in sqrt(x), where a round nose is linear.

    Args:
        points: Rows of x and y, from the nose to the trailing edge.
        closing: Height added at the trailing edge, linear in x.
    """
    curve = PchipInterpolator(np.sqrt(points[:, 0]), points[:, 1])
    return lambda x: curve(np.sqrt(x)) + closing * x


def _bernstein(coefficients: np.ndarray) -> Surface:
    orders = np.arange(len(coefficients))
    return lambda x: binom.pmf(orders, len(coefficients) - 1, x[..., None]) @ coefficients


def _wake(upper: np.ndarray, lower: np.ndarray, count: int, radius: float) -> np.ndarray:
    """Returns points on a wake that leaves along the trailing edge's bisector and turns level."""
    tail = upper[-1]
    directions = tail - np.array([upper[-2], lower[-2]])
    slope = np.tan(np.angle(directions / np.abs(directions)).mean())
    distance = np.cumsum(_geometric_spacing(float(abs(directions[0])), count, radius))
    return tail + distance + 1j * slope * (1 - np.exp(-distance))


def _geometric_spacing(first: float, count: int, total: float) -> np.ndarray:
    """Returns a geometric sequence of lengths that starts with `first` and sums to `total`."""
    steps = np.arange(count)
    ratio = brentq(lambda ratio: first * (ratio**steps).sum() - total, 0.5, 5)
    return first * np.power(float(ratio), steps)  # type: ignore[arg-type]
