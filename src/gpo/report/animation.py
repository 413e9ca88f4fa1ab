"""A rollout as pictures in a row: truth, forecast and error, one frame per step.

What stays (axes, titles, colours) is drawn once on light and once on dark paper. What changes is drawn
without a background, so that one set of frames lies on either.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from gpo.data.geometry import Geometry
from gpo.data.splits import evenly
from gpo.evaluation.rollout import Rollout
from gpo.report.appearance import compressed, darken, labelled, picture_bytes
from gpo.report.contact_sheet import color_limits, draw_panel, draw_values, panel_height

PANEL_WIDTH = 3.9
"""Inches; there are three panels."""
RESOLUTIONS = (110, 80, 60, 45)
"""Dots per inch of frames, the first with which all of them fit."""
MAX_BYTES = 2_200_000
"""Of all frames of all variables together."""
MAX_FRAMES, MAX_VARIABLES = 24, 3
FRAME_QUALITY = 80
LINE = "#2a78c2"
"""Of curves, on light and on dark paper."""


@dataclass(frozen=True)
class Animation:
    """One variable of a rollout."""

    variable: str
    light: bytes
    """Axes, titles and colour bars, on light paper."""
    dark: bytes
    frames: list[bytes]
    steps: list[int]
    """Which step every frame shows, from 1."""
    size: tuple[int, int]
    """Width and height on the page."""


def draw_animations(
    found: Rollout, variables: Sequence[str], units: Sequence[str]
) -> list[Animation]:
    """Returns an animation of each of the first variables.

    Args:
        found: A rollout.
        variables: Names of what is forecast.
        units: Theirs.
    """
    shown = list(zip(variables, units, strict=True))[:MAX_VARIABLES]
    budget = MAX_BYTES // len(shown)
    return [
        _draw(found, channel, *named, budget)
        for channel, named in enumerate(shown)
    ]  # fmt: skip


def _draw(found: Rollout, channel: int, name: str, units: str, budget: int) -> Animation:
    geometry, is_known = found.geometry, found.is_known
    truth, forecast = (
        np.where(is_known, part[..., channel].double().numpy(), np.nan)
        for part in (found.truth, found.forecast)
    )
    limits, wrong = color_limits(truth), _error_limits(truth, forecast)
    steps = evenly(range(len(truth)), MAX_FRAMES)
    label = labelled(name, units)
    panels = [("truth", limits), ("forecast", limits), ("forecast - truth", wrong)]
    height = panel_height(geometry) * PANEL_WIDTH / 3.2
    size = (3 * PANEL_WIDTH, height)
    figure, grid = plt.subplots(1, 3, figsize=size, layout="constrained")
    first = (truth[0], forecast[0], forecast[0] - truth[0])
    for axes, (title, ends), values in zip(grid, panels, first, strict=True):
        draw_panel(axes, title, label, geometry, values, ends)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    boxes = [(axes.get_xlim(), axes.get_ylim()) for axes in grid]
    for axes in grid:
        _clear(axes)
    light = picture_bytes(figure)
    darken(figure)
    dark = picture_bytes(figure)
    _hide_all_but_fields(figure, list(grid))
    frames: list[bytes] = []
    dpi = RESOLUTIONS[0]
    for step in steps:
        values = (truth[step], forecast[step], forecast[step] - truth[step])
        for axes, (_, ends), shown, box in zip(grid, panels, values, boxes, strict=True):
            _draw_frame(axes, geometry, shown, ends, box)
        if not frames:
            dpi = next((n for n in RESOLUTIONS if len(_frame(figure, n)) * len(steps) <= budget), RESOLUTIONS[-1])  # fmt: skip
        frames.append(_frame(figure, dpi))
    plt.close(figure)
    pixels = round(100 * size[0]), round(100 * size[1])
    return Animation(name, light, dark, frames, [step + 1 for step in steps], pixels)


def _error_limits(truth: np.ndarray, forecast: np.ndarray) -> tuple[float, float]:
    """Returns the largest error of all steps, but no more than the truth itself varies."""
    wrong = np.abs(forecast - truth)
    largest = float(np.max(wrong, initial=0.0, where=np.isfinite(wrong)))
    spread = float(np.nanmax(truth) - np.nanmin(truth))
    most = min(largest, spread) or largest or 1.0
    return -most, most


def _clear(axes: Axes) -> None:
    for artist in (*axes.collections, *axes.lines, *axes.images):
        artist.remove()


def _hide_all_but_fields(figure: Figure, panels: list[Axes]) -> None:
    for axes in figure.axes:
        axes.set_visible(axes in panels)
    for axes in panels:
        axes.set_title("")
        axes.set_axis_off()
        for bar in axes.child_axes:
            bar.set_visible(False)


def _draw_frame(
    axes: Axes,
    geometry: Geometry,
    values: np.ndarray,
    limits: tuple[float, float],
    box: tuple[tuple[float, float], tuple[float, float]],
) -> None:
    _clear(axes)
    draw_values(axes, geometry, values, limits)
    for line in axes.lines:
        line.set_color(LINE)
    axes.patch.set_visible(False)
    axes.set(xlim=box[0], ylim=box[1])


def _frame(figure: Figure, dpi: int) -> bytes:
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=dpi, facecolor="none", pil_kwargs={"compress_level": 1})
    return compressed(Image.open(drawn), FRAME_QUALITY)
