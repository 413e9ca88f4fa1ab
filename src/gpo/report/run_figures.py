"""The figures of a run: prediction, rollout error, spectrum, training curves, layers."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gpo.data.geometry import Geometry
from gpo.data.splits import evenly
from gpo.evaluation.example import ShownExample
from gpo.evaluation.results import Results
from gpo.forecast.examples import Example
from gpo.forecast.forecaster import Task
from gpo.report.contact_sheet import color_limits, draw_panel, panel_height

MAX_LAYERS = 6
"""Panels in a row; of more layers, evenly many."""
STYLES = {"model": "C0", "truth": "black", "persistence": "C1", "climatology": "C2"}


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
    size = (14, panel_height(geometry) * len(outputs) + 0.3)
    figure, grid = plt.subplots(len(outputs), 4, figsize=size, squeeze=False, layout="constrained")
    for channel, (name, axes) in enumerate(zip(outputs, grid, strict=True)):
        # A static map shows as many of its inputs as there are rows.
        before = min(channel, given.shape[1] - 1)
        limits = color_limits(truth[is_known, channel])
        error = np.abs(predicted[:, channel] - truth[:, channel])
        given_limits = color_limits(given[is_known, before])
        panels = [
            (f"given: {task.fields[before]}{earlier}", given[:, before], given_limits),
            (f"truth: {name}{later}", truth[:, channel], limits),
            (f"predicted: {name}", predicted[:, channel], limits),
            ("absolute error", error, (0.0, float(error[is_known].max()) or 1.0)),
        ]
        for (title, values, ends), panel in zip(panels, axes, strict=True):
            shown = np.where(is_known, values, np.nan)
            draw_panel(panel, title, task.units[channel] or name, geometry, shown, ends)
    return figure


def draw_rollout(results: Results, lead: int, step: str = "") -> Figure:
    """Returns the error against the step; lines end where a forecast is no longer finite.

    Args:
        results: With a rollout.
        lead: Frames from step to step.
        step: The time from frame to frame, in words; empty where frames have none.
    """
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for who, errors in results.rollout.items():
        steps = lead * np.arange(1, len(errors) + 1)
        heights = [np.nan if error is None else error for error in errors]
        axes.semilogy(steps, heights, "o-", color=STYLES.get(who), label=who, markersize=3)
    every = f" (one every {step})" if step else ""
    axes.set(xlabel=f"frames ahead{every}", ylabel=f"relative L2, mean of {results.num_rollouts}")
    return _finished(figure)


def draw_spectrum(results: Results) -> Figure | None:
    """Returns energy spectra, a panel per variable; None where no variable has one."""
    drawable = {name: part for name, part in results.spectrum.items() if "reason" not in part}
    if not drawable:
        return None
    figure, grid = plt.subplots(
        1, len(drawable), figsize=(6 * len(drawable), 4), squeeze=False, layout="constrained"
    )
    for (name, part), axes in zip(drawable.items(), grid[0], strict=True):
        numbers = np.array(part["wavenumbers"])
        is_drawn = numbers > 0
        for who in ("truth", "model", "truth at the end", "model at the end"):
            if who in part:
                energy = np.array(part[who])
                line = "--" if who.endswith("end") else "-"
                color = STYLES[who.split()[0]]
                label = f"{who} of the rollout" if who.endswith("end") else f"{who}, one step"
                axes.loglog(numbers[is_drawn], energy[is_drawn], line, color=color, label=label)
        axes.set(title=name, xlabel=part["label"], ylabel="energy E(k)")
        # Rounding errors far below the truth would squeeze everything else.
        positive = [value for value in part["truth"][1:] if value > 0] or [1.0]
        axes.set_ylim(max(1e-12 * max(positive), 0.1 * min(positive)), 10 * max(positive))
    return _finished(figure)


def draw_training(rows: Sequence[Mapping[str, float]]) -> Figure:
    """Returns losses and score by epoch.

    Args:
        rows: The log. Losses and scores are the columns `train/...` and `validation/...`.
    """
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for name in sorted({key for row in rows for key in row if "/" in key}):
        points = [(row["epoch"], row[name]) for row in rows if row.get(name, 0) > 0]
        if points:
            axes.semilogy(*zip(*points, strict=True), "o-", label=name, markersize=3)
    axes.set(xlabel="epoch", ylabel="loss or score")
    return _finished(figure)


def _finished(figure: Figure) -> Figure:
    for axes in figure.axes:
        axes.grid(alpha=0.3)
        axes.legend()
    return figure


def draw_layers(shown: ShownExample, geometry: Geometry, is_known: np.ndarray) -> Figure | None:
    r"""Returns the activation after every layer and, below, the most local window of each.

    The paper draws $A^{(k)}(x)=\sum_gz^{(k)}_g(x)$. Row renormalisation keeps that sum, so that all
    layers would look alike; $\sum_gz_g^2$ shows how the mass is spread over the Gaussians. The
    geometric variant has a state $h$ instead of a basis, and waves that depend on no field.

    Args:
        shown: Activations and windows of one example; None is returned where there are none.
        geometry: The sites.
        is_known: False at masked sites, which stay grey.
    """
    num_layers, has_windows = len(shown.activations), len(shown.windows) > 0
    if num_layers == 0:
        return None
    columns = evenly(range(num_layers), MAX_LAYERS)
    rows = 2 if has_windows else 1
    size = (3.6 * len(columns), rows * panel_height(geometry) + 0.4)
    figure, grid = plt.subplots(
        rows, len(columns), figsize=size, squeeze=False, layout="constrained"
    )
    what = "Σ z²" if has_windows else "Σ h²"
    for column, layer in enumerate(columns):
        title = f"{what} before layer 1" if layer == 0 else f"{what} after layer {layer}"
        activation = shown.activations[layer]
        _panel(grid[0, column], title, "activation", geometry, activation, is_known)
        if not has_windows:
            continue
        if layer == 0:
            grid[1, column].set_axis_off()
            continue
        title, window = f"a window of layer {layer}", shown.windows[layer - 1]
        _panel(grid[1, column], title, "weight p", geometry, window, is_known)
    return figure


def _panel(
    axes: Axes, title: str, label: str, geometry: Geometry, values: np.ndarray, known: np.ndarray
) -> None:
    numbers = np.where(known, values, np.nan)
    ends = float(np.nanmin(numbers)), float(np.nanmax(numbers))
    draw_panel(axes, title, label, geometry, numbers, ends if ends[1] > ends[0] else (0.0, 1.0))
