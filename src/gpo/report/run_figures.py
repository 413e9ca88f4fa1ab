"""The figures of a run: prediction, rollout error, training curves."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter, LogLocator, MaxNLocator, NullLocator

from gpo.data.geometry import Geometry
from gpo.evaluation.results import Results
from gpo.forecast.examples import Example
from gpo.forecast.forecaster import Task
from gpo.report.appearance import labelled
from gpo.report.contact_sheet import color_limits, draw_panel, in_plane, panel_height

FIGURE_WIDTH = 12.4
"""Inches of a row of four panels."""
CURVES = (7.2, 3.6)
"""Inches of a figure of curves."""
STYLES = {"model": ("C0", "o-"), "persistence": ("C1", "s--"), "climatology": ("C2", "^:")}
"""Colour, marker and line of every curve."""


def draw_forecast(
    predicted: Float[np.ndarray, "points outputs"],
    task: Task,
    example: Example,
    geometry: Geometry,
    times: tuple[str, str] | None = None,
) -> Figure:
    """Returns input, truth, prediction and error of one example, a row per variable.

    Args:
        predicted: The prediction in the units of the data.
        task: Names and units of inputs and outputs.
        example: The example that was predicted.
        geometry: Its sites.
        times: Times or dates of the last input and of the target; none for static maps.
    """
    earlier, later = (f", {time}" for time in times) if times else ("", "")
    is_known = example.weights[0].numpy() > 0
    given, truth = example.fields[0, -1].numpy(), example.target[0].numpy()
    outputs = task.outputs[:4]
    size = (FIGURE_WIDTH, panel_height(geometry) * len(outputs) + 0.2)
    figure, grid = plt.subplots(len(outputs), 4, figsize=size, squeeze=False, layout="constrained")
    for channel, (name, axes) in enumerate(zip(outputs, grid, strict=True)):
        # A static map shows as many of its inputs as there are rows.
        before = min(channel, given.shape[1] - 1)
        first, true, guess = (
            np.where(is_known, part, np.nan)
            for part in (given[:, before], truth[:, channel], predicted[:, channel])
        )
        error = np.abs(guess - true)
        largest = float(np.nan_to_num(in_plane(geometry, error)).max()) or 1.0
        given_limits, limits = (color_limits(in_plane(geometry, part)) for part in (first, true))
        panels = [
            (f"given: {task.fields[before]}{earlier}", first, given_limits),
            (f"truth: {name}{later}", true, limits),
            (f"predicted: {name}", guess, limits),
            ("absolute error", error, (0.0, largest)),
        ]
        for (title, shown, ends), panel in zip(panels, axes, strict=True):
            label = labelled(name, task.units[channel])
            draw_panel(panel, title, label, geometry, shown, ends)
    return figure


def draw_rollout(results: Results, lead: int, step: str = "") -> Figure:
    """Returns the error against the step; lines end where a forecast is no longer finite.

    Args:
        results: With a rollout.
        lead: Frames from step to step.
        step: The time from frame to frame, in words; empty where frames have none.
    """
    figure, axes = plt.subplots(figsize=CURVES, layout="constrained")
    for who, errors in results.rollout.items():
        steps = lead * np.arange(1, len(errors) + 1)
        heights = [np.nan if error is None else error for error in errors]
        color, line = STYLES.get(who, ("0.5", "v-"))
        axes.semilogy(steps, heights, line, color=color, label=who, markersize=3.5)
    every = f" (one every {step})" if step else ""
    axes.set(xlabel=f"frames ahead{every}", ylabel=f"relative L2, mean of {results.num_rollouts}")
    return _finished(figure)


def draw_training(rows: Sequence[Mapping[str, float]]) -> Figure:
    """Returns losses and score by epoch.

    Args:
        rows: The log. Losses and scores are the columns `train/...` and `validation/...`.
    """
    figure, axes = plt.subplots(figsize=CURVES, layout="constrained")
    for name in sorted({key for row in rows for key in row if "/" in key}):
        points = [(row["epoch"], row[name]) for row in rows if row.get(name, 0) > 0]
        if points:
            axes.semilogy(*zip(*points, strict=True), "o-", label=name, markersize=3.5)
    axes.set(xlabel="epoch", ylabel="loss or score (no units)")
    return _finished(figure)


def _finished(figure: Figure) -> Figure:
    for axes in figure.axes:
        # Steps and epochs are whole; heights that span less than a decade are written out.
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        low, high = axes.get_ylim()
        if high < 10 * low:
            axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0)))
            axes.yaxis.set_major_formatter(FormatStrFormatter("%g"))
            axes.yaxis.set_minor_locator(NullLocator())
        axes.grid(alpha=0.3)
        axes.legend()
    return figure
