"""Animations of a rollout: truth, forecast and error side by side, one frame per step.

Axes, titles and colour bars do not change; they are drawn once for light and once for dark paper. The
fields are drawn without a background, so that the same frames lie on both.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gpo.data.geometry import Geometry
from gpo.data.splits import evenly
from gpo.evaluation.rollout import Rollout
from gpo.report.appearance import darken, label_with_units, picture_bytes
from gpo.report.contact_sheet import color_limits, draw_panel, draw_values, panel_height

PANEL_WIDTH = 3.9
"""Width of each of the three panels, in inches."""
RESOLUTIONS = (110, 80, 60, 45)
"""Dots per inch of frames; the first is taken with which all frames fit into `MAX_BYTES`."""
MAX_BYTES = 2_200_000
"""Maximum size of all frames of all variables."""
MAX_FRAMES, MAX_VARIABLES = 24, 3
FRAME_QUALITY = 80
LINE_COLOR = "#2a78c2"
"""Colour of curves, on light and on dark paper."""


@dataclass(frozen=True)
class Animation:
    """The animation of one variable."""

    variable: str
    light: bytes
    """Axes, titles and colour bars for light paper."""
    dark: bytes
    """The same for dark paper."""
    frames: list[bytes]
    steps: list[int]
    """The step that each frame shows, counted from 1."""
    size: tuple[int, int]
    """Width and height on the page, in pixels."""


def draw_animations(
    rollout: Rollout, variables: Sequence[str], units: Sequence[str]
) -> list[Animation]:
    """Returns an animation of each variable, up to `MAX_VARIABLES`.

    Args:
        rollout: Truth and forecast.
        variables: Names of the variables.
        units: Units of the variables.
    """
    pairs = list(zip(variables, units, strict=True))[:MAX_VARIABLES]
    max_bytes = MAX_BYTES // len(pairs)
    return [_draw(rollout, channel, *pair, max_bytes) for channel, pair in enumerate(pairs)]


def _draw(rollout: Rollout, channel: int, name: str, units: str, max_bytes: int) -> Animation:
    geometry, is_known = rollout.geometry, rollout.is_known
    truth, forecast = (
        np.where(is_known, part[..., channel].double().numpy(), np.nan)
        for part in (rollout.truth, rollout.forecast)
    )
    limits, error_limits = color_limits(truth), _error_limits(truth, forecast)
    steps = evenly(range(len(truth)), MAX_FRAMES)
    label = label_with_units(name, units)
    panels = [("truth", limits), ("forecast", limits), ("forecast - truth", error_limits)]
    height = panel_height(geometry) * PANEL_WIDTH / 3.2
    size = (3 * PANEL_WIDTH, height)
    figure, grid = plt.subplots(1, 3, figsize=size, layout="constrained")
    first = (truth[0], forecast[0], forecast[0] - truth[0])
    for axes, (title, panel_limits), values in zip(grid, panels, first, strict=True):
        draw_panel(axes, title, label, geometry, values, panel_limits)
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
        for axes, (_, panel_limits), field, box in zip(grid, panels, values, boxes, strict=True):
            _draw_frame(axes, geometry, field, panel_limits, box)
        if not frames:
            dpi = next((n for n in RESOLUTIONS if len(_frame(figure, n)) * len(steps) <= max_bytes), RESOLUTIONS[-1])  # fmt: skip
        frames.append(_frame(figure, dpi))
    plt.close(figure)
    pixels = round(100 * size[0]), round(100 * size[1])
    return Animation(name, light, dark, frames, [step + 1 for step in steps], pixels)


def _error_limits(truth: np.ndarray, forecast: np.ndarray) -> tuple[float, float]:
    """Returns symmetric limits: the largest error of all steps, at most the range of the truth."""
    error = np.abs(forecast - truth)
    largest = float(np.max(error, initial=0.0, where=np.isfinite(error)))
    truth_range = float(np.nanmax(truth) - np.nanmin(truth))
    limit = min(largest, truth_range) or largest or 1.0
    return -limit, limit


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
        line.set_color(LINE_COLOR)
    axes.patch.set_visible(False)
    axes.set(xlim=box[0], ylim=box[1])


def _frame(figure: Figure, dpi: int) -> bytes:
    return picture_bytes(figure, dpi, FRAME_QUALITY)
