"""The figures of `interpret.json`, each with a caption that states its numbers."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from gpo.data.geometry import Geometry
from gpo.interpretation.ablations import patches
from gpo.interpretation.results import Interpretation
from gpo.report.contact_sheet import draw_panel, panel_height

TITLES = {
    "structures": "Do particles follow structures?",
    "modes": "Which modes are used?",
    "faithfulness": "Do the strongest modes matter most?",
    "regions": "What depends on which region?",
}
"""Heading of every figure."""
CHANCE, FOUND, NOTHING = "0.8", "#d55e00", "#0072b2"
"""Colours of a null distribution, of numbers outside it, and of numbers inside it."""


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
        figures["modes"] = draw(found.windows, found.ablations)
    if "reason" not in found.ablations:
        figures["faithfulness"] = _draw_faithfulness(found.ablations["faithfulness"])
        figures["regions"] = _draw_regions(found.ablations["regions"], geometry)
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
    axes.set(xlim=(-1.15 * reach, 1.15 * reach), xlabel="rank correlation over sites; mean cosine")
    axes.set_yticks(range(len(entries)), list(entries))
    axes.invert_yaxis()
    axes.grid(alpha=0.3, axis="x")
    axes.set_axisbelow(True)
    return figure


def _draw_waves(windows: Mapping[str, Any], ablations: Mapping[str, Any]) -> Figure:
    figure, panels = plt.subplots(1, 3, figsize=(14, 4.2), layout="constrained")
    vectors = np.array(windows["vectors"])
    layers = windows["layers"]
    for axes, number in zip(panels[:2], (0, len(layers) - 1), strict=True):
        energy = np.array(layers[number]["energy_scattered"])
        _draw_wave_vectors(axes, vectors, energy, windows["axes"])
        axes.set_title(f"variance scattered back by layer {number + 1}")
    axes = panels[2]
    numbers = np.arange(len(layers[0]["energy_by_shell"]))
    energy = np.mean([layer["energy_by_shell"] for layer in layers], axis=0)
    axes.semilogy(
        numbers,
        energy,
        "s--",
        color="0.4",
        label="fraction of variance of all waves of a length",
        markersize=4,
    )
    if "reason" not in ablations:
        shells = ablations["shells"]
        changes = [row["relative_l2"] for row in shells["all_layers"]]
        label = "change of the prediction without them, relative L2"
        axes.semilogy(shells["wavenumbers"], changes, "o-", color=FOUND, label=label, markersize=4)
        axes.axhline(ablations["error"], color="0.2", linewidth=0.8, linestyle=":")
        axes.text(numbers[-1], ablations["error"], "error of the model", ha="right", va="bottom", fontsize=8)  # fmt: skip
    axes.set(xlabel="wave number |k|")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize=9, frameon=False)
    return figure


def _draw_wave_vectors(axes: Axes, vectors: np.ndarray, energy: np.ndarray, names: list[str]) -> None:  # fmt: skip
    """Draws the fraction of variance at every wave vector and at its opposite, the same wave."""
    floor = max(1e-4 * float(energy.max()), 1e-300)
    if vectors.shape[1] == 1:
        axes.bar(vectors[:, 0], energy, width=0.8 * np.diff(vectors[:, 0]).min(), color=NOTHING)
        axes.set(
            yscale="log", ylim=(floor, 2 * energy.max()), xlabel="wave number", ylabel="fraction"
        )
        return
    if names[0] == "latitude":
        vectors, names = vectors[:, ::-1], names[::-1]
    places, rows = np.unique(vectors[:, :2], axis=0, return_inverse=True)
    total = np.bincount(rows.ravel(), energy)
    sides = [np.unique(np.concatenate([places[:, axis], -places[:, axis]])) for axis in (0, 1)]
    plane = np.full([len(side) for side in sides], np.nan)
    for sign in (-1, 1):
        index = tuple(
            np.searchsorted(side, sign * places[:, axis] - 1e-9) for axis, side in enumerate(sides)
        )
        plane[index] = total
    mesh = axes.pcolormesh(
        *sides, plane.T, norm=LogNorm(floor, float(energy.max())), cmap="viridis", shading="nearest"
    )
    plt.colorbar(mesh, ax=axes, label="fraction", extend="min")
    axes.set(xlabel=f"k along {names[0]}", ylabel=f"k along {names[1]}", aspect="equal")


def _draw_coverage(windows: Mapping[str, Any], ablations: Mapping[str, Any]) -> Figure:
    layers = windows["layers"]
    coverage = np.concatenate([np.array(layer["coverage"]) for layer in layers])
    extent = np.concatenate([np.array(layer["extent"]) for layer in layers])
    panels = [("coverage: fraction of the field", coverage, None), ("extent: 1 is everywhere", extent, 1.0)]  # fmt: skip
    if "reason" not in ablations:
        changes = np.full(coverage.shape, np.nan)
        heads = len(layers[0]["coverage"])
        for mode in ablations["modes"]:
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
    axes.plot(counts, curve["strongest_first"], "o-", color=FOUND, label="most variance first", markersize=4)  # fmt: skip
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xticks(counts, [f"{count:,}" for count in counts], fontsize=8)
    axes.minorticks_off()
    axes.set(xlabel="ablated modes", ylabel="relative L2 against the truth")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)
    return figure


def _draw_regions(regions: Mapping[str, Any], geometry: Geometry) -> Figure:
    number_of = patches(geometry)
    panels = (
        ("change of the prediction without a region", "relative L2", "relative_l2"),
        ("fraction of that change inside the region", "fraction", "fraction_inside"),
    )
    size = (11, 1.4 * panel_height(geometry) + 0.4)
    figure, grid = plt.subplots(1, 2, figsize=size, layout="constrained")
    for axes, (title, label, key) in zip(grid, panels, strict=True):
        numbers = np.array([row.get(key) for row in regions["effects"]], dtype=float)
        shown = np.where(number_of >= 0, numbers[number_of], np.nan)
        high = float(np.nan_to_num(numbers).max()) or 1.0
        draw_panel(axes, title, label, geometry, shown, (0.0, high))
    return figure


def captions(found: Interpretation) -> dict[str, str]:
    """Returns the caption of every figure."""
    makers: dict[str, tuple[Mapping[str, Any], Callable[[Mapping[str, Any]], str]]] = {
        "structures": (found.structures, _about_structures),
        "modes": (found.windows, _about_windows),
        "faithfulness": (found.ablations, _about_faithfulness),
        "regions": (found.ablations, _about_regions),
    }
    return {name: make(part) for name, (part, make) in makers.items() if "reason" not in part}


def banded(structures: Mapping[str, Any]) -> dict[str, Mapping[str, float]]:
    """Returns every number that has a null distribution, by what is compared."""
    entries = {
        f"{particle} – {structure}": entry
        for particle, row in structures["correlations"].items()
        for structure, entry in row.items()
        if "reason" not in entry
    }
    if "reason" not in structures["alignment"]:
        entries[f"{structures['direction']} – gradient, cos 2θ"] = structures["alignment"]
    if "reason" not in structures.get("along_flow", {"reason": ""}):
        entries["displacement – velocity, cos θ"] = structures["along_flow"]
    return entries


def _about_structures(part: Mapping[str, Any]) -> str:
    entries = banded(part)
    if not entries:
        return "No quantity varies, so nothing can be ranked."
    outside = [name for name, entry in entries.items() if not entry["low"] <= entry["value"] <= entry["high"]]  # fmt: skip
    strongest = max(entries, key=lambda name: abs(entries[name]["value"]))
    found = f"{len(outside)} of {len(entries)} lie outside ({', '.join(outside)})" if outside else f"none of {len(entries)} lies outside"  # fmt: skip
    return (
        f"Dots: measured; grey bars: 95 % of the null distribution ({part['null_means']}). Of them "
        f"{found}; one in twenty would by chance. The largest is {entries[strongest]['value']:+.2f} "
        f"({strongest}), where 1 would be perfect.{_about_flow(part)}{_about_basis(part)}"
        f"{_about_place(part['fraction_from_field'])}"
    )


def _about_flow(part: Mapping[str, Any]) -> str:
    control = part.get("along_flow", {}).get("other_examples")
    if control is None:
        return ""
    return f" With the velocity of other examples at the same sites the cosine is {control:+.2f}."


def _about_basis(part: Mapping[str, Any]) -> str:
    if "basis_at_site" not in part:
        return ""
    return f" The basis of a site's own particles sums to {part['basis_at_site']:.2g} there, between 0 and 1."  # fmt: skip


def _about_place(fractions: Mapping[str, float | None]) -> str:
    known = [fraction for fraction in fractions.values() if fraction is not None]
    if not known:
        return ""
    return (
        f" Of the variance between particles, {min(known):.1%} to {max(known):.1%} is due to the "
        "field, the rest to their site and number."
    )


def _about_windows(part: Mapping[str, Any]) -> str:
    modes = [np.mean(layer["effective_modes"]) for layer in part["layers"]]
    if part["kind"] == "waves":
        text = (
            f"Variance of the state after the filter of a layer, by {len(part['vectors'])} waves. The effective number of "
            f"waves is {modes[0]:.0f} in the first layer and {modes[-1]:.0f} in the last."
        )
        gram = part["gram"]
        if "reason" not in gram and gram["measured"]["fraction_hardly_seen"] > 0:
            text += f" The sites hardly resolve {gram['measured']['fraction_hardly_seen']:.0%} of the wave functions."  # fmt: skip
        return text
    count, extent = len(part["layers"][0]["coverage"][0]), np.mean([layer["extent"] for layer in part["layers"]])  # fmt: skip
    return (
        f"Every row is a head, every column one of its {count} modes; the effective number of modes is "
        f"{min(modes):.1f} to {max(modes):.1f}. The mean extent of a window is {extent:.0%} of the "
        "domain's."
    )


def _about_faithfulness(part: Mapping[str, Any]) -> str:
    curve, about = part["faithfulness"], part["score_against_effect"]
    area = "no number: ablating all modes does not raise the error" if curve["area"] is None else f"{curve['area']:+.2f}"  # fmt: skip
    ranked = "" if about is None else f" Among the modes ablated one by one, variance and effect have a rank correlation of {about:+.2f}."  # fmt: skip
    particles = part["particles"]
    without = "" if "reason" in particles else f" Without any particle the prediction changes by {particles['all']['relative_l2']:.2g}."  # fmt: skip
    return (
        "Where the full line rises above the band, modes of much variance matter more than others. Area "
        f"between both, 0 where variance predicts nothing: {area}.{ranked}{without} The error of the "
        f"model is {part['error']:.2g}."
    )


def _about_regions(part: Mapping[str, Any]) -> str:
    rows = part["regions"]["effects"]
    inside = [row["fraction_inside"] for row in rows if row.get("fraction_inside") is not None]
    expected = [row["fraction_expected"] for row in rows if row.get("fraction_inside") is not None]
    if not inside:
        return "Ablating a region changes nothing."
    return (
        f"The values and particles of one of {len(rows)} regions are ablated at a time. On average "
        f"{np.mean(inside):.0%} of the change is inside the region, {np.mean(expected):.1%} if it "
        "were uniform: the rest is the effect elsewhere."
    )
