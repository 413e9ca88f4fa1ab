"""Figures of spectra of variance, and of kinetic energy with the slopes of turbulence."""

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gpo.evaluation.results import Results
from gpo.evaluation.spectrum import quantity_of

SLOPES = {r"$k^{-5/3}$": (-5 / 3, "--"), r"$k^{-3}$": (-3.0, ":")}
"""Exponents of the inverse energy cascade and the direct enstrophy cascade, in two dimensions."""
COLORS = {"truth": "black", "model": "C0"}
MAX_DECADES = 12
"""Decades below the largest value of the truth that are shown; smaller values are rounding errors."""


def draw_spectrum(results: Results) -> Figure | None:
    """Returns a figure with a panel for each variable that has a spectrum; None where none has."""
    drawable = {name: part for name, part in results.spectrum.items() if "reason" not in part}
    if not drawable:
        return None
    columns = min(len(drawable), 3)
    rows = -(-len(drawable) // columns)
    size = (max(4.6 * columns, 6.4), 3.8 * rows)
    figure, grid = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    for (name, part), axes in zip(drawable.items(), grid.flat, strict=False):
        numbers = np.array(part["wavenumbers"])
        is_drawn = numbers > 0
        for source in ("truth", "model", "truth at the end", "model at the end"):
            if source not in part:
                continue
            is_last = source.endswith("end")
            # Static maps and reconstructions have no steps.
            first = f"{source}, one step" if "model at the end" in part else source
            label = f"{source} of the rollout" if is_last else first
            axes.loglog(
                numbers[is_drawn], np.array(part[source])[is_drawn], "--" if is_last else "-",
                color=COLORS[source.split()[0]], label=label,
            )  # fmt: skip
        quantity = quantity_of(part)
        xlabel, ylabel = spectrum_labels(quantity, part["label"], name, results.units.get(name, ""))
        axes.set(title=name, xlabel=xlabel, ylabel=ylabel)
        truth = np.array(part["truth"])[is_drawn]
        limit_to_truth(axes, truth)
        if quantity == "kinetic energy":
            draw_slopes(axes, numbers[is_drawn], truth)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    for axes in grid.flat[len(drawable) :]:
        axes.set_axis_off()
    return figure


def spectrum_labels(
    quantity: str, label: str, variable: str = "", units: str = ""
) -> tuple[str, str]:
    """Returns the labels of the axes of a spectrum.

    Args:
        quantity: Variance or kinetic energy.
        label: Wave number or degree.
        variable: Name of the variable.
        units: Units of the variable.
    """
    symbol = "l" if label == "degree" else "k"
    xlabel = "degree l" if label == "degree" else "wave number k, waves per longest side"
    if quantity == "kinetic energy":
        return xlabel, f"kinetic energy E({symbol})"
    source = f" of {variable}" if variable else ""
    return xlabel, f"{quantity}{source} P({symbol}){f' in ({units})²' if units else ''}"


def limit_to_truth(axes: Axes, truth: np.ndarray) -> None:
    """Sets vertical limits by the truth: models may amplify or damp noise by many decades."""
    positive = truth[truth > 0]
    if len(positive):
        top = float(positive.max())
        axes.set_ylim(max(10.0**-MAX_DECADES * top, 0.1 * float(positive.min())), 10 * top)


def draw_slopes(axes: Axes, numbers: np.ndarray, truth: np.ndarray) -> None:
    """Draws power laws above the spectrum of the truth, over a possible inertial range.

    Args:
        axes: Logarithmic axes.
        numbers: Positive wave numbers, ascending.
        truth: Kinetic energy at each wave number.
    """
    is_shown = (numbers >= 2) & (numbers <= max(numbers[-1] / 2, 4)) & (truth > 0)
    if is_shown.sum() < 2:
        return
    shown, heights = numbers[is_shown].astype(float), truth[is_shown]
    laws = {name: (shown / shown[0]) ** exponent for name, (exponent, _) in SLOPES.items()}
    # Both lines start at the same point, high enough that they stay above the truth.
    start = 3.0 * max(float(np.max(heights / law)) for law in laws.values())
    start = min(start, 30.0 * float(heights[0]))
    for name, law in laws.items():
        axes.loglog(shown, start * law, SLOPES[name][1], color="0.5", linewidth=1.2, label=name)
