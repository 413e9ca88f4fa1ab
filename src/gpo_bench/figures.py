"""The figures of `gpo bench`: named curves, scaling, efficiency; drawn from rows of tables.

Lines differ in marker and style, not in colour alone.
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

# Okabe and Ito's colours, which all kinds of colour vision tell apart.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = "os^Dvp"
OURS, OTHERS = "#D55E00", "#0072B2"
MEGABYTE = 2**20
REFERENCES = {"truth": ("black", "-"), "persistence": ("0.5", "--"), "climatology": ("0.5", ":")}
"""Colours and line styles of references, which are no models."""


def draw_curves(
    curves: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    xlabel: str,
    ylabel: str,
    title: str,
    *,
    is_log: bool = False,
) -> Figure:
    """Returns one line per name over a logarithmic height.

    Args:
        curves: By name, abscissae and ordinates.
        xlabel: Label of the horizontal axis.
        ylabel: Label of the vertical axis.
        title: Of the figure.
        is_log: Whether the horizontal axis is logarithmic too.
    """
    figure, axes = plt.subplots(figsize=(9, 5.5), layout="constrained")
    colors, markers = plt.get_cmap("viridis"), "os^vD<>pP*Xh"
    models = [name for name in curves if name not in REFERENCES]
    for name, (places, heights) in curves.items():
        if name in REFERENCES:
            color, line = REFERENCES[name]
            axes.plot(places, heights, line, color=color, linewidth=2, label=name)
            continue
        number = models.index(name)
        color = "#d55e00" if name == "gpo" else colors(number / max(len(models), 1))
        width = 2.5 if name == "gpo" else 1.2
        marker = markers[number % len(markers)]
        axes.plot(places, heights, color=color, linewidth=width, marker=marker, markersize=4, label=name)  # fmt: skip
    axes.set(xlabel=xlabel, ylabel=ylabel, title=title, yscale="log")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
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
    """Returns spectra of truth and models, with the slopes of turbulence where they are of energy.

    Args:
        curves: By name, wave numbers or degrees, and what each carries.
        about: The `quantity` and the `label` of the scale, as `results.json` has them.
        title: Of the figure.
    """
    quantity, label = about.get("quantity", "variance"), about.get("label", "wave number")
    figure = draw_curves(curves, *spectrum_labels(quantity, label), title, is_log=True)
    (axes,) = figure.axes
    if "truth" in curves:
        numbers, heights = (np.array(part) for part in curves["truth"])
        limit_to_truth(axes, heights)
        if quantity == "kinetic energy":
            draw_slopes(axes, numbers, heights)
            axes.legend(fontsize=8, ncols=2)
    return figure


def draw_scaling(rows: Rows, against: str = "sites") -> Figure:
    """Returns time and memory against one thing that was varied, with the fitted exponents.

    Args:
        rows: What `measure_scaling` returns.
        against: sites, or a field of gpo-paper's configuration.
    """
    shown = [row for row in rows if row["against"] == against]
    if not shown:
        known = ", ".join(dict.fromkeys(row["against"] for row in rows))
        raise ValueError(f"`against` must be one of {known or 'no rows'}, got {against!r}.")
    unit = "CPU seconds" if shown[0]["device"] == "cpu" else "seconds"
    batch = shown[0]["batch_size"]
    what = f"a step of {batch} sample{'s' if batch > 1 else ''}"
    figure, panels = plt.subplots(1, 2, figsize=(12, 6), layout="constrained")
    _draw_lines(panels[0], shown, "seconds", 1.0)
    _draw_lines(panels[1], shown, "bytes", 1 / MEGABYTE)
    panels[0].set(ylabel=f"{unit} of {what}", title="time")
    panels[1].set(ylabel=f"MB, peak of {what}", title="memory")
    for axes in panels:
        axes.set(xlabel=shown[0]["label"], xscale="log", yscale="log")
        axes.grid(alpha=0.3)
        if axes.lines:
            below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.12), "ncols": 2}
            axes.legend(title="exponent p of y ∝ xᵖ", **below)
    return figure


def draw_efficiency(rows: Rows) -> Figure:
    """Returns parameters, memory and times of a step as bars, a model per line.

    Args:
        rows: What `measure_efficiency` returns; a model that was not measured shows why.
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
    colors = [OURS if name.startswith("gpo") else OTHERS for name in names]
    for axes, (key, label, factor) in zip(grid, panels, strict=True):
        lengths = [factor * (row[key] or 0.0) for row in rows]
        bars = axes.barh(names, lengths, color=colors)
        texts = [f"{length:,.0f}" if length >= 100 else f"{length:.3g}" for length in lengths]
        texts = [text if length else "" for text, length in zip(texts, lengths, strict=True)]
        axes.bar_label(bars, texts, fontsize=8, padding=3)
        axes.set(xlabel=label, xlim=(0, 1.25 * max(lengths, default=0.0) or 1.0))
        axes.grid(alpha=0.3, axis="x")
        axes.set_axisbelow(True)
    for place, row in enumerate(rows):
        if row["note"]:
            grid[0].text(0, place, f" {row['note']}", va="center", fontsize=8)
    grid[0].invert_yaxis()
    sites, batch = "×".join(map(str, rows[0]["grid_shape"])), rows[0]["batch_size"]
    figure.suptitle(f"{sites} sites, batch {batch}")
    return figure


def _draw_lines(axes: Axes, rows: Rows, unit: str, factor: float) -> None:
    """Draws training as full lines and inference as broken ones, a colour per model."""
    models = dict.fromkeys(row["model"] for row in rows)
    for model, color, marker in zip(models, cycle(COLORS), cycle(MARKERS), strict=False):
        mine = [row for row in rows if row["model"] == model]
        for part, line in (("training", "-"), ("inference", "--")):
            key = f"{part}_{unit}"
            known = [row for row in mine if row[key]]
            if not known:
                continue
            exponent = known[0]["exponents"][key]
            slope = "" if exponent is None else f", p = {exponent:.2f}"
            axes.plot(
                [row["value"] for row in known], [factor * row[key] for row in known], line,
                color=color, marker=marker, label=f"{model}, {part}{slope}",
            )  # fmt: skip
