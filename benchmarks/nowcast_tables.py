"""Tables and the figure of `nowcast.py`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.colors import PowerNorm
from matplotlib.figure import SubFigure

from gpo_bench.table import Entry, Table

MINUTES = 5
"""Length of a step."""
STYLES = {
    "gpo": ("#D55E00", "o-", 2.5),
    "gpo, network alone": ("#D55E00", "o:", 1.2),
    "extrapolation": ("black", "s--", 1.5),
    "extrapolation, blurred": ("black", "s:", 1.5),
    "pysteps": ("0.35", "x-.", 1.2),
    "persistence": ("0.6", "--", 1.2),
    "climatology": ("0.6", ":", 1.2),
}
"""Colour, line and width by name; other models take colours in turn."""
COLOURS = ("#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MAPS = ("observed", "gpo", "extrapolation", "persistence")
"""Forecasts of the longest lead that are drawn, of those that there are."""


def make_tables(results: Mapping[str, Any]) -> list[str]:
    """Returns a table for each score, and one of the motion, as Markdown."""
    texts = []
    for name, one in results["scores"].items():
        texts.append(_score_table(name, one, results).markdown())
    for model, motion in results["motion"].items():
        texts.append(_motion_text(model, motion, results["num_starts"]))
    sharp, blurred = results["extrapolation"]
    texts.append(
        f"Forecasts from {results['num_starts']} starts of the {results['split']} split; the mean "
        f"and standard deviation over seeds {', '.join(map(str, results['seeds']))}. Settings of "
        f"all models: `{results['settings']}`"
        + "".join(f"; of single models: `{text}`" for text in results["own"])
        + ". Differences are those from the best reference at that lead, which is named, with 95 % "
        "intervals of a circular block bootstrap over starts. CSI: hits over hits, misses and false alarms, of all starts together.\n\n"
        "Extrapolation: Farnebäck's flow and semi-Lagrangian extrapolation, with the smallest "
        f"relative L2 on training frames: {_told(sharp)}; blurred: the same, and the forecast "
        f"smoothed by {blurred['blur']:g} cells at the first lead, growing with the root of it."
    )
    return texts


def _told(config: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in config.items() if name != "blur")


def _score_table(name: str, one: Mapping[str, Any], results: Mapping[str, Any]) -> Table:
    leads = [f"{MINUTES * (step + 1)} min" for step in range(len(one["best_reference"]))]
    table = Table(
        name, "forecast", leads, best="largest" if one["is_higher_better"] else "smallest"
    )
    several = len(results["seeds"]) > 1
    unranked = set()
    for model, values in one["models"].items():
        spreads = values["spread"] if several else [None] * len(leads)
        pairs = zip(values["mean"], spreads, strict=True)
        table.add(model, [Entry(value, spread) for value, spread in pairs])
    for reference, values in one["references"].items():
        table.add(reference, [Entry(value) for value in values])
    for model, rows in one["differences"].items():
        title = f"{model} minus the best reference"
        unranked.add(title)
        entries = []
        for row, best in zip(rows, one["best_reference"], strict=True):
            note = f"{row['low']:+.2g} to {row['high']:+.2g}; {best}"
            entries.append(Entry(row["value"], note=note, digits=2))
        table.add(title, entries)
    table.unranked = frozenset(unranked)
    return table


def _motion_text(model: str, motion: Mapping[str, Any], num_starts: int) -> str:
    if "reason" in motion:
        return f"### Motion of {model}\n\n{motion['reason']}\n"
    lines = [
        f"### Motion: particle {motion['particle'] + 1} of layer {motion['layer'] + 1} of {model}, "
        f"which carries most, beside the optical flow of the same step, {num_starts} starts\n",
        "| where it rains | vector correlation | 95 % of exchanged examples | mean of other examples |",
        "|---|---|---|---|",
    ]
    for name, title in (("whole", "motion"), ("anomalies", "motion minus its mean")):
        row = motion[name]
        lines.append(
            f"| {title} | {row['velocity_correlation']:.3f} | {row['low']:.3f} to {row['high']:.3f} "
            f"| {row['other_examples']:.3f} |"
        )
    lines.append(
        f"\nRoot mean square: displacement {motion['rms_displacement_km']:.2f} km, flow "
        f"{motion['rms_flow_km']:.2f} km. {motion['importance']:.0%} of the predicted change is lost "
        "where the displacement of this particle is zero.\n"
    )
    return "\n".join(lines)


def draw_scores(
    path: Path,
    results: Mapping[str, Any],
    is_seen: np.ndarray,
    fields: Mapping[str, np.ndarray],
) -> None:
    """Draws every score against the lead, and maps of the last start at the longest lead.

    Args:
        path: The file.
        results: All numbers.
        is_seen: The cells of the radar image.
        fields: Forecasts and observation, starts by steps by cells.
    """
    figure = plt.figure(figsize=(13, 6.4), layout="constrained")
    top, bottom = figure.subfigures(2, 1, squeeze=False)[:, 0]
    _draw_lines(top, results)
    names = [name for name in MAPS if name in fields]
    rows, columns = np.nonzero(is_seen)
    inside = slice(rows.min(), rows.max() + 1), slice(columns.min(), columns.max() + 1)
    panels = bottom.subplots(1, len(names))
    image = None
    for axes, name in zip(np.atleast_1d(panels), names, strict=True):
        whole = np.full(is_seen.shape, np.nan)
        whole[is_seen] = fields[name][-1, -1]
        image = axes.imshow(whole[inside], norm=PowerNorm(0.5, 0, 8), cmap="viridis")
        axes.set_title(f"{name}, {MINUTES * fields[name].shape[1]} min ahead", fontsize=10)
        axes.set(xticks=[], yticks=[])
    assert image is not None
    bottom.colorbar(image, ax=panels, label="mm/h", extend="max", shrink=0.8)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _draw_lines(figure: SubFigure, results: Mapping[str, Any]) -> None:
    scores: Mapping[str, Any] = results["scores"]
    grid = np.atleast_1d(figure.subplots(1, len(scores)))
    for axes, (name, one) in zip(grid, scores.items(), strict=True):
        lines = {who: values["mean"] for who, values in one["models"].items()} | one["references"]
        colours = iter(COLOURS * len(lines))
        for who, values in lines.items():
            colour, style, width = STYLES.get(who) or (next(colours), "^-", 1.5)
            leads = MINUTES * np.arange(1, len(values) + 1)
            axes.plot(leads, values, style, color=colour, linewidth=width, markersize=4, label=who)
        axes.set(xlabel="minutes ahead", title=name)
        axes.set_ylim(bottom=0)
    grid[0].legend(fontsize=7)
