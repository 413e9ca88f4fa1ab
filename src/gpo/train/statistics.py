"""Statistics of the training split, in one pass and without keeping it in memory."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.progress import track

from gpo.data.split import Window, touched_frames
from gpo.data.stretches import stretches
from gpo.data.trajectories import Pairs, Trajectories
from gpo.numerics.normalize import Moments, Normalizer
from gpo.train.site_means import SiteMeans

LONG = 8
"""Stretches of frames from which on a pass takes long enough to show how far it is."""


def training_statistics(
    data: Trajectories | Pairs,
    members: Sequence[Any],
    means: SiteMeans | None = None,
    *,
    is_quiet: bool = True,
) -> tuple[Normalizer, Normalizer, np.ndarray]:
    """Returns the normalisers of inputs and outputs, and the size of changes in units of the latter.

    Args:
        data: The data set.
        members: Its training split; nothing else is looked at.
        means: Means of static maps site by site; sizes are then those of what differs from them.
        is_quiet: Without a progress bar.
    """
    if isinstance(data, Pairs):
        inputs, outputs = _of_maps(data, members, means)
        return inputs, outputs, np.ones(len(data.outputs))
    states, changes = _of_series(data, members, is_quiet)
    size = np.sqrt(changes.std**2 + changes.mean**2) / states.std
    return states, states, np.maximum(size, 1e-6)


def _of_maps(
    data: Pairs, numbers: Sequence[int], means: SiteMeans | None
) -> tuple[Normalizer, Normalizer]:
    inputs, outputs = Moments(), Moments()
    common = (means.inputs.numpy(), means.outputs.numpy()) if means else (0.0, 0.0)
    for number in numbers:
        weights = data.geometry(number).weights
        for moments, values, mean in zip(
            (inputs, outputs), data.sample(number), common, strict=True
        ):
            moments.add((values - mean)[None], weights)
    return inputs.normalizer(), outputs.normalizer()


def _of_series(
    data: Trajectories, windows: Sequence[Window], is_quiet: bool
) -> tuple[Normalizer, Normalizer]:
    """Returns statistics of all frames of the windows, and of the change from last to target."""
    before = {(window.trajectory, window.target): window.last for window in windows}
    states, changes = Moments(), Moments()
    parts = stretches(data, touched_frames(windows))
    trajectory, recent = -1, dict[int, np.ndarray]()
    lead = max(window.lead for window in windows)
    shown = track(parts, "statistics", transient=True, disable=is_quiet or len(parts) < LONG)
    for part in shown:
        if part.trajectory != trajectory:
            trajectory, recent = part.trajectory, dict[int, np.ndarray]()
        values, weights = part.read(data), data.geometry(trajectory).weights
        states.add(values, weights)
        recent |= zip(part.frames, values, strict=True)
        for number in part.frames:
            last = before.get((trajectory, number))
            if last is not None:
                changes.add((recent[number] - recent[last])[None], weights)
        # Only what a later frame may be compared with stays.
        recent = {n: frame for n, frame in recent.items() if n >= part.frames.stop - lead}
    return states.normalizer(), changes.normalizer()
