"""A field beside its Gaussians: truth, reconstruction, error, and ellipses of one standard deviation."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from gpo.atomic_files import whole_file
from gpo.report.appearance import labelled
from gpo.report.contact_sheet import color_limits, draw_panel, draw_values, panel_height
from gpo_mixture.mixture import GaussianMixture
from gpo_mixture.represented import RepresentedField

COLORS = ("#2166ac", "#b2182b")
"""Of Gaussians of negative and positive amplitude."""
VEIL = 0.6
"""How much of the field white covers below the ellipses."""


def draw_mixtures(rows: Mapping[str, RepresentedField], channel: int = 0) -> Figure:
    """Returns a row of panels per field: truth, reconstruction, absolute error, ellipses.

    Args:
        rows: By title, a field and its Gaussians.
        channel: Which variable is drawn.
    """
    height = sum(panel_height(field.geometry) + 0.25 for field in rows.values())
    figure, grid = plt.subplots(
        len(rows), 4, figsize=(15.5, height), squeeze=False, layout="constrained"
    )
    for (title, field), panels in zip(rows.items(), grid, strict=True):
        _draw_row(list(panels), title, field, channel)
    return figure


def save_mixtures_figure(path: Path, rows: Mapping[str, RepresentedField]) -> None:
    """Writes the picture of `draw_mixtures`, in the format of its ending."""
    figure = draw_mixtures(rows)
    with whole_file(path) as partial:
        figure.savefig(partial, dpi=100)
    plt.close(figure)


def _draw_row(panels: list[Axes], title: str, field: RepresentedField, channel: int) -> None:
    geometry, mixture = field.geometry, field.mixture
    known = ~geometry.is_masked
    truth = np.where(known, field.values[:, channel], np.nan)
    made = mixture(torch.from_numpy(geometry.coords))[:, channel].numpy()
    made = np.where(known, made, np.nan)
    error, limits = np.abs(made - truth), color_limits(truth)
    largest = float(np.nanmax(error)) or 1.0
    units = field.units[channel] if field.units else ""
    label = labelled(mixture.variables[channel], units) if mixture.variables else ""
    values, weights = (np.nan_to_num(part) for part in (field.values, geometry.weights))
    coords = torch.from_numpy(geometry.coords)
    relative = mixture.error(torch.from_numpy(values), coords, torch.from_numpy(weights))
    draw_panel(panels[0], title, label, geometry, truth, limits)
    draw_panel(panels[1], f"{len(mixture)} Gaussians, relative L2 {relative:.3g}", label, geometry, made, limits)  # fmt: skip
    draw_panel(panels[2], "absolute error", label, geometry, error, (0.0, largest))
    draw_ellipses(panels[3], field, channel)


def draw_ellipses(axes: Axes, field: RepresentedField, channel: int = 0) -> None:
    """Draws the Gaussians over their field: ellipses of one standard deviation, dots on a line.

    In space those are drawn that the middle plane of the last axis cuts, as seen along it. The
    color is the sign of the amplitude.

    Args:
        axes: Where to draw.
        field: The field and its Gaussians.
        channel: The variable that is drawn.
    """
    geometry, mixture = field.geometry, field.mixture
    truth = np.where(geometry.is_masked, np.nan, field.values[:, channel])
    draw_values(axes, geometry, truth, color_limits(truth))
    axes.set_title("Gaussians: 1 σ, red rises, blue falls", fontsize=9)
    axes.tick_params(labelsize=7)
    if geometry.domain.dim == 1:
        _draw_line(axes, mixture, channel)
        return
    limits = axes.get_xlim(), axes.get_ylim()
    axes.add_patch(Rectangle((0, 0), 1, 1, color="white", alpha=VEIL, transform=axes.transAxes))
    outlines, kept = _outlines(mixture, field)
    shifts = _shifts(field)
    is_positive = (mixture.amplitudes[kept, channel] > 0).long().numpy()
    colors = [COLORS[number] for number in is_positive]
    for shift in shifts:
        axes.add_collection(LineCollection(list(outlines + shift), colors=colors, linewidths=0.9))
    axes.set(xlim=limits[0], ylim=limits[1])


def _outlines(mixture: GaussianMixture, field: RepresentedField) -> tuple[np.ndarray, np.ndarray]:
    """Returns closed lines in the plane that is drawn, and whose they are."""
    domain = mixture.domain
    if domain.is_sphere:
        # Without the corners at a pole: a line around it goes on at the other side of the map.
        outlines = mixture.footprints().map_outlines(40).numpy()[:, :-2]
        return outlines, np.arange(len(mixture))
    centers, covariances = mixture.centers.numpy(), mixture.covariances.numpy()
    kept = np.arange(len(mixture))
    if domain.dim == 3:
        middle = (domain.lower[2] + domain.upper[2]) / 2
        kept = kept[np.abs(centers[:, 2] - middle) < mixture.scales[:, 2].numpy()]
    drawn = list(field.geometry.drawn_axes)
    roots = np.linalg.cholesky(covariances[kept][:, drawn][:, :, drawn])
    angle = np.linspace(0, 2 * np.pi, 40)
    around = np.stack([np.cos(angle), np.sin(angle)], -1)
    return centers[kept][:, None, drawn] + around @ roots.transpose(0, 2, 1), kept


def _shifts(field: RepresentedField) -> list[np.ndarray]:
    """Returns by how much outlines are repeated, so that they go on at the other side."""
    domain = field.mixture.domain
    if domain.is_sphere:
        return [np.array([turn, 0.0]) for turn in (-360.0, 0.0, 360.0)]
    found = [np.zeros(2)]
    for number, axis in enumerate(field.geometry.drawn_axes):
        if domain.periodic[axis]:
            step = np.eye(2)[number] * (domain.upper[axis] - domain.lower[axis])
            found = [shift + turn * step for shift in found for turn in (-1, 0, 1)]
    return found


def _draw_line(axes: Axes, mixture: GaussianMixture, channel: int) -> None:
    """Draws every Gaussian of a line as a bar of one standard deviation to either side."""
    heights = (mixture.offset[channel] + mixture.amplitudes[:, channel]).numpy()
    colors = [COLORS[int(amplitude > 0)] for amplitude in mixture.amplitudes[:, channel]]
    centers, scales = mixture.centers[:, 0].numpy(), mixture.scales[:, 0].numpy()
    axes.hlines(heights, centers - scales, centers + scales, colors=colors, linewidth=0.9)
