"""The figures of `gpo bench`: curves, spectra, scaling and efficiency.

Lines differ in marker and style as well as in colour.
"""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from gpo.report.spectra import draw_slopes, limit_to_truth, spectrum_labels

Rows = Sequence[Mapping[str, Any]]

# The palette of Okabe and Ito, which is safe for colour-blind readers.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = "os^Dvp"
GPO_COLOR, BASELINE_COLOR = "#D55E00", "#0072B2"
MEGABYTE = 2**20
REFERENCES = {"truth": ("black", "-"), "persistence": ("0.5", "--"), "climatology": ("0.5", ":")}
"""Colours and line styles of truth and reference forecasts."""


def draw_curves(
    curves: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    xlabel: str,
    ylabel: str,
    title: str,
    *,
    is_log: bool = False,
) -> Figure:
    """Returns a figure with one line per name and a logarithmic vertical axis.

    Args:
        curves: Abscissae and ordinates by name.
        xlabel: Label of the horizontal axis.
        ylabel: Label of the vertical axis.
        title: Title of the figure.
        is_log: Whether the horizontal axis is logarithmic as well.
    """
    figure, axes = plt.subplots(figsize=(9, 5.5), layout="constrained")
    colors, markers = plt.get_cmap("viridis"), "os^vD<>pP*Xh"
    models = [name for name in curves if name not in REFERENCES]
    for name, (x, y) in curves.items():
        if name in REFERENCES:
            color, line = REFERENCES[name]
            axes.plot(x, y, line, color=color, linewidth=2, label=name)
            continue
        number = models.index(name)
        color = GPO_COLOR if name == "gpo" else colors(number / max(len(models), 1))
        width = 2.5 if name == "gpo" else 1.2
        marker = markers[number % len(markers)]
        axes.plot(x, y, color=color, linewidth=width, marker=marker, markersize=4, label=name)
    axes.set(xlabel=xlabel, ylabel=ylabel, title=title, yscale="log")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    low, high = axes.get_ylim()
    if high < 20 * low:
        # Powers of ten alone would label one tick, or none.
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}")
    if is_log:
        axes.set_xscale("log")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, ncols=2)
    return figure


def draw_spectra(
    curves: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    about: Mapping[str, str],
    title: str,
) -> Figure:
    """Returns a figure of spectra of truth and models; those of energy with reference slopes.

    Args:
        curves: Wavenumbers or degrees, and power, by name.
        about: The `quantity` and the `label` of the scale, as in `results.json`.
        title: Title of the figure.
    """
    quantity, label = about.get("quantity", "variance"), about.get("label", "wave number")
    figure = draw_curves(curves, *spectrum_labels(quantity, label), title, is_log=True)
    (axes,) = figure.axes
    if "truth" in curves:
        wavenumbers, power = (np.array(part) for part in curves["truth"])
        limit_to_truth(axes, power)
        if quantity == "kinetic energy":
            draw_slopes(axes, wavenumbers, power)
            axes.legend(fontsize=8, ncols=2)
    return figure


def draw_scaling(rows: Rows, against: str = "sites") -> Figure:
    """Returns a figure of time and memory against one varied quantity, with fitted exponents.

    Args:
        rows: Rows of `measure_scaling`.
        against: The varied quantity: sites, or a field of gpo-paper's configuration.
    """
    sweep = [row for row in rows if row["against"] == against]
    if not sweep:
        choices = ", ".join(dict.fromkeys(row["against"] for row in rows))
        raise ValueError(f"`against` must be one of {choices or 'no rows'}, got {against!r}.")
    unit = "CPU seconds" if sweep[0]["device"] == "cpu" else "seconds"
    batch = sweep[0]["batch_size"]
    step = f"a step of {batch} sample{'s' if batch > 1 else ''}"
    figure, panels = plt.subplots(1, 2, figsize=(12, 6), layout="constrained")
    _draw_lines(panels[0], sweep, "seconds", 1.0)
    _draw_lines(panels[1], sweep, "bytes", 1 / MEGABYTE)
    panels[0].set(ylabel=f"{unit} of {step}", title="time")
    panels[1].set(ylabel=f"MB, peak of {step}", title="memory")
    for axes in panels:
        axes.set(xlabel=sweep[0]["label"], xscale="log", yscale="log")
        axes.grid(alpha=0.3)
        if axes.lines:
            below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.12), "ncols": 2}
            axes.legend(title="exponent p of y ∝ xᵖ", **below)
    return figure


def draw_efficiency(rows: Rows) -> Figure:
    """Returns a bar chart of parameters, memory and times of a step.

    Args:
        rows: Rows of `measure_efficiency`; the note of a model without measurements is drawn.
    """
    unit = "CPU s" if rows[0]["device"] == "cpu" else "s"
    panels = (
        ("parameters", "parameters, million", 1e-6),
        ("training_bytes", "peak memory of a training step, MB", 1 / MEGABYTE),
        ("training_seconds", f"training step, {unit}", 1.0),
        ("inference_seconds", f"inference step, {unit}", 1.0),
    )
    size = (15, 1.2 + 0.35 * len(rows))
    figure, grid = plt.subplots(1, len(panels), figsize=size, sharey=True, layout="constrained")
    names = [row["model"] for row in rows]
    colors = [GPO_COLOR if name.startswith("gpo") else BASELINE_COLOR for name in names]
    for axes, (key, label, factor) in zip(grid, panels, strict=True):
        lengths = [factor * (row[key] or 0.0) for row in rows]
        bars = axes.barh(names, lengths, color=colors)
        texts = [f"{length:,.0f}" if length >= 100 else f"{length:.3g}" for length in lengths]
        texts = [text if length else "" for text, length in zip(texts, lengths, strict=True)]
        axes.bar_label(bars, texts, fontsize=8, padding=3)
        axes.set(xlabel=label, xlim=(0, 1.25 * max(lengths, default=0.0) or 1.0))
        axes.grid(alpha=0.3, axis="x")
        axes.set_axisbelow(True)
    for index, row in enumerate(rows):
        if row["note"]:
            grid[0].text(0, index, f" {row['note']}", va="center", fontsize=8)
    grid[0].invert_yaxis()
    sites, batch = "×".join(map(str, rows[0]["grid_shape"])), rows[0]["batch_size"]
    figure.suptitle(f"{sites} sites, batch {batch}")
    return figure


def _draw_lines(axes: Axes, rows: Rows, unit: str, factor: float) -> None:
    """Draws training as solid and inference as dashed lines, with a colour per model."""
    models = dict.fromkeys(row["model"] for row in rows)
    for model, color, marker in zip(models, cycle(COLORS), cycle(MARKERS), strict=False):
        for part, line in (("training", "-"), ("inference", "--")):
            key = f"{part}_{unit}"
            measured = [row for row in rows if row["model"] == model and row[key]]
            if not measured:
                continue
            exponent = measured[0]["exponents"][key]
            slope = "" if exponent is None else f", p = {exponent:.2f}"
            axes.plot(
                [row["value"] for row in measured], [factor * row[key] for row in measured], line,
                color=color, marker=marker, label=f"{model}, {part}{slope}",
            )  # fmt: skip
