"""Null distributions of rank correlations over sites.

Neighbouring sites are correlated, so two unrelated smooth fields correlate by chance far more than
independent numbers would. On a complete grid one field is therefore translated against the other;
elsewhere its sites are permuted one by one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

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
