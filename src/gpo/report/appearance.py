"""How figures of the page look: on light and on dark paper, small enough to be sent, units as people write them."""

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
"""Settings of matplotlib. Curves are of colours that all kinds of colour vision tell apart, and that
are seen on white and on black."""
DOTS_PER_INCH = 144
QUALITY = 88
"""Of WebP, out of 100."""
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
DEGREES = frozenset(
    ("degrees", "degree", "degrees_north", "degrees_east", "degree_north", "degree_east")
)


@contextmanager
def styled() -> Iterator[None]:
    """Draws figures with the settings of the page."""
    with plt.rc_context(SETTINGS):
        yield


def readable_units(units: str) -> str:
    """Returns units as people write them: m s**-1 as m s⁻¹, 1/s as s⁻¹, degrees_north as °."""
    if units in DEGREES:
        return "°"
    if units in ("1", "-", ""):
        return ""
    over = re.fullmatch(r"1 ?/ ?([A-Za-z]+)", units)
    plain = f"{over[1]}-1" if over else units
    return re.sub(
        r"(?<=[A-Za-z])(?:\*\*|\^)?(-?\d+)", lambda found: found[1].translate(SUPERSCRIPTS), plain
    )


def labelled(name: str, units: str) -> str:
    """Returns a name with its units in brackets, where it has some."""
    shown = readable_units(units)
    return f"{name} ({shown})" if shown else name


def add_bar(axes: Axes, colors: ScalarMappable, label: str = "") -> None:
    """Draws the colours of a panel beside it, as high as the panel is."""
    room = axes.inset_axes((1.03, 0.0, 0.05, 1.0))
    plt.colorbar(colors, cax=room, label=label)
    room.tick_params(labelsize=7)


def darken(figure: Figure) -> None:
    """Recolours what is neutral for dark paper: letters, axes, rules, black and grey curves.

    Fields keep their colours; missing sites get a darker grey.
    """
    for text in figure.findobj(Text):
        text.set_color(_inverted(text.get_color()))
    for axes in figure.findobj(Axes):
        _darken_axes(axes)


def picture_bytes(figure: Figure, dpi: float = DOTS_PER_INCH) -> bytes:
    """Returns a figure without a background as WebP, or as PNG where pillow lacks it."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=dpi, facecolor="none", pil_kwargs={"compress_level": 1})
    return compressed(Image.open(drawn))


def compressed(image: Image.Image, quality: int = QUALITY) -> bytes:
    """Returns an image as WebP, or as PNG where pillow lacks it."""
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
    # Last, because ticks and their labels are lines and texts too.
    axes.tick_params(which="both", color=_inverted(RULE), labelcolor=_inverted(INK))


def _inverted(color: Any, darkest: float = 0.16) -> Any:
    """Returns a grey of the other side; a colour stays what it is, and so does nothing."""
    if isinstance(color, str) and color.lower() in ("none", "auto"):
        return color
    *parts, opacity = to_rgba(color)
    if opacity == 0 or max(parts) - min(parts) > 0.15:
        return color
    grey = darkest + (0.92 - darkest) * (1 - sum(parts) / 3)
    return (grey, grey, grey, opacity)
