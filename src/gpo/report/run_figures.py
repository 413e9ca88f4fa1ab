"""The figures of a run, each of them one idea, drawn from its results or its model."""

from collections.abc import Sequence

import numpy as np
import torch
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from gpo.data.geometry import Geometry
from gpo.data.splits import evenly
from gpo.evaluation.results import Results
from gpo.forecast.examples import Example
from gpo.forecast.forecaster import Forecaster
from gpo.model.operator import GaussianParticleOperator
from gpo.model.trace import Trace
from gpo.report.contact_sheet import color_limits, draw_panel, panel_height

STYLES = {"model": "C0", "truth": "black", "persistence": "C1", "climatology": "C2"}


def draw_forecast(forecaster: Forecaster, example: Example, geometry: Geometry) -> Figure:
    """Returns what was given, the truth, the prediction and the error, a row per variable."""
    task = forecaster.task
    with torch.no_grad():
        guesses = forecaster(example.frames, example.coords, weights=example.weights)[0].numpy()
    is_known = example.weights[0].numpy() > 0
    given, truth = example.fields[0, -1].numpy(), example.target[0].numpy()
    outputs = task.outputs[:4]
    size = (14, panel_height(geometry) * len(outputs) + 0.3)
    figure, grid = plt.subplots(len(outputs), 4, figsize=size, squeeze=False, layout="constrained")
    for channel, (name, axes) in enumerate(zip(outputs, grid, strict=True)):
        # A static map shows as many of its inputs as there are rows.
        before = min(channel, given.shape[1] - 1)
        limits = color_limits(truth[is_known, channel])
        error = np.abs(guesses[:, channel] - truth[:, channel])
        given_limits = color_limits(given[is_known, before])
        panels = [
            (f"given: {task.fields[before]}", given[:, before], given_limits),
            (f"truth: {name}", truth[:, channel], limits),
            (f"predicted: {name}", guesses[:, channel], limits),
            ("absolute error", error, (0.0, float(error[is_known].max()) or 1.0)),
        ]
        for (title, values, ends), panel in zip(panels, axes, strict=True):
            shown = np.where(is_known, values, np.nan)
            draw_panel(panel, title, task.units[channel] or name, geometry, shown, ends)
    return figure


def draw_inside(forecaster: Forecaster, example: Example, geometry: Geometry) -> dict[str, Figure]:
    """Returns the layers; of gpo only."""
    model = forecaster.model
    if not isinstance(model, GaussianParticleOperator):
        return {}
    values, is_known = forecaster.normalised_input(example.frames), example.weights[0].numpy() > 0
    with torch.no_grad():
        trace = model.trace(values, example.coords, weights=example.weights)
    return {"layers": draw_layers(trace, geometry, is_known)}


def draw_rollout(results: Results, lead: int) -> Figure:
    """Returns error against step; lines end where a forecast is not finite any more."""
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for who, errors in results.rollout.items():
        steps = lead * np.arange(1, len(errors) + 1)
        heights = [np.nan if error is None else error for error in errors]
        axes.semilogy(steps, heights, "o-", color=STYLES.get(who), label=who, markersize=3)
    axes.set(xlabel="frames ahead", ylabel=f"relative L2, mean of {results.num_rollouts}")
    return _finished(figure)


def draw_spectrum(results: Results) -> Figure | None:
    """Returns energy by scale, a panel per variable; None where there is none."""
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


def draw_training(rows: Sequence[dict[str, float]]) -> Figure:
    """Returns losses and score by epoch."""
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


# >>> r"""What happens between the encoder and the decoder, layer by layer, on the sites.
#
# The paper draws $A^{(k)}(x)=\sum_gz^{(k)}_g(x)$. Row renormalisation keeps that sum, so with it
# all layers look alike; the sum of squares shows how the mass is spread over the Gaussians. The
# geometric variant has no basis after the encoder but a state $h$, and windows that no field changes.
# """

MAX_LAYERS = 6
"""Panels in a row; more layers are coarsened evenly."""


def draw_layers(trace: Trace, geometry: Geometry, is_known: np.ndarray) -> Figure:
    """Returns the activation after every layer and, below, each layer's most local window.

    Args:
        trace: A forward pass; its first sample is drawn.
        geometry: The sites.
        is_known: False at masked sites, which stay white.
    """
    last = len(trace.bases) - 1
    shown = evenly(range(last + 1), MAX_LAYERS)
    rows = 2 if trace.windows else 1
    size = (3.6 * len(shown), rows * panel_height(geometry) + 0.4)
    figure, grid = plt.subplots(rows, len(shown), figsize=size, squeeze=False, layout="constrained")
    what = "Σ z²" if trace.windows else "Σ h²"
    for column, layer in enumerate(shown):
        spread = trace.bases[layer][0].square().sum(-1)
        title = f"{what} of the encoder" if layer == 0 else f"{what} after layer {layer}"
        _panel(grid[0, column], title, "activation", geometry, spread, is_known)
        if not trace.windows:
            continue
        if layer == 0:
            grid[1, column].set_axis_off()
            continue
        window = _most_local(trace.windows[layer - 1][0])
        _panel(
            grid[1, column], f"a window of layer {layer}", "weight p", geometry, window, is_known
        )
    return figure


def _most_local(windows: Tensor) -> Tensor:
    """Returns the window, heads by points by modes, that differs most from place to place."""
    flat = windows.permute(0, 2, 1).flatten(0, 1)
    return flat[flat.std(-1).argmax()]


def _panel(
    axes: Axes, title: str, label: str, geometry: Geometry, values: Tensor, known: np.ndarray
) -> None:
    numbers = np.where(known, values.detach().cpu().numpy(), np.nan)
    ends = float(np.nanmin(numbers)), float(np.nanmax(numbers))
    draw_panel(axes, title, label, geometry, numbers, ends if ends[1] > ends[0] else (0.0, 1.0))
