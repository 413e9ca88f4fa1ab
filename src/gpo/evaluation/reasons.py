"""Why a model does not beat a reference, in one sentence with its evidence.

What is looked at: how many examples there are; whether anything changes from input to target, and
whether successive changes undo each other, as noise does; whether the scored data are like those
of training; how the model does on its own training examples; and how training ended.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gpo.data.dataset import Trajectories
from gpo.data.splits import TimeSlice, evenly
from gpo.evaluation.verdict import MIN_BLOCKS, Comparison

SMALL_CHANGE = 0.01
"""A change from input to target of so many standard deviations is next to nothing."""
NOISE = -0.35
"""Correlation of successive changes below which they undo each other; of pure noise it is -1/2."""
SHIFT = 0.5
"""Standard deviations by which a mean may differ from that of training."""
OTHER = 1.5
"""Factor by which a spread, or the size of changes, may differ from that of training."""
OVERFIT = 0.8
"""Part of its error elsewhere below which a model is better on training examples than it can be."""
FEW_STEPS = 200
"""Steps of training below which it was short."""
FALLING = 0.03
"""Part by which the validation error fell in the last fifth of the epochs of a run that was too short."""
NUM_LOOKS = 32
"""Examples of training in which successive changes are compared."""


@dataclass(frozen=True, kw_only=True)
class TrainingCurve:
    """How training went."""

    num_steps: int
    scores: Sequence[float] = ()
    """Validation error after every epoch."""

    @property
    def last_fall(self) -> float:
        """By which part the best validation error fell in the last fifth of the epochs."""
        start = len(self.scores) - len(self.scores) // 5
        before = min(self.scores[:start], default=math.inf)
        if not math.isfinite(before) or before <= 0:
            return 0.0
        return max(0.0, 1 - min(self.scores) / before)


@dataclass(frozen=True, kw_only=True)
class SplitEvidence:
    """What is known of the examples of a split."""

    comparisons: Mapping[str, Comparison]
    """With every reference."""
    num_examples: int
    mean_shift: Mapping[str, float] = field(default_factory=dict)
    """By variable: its mean less that of training, in standard deviations of training."""
    spread: Mapping[str, float] = field(default_factory=dict)
    """By variable: its standard deviation relative to that of training."""
    change: float | None = None
    """Root mean square change from input to target, in standard deviations; none of maps."""
    change_in_training: float | None = None


def explain(
    reference: str,
    splits: Mapping[str, SplitEvidence],
    training: Comparison | None,
    num_training: int,
    curve: TrainingCurve | None = None,
    change_correlation: float | None = None,
) -> str:
    """Returns why a model does not beat a reference everywhere; nothing where it does.

    Args:
        reference: Its name.
        splits: Test and, where it was scored, validation data, by name.
        training: How the model compares with the reference on training examples.
        num_training: Training examples that there are.
        curve: How training went.
        change_correlation: Between successive changes of the training data.
    """
    lost = {
        name: split
        for name, split in splits.items()
        if reference in split.comparisons and split.comparisons[reference].outcome != "better"
    }
    if not lost:
        return ""
    found = [_few(name, split) for name, split in lost.items()]
    # Where it is better on the few examples that there are, more of them is all that lacks.
    lost = {
        name: split
        for name, split in lost.items()
        if split.num_examples >= MIN_BLOCKS or not split.comparisons[reference].ratio < 1
    }
    if not lost:
        return f"Why not proven better than {reference}: {'; '.join(found)}."
    is_persistence = reference == "persistence"
    found += [
        *(_still(name, split) for name, split in lost.items() if is_persistence),
        _noise(change_correlation) if is_persistence else "",
        *(_unlike(name, split) for name, split in lost.items()),
        _forgotten(reference, lost),
        _fitted(reference, lost, training, num_training),
        _short(curve),
    ]
    told = "; ".join(dict.fromkeys(sentence for sentence in found if sentence))
    if not told:
        told = (
            "no cause found (examples are enough, fields change, data are like those of training, "
            "the model is not better on training examples, and training had levelled off)"
        )
    return f"Why not better than {reference} on {' and '.join(lost)} data: {told}."


def change_correlation(data: Trajectories, windows: Sequence[TimeSlice]) -> float | None:
    """Returns the correlation of a change with the one before it; None where there are no such."""
    products, squares = 0.0, np.zeros(2)
    long = [window for window in windows if window.last >= window.lead]
    for window in evenly(long, NUM_LOOKS) if long else ():
        times = slice(window.last - window.lead, window.target + 1, window.lead)
        weights = data.geometry(window.trajectory).weights[:, None]
        changes = np.diff(data.frames(window.trajectory, times).astype(np.float64), axis=0)
        # Every variable counts alike, whatever its units.
        scale = np.sqrt(np.nanmean(np.square(changes), axis=(0, 1)))
        before, after = np.nan_to_num(changes / np.where(scale > 0, scale, 1.0))
        products += float((weights * before * after).sum())
        squares += [(weights * part**2).sum() for part in (before, after)]
    return products / math.sqrt(squares.prod()) if squares.all() else None


def _few(name: str, split: SplitEvidence) -> str:
    count = split.num_examples
    if count >= MIN_BLOCKS:
        return ""
    examples = f"{count} {name} example{'s' * (count > 1)}"
    return f"{examples} cannot prove anything, {MIN_BLOCKS} are the fewest"


def _still(name: str, split: SplitEvidence) -> str:
    if split.change is None or split.change >= SMALL_CHANGE:
        return ""
    return (
        f"persistence is nearly perfect, since from input to target {name} data change by "
        f"{split.change:.2g} of their standard deviation (a longer --lead asks for more)"
    )


def _noise(correlation: float | None) -> str:
    if correlation is None or correlation >= NOISE:
        return ""
    return (
        f"a change is undone by the next one (correlation {correlation:.2f}, of pure noise -0.5), "
        "so that most of it is noise"
    )


def _unlike(name: str, split: SplitEvidence) -> str:
    """Returns in what the data of a split differ from those of training."""
    told = [
        f"the mean of {variable} is {abs(shift):.2g} standard deviations "
        f"{'higher' if shift > 0 else 'lower'}"
        for variable, shift in split.mean_shift.items()
        if abs(shift) > SHIFT
    ]
    told += [
        f"{variable} varies {ratio:.2g} times as much"
        for variable, ratio in split.spread.items()
        if not 1 / OTHER < ratio < OTHER
    ]
    if split.change is not None and split.change_in_training:
        ratio = split.change / split.change_in_training
        if not 1 / OTHER < ratio < OTHER:
            told.append(f"changes are {ratio:.2g} times as large")
    return f"{name} data differ from training data: {', '.join(told)}" if told else ""


def _forgotten(reference: str, lost: Mapping[str, SplitEvidence]) -> str:
    """Returns that the last frame tells no more than the climatology does."""
    for split in lost.values():
        both = split.comparisons
        if reference == "climatology" and "persistence" in both:
            ratio = both["climatology"].ratio / max(both["persistence"].ratio, 1e-300)
            if ratio > 1:
                return (
                    f"the last frame tells little of the target (persistence errs {ratio:.2g} "
                    "times as much as climatology; a shorter --lead asks for less)"
                )
    return ""


def _fitted(
    reference: str,
    lost: Mapping[str, SplitEvidence],
    training: Comparison | None,
    num_training: int,
) -> str:
    """Returns that training examples are learned by heart, or not even learned."""
    if training is None or not math.isfinite(training.ratio):
        return ""
    ratios = {name: split.comparisons[reference].ratio for name, split in lost.items()}
    elsewhere = " and ".join(f"{ratio:.3g} on {name} data" for name, ratio in ratios.items())
    told = f"{training.ratio:.3g} times the error of {reference} on training examples"
    if training.ratio < OVERFIT * min(ratios.values()):
        return f"it over-fits {num_training} training examples ({told}, {elsewhere})"
    if training.ratio > 1 / (1 + FALLING):
        return f"it has not learned the training examples either ({told})"
    return ""


def _short(curve: TrainingCurve | None) -> str:
    if curve is None:
        return ""
    if curve.num_steps < FEW_STEPS:
        return f"training was short, {curve.num_steps} steps (a larger --budget-cpu may help)"
    if curve.last_fall > FALLING:
        return (
            f"the validation error still fell by {curve.last_fall:.0%} in the last fifth of "
            "training (a larger --budget-cpu may help)"
        )
    return ""
