"""Diagnosis: why a model does not beat a reference, in one sentence with the supporting numbers.

It considers the number of examples; whether the fields change from input to target, and whether
successive changes cancel, as noise does; whether the scored data resemble the training data; the error
on training examples; and the end of the training curve.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gpo.data.dataset import FieldData
from gpo.data.splits import TimeSlice, evenly
from gpo.evaluation.verdict import MIN_BLOCKS, Comparison

SMALL_CHANGE = 0.01
"""Change from input to target, in standard deviations, below which persistence is nearly exact."""
NOISE_CORRELATION = -0.35
"""Correlation of successive changes below which they count as noise; white noise has -1/2."""
MAX_MEAN_SHIFT = 0.5
"""Largest difference of means, in standard deviations, between data that are alike."""
MAX_SPREAD_RATIO = 1.5
"""Largest ratio of standard deviations, or of changes, between data that are alike."""
OVERFIT_RATIO = 0.8
"""Ratio of the error on training examples to that on other data below which a model overfits."""
MIN_STEPS = 200
"""Number of training steps below which training was short."""
MIN_IMPROVEMENT = 0.03
"""Relative fall of the validation error over the last fifth of the epochs that counts as still falling."""
MAX_CORRELATED_EXAMPLES = 32
"""Number of training examples over which successive changes are correlated."""


@dataclass(frozen=True, kw_only=True)
class TrainingCurve:
    """Number of steps and validation errors of a training run."""

    num_steps: int
    scores: Sequence[float] = ()
    """Validation error after each epoch."""

    @property
    def last_fall(self) -> float:
        """Relative fall of the best validation error over the last fifth of the epochs."""
        start = len(self.scores) - len(self.scores) // 5
        before = min(self.scores[:start], default=math.inf)
        if not math.isfinite(before) or before <= 0:
            return 0.0
        return max(0.0, 1 - min(self.scores) / before)


@dataclass(frozen=True, kw_only=True)
class SplitDiagnostics:
    """Statistics of the examples of a split."""

    comparisons: Mapping[str, Comparison]
    """Comparisons by reference."""
    num_examples: int
    mean_shift: Mapping[str, float] = field(default_factory=dict)
    """By variable: its mean minus that of training, in standard deviations of training."""
    spread: Mapping[str, float] = field(default_factory=dict)
    """By variable: its standard deviation relative to that of training."""
    change: float | None = None
    """Root mean square change from input to target, in standard deviations; None for static maps."""
    change_in_training: float | None = None


def explain(
    reference: str,
    splits: Mapping[str, SplitDiagnostics],
    training: Comparison | None,
    num_training: int,
    curve: TrainingCurve | None = None,
    change_correlation: float | None = None,
) -> str:
    """Returns why a model does not beat a reference on all splits; empty where it does.

    Args:
        reference: Name of the reference.
        splits: Statistics of the test data and, where scored, the validation data, by name.
        training: Comparison with the reference on training examples.
        num_training: Number of training examples.
        curve: The training curve.
        change_correlation: Correlation of successive changes in the training data.
    """
    not_beaten = {
        name: split
        for name, split in splits.items()
        if reference in split.comparisons and split.comparisons[reference].outcome != "better"
    }
    if not not_beaten:
        return ""
    reasons = [_few_examples(name, split) for name, split in not_beaten.items()]
    # Where the model is better on too few examples, their number is the only reason.
    not_beaten = {
        name: split
        for name, split in not_beaten.items()
        if split.num_examples >= MIN_BLOCKS or not split.comparisons[reference].ratio < 1
    }
    if not not_beaten:
        return f"Why the model is not proven better than {reference}: {'; '.join(reasons)}."
    is_persistence = reference == "persistence"
    reasons += [
        *(_small_change(name, split) for name, split in not_beaten.items() if is_persistence),
        _noise(change_correlation) if is_persistence else "",
        *(_different_data(name, split) for name, split in not_beaten.items()),
        _uninformative_input(reference, not_beaten),
        _fit(reference, not_beaten, training, num_training),
        _short_training(curve),
    ]
    text = "; ".join(dict.fromkeys(reason for reason in reasons if reason))
    if not text:
        text = (
            "no cause found (there are enough examples, the fields change, the data resemble the "
            "training data, the model does not overfit, and the validation error has levelled off)"
        )
    return f"Why the model does not beat {reference} on {' and '.join(not_beaten)} data: {text}."


def change_correlation(data: FieldData, time_slices: Sequence[TimeSlice]) -> float | None:
    """Returns the correlation of successive changes; None where there are none."""
    products, squares = 0.0, np.zeros(2)
    usable = [part for part in time_slices if part.last >= part.lead]
    for part in evenly(usable, MAX_CORRELATED_EXAMPLES) if usable else ():
        times = slice(part.last - part.lead, part.target + 1, part.lead)
        weights = data.geometry(part.sample).weights[:, None]
        changes = np.diff(data.frames(part.sample, times).astype(np.float64), axis=0)
        # All variables have the same influence, whatever their units.
        scale = np.sqrt(np.nanmean(np.square(changes), axis=(0, 1)))
        before, after = np.nan_to_num(changes / np.where(scale > 0, scale, 1.0))
        products += float((weights * before * after).sum())
        squares += [(weights * change**2).sum() for change in (before, after)]
    return products / math.sqrt(squares.prod()) if squares.all() else None


def _few_examples(name: str, split: SplitDiagnostics) -> str:
    count = split.num_examples
    if count >= MIN_BLOCKS:
        return ""
    examples = f"1 {name} example is" if count == 1 else f"{count} {name} examples are"
    return f"{examples} too few to compare (at least {MIN_BLOCKS} are needed)"


def _small_change(name: str, split: SplitDiagnostics) -> str:
    if split.change is None or split.change >= SMALL_CHANGE:
        return ""
    return (
        f"persistence is nearly exact, since {name} data change by {split.change:.2g} standard "
        "deviations from input to target (try a longer --lead)"
    )


def _noise(correlation: float | None) -> str:
    if correlation is None or correlation >= NOISE_CORRELATION:
        return ""
    return (
        f"most of the change is noise, since successive changes cancel (correlation "
        f"{correlation:.2f}, white noise has -0.5)"
    )


def _different_data(name: str, split: SplitDiagnostics) -> str:
    """Returns how the data of a split differ from the training data."""
    differences = [
        f"the mean of {variable} is {abs(shift):.2g} standard deviations "
        f"{'higher' if shift > 0 else 'lower'}"
        for variable, shift in split.mean_shift.items()
        if abs(shift) > MAX_MEAN_SHIFT
    ]
    differences += [
        f"{variable} varies {ratio:.2g} times as much"
        for variable, ratio in split.spread.items()
        if not 1 / MAX_SPREAD_RATIO < ratio < MAX_SPREAD_RATIO
    ]
    if split.change is not None and split.change_in_training:
        ratio = split.change / split.change_in_training
        if not 1 / MAX_SPREAD_RATIO < ratio < MAX_SPREAD_RATIO:
            differences.append(f"changes are {ratio:.2g} times as large")
    if not differences:
        return ""
    return f"{name} data differ from training data: {', '.join(differences)}"


def _uninformative_input(reference: str, splits: Mapping[str, SplitDiagnostics]) -> str:
    """Returns that persistence is worse than climatology, where it is."""
    for split in splits.values():
        comparisons = split.comparisons
        if reference == "climatology" and "persistence" in comparisons:
            ratio = comparisons["climatology"].ratio / max(comparisons["persistence"].ratio, 1e-300)
            if ratio > 1:
                return (
                    "the last frame carries little information about the target (the error of "
                    f"persistence is {ratio:.2g} times that of climatology, try a shorter --lead)"
                )
    return ""


def _fit(
    reference: str,
    splits: Mapping[str, SplitDiagnostics],
    training: Comparison | None,
    num_training: int,
) -> str:
    """Returns that the model overfits or underfits, where it does."""
    if training is None or not math.isfinite(training.ratio):
        return ""
    ratios = {name: split.comparisons[reference].ratio for name, split in splits.items()}
    others = " and ".join(f"{ratio:.3g} on {name} data" for name, ratio in ratios.items())
    error = f"{training.ratio:.3g} times the error of {reference} on training examples"
    if training.ratio < OVERFIT_RATIO * min(ratios.values()):
        return f"it overfits {num_training} training examples ({error}, {others})"
    if training.ratio > 1 / (1 + MIN_IMPROVEMENT):
        return f"it does not fit the training examples, either ({error})"
    return ""


def _short_training(curve: TrainingCurve | None) -> str:
    if curve is None:
        return ""
    if curve.num_steps < MIN_STEPS:
        return f"training was short, {curve.num_steps} steps (a larger --budget-cpu may help)"
    if curve.last_fall > MIN_IMPROVEMENT:
        return (
            f"the validation error still fell by {curve.last_fall:.0%} in the last fifth of "
            "training (a larger --budget-cpu may help)"
        )
    return ""
