r"""Airfoil sections and C-meshes around them.

A section is given by the NACA formula, a file, or a smooth random deformation of either. It has
chord one, from the leading edge at x = 0 to a closed trailing edge at x = 1. Its surfaces are
$y_\pm(x)=\sqrt x\,(1-x)\,s_\pm(x)+x\,y_1$ with smooth $s_\pm$ and the height $y_1$ of the trailing
edge, so that a change of $s_\pm$ keeps the nose round and the trailing edge sharp.

The mesh wraps around the section like the letter C, in sheared parabolic coordinates.
$z=z_0+\zeta^2/2$ with $z=x+iy$ opens the plane, cut from a point $z_0$ inside the nose to
infinity downstream, into the half plane $\mathrm{Im}\,\zeta>0$. Airfoil and wake become one
shallow bump above the real axis; mesh lines go straight up from it to the outer boundary, a
parabola around the airfoil. The map is conformal, so cells are nearly rectangular.
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
"""Heights by place along the chord."""
THINNEST = 0.03
"""The least thickness at mid chord that a deformed section may have."""
TAIL = 0.4
"""How much nodes gather towards the trailing edge, from 0 to below 1/2."""


@dataclass(frozen=True)
class Section:
    """Both surfaces of an airfoil."""

    upper: Surface
    lower: Surface

    @property
    def nose(self) -> tuple[float, float]:
        r"""Radius of the leading edge, and $\lim y_m/\sqrt x$ there of the mean line $y_m$."""
        x = np.array([1e-4])
        up, down = (float(side(x)[0]) / 1e-2 for side in (self.upper, self.lower))
        return ((up - down) / 2) ** 2 / 2, (up + down) / 2


def naca(thickness: float = 0.12, camber: float = 0.0, camber_at: float = 0.4) -> Section:
    """Returns a section of the four-digit family with a closed trailing edge.

    Args:
        thickness: Greatest thickness, as a part of the chord.
        camber: Greatest height of the mean line.
        camber_at: Where along the chord that is.
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
    """Returns a section named by four digits, or the one of a file."""
    if len(text) == 4 and text.isdigit():
        camber, at, thickness = int(text[0]) / 100, int(text[1]) / 10, int(text[2:]) / 100
        return naca(thickness, camber, at or 0.4)
    if not Path(text).is_file():
        raise ValueError(
            f"`section` must be the four digits of a NACA section or a file, got {text!r}."
        )
    return read_section(Path(text))


def read_section(path: Path) -> Section:
    """Reads points x, y from the trailing edge over the top to the nose and back below.

    Lines that are not two numbers, such as a title, are skipped. The section is moved and
    scaled to chord one; an open trailing edge is closed by a wedge.
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
                "must go from the trailing edge over the top to the nose and back below, "
                "x falling and then rising.",
            )  # fmt: skip
    gap = upper[-1, 1] - lower[-1, 1]
    if gap < 0:
        upper, lower, gap = lower, upper, -gap
    return Section(_through(upper, -gap / 2), _through(lower, gap / 2))


def deformed(section: Section, generator: np.random.Generator, strength: float) -> Section:
    """Returns a smooth random variation of a section.

    Args:
        section: What is varied.
        generator: Source of randomness.
        strength: Standard deviation of the changes of either surface's shape function, which
            is about 0.17 for NACA 0012.
    """
    while True:
        up, down = (_bernstein(generator.normal(0, strength, 6)) for _ in range(2))
        changed = Section(
            lambda x, up=up: section.upper(x) + np.sqrt(x) * (1 - x) * up(x),
            lambda x, down=down: section.lower(x) + np.sqrt(x) * (1 - x) * down(x),
        )
        x = np.linspace(0.02, 0.9, 89)
        if (changed.upper(x) - changed.lower(x) > 2 * THINNEST * np.sqrt(x) * (1 - x)).all():
            return changed


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
    fraction = np.linspace(0, 1, body_cells + 1)
    x = ((1 + TAIL) * fraction - TAIL * fraction**3) ** 2
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


def _through(points: np.ndarray, closing: float) -> Surface:
    """Returns a smooth curve through points; in the square root of x a round nose is straight."""
    curve = PchipInterpolator(np.sqrt(points[:, 0]), points[:, 1])
    return lambda x: curve(np.sqrt(x)) + closing * x


def _bernstein(coefficients: np.ndarray) -> Surface:
    numbers = np.arange(len(coefficients))
    return lambda x: binom.pmf(numbers, len(coefficients) - 1, x[..., None]) @ coefficients


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
