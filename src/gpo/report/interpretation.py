"""The figures of `interpret.json`; `interpretation_text.py` says what is seen in them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from gpo.data.geometry import Geometry
from gpo.evaluate.interpret.causes import patches
from gpo.evaluate.interpret.interpretation import Interpretation
from gpo.report.contact_sheet import draw_panel, panel_height
from gpo.report.interpretation_text import banded

CHANCE, FOUND, NOTHING = "0.8", "#d55e00", "#0072b2"
"""Colours of what chance gives, of what stands out from it, and of what does not."""


def draw_interpretation(found: Interpretation, geometry: Geometry) -> dict[str, Figure]:
    """Returns one figure per question that could be answered.

    Args:
        found: What `gpo interpret` found.
        geometry: The sites of the test examples, the first ones where they differ.
    """
    figures: dict[str, Figure] = {}
    if "reason" not in found.structures and banded(found.structures):
        figures["structures"] = _draw_structures(found.structures)
    if "reason" not in found.windows:
        draw = _draw_waves if found.windows["kind"] == "waves" else _draw_coverage
        figures["modes"] = draw(found.windows, found.causes)
    if "reason" not in found.causes:
        figures["faithfulness"] = _draw_faithfulness(found.causes["faithfulness"])
        figures["regions"] = _draw_regions(found.causes["regions"], geometry)
    return figures


def _draw_structures(structures: Mapping[str, Any]) -> Figure:
    entries = banded(structures)
    figure, axes = plt.subplots(figsize=(8, 0.9 + 0.3 * len(entries)), layout="constrained")
    for place, entry in enumerate(entries.values()):
        axes.barh(place, entry["high"] - entry["low"], left=entry["low"], height=0.6, color=CHANCE)
        is_found = not entry["low"] <= entry["value"] <= entry["high"]
        axes.plot(entry["value"], place, "o", color=FOUND if is_found else NOTHING, markersize=7)
    # Never so narrow that next to nothing looks like something.
    reach = max(0.2, *(abs(entry[key]) for entry in entries.values() for key in ("low", "high", "value")))  # fmt: skip
    axes.axvline(0, color="0.3", linewidth=0.8)
    axes.set(xlim=(-1.15 * reach, 1.15 * reach), xlabel="rank correlation over sites; mean cos 2θ")
    axes.set_yticks(range(len(entries)), list(entries))
    axes.invert_yaxis()
    axes.grid(alpha=0.3, axis="x")
    axes.set_axisbelow(True)
    return figure


def _draw_waves(windows: Mapping[str, Any], causes: Mapping[str, Any]) -> Figure:
    figure, panels = plt.subplots(1, 3, figsize=(14, 4.2), layout="constrained")
    vectors = np.array(windows["vectors"])
    layers = windows["layers"]
    for axes, number in zip(panels[:2], (0, len(layers) - 1), strict=True):
        share = np.array(layers[number]["energy_scattered"])
        _draw_wave_vectors(axes, vectors, share, windows["axes"])
        axes.set_title(f"energy scattered back by layer {number + 1}")
    axes = panels[2]
    numbers = np.arange(len(layers[0]["energy_by_shell"]))
    energy = np.mean([layer["energy_by_shell"] for layer in layers], axis=0)
    axes.semilogy(
        numbers,
        energy,
        "s--",
        color="0.4",
        label="share of energy of all waves of a length",
        markersize=4,
    )
    if "reason" not in causes:
        shells = causes["shells"]
        changes = [row["relative_l2"] for row in shells["all_layers"]]
        label = "change of the prediction without them, relative L2"
        axes.semilogy(shells["wavenumbers"], changes, "o-", color=FOUND, label=label, markersize=4)
        axes.axhline(causes["error"], color="0.2", linewidth=0.8, linestyle=":")
        axes.text(numbers[-1], causes["error"], "error of the model", ha="right", va="bottom", fontsize=8)  # fmt: skip
    axes.set(xlabel="wave number |k|")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize=9, frameon=False)
    return figure


def _draw_wave_vectors(axes: Axes, vectors: np.ndarray, share: np.ndarray, names: list[str]) -> None:  # fmt: skip
    """Draws energy over wave vectors; opposite ones, which are the same wave, both."""
    floor = max(1e-4 * float(share.max()), 1e-300)
    if vectors.shape[1] == 1:
        axes.bar(vectors[:, 0], share, width=0.8 * np.diff(vectors[:, 0]).min(), color=NOTHING)
        axes.set(yscale="log", ylim=(floor, 2 * share.max()), xlabel="wave number", ylabel="share")
        return
    if names[0] == "latitude":
        vectors, names = vectors[:, ::-1], names[::-1]
    places, rows = np.unique(vectors[:, :2], axis=0, return_inverse=True)
    total = np.bincount(rows.ravel(), share)
    sides = [np.unique(np.concatenate([places[:, axis], -places[:, axis]])) for axis in (0, 1)]
    plane = np.full([len(side) for side in sides], np.nan)
    for sign in (-1, 1):
        index = tuple(
            np.searchsorted(side, sign * places[:, axis] - 1e-9) for axis, side in enumerate(sides)
        )
        plane[index] = total
    mesh = axes.pcolormesh(
        *sides, plane.T, norm=LogNorm(floor, float(share.max())), cmap="viridis", shading="nearest"
    )
    plt.colorbar(mesh, ax=axes, label="share", extend="min")
    axes.set(xlabel=f"k along {names[0]}", ylabel=f"k along {names[1]}", aspect="equal")


def _draw_coverage(windows: Mapping[str, Any], causes: Mapping[str, Any]) -> Figure:
    layers = windows["layers"]
    coverage = np.concatenate([np.array(layer["coverage"]) for layer in layers])
    extent = np.concatenate([np.array(layer["extent"]) for layer in layers])
    panels = [("coverage: share of the field", coverage, None), ("extent: 1 is everywhere", extent, 1.0)]  # fmt: skip
    if "reason" not in causes:
        changes = np.full(coverage.shape, np.nan)
        heads = len(layers[0]["coverage"])
        for mode in causes["modes"]:
            changes[mode["layer"] * heads + mode["head"], mode["mode"]] = mode["relative_l2"]
        panels.append(("change of the prediction without it", changes, None))
    size = (4.6 * len(panels), 1.2 + 0.22 * len(coverage))
    figure, grid = plt.subplots(1, len(panels), figsize=size, layout="constrained", squeeze=False)
    for axes, (title, values, high) in zip(grid[0], panels, strict=True):
        mesh = axes.pcolormesh(values, cmap="viridis", vmin=0, vmax=high)
        plt.colorbar(mesh, ax=axes)
        axes.set(title=title, xlabel="mode", ylabel="layer and head")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        heads = len(layers[0]["coverage"])
        axes.set_yticks(np.arange(len(layers)) * heads + heads / 2, [f"layer {n + 1}" for n in range(len(layers))])  # fmt: skip
        axes.hlines(np.arange(1, len(layers)) * heads, 0, values.shape[1], color="white")
        axes.invert_yaxis()
    return figure


def _draw_faithfulness(curve: Mapping[str, Any]) -> Figure:
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    counts = curve["removed"]
    label = f"at random, mean and range of {curve['num_random']}"
    axes.fill_between(counts, curve["random_low"], curve["random_high"], color=CHANCE)
    axes.plot(counts, curve["random_mean"], "--", color="0.4", label=label)
    axes.plot(counts, curve["strongest_first"], "o-", color=FOUND, label="most energy first", markersize=4)  # fmt: skip
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xticks(counts, [f"{count:,}" for count in counts], fontsize=8)
    axes.minorticks_off()
    axes.set(xlabel="modes switched off", ylabel="relative L2 against the truth")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)
    return figure


def _draw_regions(regions: Mapping[str, Any], geometry: Geometry) -> Figure:
    number_of = patches(geometry)
    panels = (
        ("change of the prediction without a region", "relative L2", "relative_l2"),
        ("share of that change inside the region", "share", "share_inside"),
    )
    size = (11, 1.4 * panel_height(geometry) + 0.4)
    figure, grid = plt.subplots(1, 2, figsize=size, layout="constrained")
    for axes, (title, label, key) in zip(grid, panels, strict=True):
        numbers = np.array([row.get(key) for row in regions["effects"]], dtype=float)
        shown = np.where(number_of >= 0, numbers[number_of], np.nan)
        high = float(np.nan_to_num(numbers).max()) or 1.0
        draw_panel(axes, title, label, geometry, shown, (0.0, high))
    return figure
