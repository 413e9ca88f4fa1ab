"""The true velocity of a field beside the motion of particles, where it is known."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from gpo.data.geometry import Geometry
from gpo.forecast.examples import Example
from gpo.interpretation.flow import velocity


@dataclass(frozen=True)
class TrueFlow:
    """Velocity at the sites, by the drawn axes, and that of other examples as a control."""

    velocity: Float[np.ndarray, "points axes"]
    others: list[np.ndarray] = field(default_factory=list)
    """The velocity of other examples at the same sites."""

    @classmethod
    def of(
        cls,
        example: Example,
        geometry: Geometry,
        names: Sequence[str],
        others: Sequence[Example] = (),
    ) -> "TrueFlow | None":
        """Reads the velocity of the last input frame; None where none is known.

        Args:
            example: Its first sample is read.
            geometry: The sites.
            names: Of the variables of its fields.
            others: Examples at the same sites.
        """
        found = [_drawn_velocity(part, geometry, names) for part in (example, *others)]
        if found[0] is None:
            return None
        return cls(found[0], [part for part in found[1:] if part is not None])

    def correlations(
        self, ways: Float[np.ndarray, "points axes"], quadrature: Float[np.ndarray, " points"]
    ) -> tuple[float, float | None]:
        """Returns the vector correlation with displacements, and the mean of that with other examples.

        Args:
            ways: Displacements by the drawn axes.
            quadrature: Weights of the sites; 0 leaves one out.
        """
        controls = [_correlation(ways, other, quadrature) for other in self.others]
        mean = float(np.mean(controls)) if controls else None
        return _correlation(ways, self.velocity, quadrature), mean

    def told(self, ways: np.ndarray, quadrature: np.ndarray) -> str:
        """Returns both correlations in words."""
        mine, others = self.correlations(ways, quadrature)
        control = "" if others is None else f"\n(with that of other examples {others:+.2f})"
        return f"correlation with velocity {mine:+.2f}{control}"


def _drawn_velocity(
    example: Example, geometry: Geometry, names: Sequence[str]
) -> np.ndarray | None:
    raw = example.fields[0, -1].double().numpy()
    if len(raw) != geometry.num_points:
        return None
    found = velocity(geometry, raw, names)
    if found is None or geometry.domain.is_sphere:
        return found
    return np.concatenate([found[:, list(geometry.drawn_axes)], found[:, 2:]], -1)


def _correlation(first: np.ndarray, second: np.ndarray, quadrature: np.ndarray) -> float:
    is_known = (quadrature > 0) & np.isfinite(first).all(-1) & np.isfinite(second).all(-1)
    q = quadrature[is_known]
    first, second = first[is_known], second[is_known]
    products, squares = ((q @ (a * b)).sum() for a, b in ((first, second), (first, first)))
    size = np.sqrt(squares * (q @ second**2).sum())
    return float(products / size) if size > 0 else 0.0
