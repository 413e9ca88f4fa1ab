"""The figures of `interpret.json`; `interpretation_text.py` says what is seen in them."""

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
from gpo.interpretation.interpretation import Interpretation
from gpo.report.contact_sheet import draw_panel, panel_height

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


# >>> """What is seen in the figures of `interpret.json`, in a sentence or two each."""

TITLES = {
    "structures": "Do particles sit on structures?",
    "modes": "Which modes are used?",
    "faithfulness": "Do the strongest modes matter most?",
    "regions": "What depends on which region?",
}


def captions(found: Interpretation) -> dict[str, str]:
    """Returns what is seen in every figure, in numbers."""
    makers: dict[str, tuple[Mapping[str, Any], Callable[[Mapping[str, Any]], str]]] = {
        "structures": (found.structures, _about_structures),
        "modes": (found.windows, _about_windows),
        "faithfulness": (found.causes, _about_faithfulness),
        "regions": (found.causes, _about_regions),
    }
    return {name: make(part) for name, (part, make) in makers.items() if "reason" not in part}


def banded(structures: Mapping[str, Any]) -> dict[str, Mapping[str, float]]:
    """Returns every number that has a band, by what is compared."""
    entries = {
        f"{particle} – {structure}": entry
        for particle, row in structures["correlations"].items()
        for structure, entry in row.items()
        if "reason" not in entry
    }
    if "reason" not in structures["alignment"]:
        entries["long axis – gradient direction"] = structures["alignment"]
    return entries


def _about_structures(part: Mapping[str, Any]) -> str:
    entries = banded(part)
    if not entries:
        return "Nothing could be ranked."
    outside = [name for name, entry in entries.items() if not entry["low"] <= entry["value"] <= entry["high"]]  # fmt: skip
    strongest = max(entries, key=lambda name: abs(entries[name]["value"]))
    found = f"{len(outside)} of {len(entries)} lie outside ({', '.join(outside)})" if outside else f"none of {len(entries)} lies outside"  # fmt: skip
    return (
        f"Dots are measured, grey bars hold 95 % of what chance gives ({part['null_means']}). Of them "
        f"{found}; one in twenty would by chance. The largest is {entries[strongest]['value']:+.2f} "
        f"({strongest}), where 1 would be perfect. Of its own particles a site sees "
        f"{part['basis_at_site']:.2g}, between 0 and 1.{_about_place(part['share_from_field'])}"
    )


def _about_place(shares: Mapping[str, float | None]) -> str:
    known = [share for share in shares.values() if share is not None]
    if not known:
        return ""
    return (
        f" Of what differs between particles, {min(known):.1%} to {max(known):.1%} is due to the "
        "field, the rest to their place and number."
    )


def _about_windows(part: Mapping[str, Any]) -> str:
    modes = [np.mean(layer["effective_modes"]) for layer in part["layers"]]
    if part["kind"] == "waves":
        text = (
            f"How the energy that a layer scatters back is shared by {len(part['vectors'])} waves: as "
            f"if there were {modes[0]:.0f} equal ones in the first layer, {modes[-1]:.0f} in the last."
        )
        gram = part["gram"]
        if "reason" not in gram and gram["measured"]["share_hardly_seen"] > 0:
            text += f" {gram['measured']['share_hardly_seen']:.0%} of what waves can express the sites hardly see."  # fmt: skip
        return text
    count, extent = len(part["layers"][0]["coverage"][0]), np.mean([layer["extent"] for layer in part["layers"]])  # fmt: skip
    return (
        f"Every row is a head, every column one of its {count} modes: used as if there were "
        f"{min(modes):.1f} to {max(modes):.1f} equal ones. Windows reach {extent:.0%} as far as the "
        "whole domain on average."
    )


def _about_faithfulness(part: Mapping[str, Any]) -> str:
    curve, about = part["faithfulness"], part["score_against_effect"]
    area = "no number: switching all off does not raise the error" if curve["area"] is None else f"{curve['area']:+.2f}"  # fmt: skip
    ranked = "" if about is None else f" Among the modes switched off one by one, energy and effect have a rank correlation of {about:+.2f}."  # fmt: skip
    return (
        "Where the full line rises above the band, a mode's energy tells that it matters. Area "
        f"between both, 0 where energy tells nothing: {area}.{ranked} Without any particle the "
        f"prediction changes by {part['particles']['all']['relative_l2']:.2g}; the model errs by "
        f"{part['error']:.2g}."
    )


def _about_regions(part: Mapping[str, Any]) -> str:
    rows = part["regions"]["effects"]
    inside = [row["share_inside"] for row in rows if row.get("share_inside") is not None]
    expected = [row["share_expected"] for row in rows if row.get("share_inside") is not None]
    if not inside:
        return "Switching a region off changes nothing."
    return (
        f"The values and particles of one of {len(rows)} regions are switched off at a time. On "
        f"average {np.mean(inside):.0%} of the change stays inside, where an even change would have "
        f"{np.mean(expected):.1%}: the rest is what the region causes elsewhere."
    )
