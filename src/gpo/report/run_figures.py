"""Figures of a run: prediction, rollout error and training curves."""

from collections.abc import Mapping, Sequence
from itertools import cycle

import numpy as np
from jaxtyping import Float
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter, LogLocator, MaxNLocator, NullLocator

from gpo.data.geometry import Geometry
from gpo.evaluation.results import Results
from gpo.forecast.examples import Example
from gpo.forecast.forecaster import Task
from gpo.report.appearance import label_with_units
from gpo.report.contact_sheet import color_limits, draw_panel, in_plane, panel_height

FIGURE_WIDTH = 12.4
"""Width of a row of four panels, in inches."""
CURVE_SIZE = (7.2, 3.6)
"""Size of a figure of curves, in inches."""
OWN_STYLES = {"blend": ("C0", "o-"), "model": ("0.5", ".-")}
"""Colour and line style of the forecast that is written, and of the model alone."""
REFERENCE_STYLES = [
    (f"C{number}", line) for number, line in enumerate(("s--", "^:", "v-.", "D--", "P:", "X-."), 1)
]
"""Colour and line style of references, in the order of their registration."""


def draw_forecast(
    predicted: Float[np.ndarray, "points outputs"],
    task: Task,
    example: Example,
    geometry: Geometry,
    times: Sequence[str] = ("", ""),
) -> Figure:
    """Returns input, truth, prediction and error of one example, one row per variable.

    Args:
        predicted: The prediction in the units of the data.
        task: Names and units of inputs and outputs.
        example: The example that was predicted.
        geometry: The sites of the example.
        times: Times or dates of the last input and of the target; empty for static maps.
    """
    earlier, later = (f", {time}" if time else "" for time in times)
    is_known = example.weights[0].numpy() > 0
    inputs, truth = example.fields[0, -1].numpy(), example.target[0].numpy()
    outputs = task.outputs[:4]
    size = (FIGURE_WIDTH, panel_height(geometry) * len(outputs) + 0.2)
    figure, grid = plt.subplots(len(outputs), 4, figsize=size, squeeze=False, layout="constrained")
    for channel, (name, axes) in enumerate(zip(outputs, grid, strict=True)):
        # A static map may have fewer inputs than outputs; the last input is repeated.
        number = min(channel, inputs.shape[1] - 1)
        before, target, prediction = (
            np.where(is_known, part, np.nan)
            for part in (inputs[:, number], truth[:, channel], predicted[:, channel])
        )
        error = np.abs(prediction - target)
        largest = float(np.nan_to_num(in_plane(geometry, error)).max()) or 1.0
        limits = color_limits(in_plane(geometry, target))
        panels = [
            (f"input: {task.fields[number]}{earlier}", before, color_limits(in_plane(geometry, before))),
            (f"truth: {name}{later}", target, limits),
            (f"prediction: {name}", prediction, limits),
            ("absolute error", error, (0.0, largest)),
        ]  # fmt: skip
        label = label_with_units(name, task.units[channel])
        for (title, values, ends), panel in zip(panels, axes, strict=True):
            draw_panel(panel, title, label, geometry, values, ends)
    return figure


def draw_rollout(results: Results, lead: int, step: str = "") -> Figure:
    """Returns the error by number of frames ahead; curves end where a forecast is not finite.

    Args:
        results: Results with rollouts.
        lead: Number of frames per step.
        step: Time between frames, in words; empty where frames have no times.
    """
    figure, axes = plt.subplots(figsize=CURVE_SIZE, layout="constrained")
    references = [name for name in results.rollout if name not in OWN_STYLES]
    styles = {**OWN_STYLES, **dict(zip(references, cycle(REFERENCE_STYLES), strict=False))}
    styles[results.written] = OWN_STYLES["blend"]
    for name, errors in results.rollout.items():
        steps = lead * np.arange(1, len(errors) + 1)
        heights = [np.nan if error is None else error for error in errors]
        color, line = styles[name]
        axes.semilogy(steps, heights, line, color=color, label=name, markersize=3.5)
    spacing = f" (one every {step})" if step else ""
    axes.set(xlabel=f"frames ahead{spacing}", ylabel=f"relative L2, mean of {results.num_rollouts}")
    return _finished(figure)


def draw_training(rows: Sequence[Mapping[str, float]]) -> Figure:
    """Returns losses and scores by epoch.

    Args:
        rows: The log; losses and scores are in its columns `train/...` and `validation/...`.
    """
    figure, axes = plt.subplots(figsize=CURVE_SIZE, layout="constrained")
    for name in sorted({key for row in rows for key in row if "/" in key}):
        points = [(row["epoch"], row[name]) for row in rows if row.get(name, 0) > 0]
        if points:
            axes.semilogy(*zip(*points, strict=True), "o-", label=name, markersize=3.5)
    axes.set(xlabel="epoch", ylabel="loss or score (no units)")
    return _finished(figure)


def _finished(figure: Figure) -> Figure:
    for axes in figure.axes:
        # Steps and epochs are integers; within one decade, ticks show plain numbers.
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        low, high = axes.get_ylim()
        if high < 10 * low:
            axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0)))
            axes.yaxis.set_major_formatter(FormatStrFormatter("%g"))
            axes.yaxis.set_minor_locator(NullLocator())
        axes.grid(alpha=0.3)
        axes.legend()
    return figure
