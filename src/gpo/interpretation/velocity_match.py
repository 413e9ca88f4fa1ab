r"""Is a displacement the velocity of the flow? Vector correlations, each with its null.

$r=\sum_jq_j\,\delta_j\cdot u_j\big/\sqrt{\sum_jq_j|\delta_j|^2\sum_jq_j|u_j|^2}$, the mean over examples. In
the null the velocity is moved against the displacement: over a whole grid, on a globe along its
longitudes; elsewhere it is that of another example at the same sites.
"""

import itertools
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from gpo.data.geometry import Geometry
from gpo.interpretation.null import MEANINGS, NUM_DRAWS, Comparison, Null

FEWEST_EXAMPLES = 5
"""Examples from which on there are enough ways to exchange their velocities for a band of 95 %."""

CHUNK = 2**20
"""Sites of all draws that are moved at a time."""

NullKind = Literal["translation", "wrapped translation", "permutation", "other examples"]
EXCHANGED = "the velocity of other examples at the same sites, exchanged at random; examples that follow each other in time are alike, so the band may be too wide"  # fmt: skip


@dataclass
class VelocityMatch:
    """Displacements and velocities of examples, to be compared."""

    ways: list[Float[np.ndarray, "points gaussians axes"]] = field(default_factory=list)
    flows: list[Float[np.ndarray, "points axes"]] = field(default_factory=list)
    weights: list[Float[np.ndarray, " points"]] = field(default_factory=list)
    """Quadrature weights; 0 where a site does not count."""
    geometries: list[Geometry] = field(default_factory=list)

    def add(
        self,
        way: Float[np.ndarray, "points gaussians axes"],
        flow: Float[np.ndarray, "points axes"],
        weights: Float[np.ndarray, " points"],
        geometry: Geometry,
    ) -> None:
        """Takes down one example; sites whose velocity is not finite do not count."""
        is_known = np.asarray(np.isfinite(flow).all(-1)) & (weights > 0)
        self.ways.append(np.where(is_known[:, None, None], way, 0.0))
        self.flows.append(np.where(is_known[:, None], flow, 0.0))
        self.weights.append(np.where(is_known, weights, 0.0))
        self.geometries.append(geometry)

    @property
    def has_same_sites(self) -> bool:
        """Whether all examples are on the same sites."""
        return all(geometry is self.geometries[0] for geometry in self.geometries)

    def kind(self) -> NullKind:
        """Returns how the null is drawn: translations of whole grids, else exchanged examples."""
        is_whole = all((row > 0).all() for row in self.weights)
        if is_whole and all(geometry.axes for geometry in self.geometries):
            wraps = any(self.geometries[0].wraps())
            return "translation" if wraps else "wrapped translation"
        if self.has_same_sites and len(self.ways) >= FEWEST_EXAMPLES:
            return "other examples"
        return "permutation"

    def describe(
        self, generator: np.random.Generator
    ) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Returns how the null was drawn, and for every particle number its correlation with a band.

        Args:
            generator: Draws the null.
        """
        kind = self.kind()
        means = EXCHANGED if kind == "other examples" else MEANINGS[kind]
        table = self._table()
        draws = self._exchanged(table, generator) if kind == "other examples" else self._moved(generator)  # fmt: skip
        rows = []
        for particle, drawn in enumerate(draws.T):
            own = float(np.mean(table[np.arange(len(table)), np.arange(len(table)), particle])) if self.has_same_sites else self._own(particle)  # fmt: skip
            compared = Comparison.of(own, drawn)
            rows.append({
                "velocity_correlation": compared.value, "low": compared.low,
                "high": compared.high, "p": compared.p, "other_examples": self._others(table, particle),
            })  # fmt: skip
        return {"null": kind, "null_means": means, "num_draws": len(draws)}, rows

    def _own(self, particle: int) -> float:
        rows = zip(self.ways, self.flows, self.weights, strict=True)
        return float(np.mean([correlations(way, flow[None], q)[0, particle] for way, flow, q in rows]))  # fmt: skip

    def _table(self) -> Float[np.ndarray, "ways flows gaussians"]:
        """Returns the correlation of every example's displacement with every example's velocity."""
        if not self.has_same_sites:
            return np.zeros((0, 0, self.ways[0].shape[1]))
        flows = np.stack(self.flows)
        return np.stack([correlations(way, flows, q) for way, q in zip(self.ways, self.weights, strict=True)])  # fmt: skip

    def _others(self, table: np.ndarray, particle: int) -> float | None:
        """Returns the mean over all pairs of different examples; None where there are none."""
        pairs = list(itertools.permutations(range(len(table)), 2))
        return float(np.mean([table[one, other, particle] for one, other in pairs])) if pairs else None  # fmt: skip

    def _exchanged(self, table: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Returns the means over examples with velocities exchanged, in any order."""
        count = len(table)
        orders = [generator.permutation(count) for _ in range(NUM_DRAWS)]
        return np.stack([table[np.arange(count), order].mean(0) for order in orders])

    def _moved(self, generator: np.random.Generator) -> Float[np.ndarray, "draws gaussians"]:
        """Returns the means over examples with velocities moved, those of one place by one distance."""
        drawn, null, place = [], None, None
        for way, flow, q, geometry in zip(self.ways, self.flows, self.weights, self.geometries, strict=True):  # fmt: skip
            if null is None or geometry is not place:
                null, place = Null.of(geometry, q > 0, generator), geometry
            step = max(1, CHUNK // len(flow))
            chunks = [
                null.orders[first : first + step] for first in range(0, len(null.orders), step)
            ]
            drawn.append(np.concatenate([correlations(way, flow[some], q) for some in chunks]))
        return np.mean(drawn, axis=0)


def correlations(
    way: Float[np.ndarray, "points gaussians axes"],
    flows: Float[np.ndarray, "flows points axes"],
    weights: Float[np.ndarray, " points"],
) -> Float[np.ndarray, "flows gaussians"]:
    """Returns the vector correlation of every particle with every flow; 0 where one is zero."""
    num_points, num_gaussians, num_axes = way.shape
    columns = (way * weights[:, None, None]).swapaxes(1, 2).reshape(-1, num_gaussians)
    products = flows.reshape(len(flows), num_points * num_axes) @ columns
    lengths = np.einsum("nga,nga,n->g", way, way, weights)
    speeds = (flows**2).sum(-1) @ weights
    sizes = np.sqrt(speeds[:, None] * lengths)
    return products / np.where(sizes > 0, sizes, 1.0)
