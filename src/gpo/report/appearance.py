"""The style of figures: light and dark paper, image files, and the notation of units."""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.rcsetup import cycler
from matplotlib.text import Text
from PIL import Image, features

from gpo.forecast.forecaster import Task

INK, RULE = "#1c2430", "#7b8694"
SETTINGS: Any = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.labelsize": 8.5,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.edgecolor": RULE,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "xtick.color": RULE,
    "ytick.color": RULE,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.prop_cycle": cycler(
        color=["#2a78c2", "#d55e00", "#159a74", "#b65f97", "#c98a00", "#3fa4dc"]
    ),
}
"""Settings of matplotlib. The colours of curves are safe for colour-blind readers and visible on white
and on black."""
DOTS_PER_INCH = 144
QUALITY = 88
"""Quality of WebP, out of 100."""
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
DEGREES = frozenset(
    ("degrees", "degree", "degrees_north", "degrees_east", "degree_north", "degree_east")
)


@contextmanager
def styled() -> Iterator[None]:
    """Context in which figures are drawn with the style of the report."""
    with plt.rc_context(SETTINGS):
        yield


def readable_units(units: str) -> str:
    """Returns units in common notation: m s**-1 as m s⁻¹, 1/s as s⁻¹, degrees_north as °."""
    if units in DEGREES:
        return "°"
    if units in ("1", "-", ""):
        return ""
    inverse = re.fullmatch(r"1 ?/ ?([A-Za-z]+)", units)
    plain = f"{inverse[1]}-1" if inverse else units
    return re.sub(
        r"(?<=[A-Za-z])(?:\*\*|\^)?(-?\d+)", lambda match: match[1].translate(SUPERSCRIPTS), plain
    )


def label_with_units(name: str, units: str) -> str:
    """Returns a name with its units in brackets, where it has any."""
    readable = readable_units(units)
    return f"{name} ({readable})" if readable else name


def input_label(task: Task) -> str:
    """Returns the name of the first input field; with units where it is an output, too."""
    units = dict(zip(task.outputs, task.units, strict=True))
    return label_with_units(task.fields[0], units.get(task.fields[0], ""))


def add_bar(axes: Axes, colors: ScalarMappable, label: str = "") -> None:
    """Draws the colour bar of a panel beside it, as high as the panel."""
    inset = axes.inset_axes((1.03, 0.0, 0.05, 1.0))
    plt.colorbar(colors, cax=inset, label=label)
    inset.tick_params(labelsize=7)


def darken(figure: Figure) -> None:
    """Changes black and grey parts of a figure for dark paper: text, axes and curves.

    Fields keep their colours; missing sites become a darker grey.
    """
    for text in figure.findobj(Text):
        text.set_color(_inverted(text.get_color()))
    for axes in figure.findobj(Axes):
        _darken_axes(axes)


def picture_bytes(figure: Figure, dpi: int = DOTS_PER_INCH, quality: int = QUALITY) -> bytes:
    """Returns a figure without background as WebP, or as PNG where pillow does not support WebP."""
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=dpi, facecolor="none", pil_kwargs={"compress_level": 1})
    return compressed(Image.open(png), quality)


def compressed(image: Image.Image, quality: int = QUALITY) -> bytes:
    """Returns an image as WebP, or as PNG where pillow does not support WebP."""
    stored = io.BytesIO()
    if features.check("webp"):
        image.save(stored, "WEBP", quality=quality, alpha_quality=100, method=4)
    else:
        image.save(stored, "PNG", optimize=True)
    return stored.getvalue()


def _darken_axes(axes: Axes) -> None:
    paper = to_rgba(axes.patch.get_facecolor())
    is_white = min(paper) == 1.0
    axes.patch.set_facecolor("none" if is_white else _inverted(paper, darkest=0.12))
    for spine in axes.spines.values():
        spine.set_edgecolor(_inverted(spine.get_edgecolor()))
    for line in axes.findobj(Line2D):
        line.set_color(_inverted(line.get_color()))
        line.set_markeredgecolor(_inverted(line.get_markeredgecolor()))
        line.set_markerfacecolor(_inverted(line.get_markerfacecolor()))
    legend = axes.get_legend()
    if legend is not None and legend.get_frame_on():
        legend.get_frame().set_facecolor("none")
    # Last, because ticks and their labels are lines and texts, too.
    axes.tick_params(which="both", color=_inverted(RULE), labelcolor=_inverted(INK))


def _inverted(color: Any, darkest: float = 0.16) -> Any:
    """Returns a light grey for a dark one and vice versa; other colours are returned unchanged."""
    if isinstance(color, str) and color.lower() in ("none", "auto"):
        return color
    *parts, opacity = to_rgba(color)
    if opacity == 0 or max(parts) - min(parts) > 0.15:
        return color
    grey = darkest + (0.92 - darkest) * (1 - sum(parts) / 3)
    return (grey, grey, grey, opacity)
