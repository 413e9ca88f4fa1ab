"""The figure of errors of `represent.py`, drawn from the rows of its table."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FormatStrFormatter, LogLocator

LINES = {
    "Gaussians": (3, "#d55e00", "o-", 2.2),
    "axis-aligned Gaussians": (4, "#e69f00", "^--", 1.2),
    "lattice": (6, "#0072b2", "s-", 1.2),
    "Fourier": (7, "#009e73", "D-", 1.2),
    "wavelets": (8, "#cc79a7", "v-", 1.2),
    "POD of other frames": (9, "0.5", "x:", 1.2),
}
"""Table column, color, style and width of every line, by name."""


def draw_errors(path: Path, rows: Sequence[str]) -> None:
    """Draws error against numbers stored, a panel per data set, from rows of the table."""
    cells = [[cell.strip(" *") for cell in row.strip().strip("|").split("|")] for row in rows]
    names = list(dict.fromkeys(row[0] for row in cells))
    size = (3.1 * len(names), 3.4)
    figure, grid = plt.subplots(1, len(names), figsize=size, squeeze=False, layout="constrained")
    for axes, name in zip(grid[0], names, strict=True):
        _draw_panel(axes, name, [row for row in cells if row[0] == name])
    grid[0, 0].set_ylabel("relative L2, field minus its mean")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(LINES), frameon=False)
    figure.savefig(path, dpi=80)
    plt.close(figure)


def _draw_panel(axes: Axes, name: str, rows: Sequence[Sequence[str]]) -> None:
    for label, (column, color, style, width) in LINES.items():
        available = [row for row in rows if row[column] != "-"]
        # An axis-aligned Gaussian in two dimensions has one parameter less than a full one.
        numbers = [int(row[2]) - int(row[1]) * (column == 4) for row in available]
        errors = [float(row[column]) for row in available]
        axes.plot(numbers, errors, style, color=color, linewidth=width, markersize=4, label=label)
    axes.set(xscale="log", yscale="log", xlabel="numbers stored")
    axes.set_title(name, fontsize=9)
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FormatStrFormatter("%g"))
    axes.minorticks_off()
    ticks = [int(row[2]) for row in rows]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.tick_params(labelsize=7)
    axes.grid(which="both", color="0.9", linewidth=0.6)
