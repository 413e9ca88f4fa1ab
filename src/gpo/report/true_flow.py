"""The true velocity of a field, where it is known, to compare with displacements of particles."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from gpo.data.geometry import Geometry
from gpo.evaluation.flow import velocity
from gpo.forecast.examples import Example


@dataclass(frozen=True)
class TrueFlow:
    """Velocity at the sites, along the drawn axes, and that of other examples as a control."""

    velocity: Float[np.ndarray, "points axes"]
    controls: list[np.ndarray] = field(default_factory=list)
    """Velocities of other examples at the same sites."""

    @classmethod
    def of(
        cls,
        example: Example,
        geometry: Geometry,
        names: Sequence[str],
        controls: Sequence[Example] = (),
    ) -> "TrueFlow | None":
        """Returns the velocity of the last input frame; None where it is not known.

        Args:
            example: The example; its first sample is read.
            geometry: The sites.
            names: Names of the input variables.
            controls: Other examples at the same sites.
        """
        first, *others = (_drawn_velocity(e, geometry, names) for e in (example, *controls))
        if first is None:
            return None
        return cls(first, [velocity for velocity in others if velocity is not None])

    def correlations(
        self, displacement: Float[np.ndarray, "points axes"], weights: Float[np.ndarray, " points"]
    ) -> tuple[float, float | None]:
        """Returns the vector correlation of displacements and velocity, and its mean over controls.

        Args:
            displacement: Displacements along the drawn axes.
            weights: Quadrature weights; 0 excludes a site.
        """
        controls = [_correlation(displacement, control, weights) for control in self.controls]
        mean = float(np.mean(controls)) if controls else None
        return _correlation(displacement, self.velocity, weights), mean

    def describe(self, displacement: np.ndarray, weights: np.ndarray) -> str:
        """Returns both correlations in words."""
        correlation, mean = self.correlations(displacement, weights)
        control = "" if mean is None else f"\n(with that of other examples {mean:+.2f})"
        return f"correlation with velocity {correlation:+.2f}{control}"


def _drawn_velocity(
    example: Example, geometry: Geometry, names: Sequence[str]
) -> np.ndarray | None:
    fields = example.fields[0, -1].double().numpy()
    if len(fields) != geometry.num_points:
        return None
    vectors = velocity(geometry, fields, names)
    if vectors is None or geometry.domain.is_sphere:
        return vectors
    return np.concatenate([vectors[:, list(geometry.plot_axes)], vectors[:, 2:]], -1)


def _correlation(first: np.ndarray, second: np.ndarray, weights: np.ndarray) -> float:
    is_known = (weights > 0) & np.isfinite(first).all(-1) & np.isfinite(second).all(-1)
    q = weights[is_known]
    first, second = first[is_known], second[is_known]
    products, squares = ((q @ (a * b)).sum() for a, b in ((first, second), (first, first)))
    size = np.sqrt(squares * (q @ second**2).sum())
    return float(products / size) if size > 0 else 0.0
