"""Null distributions of rank correlations over sites.

Neighbouring sites are correlated, so two unrelated smooth fields correlate by chance far more than
independent numbers would. On a complete grid one field is therefore translated against the other;
elsewhere its sites are permuted one by one.
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
FEWEST_DRAWS, MAX_NUMBERS = 39, 2**25
"""Fewer draws are made on many sites: draws times sites stay below this, but for the fewest draws
that leave a number outside a band of 95 %."""
Kind = Literal["translation", "wrapped translation", "permutation"]
MEANINGS: dict[Kind, str] = {
    "translation": "one field moved by random distances along closed axes; correlations between "
    "neighbours are kept",
    "wrapped translation": "one field moved by random distances, what leaves at an end comes in at "
    "the other; correlations between neighbours are kept but for that seam",
    "permutation": "sites shuffled one by one; correlations between neighbours are lost, so the "
    "band is too narrow and p too small where fields are smooth",
}
"""How the null was drawn, in words."""
FEWEST_EXAMPLES = 5
"""Examples from which on there are enough ways to exchange their velocities for a band of 95 %."""
CHUNK = 2**20
"""Sites of all draws that are moved at a time."""
NullKind = Literal["translation", "wrapped translation", "permutation", "other examples"]
EXCHANGED = "the velocity of other examples at the same sites, exchanged at random; examples that follow each other in time are alike, so the band may be too wide"  # fmt: skip


@dataclass(frozen=True)
class Null:
    """Rearrangements of the values of sites."""

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
        """Draws translations of a grid that is used as a whole, else permutations of used sites."""
        num_draws = min(NUM_DRAWS, max(FEWEST_DRAWS, MAX_NUMBERS // len(is_used)))
        if geometry.axes and is_used.all():
            wraps = geometry.wraps()
            moved = [axis for axis, closes in enumerate(wraps) if closes] or range(len(wraps))
            numbers = np.arange(geometry.num_points).reshape(geometry.grid_shape)
            sizes = [geometry.grid_shape[axis] for axis in moved]
            shifts = generator.integers(0, sizes, (num_draws, len(sizes)))
            orders = [np.roll(numbers, shift, tuple(moved)).ravel() for shift in shifts]
            kind: Kind = "translation" if any(wraps) else "wrapped translation"
            return cls(kind, np.stack(orders))
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
    """Lower end of the band that holds 95 % of the draws."""
    high: float
    p: float
    """Two-sided p-value: twice the fraction of draws as far out on the same side; never zero."""

    @classmethod
    def of(cls, value: float, draws: Float[np.ndarray, " draws"]) -> "Comparison":
        """Compares a number with draws from its null."""
        low, high = np.quantile(draws, [0.025, 0.975])
        # Draws that repeat the number itself, give or take rounding, count.
        slack = 1e-9 * max(abs(value), 1e-300)
        fewer = min((draws >= value - slack).sum(), (draws <= value + slack).sum())
        p = min(1.0, 2 * (1 + fewer) / (1 + len(draws)))
        return cls(float(value), float(low), float(high), float(p))


def rank_test(
    firsts: Sequence[np.ndarray],
    seconds: Sequence[np.ndarray],
    nulls: Sequence[Null],
) -> Comparison | None:
    """Returns Spearman's correlation over sites, the mean over examples, with its null.

    Sites where either field is NaN do not count.

    Args:
        firsts: A field per example, one number per site; examples may have different sites.
        seconds: Another one; it is moved.
        nulls: How, for each example; examples of one place share theirs, since what is tied to
            that place is no news in the second example.

    Returns:
        None where a field is the same everywhere, so that nothing can be ranked.
    """
    values, draws = [], []
    for first, second, null in zip(firsts, seconds, nulls, strict=True):
        value = spearman(first, second)
        if value is None:
            return None
        values.append(value)
        draws.append(_moved(first, second, null.orders))
    return Comparison.of(float(np.mean(values)), np.mean(draws, axis=0))


def _moved(first: np.ndarray, second: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """Returns the correlation for every order of the second field; zero where there is none."""
    is_known = np.isfinite(first)
    if not np.isfinite(second[is_known]).all():
        return np.array([spearman(first, second[order]) or 0.0 for order in orders])
    one = _centered_ranks(first[is_known])
    if is_known.all():
        # No site drops out, so ranks move with their values.
        others = _centered_ranks(second)[orders]
    else:
        others = _centered_ranks(second[orders[:, is_known]])
    sizes = np.sqrt((one @ one) * (others**2).sum(-1))
    return others @ one / np.where(sizes > 0, sizes, 1.0)


def spearman(
    first: Float[np.ndarray, " points"], second: Float[np.ndarray, " points"]
) -> float | None:
    """Returns the rank correlation where both are known; None where one is the same everywhere."""
    is_known = np.isfinite(first) & np.isfinite(second)
    one, other = _centered_ranks(first[is_known]), _centered_ranks(second[is_known])
    size = np.sqrt((one @ one) * (other @ other))
    return float(one @ other / size) if size > 0 else None


def _centered_ranks(values: np.ndarray) -> np.ndarray:
    ranks = rankdata(values, axis=-1)
    return ranks - ranks.mean(-1, keepdims=True) if values.size else ranks


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
