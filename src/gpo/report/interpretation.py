"""Figures of `interpret.json`, and their captions with the numbers."""

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
"""Headings of the figures."""
NULL, OUTSIDE, INSIDE = "0.8", "#d55e00", "#0072b2"
"""Colours of a null distribution, of values outside it, and of values inside it."""


def draw_interpretation(results: Interpretation, geometry: Geometry) -> dict[str, Figure]:
    """Returns the figures for which there are results, by name.

    Args:
        results: The results of `gpo interpret`.
        geometry: The sites of the first test example.
    """
    figures: dict[str, Figure] = {}
    if "reason" not in results.structures and values_with_null(results.structures):
        figures["structures"] = _draw_structures(results.structures)
    if "reason" not in results.windows:
        draw = _draw_waves if results.windows["kind"] == "waves" else _draw_coverage
        figures["modes"] = draw(results.windows, results.ablations)
    if "reason" not in results.ablations:
        figures["faithfulness"] = _draw_faithfulness(results.ablations["faithfulness"])
        figures["regions"] = _draw_regions(results.ablations["regions"], geometry)
    return figures


def _draw_structures(structures: Mapping[str, Any]) -> Figure:
    entries = values_with_null(structures)
    figure, axes = plt.subplots(figsize=(8, 0.9 + 0.3 * len(entries)), layout="constrained")
    for row, entry in enumerate(entries.values()):
        axes.barh(row, entry["high"] - entry["low"], left=entry["low"], height=0.6, color=NULL)
        is_outside = not entry["low"] <= entry["value"] <= entry["high"]
        axes.plot(entry["value"], row, "o", color=OUTSIDE if is_outside else INSIDE, markersize=7)
    # A minimum width, so that small values do not look large.
    limit = max(0.2, *(abs(entry[key]) for entry in entries.values() for key in ("low", "high", "value")))  # fmt: skip
    axes.axvline(0, color="0.3", linewidth=0.8)
    axes.set(xlim=(-1.15 * limit, 1.15 * limit), xlabel="rank correlation over sites; mean cosine")
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
        axes.set_title(f"synthesised variance, layer {number + 1}")
    axes = panels[2]
    numbers = np.arange(len(layers[0]["energy_by_shell"]))
    energy = np.mean([layer["energy_by_shell"] for layer in layers], axis=0)
    label = "fraction of variance by wave number"
    axes.semilogy(numbers, energy, "s--", color="0.4", label=label, markersize=4)
    if "reason" not in ablations:
        shells = ablations["shells"]
        changes = [row["relative_l2"] for row in shells["all_layers"]]
        label = "change of the prediction without these waves, relative L2"
        axes.semilogy(
            shells["wavenumbers"], changes, "o-", color=OUTSIDE, label=label, markersize=4
        )
        axes.axhline(ablations["error"], color="0.2", linewidth=0.8, linestyle=":")
        axes.text(numbers[-1], ablations["error"], "error of the model", ha="right", va="bottom", fontsize=8)  # fmt: skip
    axes.set(xlabel="wave number |k|")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize=9, frameon=False)
    return figure


def _draw_wave_vectors(axes: Axes, vectors: np.ndarray, energy: np.ndarray, names: list[str]) -> None:  # fmt: skip
    """Draws the fraction of variance at each wave vector and its negative, which is the same wave."""
    floor = max(1e-4 * float(energy.max()), 1e-300)
    if vectors.shape[1] == 1:
        axes.bar(vectors[:, 0], energy, width=0.8 * np.diff(vectors[:, 0]).min(), color=INSIDE)
        axes.set(
            yscale="log", ylim=(floor, 2 * energy.max()), xlabel="wave number", ylabel="fraction"
        )
        return
    if names[0] == "latitude":
        vectors, names = vectors[:, ::-1], names[::-1]
    planar, rows = np.unique(vectors[:, :2], axis=0, return_inverse=True)
    total = np.bincount(rows.ravel(), energy)
    sides = [np.unique(np.concatenate([planar[:, axis], -planar[:, axis]])) for axis in (0, 1)]
    plane = np.full([len(side) for side in sides], np.nan)
    for sign in (-1, 1):
        index = tuple(
            np.searchsorted(side, sign * planar[:, axis] - 1e-9) for axis, side in enumerate(sides)
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
    panels = [("coverage: fraction of the field", coverage, None), ("extent: 1 is the whole domain", extent, 1.0)]  # fmt: skip
    if "reason" not in ablations:
        changes = np.full(coverage.shape, np.nan)
        heads = len(layers[0]["coverage"])
        for mode in ablations["modes"]:
            changes[mode["layer"] * heads + mode["head"], mode["mode"]] = mode["relative_l2"]
        panels.append(("change of the prediction without the mode", changes, None))
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
    label = f"random order, mean and range of {curve['num_random']}"
    axes.fill_between(counts, curve["random_low"], curve["random_high"], color=NULL)
    axes.plot(counts, curve["random_mean"], "--", color="0.4", label=label)
    axes.plot(counts, curve["strongest_first"], "o-", color=OUTSIDE, label="largest variance first", markersize=4)  # fmt: skip
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xticks(counts, [f"{count:,}" for count in counts], fontsize=8)
    axes.minorticks_off()
    axes.set(xlabel="ablated modes", ylabel="relative L2 against the truth")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)
    return figure


def _draw_regions(regions: Mapping[str, Any], geometry: Geometry) -> Figure:
    region_numbers = patches(geometry)
    panels = (
        ("change of the prediction without the region", "relative L2", "relative_l2"),
        ("fraction of that change inside the region", "fraction", "fraction_inside"),
    )
    size = (11, 1.4 * panel_height(geometry) + 0.4)
    figure, grid = plt.subplots(1, 2, figsize=size, layout="constrained")
    for axes, (title, label, key) in zip(grid, panels, strict=True):
        numbers = np.array([row.get(key) for row in regions["effects"]], dtype=float)
        values = np.where(region_numbers >= 0, numbers[region_numbers], np.nan)
        high = float(np.nan_to_num(numbers).max()) or 1.0
        draw_panel(axes, title, label, geometry, values, (0.0, high))
    return figure


def captions(results: Interpretation) -> dict[str, str]:
    """Returns the captions of the figures, by name."""
    writers: dict[str, tuple[Mapping[str, Any], Callable[[Mapping[str, Any]], str]]] = {
        "structures": (results.structures, _structures_caption),
        "modes": (results.windows, _windows_caption),
        "faithfulness": (results.ablations, _faithfulness_caption),
        "regions": (results.ablations, _regions_caption),
    }
    return {name: write(part) for name, (part, write) in writers.items() if "reason" not in part}


def values_with_null(structures: Mapping[str, Any]) -> dict[str, Mapping[str, float]]:
    """Returns the values that have a null distribution, by the quantities that are compared."""
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


def _structures_caption(part: Mapping[str, Any]) -> str:
    entries = values_with_null(part)
    if not entries:
        return "All quantities are constant, so there are no rank correlations."
    outside = [name for name, entry in entries.items() if not entry["low"] <= entry["value"] <= entry["high"]]  # fmt: skip
    strongest = max(entries, key=lambda name: abs(entries[name]["value"]))
    names = f" ({', '.join(outside)})" if outside else ""
    return (
        f"Dots are measured values, grey bars 95 % of the null distribution ({part['null_means']}). "
        f"{len(outside)} of {len(entries)} values lie outside{names}; one in twenty would by chance. The "
        f"largest is {entries[strongest]['value']:+.2f} ({strongest}); 1 is the maximum.{_flow_sentence(part)}{_basis_sentence(part)}"
        f"{_variance_sentence(part['fraction_from_field'])}"
    )


def _flow_sentence(part: Mapping[str, Any]) -> str:
    control = part.get("along_flow", {}).get("other_examples")
    if control is None:
        return ""
    return f" The cosine with the velocity of other examples at the same sites is {control:+.2f}."


def _basis_sentence(part: Mapping[str, Any]) -> str:
    if "basis_at_site" not in part:
        return ""
    return f" The basis of its own particles sums to {part['basis_at_site']:.2g} at a site, between 0 and 1."  # fmt: skip


def _variance_sentence(fractions: Mapping[str, float | None]) -> str:
    known = [fraction for fraction in fractions.values() if fraction is not None]
    if not known:
        return ""
    return (
        f" Of the variance between particles, {min(known):.1%} to {max(known):.1%} is due to the "
        "field, the rest to site and number."
    )


def _windows_caption(part: Mapping[str, Any]) -> str:
    modes = [np.mean(layer["effective_modes"]) for layer in part["layers"]]
    if part["kind"] == "waves":
        text = (
            f"Variance of the state after the filter of a layer, over {len(part['vectors'])} waves. The effective number of "
            f"waves is {modes[0]:.0f} in the first layer and {modes[-1]:.0f} in the last."
        )
        gram = part["gram"]
        if "reason" not in gram and gram["measured"]["fraction_hardly_seen"] > 0:
            text += f" The sites do not resolve {gram['measured']['fraction_hardly_seen']:.0%} of the wave functions."  # fmt: skip
        return text
    count, extent = len(part["layers"][0]["coverage"][0]), np.mean([layer["extent"] for layer in part["layers"]])  # fmt: skip
    return (
        f"Each row is a head, each column one of its {count} modes. The effective number of modes is "
        f"{min(modes):.1f} to {max(modes):.1f}. The mean extent of a window is {extent:.0%} of that of "
        "the domain."
    )


def _faithfulness_caption(part: Mapping[str, Any]) -> str:
    curve, correlation = part["faithfulness"], part["score_against_effect"]
    area = "undefined, because ablating all modes does not raise the error" if curve["area"] is None else f"{curve['area']:+.2f}"  # fmt: skip
    ranked = "" if correlation is None else f" For modes ablated one by one, the rank correlation of variance and effect is {correlation:+.2f}."  # fmt: skip
    particles = part["particles"]
    without = "" if "reason" in particles else f" Without particles the prediction changes by {particles['all']['relative_l2']:.2g}."  # fmt: skip
    return (
        "Where the solid line is above the band, modes with a large variance have more effect than "
        "others. The area between line and band, which is 0 where variance does not predict the effect, "
        f"is {area}.{ranked}{without} The error of the model is {part['error']:.2g}."
    )


def _regions_caption(part: Mapping[str, Any]) -> str:
    rows = part["regions"]["effects"]
    inside = [row["fraction_inside"] for row in rows if row.get("fraction_inside") is not None]
    expected = [row["fraction_expected"] for row in rows if row.get("fraction_inside") is not None]
    if not inside:
        return "Ablating a region does not change the prediction."
    return (
        f"The values and particles of {len(rows)} regions are ablated one at a time. On average "
        f"{np.mean(inside):.0%} of the change is inside the region; a uniform change would have "
        f"{np.mean(expected):.1%} there."
    )
