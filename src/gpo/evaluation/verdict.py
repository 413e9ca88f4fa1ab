r"""The verdict on a run in one sentence: better than the references, worse, tied or unproven.

The error of an example has no units: $e=(\frac1V\sum_v \mathrm{mse}_v/\sigma_v^2)^{1/2}$ with the standard
deviation $\sigma_v$ of each variable in the training data. The model is compared with a reference by the
ratio $\sum e/\sum e_\mathrm{ref}$ and its confidence interval from a circular block bootstrap (Politis and
Romano 1992). Consecutive examples of a series are correlated, so blocks are resampled instead of single
examples. Blocks wrap around the end of a series, so all examples are drawn equally often. Intervals from
few blocks are too narrow; they are widened by the ratio of Student's t quantiles to normal quantiles.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri, stdtrit

from gpo.data.splits import TimeSlice

NUM_RESAMPLES = 2000
CONFIDENCE = 0.95
MIN_BLOCKS = 4
"""Minimum number of blocks, and of examples, for an interval."""

MAX_NAMED = 3
"""Maximum number of variables that a verdict names."""

Outcome = Literal["better", "worse", "tied", "unproven"]


@dataclass(frozen=True)
class Comparison:
    """The error of the model relative to that of a reference."""

    ratio: float
    """Below 1 the model is better; infinite where the reference has no error."""
    interval: tuple[float, float] | None
    """95 % confidence interval of the ratio; None where there are too few examples."""

    @property
    def outcome(self) -> Outcome:
        """Better or worse where the interval excludes 1."""
        if self.interval is None:
            return "unproven"
        low, high = self.interval
        return "better" if high < 1 else "worse" if low > 1 else "tied"


def compare(
    model: Float[np.ndarray, " examples"],
    reference: Float[np.ndarray, " examples"],
    series: Sequence[np.ndarray],
    seed: int = 0,
) -> Comparison:
    """Returns the ratio of summed errors with its confidence interval.

    Args:
        model: Error of the model on each example.
        reference: Error of the reference on each example.
        series: Indices of the examples of each series, in order of time; an independent example is a
            series of length one.
        seed: Seed of the bootstrap.
    """
    ratio = _ratio(model.sum(), reference.sum())
    if len(model) < MIN_BLOCKS:
        return Comparison(ratio, None)
    resamples = Resamples.of(np.stack([model, reference], 1), model - reference, series, seed)
    low, high = resamples.interval([_ratio(*sums) for sums in resamples.sums])
    factor = resamples.widening
    return Comparison(ratio, (_widened(low, ratio, factor), _widened(high, ratio, factor)))


@dataclass(frozen=True)
class Resamples:
    """Sums over examples that a circular block bootstrap draws."""

    sums: Float[np.ndarray, "resamples columns"]
    num_blocks: int
    """Number of blocks in each resample."""

    @classmethod
    def of(
        cls,
        columns: Float[np.ndarray, "examples columns"],
        values: Float[np.ndarray, " examples"],
        series: Sequence[np.ndarray],
        seed: int = 0,
    ) -> "Resamples":
        """Draws the blocks.

        Args:
            columns: Numbers of each example, which are summed.
            values: Numbers whose autocorrelation sets the length of the blocks.
            series: Indices of the examples of each series, in order of time.
            seed: Seed of the bootstrap.
        """
        blocks = _blocks(series, _block_length(values, series))
        sums = np.array([columns[block].sum(0) for block in blocks])
        num_drawn = round(len(columns) / np.mean([len(block) for block in blocks]))
        drawn = np.random.default_rng(seed).integers(len(blocks), size=(NUM_RESAMPLES, num_drawn))
        return cls(np.array([sums[numbers].sum(0) for numbers in drawn]), num_drawn)

    @property
    def widening(self) -> float:
        """The factor by which an interval from few blocks is widened, from Student's t."""
        tail = (1 + CONFIDENCE) / 2
        return float(stdtrit(self.num_blocks - 1, tail) / ndtri(tail)) * math.sqrt(
            self.num_blocks / (self.num_blocks - 1)
        )

    @staticmethod
    def interval(statistics: Sequence[float] | np.ndarray) -> tuple[float, float]:
        """Returns the confidence interval of a statistic, given that of each resample."""
        tail = (1 - CONFIDENCE) / 2
        low, high = np.quantile(statistics, [tail, 1 - tail], method="nearest").tolist()
        return low, high


def series_of(time_slices: Sequence[TimeSlice]) -> list[np.ndarray]:
    """Returns the indices of the examples of each sample."""
    series: dict[int, list[int]] = {}
    for number, time_slice in enumerate(time_slices):
        series.setdefault(time_slice.sample, []).append(number)
    return [np.array(numbers) for numbers in series.values()]


def last_good_step(
    model: Float[np.ndarray, "rollouts steps"], reference: Float[np.ndarray, "rollouts steps"]
) -> int | None:
    """Returns the last step at which the mean error of rollouts does not exceed that of a reference.

    0 means that rollouts are worse at each step, None that they are not worse at the last one. An error
    that is not finite is worse than any other.
    """
    is_good = model.mean(0) <= reference.mean(0)
    steps = np.flatnonzero(is_good)
    last = int(steps[-1]) + 1 if len(steps) else 0
    return None if last == len(is_good) else last


def verdict(
    comparisons: Mapping[str, Comparison],
    num_examples: int,
    *,
    split: str = "test",
    num_nonfinite: int = 0,
    losses: Mapping[str, int] | None = None,
    num_steps: int = 0,
    by_variable: Mapping[str, Mapping[str, Comparison]] | None = None,
) -> str:
    """Returns the verdict on a run as a sentence.

    Args:
        comparisons: Comparisons by reference.
        num_examples: Number of examples that were scored.
        split: Name of their split.
        num_nonfinite: Number of examples whose prediction is not finite.
        losses: The result of `last_good_step` by reference, where it is not None.
        num_steps: Number of rollout steps.
        by_variable: Comparisons of each variable alone; outcomes that are others are named.
    """
    if num_nonfinite:
        return f"No verdict: the prediction is not finite in {num_nonfinite} of {num_examples} {split} examples."
    if not comparisons:
        return "No verdict: there is no reference forecast to compare with."
    in_rollouts = _rollout_clause(losses or {}, num_steps)
    if num_examples < MIN_BLOCKS:
        ratios = _join([f"{_number(c.ratio)} to {name}" for name, c in comparisons.items()])
        examples = "example is" if num_examples == 1 else "examples are"
        return (
            f"{num_examples} {split} {examples} too few for a verdict (error ratio {ratios})"
            f"{in_rollouts}."
        )
    text = _join([_outcome_clause(name, part) for name, part in comparisons.items()])
    others = _variable_clause(comparisons, by_variable or {})
    return (
        f"{text[0].upper()}{text[1:]}, over {num_examples} {split} examples in RMSE / std{others}"
        f"{in_rollouts}."
    )


def _variable_clause(
    comparisons: Mapping[str, Comparison], by_variable: Mapping[str, Mapping[str, Comparison]]
) -> str:
    """Returns the variables that are better or worse where all together are not."""
    parts = [
        (abs(math.log(alone.ratio)), f"{variable} is {alone.outcome} than {name} (error {_factor(alone.ratio)})")
        for variable, references in by_variable.items()
        for name, alone in references.items()
        if alone.outcome in ("better", "worse") and alone.outcome != comparisons[name].outcome
        and 0 < alone.ratio < math.inf
    ]  # fmt: skip
    parts.sort(key=lambda part: -part[0])
    more = [f"{len(parts) - MAX_NAMED} more differ"] if len(parts) > MAX_NAMED else []
    return f"; but {_join([*(text for _, text in parts[:MAX_NAMED]), *more])}" if parts else ""


def _outcome_clause(name: str, comparison: Comparison) -> str:
    assert comparison.interval is not None
    if math.isinf(comparison.ratio):
        return f"worse than {name}, which has no error"
    outcome, ends = comparison.outcome, comparison.interval
    if outcome == "better":
        ends = [1 / end if end > 0 else math.inf for end in reversed(ends)]
    interval = f"{CONFIDENCE:.0%} interval {_number(ends[0])} to {_number(ends[1])}"
    if outcome == "tied":
        return f"tied with {name} (error ratio {_number(comparison.ratio)}, {interval})"
    return f"{outcome} than {name} (error {_factor(comparison.ratio)}, {interval})"


def _rollout_clause(losses: Mapping[str, int], num_steps: int) -> str:
    parts = [
        f"than {name} " + (f"after step {last} of {num_steps}" if last else "at each step")
        for name, last in losses.items()
    ]
    return f"; in rollouts, worse {_join(parts)}" if parts else ""


def _join(parts: list[str]) -> str:
    return " and ".join(parts) if len(parts) < 3 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _factor(ratio: float) -> str:
    """Returns an error ratio in words: 3 times smaller, or 2 times larger."""
    if ratio >= 1:
        return f"{_number(ratio)} times larger"
    return f"{_number(1 / ratio if ratio > 0 else math.inf)} times smaller"


def _number(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else "infinity"


def _ratio(model: float, reference: float) -> float:
    if reference > 0:
        return float(model / reference)
    return math.inf if model > 0 else 1.0


def _widened(end: float, ratio: float, factor: float) -> float:
    """Returns the end of an interval, moved away from the ratio by a factor of the log distance."""
    if not (0 < end < math.inf and 0 < ratio < math.inf):
        return end
    return ratio * (end / ratio) ** factor


def _block_length(values: np.ndarray, series: Sequence[np.ndarray]) -> int:
    """Returns the length at which blocks are nearly independent.

    It is at least the cube root of the longest series, and four times the lag up to which the
    autocorrelation exceeds 1/e.
    """
    longest = max(len(numbers) for numbers in series)
    centered = values - values.mean()
    variance = np.mean(centered**2)
    lag = 0
    while variance > 0 and lag + 1 < longest:
        products = [
            centered[numbers[lag + 1 :]] * centered[numbers[: -lag - 1]]
            for numbers in series if len(numbers) > lag + 1
        ]  # fmt: skip
        if np.concatenate(products).mean() < variance / math.e:
            break
        lag += 1
    length = max(math.ceil(longest ** (1 / 3)), 4 * lag)
    return max(1, min(length, longest, len(values) // MIN_BLOCKS))


def _blocks(series: Sequence[np.ndarray], length: int) -> list[np.ndarray]:
    """Returns all blocks of consecutive examples; a shorter series is one block, repeated.

    Each example occurs equally often.
    """
    blocks: list[np.ndarray] = []
    for numbers in series:
        if len(numbers) <= length:
            blocks += [numbers] * length
        else:
            blocks += [np.roll(numbers, -start)[:length] for start in range(len(numbers))]
    return blocks
