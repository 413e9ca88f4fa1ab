r"""What the scores of a run say, in one sentence: better than references, worse, tied or unproven.

The error of an example is free of units: $e=(\frac1V\sum_v \mathrm{mse}_v/\sigma_v^2)^{1/2}$ with the
standard deviation $\sigma_v$ of every variable in the training data. A reference is compared with by
$\sum e/\sum e_\mathrm{ref}$, with an interval from a circular block bootstrap (Politis and Romano 1992):
examples that follow each other in one series are alike, so that blocks of them are drawn, not single
ones; after the end of a series comes its start, so that all examples are drawn equally often.
Intervals from few blocks are too short, and are widened as Student's t is wider than a normal law.
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
"""Fewer examples give no interval; blocks are so short that there are as many."""

Outcome = Literal["better", "worse", "tied", "unproven"]


@dataclass(frozen=True)
class Comparison:
    """The error of the model, relative to that of a reference."""

    ratio: float
    """Below 1, the model is better; infinite where the reference makes no error."""
    interval: tuple[float, float] | None
    """Of the ratio, at 95 %; none where examples are too few."""

    @property
    def outcome(self) -> Outcome:
        """Better or worse where the interval excludes equal errors."""
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
    """Returns the ratio of summed errors with its interval.

    Args:
        model: Error of the model on every example.
        reference: Error of a reference on the same.
        series: Numbers of the examples of every series, in order of time; independent examples are
            series of one.
        seed: Of the bootstrap.
    """
    ratio = _ratio(model.sum(), reference.sum())
    if len(model) < MIN_BLOCKS:
        return Comparison(ratio, None)
    blocks = _blocks(series, _block_length(model - reference, series))
    sums = np.array([(model[block].sum(), reference[block].sum()) for block in blocks])
    num_drawn = round(len(model) / np.mean([len(block) for block in blocks]))
    drawn = np.random.default_rng(seed).integers(len(blocks), size=(NUM_RESAMPLES, num_drawn))
    ratios = [_ratio(*sums[numbers].sum(0)) for numbers in drawn]
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(ratios, [tail, 1 - tail], method="nearest").tolist()
    wider = _widening(num_drawn)
    return Comparison(ratio, (_widened(low, ratio, wider), _widened(high, ratio, wider)))


def series_of(members: Sequence[TimeSlice | int]) -> list[np.ndarray]:
    """Returns the numbers of the examples of every trajectory; static maps are independent."""
    owners: dict[object, list[int]] = {}
    for number, member in enumerate(members):
        owner = member.trajectory if isinstance(member, TimeSlice) else ("sample", number)
        owners.setdefault(owner, []).append(number)
    return [np.array(numbers) for numbers in owners.values()]


def lost_after(
    model: Float[np.ndarray, "rollouts steps"], reference: Float[np.ndarray, "rollouts steps"]
) -> int | None:
    """Returns the last step at which a rollout is as good as a reference, on the mean; None if all are.

    0 says that it is worse at every step. What is not finite is worse than anything.
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
    num_wild: int = 0,
    losses: Mapping[str, int] | None = None,
    num_steps: int = 0,
) -> str:
    """Returns the sentence with which a run ends.

    Args:
        comparisons: By reference.
        num_examples: Examples that were scored.
        split: What they are examples of.
        num_wild: Those of them whose prediction is not finite.
        losses: The last step at which a rollout is as good as a reference, where it loses later.
        num_steps: Steps of a rollout.
    """
    if num_wild:
        return f"No verdict: the prediction is not finite in {num_wild} of {num_examples} {split} examples."
    if not comparisons:
        return "No verdict: there is no reference to compare with."
    rollouts = _rollouts(losses or {}, num_steps)
    if num_examples < MIN_BLOCKS:
        told = _joined([f"{_times(c.ratio)} that of {name}" for name, c in comparisons.items()])
        few = f"{num_examples} {split} examples are too few to tell: on them"
        start = "One example proves nothing: on it" if num_examples == 1 else few
        return f"{start} the error is {told}{rollouts}."
    told = _joined([_told(name, found) for name, found in comparisons.items()])
    return f"{told[0].upper()}{told[1:]}, over {num_examples} {split} examples{rollouts}."


def _told(name: str, found: Comparison) -> str:
    assert found.interval is not None
    if math.isinf(found.ratio):
        return f"worse than {name}, which makes no error"
    word = {"better": "better than", "worse": "worse than", "tied": "tied with"}[found.outcome]
    low, high = (_number(end) for end in found.interval)
    interval = f"{CONFIDENCE:.0%} interval {low} to {high}"
    return f"{word} {name} ({_times(found.ratio)} its error, {interval})"


def _rollouts(losses: Mapping[str, int], num_steps: int) -> str:
    told = [
        f"than {name} " + (f"beyond step {last} of {num_steps}" if last else "at every step")
        for name, last in losses.items()
    ]
    return f"; rolled out, worse {_joined(told)}" if told else ""


def _joined(parts: list[str]) -> str:
    return " and ".join(parts) if len(parts) < 3 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _times(ratio: float) -> str:
    return f"{_number(ratio)} times"


def _number(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else "infinity"


def _ratio(model: float, reference: float) -> float:
    if reference > 0:
        return float(model / reference)
    return math.inf if model > 0 else 1.0


def _widening(num_blocks: int) -> float:
    """Returns by how much an interval from few blocks is too short, as Student's t has it."""
    tail = (1 + CONFIDENCE) / 2
    return float(stdtrit(num_blocks - 1, tail) / ndtri(tail)) * math.sqrt(
        num_blocks / (num_blocks - 1)
    )


def _widened(end: float, ratio: float, factor: float) -> float:
    """Moves the end of an interval away from the ratio, by a factor in its logarithm."""
    if not (0 < end < math.inf and 0 < ratio < math.inf):
        return end
    return ratio * (end / ratio) ** factor


def _block_length(values: np.ndarray, series: Sequence[np.ndarray]) -> int:
    """Returns how many neighbours a block needs so that blocks are nearly independent.

    At least the cube root of the longest series, and four times the lag up to which the correlation of
    neighbours exceeds 1/e.
    """
    longest = max(len(numbers) for numbers in series)
    centered = values - values.mean()
    variance = np.mean(centered**2)
    lag = 0
    while variance > 0 and lag + 1 < longest:
        pairs = [
            centered[numbers[lag + 1 :]] * centered[numbers[: -lag - 1]]
            for numbers in series if len(numbers) > lag + 1
        ]  # fmt: skip
        if np.concatenate(pairs).mean() < variance / math.e:
            break
        lag += 1
    length = max(math.ceil(longest ** (1 / 3)), 4 * lag)
    return max(1, min(length, longest, len(values) // MIN_BLOCKS))


def _blocks(series: Sequence[np.ndarray], length: int) -> list[np.ndarray]:
    """Returns runs of so many neighbours, and shorter series whole; all examples occur equally often."""
    blocks: list[np.ndarray] = []
    for numbers in series:
        if len(numbers) <= length:
            blocks += [numbers] * length
        else:
            blocks += [np.roll(numbers, -start)[:length] for start in range(len(numbers))]
    return blocks
