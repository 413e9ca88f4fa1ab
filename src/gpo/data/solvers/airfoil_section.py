r"""Airfoil sections: the NACA formula, sections from a file, and smooth random deformations.

A section has chord one, from the leading edge at x = 0 to a closed trailing edge at x = 1. Its
surfaces are $y_\pm(x)=\sqrt x\,(1-x)\,s_\pm(x)+x\,y_1$ with smooth $s_\pm$ and the height $y_1$
of the trailing edge, so that a change of $s_\pm$ keeps the nose round and the tail sharp.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.stats import binom

from gpo.data.errors import DataError

Surface = Callable[[np.ndarray], np.ndarray]
"""Heights by place along the chord."""

THINNEST = 0.03
"""The least thickness at mid chord that a deformed section may have."""


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
    """Reads pairs x, y from the trailing edge over the top to the nose and back below.

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


def _through(points: np.ndarray, closing: float) -> Surface:
    """Returns a smooth curve through points; in the square root of x a round nose is straight."""
    curve = PchipInterpolator(np.sqrt(points[:, 0]), points[:, 1])
    return lambda x: curve(np.sqrt(x)) + closing * x


def _bernstein(coefficients: np.ndarray) -> Surface:
    numbers = np.arange(len(coefficients))
    return lambda x: binom.pmf(numbers, len(coefficients) - 1, x[..., None]) @ coefficients
