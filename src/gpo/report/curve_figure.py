"""Several named curves in one figure, told apart without colour too."""

from collections.abc import Mapping, Sequence

from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

REFERENCES = {"truth": ("black", "-"), "persistence": ("0.5", "--"), "climatology": ("0.5", ":")}
"""Colours and lines of what is no model."""


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
        curves: By name, places and heights.
        xlabel: What the horizontal axis is.
        ylabel: What the vertical axis is.
        title: What is seen.
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
        # Models may blow noise up or damp it away; the truth sets the range.
        top = max(curves["truth"][1]) if "truth" in curves else axes.get_ylim()[1]
        axes.set_ylim(top * 1e-10, top * 10)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, ncols=2)
    return figure
