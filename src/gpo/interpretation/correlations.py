r"""Rank correlations of fields and vector correlations of displacements, with null distributions.

Neighbouring sites are correlated, so two unrelated smooth fields correlate by chance far more than
independent numbers would. On a complete grid the null therefore translates one field against the
other; elsewhere it permutes the sites. A displacement $\delta$ is compared with a velocity $u$ by
$r=\sum_jq_j\,\delta_j\cdot u_j\big/\sqrt{\sum_jq_j|\delta_j|^2\sum_jq_j|u_j|^2}$, the mean over examples; without
a complete grid, its null exchanges the velocities of examples on the same sites.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.stats import rankdata

from gpo.data.geometry import Geometry

NUM_DRAWS = 200
"""Draws from the null of every test."""
MIN_DRAWS, MAX_VALUES = 39, 2**25
"""Many sites reduce the number of draws so that draws times sites stay below the second; the first
is the fewest for which a number can lie outside a band of 95 %."""
MIN_EXAMPLES = 5
"""Examples whose permutations are enough for a band of 95 %."""
CHUNK = 2**20
"""Sites of all draws that are processed at a time."""

Kind = Literal["translation", "wrapped translation", "permutation"]
VelocityKind = Literal["translation", "wrapped translation", "permutation", "other examples"]

MEANINGS: dict[VelocityKind, str] = {
    "translation": "one field is translated by random distances along periodic axes; correlations "
    "between neighbours are kept",
    "wrapped translation": "one field is translated by random distances and wrapped around at the "
    "ends; correlations between neighbours are kept except at that seam",
    "permutation": "sites are permuted at random; correlations between neighbours are lost, so the "
    "band is too narrow and p too small for smooth fields",
    "other examples": "velocities of examples at the same sites are exchanged at random; consecutive "
    "examples are similar, so the band may be too wide",
}
"""How the null was drawn."""


@dataclass(frozen=True)
class Null:
    """Random rearrangements of the values at sites."""

    kind: Kind
    orders: Int[np.ndarray, "draws points"]
    """For every draw and site, the site whose value is put there."""

    @classmethod
    def of(
        cls,
        geometry: Geometry,
        is_used: Bool[np.ndarray, " points"],
        generator: np.random.Generator,
    ) -> "Null":
        """Draws translations if all sites of a grid are used, else permutations of the used sites."""
        num_draws = min(NUM_DRAWS, max(MIN_DRAWS, MAX_VALUES // len(is_used)))
        if geometry.axes and is_used.all():
            wraps = geometry.wraps()
            axes = [axis for axis, is_periodic in enumerate(wraps) if is_periodic] or range(len(wraps))  # fmt: skip
            numbers = np.arange(geometry.num_points).reshape(geometry.grid_shape)
            sizes = [geometry.grid_shape[axis] for axis in axes]
            shifts = generator.integers(0, sizes, (num_draws, len(sizes)))
            orders = [np.roll(numbers, shift, tuple(axes)).ravel() for shift in shifts]
            return cls("translation" if any(wraps) else "wrapped translation", np.stack(orders))
        used, orders = np.flatnonzero(is_used), []
        for _ in range(num_draws):
            order = np.arange(len(is_used))
            order[used] = generator.permutation(used)
            orders.append(order)
        return cls("permutation", np.stack(orders))


@dataclass(frozen=True)
class Comparison:
    """A number with its null distribution."""

    value: float
    low: float
    """Lower end of the band that contains 95 % of the draws."""
    high: float
    p: float
    """Two-sided p-value: twice the fraction of draws at least as extreme; never zero."""

    @classmethod
    def of(cls, value: float, draws: Float[np.ndarray, " draws"]) -> "Comparison":
        """Compares a number with draws from its null."""
        low, high = np.quantile(draws, [0.025, 0.975])
        # Draws that equal the number up to rounding count as extreme.
        slack = 1e-9 * max(abs(value), 1e-300)
        num_extreme = min((draws >= value - slack).sum(), (draws <= value + slack).sum())
        p = min(1.0, 2 * (1 + num_extreme) / (1 + len(draws)))
        return cls(float(value), float(low), float(high), float(p))


def rank_test(
    firsts: Sequence[np.ndarray],
    seconds: Sequence[np.ndarray],
    nulls: Sequence[Null],
) -> Comparison | None:
    """Returns Spearman's correlation over sites, the mean over examples, with its null.

    Sites where either field is NaN are left out.

    Args:
        firsts: A field per example, one number per site; examples may have different sites.
        seconds: Another one, which is rearranged.
        nulls: The rearrangements of each example. Examples on the same sites share theirs, because
            a relation that is fixed to the sites is no independent evidence in a second example.

    Returns:
        None if a field is constant, so that nothing can be ranked.
    """
    values, draws = [], []
    for first, second, null in zip(firsts, seconds, nulls, strict=True):
        value = spearman(first, second)
        if value is None:
            return None
        values.append(value)
        draws.append(_rearranged(first, second, null.orders))
    return Comparison.of(float(np.mean(values)), np.mean(draws, axis=0))


def _rearranged(first: np.ndarray, second: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """Returns the correlation for every order of the second field; zero if it is undefined."""
    is_known = np.isfinite(first)
    if not np.isfinite(second[is_known]).all():
        return np.array([spearman(first, second[order]) or 0.0 for order in orders])
    ranks = _centered_ranks(first[is_known])
    if is_known.all():
        # No site is left out, so ranks can be rearranged instead of values.
        others = _centered_ranks(second)[orders]
    else:
        others = _centered_ranks(second[orders[:, is_known]])
    sizes = np.sqrt((ranks @ ranks) * (others**2).sum(-1))
    return others @ ranks / np.where(sizes > 0, sizes, 1.0)


def spearman(
    first: Float[np.ndarray, " points"], second: Float[np.ndarray, " points"]
) -> float | None:
    """Returns the rank correlation where both are finite; None if one of them is constant."""
    is_known = np.isfinite(first) & np.isfinite(second)
    ranks, others = _centered_ranks(first[is_known]), _centered_ranks(second[is_known])
    size = np.sqrt((ranks @ ranks) * (others @ others))
    return float(ranks @ others / size) if size > 0 else None


def _centered_ranks(values: np.ndarray) -> np.ndarray:
    ranks = rankdata(values, axis=-1)
    return ranks - ranks.mean(-1, keepdims=True) if values.size else ranks


@dataclass
class VelocityMatch:
    """Displacements and velocities of examples, to be compared."""

    displacements: list[Float[np.ndarray, "points gaussians axes"]] = field(default_factory=list)
    velocities: list[Float[np.ndarray, "points axes"]] = field(default_factory=list)
    weights: list[Float[np.ndarray, " points"]] = field(default_factory=list)
    """Quadrature weights; 0 at sites that are left out."""
    geometries: list[Geometry] = field(default_factory=list)

    def add(
        self,
        displacement: Float[np.ndarray, "points gaussians axes"],
        velocity: Float[np.ndarray, "points axes"],
        weights: Float[np.ndarray, " points"],
        geometry: Geometry,
    ) -> None:
        """Adds an example; sites with a non-finite velocity are left out."""
        is_known = np.asarray(np.isfinite(velocity).all(-1)) & (weights > 0)
        self.displacements.append(np.where(is_known[:, None, None], displacement, 0.0))
        self.velocities.append(np.where(is_known[:, None], velocity, 0.0))
        self.weights.append(np.where(is_known, weights, 0.0))
        self.geometries.append(geometry)

    @property
    def has_same_sites(self) -> bool:
        """Whether all examples are on the same sites."""
        return all(geometry is self.geometries[0] for geometry in self.geometries)

    def kind(self) -> VelocityKind:
        """Returns how the null is drawn: translations of complete grids, else exchanged examples."""
        is_complete = all((row > 0).all() for row in self.weights)
        if is_complete and all(geometry.axes for geometry in self.geometries):
            return "translation" if any(self.geometries[0].wraps()) else "wrapped translation"
        if self.has_same_sites and len(self.displacements) >= MIN_EXAMPLES:
            return "other examples"
        return "permutation"

    def describe(
        self, generator: np.random.Generator
    ) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Returns how the null was drawn, and the correlation of every particle with its band.

        Args:
            generator: Draws the null.
        """
        kind, table = self.kind(), self._table()
        draws = self._exchanged(table, generator) if kind == "other examples" else self._rearranged(generator)  # fmt: skip
        own = np.mean(
            [
                correlations(displacement, velocity[None], q)[0]
                for displacement, velocity, q in zip(
                    self.displacements, self.velocities, self.weights, strict=True
                )
            ],
            axis=0,
        )
        rows = []
        for particle, values in enumerate(draws.T):
            compared = Comparison.of(float(own[particle]), values)
            pairs = itertools.permutations(range(len(table)), 2)
            others = [table[first, second, particle] for first, second in pairs]
            rows.append({
                "velocity_correlation": compared.value, "low": compared.low,
                "high": compared.high, "p": compared.p,
                "other_examples": float(np.mean(others)) if others else None,
            })  # fmt: skip
        return {"null": kind, "null_means": MEANINGS[kind], "num_draws": len(draws)}, rows

    def _table(self) -> Float[np.ndarray, "displacements velocities gaussians"]:
        """Returns the correlation of every displacement with every velocity; empty if sites differ."""
        if not self.has_same_sites:
            return np.zeros((0, 0, self.displacements[0].shape[1]))
        velocities = np.stack(self.velocities)
        pairs = zip(self.displacements, self.weights, strict=True)
        return np.stack([correlations(vectors, velocities, q) for vectors, q in pairs])

    def _exchanged(self, table: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Returns the means over examples with velocities exchanged at random."""
        count = len(table)
        orders = [generator.permutation(count) for _ in range(NUM_DRAWS)]
        return np.stack([table[np.arange(count), order].mean(0) for order in orders])

    def _rearranged(self, generator: np.random.Generator) -> Float[np.ndarray, "draws gaussians"]:
        """Returns the means over examples with velocities rearranged, alike on the same sites."""
        draws, null, last = [], None, None
        for displacement, velocity, q, geometry in zip(
            self.displacements, self.velocities, self.weights, self.geometries, strict=True
        ):
            if null is None or geometry is not last:
                null, last = Null.of(geometry, q > 0, generator), geometry
            step = max(1, CHUNK // len(velocity))
            chunks = [null.orders[n : n + step] for n in range(0, len(null.orders), step)]
            rows = [correlations(displacement, velocity[orders], q) for orders in chunks]
            draws.append(np.concatenate(rows))
        return np.mean(draws, axis=0)


def correlations(
    displacement: Float[np.ndarray, "points gaussians axes"],
    velocities: Float[np.ndarray, "velocities points axes"],
    weights: Float[np.ndarray, " points"],
) -> Float[np.ndarray, "velocities gaussians"]:
    """Returns the vector correlation of every particle with every velocity; 0 if one is zero."""
    num_points, num_gaussians, num_axes = displacement.shape
    columns = (displacement * weights[:, None, None]).swapaxes(1, 2).reshape(-1, num_gaussians)
    products = velocities.reshape(len(velocities), num_points * num_axes) @ columns
    lengths = np.einsum("nga,nga,n->g", displacement, displacement, weights)
    speeds = (velocities**2).sum(-1) @ weights
    sizes = np.sqrt(speeds[:, None] * lengths)
    return products / np.where(sizes > 0, sizes, 1.0)
