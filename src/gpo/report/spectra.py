"""Spectra of variance or of kinetic energy, with the slopes of turbulence beside the latter."""

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gpo.evaluation.results import Results
from gpo.evaluation.spectrum import quantity_of

SLOPES = {r"$k^{-5/3}$": (-5 / 3, "--"), r"$k^{-3}$": (-3.0, ":")}
"""Inverse cascade of energy and direct cascade of enstrophy, in two dimensions."""
COLORS = {"truth": "black", "model": "C0"}
DECADES = 12
"""How far below the truth's largest number a spectrum is shown: further down is rounding."""


def draw_spectrum(results: Results) -> Figure | None:
    """Returns a panel per variable that has a spectrum; None where no variable has one."""
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
        for who in ("truth", "model", "truth at the end", "model at the end"):
            if who not in part:
                continue
            is_last = who.endswith("end")
            # Where nothing is rolled out there may be no step at all.
            first = f"{who}, one step" if "model at the end" in part else who
            label = f"{who} of the rollout" if is_last else first
            axes.loglog(
                numbers[is_drawn], np.array(part[who])[is_drawn], "--" if is_last else "-",
                color=COLORS[who.split()[0]], label=label,
            )  # fmt: skip
        quantity = quantity_of(part)
        across, up = spectrum_labels(quantity, part["label"], name, results.units.get(name, ""))
        axes.set(title=name, xlabel=across, ylabel=up)
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
    """Returns what stands at the axes of a spectrum.

    Args:
        quantity: Variance or kinetic energy.
        label: What the scale is: wave number or degree.
        variable: Whose variance it is.
        units: Those of the variable.
    """
    symbol = "l" if label == "degree" else "k"
    across = "degree l" if label == "degree" else "wave number k, waves per longest side"
    if quantity == "kinetic energy":
        return across, f"kinetic energy E({symbol})"
    whose = f" of {variable}" if variable else ""
    return across, f"{quantity}{whose} P({symbol}){f' in ({units})²' if units else ''}"


def limit_to_truth(axes: Axes, truth: np.ndarray) -> None:
    """Sets the height by the truth: models may blow noise up or damp it away."""
    positive = truth[truth > 0]
    if len(positive):
        top = float(positive.max())
        axes.set_ylim(max(10.0**-DECADES * top, 0.1 * float(positive.min())), 10 * top)


def draw_slopes(axes: Axes, numbers: np.ndarray, truth: np.ndarray) -> None:
    """Draws power laws a little above the truth, where an inertial range may be looked for.

    Args:
        axes: Both logarithmic.
        numbers: Wave numbers above zero, ascending.
        truth: The kinetic energy of each.
    """
    is_shown = (numbers >= 2) & (numbers <= max(numbers[-1] / 2, 4)) & (truth > 0)
    if is_shown.sum() < 2:
        return
    shown, heights = numbers[is_shown].astype(float), truth[is_shown]
    laws = {name: (shown / shown[0]) ** exponent for name, (exponent, _) in SLOPES.items()}
    # Both start at one point, from which the steeper one clears the truth.
    start = 3.0 * max(float(np.max(heights / law)) for law in laws.values())
    start = min(start, 30.0 * float(heights[0]))
    for name, law in laws.items():
        axes.loglog(shown, start * law, SLOPES[name][1], color="0.5", linewidth=1.2, label=name)
