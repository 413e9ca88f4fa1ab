"""Figures of a field and its mixture: truth, reconstruction, error, and one-sigma ellipses."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from gpo.atomic_files import atomic_file
from gpo.report.appearance import label_with_units
from gpo.report.contact_sheet import color_limits, draw_panel, draw_values, panel_height
from gpo_mixture.mixture import GaussianMixture
from gpo_mixture.structure import RepresentedField

COLORS = ("#2166ac", "#b2182b")
"""Colors of negative and positive amplitudes."""
OVERLAY_OPACITY = 0.6
"""Opacity of the white overlay between the field and the ellipses."""


def draw_mixtures(rows: Mapping[str, RepresentedField], channel: int = 0) -> Figure:
    """Draws a row of panels per field: truth, reconstruction, absolute error, ellipses.

    Args:
        rows: Fields with their mixtures, by title.
        channel: Index of the variable to draw.
    """
    height = sum(panel_height(field.geometry) + 0.25 for field in rows.values())
    figure, grid = plt.subplots(
        len(rows), 4, figsize=(15.5, height), squeeze=False, layout="constrained"
    )
    for (title, field), panels in zip(rows.items(), grid, strict=True):
        _draw_row(list(panels), title, field, channel)
    return figure


def save_mixtures_figure(path: Path, rows: Mapping[str, RepresentedField]) -> None:
    """Writes the figure of `draw_mixtures` in the format of the suffix."""
    figure = draw_mixtures(rows)
    with atomic_file(path) as partial:
        figure.savefig(partial, dpi=100)
    plt.close(figure)


def _draw_row(panels: list[Axes], title: str, field: RepresentedField, channel: int) -> None:
    geometry, mixture = field.geometry, field.mixture
    coords = torch.from_numpy(geometry.coords)
    truth = np.where(geometry.is_masked, np.nan, field.values[:, channel])
    reconstruction = np.where(geometry.is_masked, np.nan, mixture(coords)[:, channel].numpy())
    error, limits = np.abs(reconstruction - truth), color_limits(truth)
    largest = float(np.nanmax(error)) or 1.0
    units = field.units[channel] if field.units else ""
    label = label_with_units(mixture.variables[channel], units) if mixture.variables else ""
    values, weights = (np.nan_to_num(part) for part in (field.values, geometry.weights))
    relative = mixture.error(torch.from_numpy(values), coords, torch.from_numpy(weights))
    subtitle = f"{len(mixture)} Gaussians, relative L2 {relative:.3g}"
    draw_panel(panels[0], title, label, geometry, truth, limits)
    draw_panel(panels[1], subtitle, label, geometry, reconstruction, limits)
    draw_panel(panels[2], "absolute error", label, geometry, error, (0.0, largest))
    draw_ellipses(panels[3], field, channel)


def draw_ellipses(axes: Axes, field: RepresentedField, channel: int = 0) -> None:
    """Draws the Gaussians over their field: one-sigma ellipses, bars in one dimension.

    In three dimensions it draws the Gaussians that the middle plane of the last axis cuts,
    projected along that axis. Colors show the sign of the amplitude.

    Args:
        axes: Axes to draw into.
        field: The field and its mixture.
        channel: Index of the variable to draw.
    """
    geometry, mixture = field.geometry, field.mixture
    truth = np.where(geometry.is_masked, np.nan, field.values[:, channel])
    draw_values(axes, geometry, truth, color_limits(truth))
    axes.set_title("Gaussians: 1 σ, positive red, negative blue", fontsize=9)
    axes.tick_params(labelsize=7)
    if geometry.domain.dim == 1:
        _draw_bars(axes, mixture, channel)
        return
    limits = axes.get_xlim(), axes.get_ylim()
    overlay = Rectangle(
        (0, 0), 1, 1, color="white", alpha=OVERLAY_OPACITY, transform=axes.transAxes
    )
    axes.add_patch(overlay)
    outlines, drawn = _outlines(mixture, field)
    is_positive = (mixture.amplitudes[drawn, channel] > 0).long().numpy()
    colors = [COLORS[number] for number in is_positive]
    for shift in _shifts(field):
        axes.add_collection(LineCollection(list(outlines + shift), colors=colors, linewidths=0.9))
    axes.set(xlim=limits[0], ylim=limits[1])


def _outlines(mixture: GaussianMixture, field: RepresentedField) -> tuple[np.ndarray, np.ndarray]:
    """Returns closed polygons in the plane of the figure, and the index of the Gaussian of each."""
    domain = mixture.domain
    indices = np.arange(len(mixture))
    if domain.is_sphere:
        # The last two vertices close a polygon around a pole, which has no outline on the map.
        return mixture.footprints().map_outlines(40).numpy()[:, :-2], indices
    centers, covariances = mixture.centers.numpy(), mixture.covariances.numpy()
    if domain.dim == 3:
        middle = (domain.lower[2] + domain.upper[2]) / 2
        indices = indices[np.abs(centers[:, 2] - middle) < mixture.scales[:, 2].numpy()]
    axes = list(field.geometry.plot_axes)
    factors = np.linalg.cholesky(covariances[indices][:, axes][:, :, axes])
    angle = np.linspace(0, 2 * np.pi, 40)
    circle = np.stack([np.cos(angle), np.sin(angle)], -1)
    return centers[indices][:, None, axes] + circle @ factors.transpose(0, 2, 1), indices


def _shifts(field: RepresentedField) -> list[np.ndarray]:
    """Returns the translations that repeat outlines across periodic boundaries."""
    domain = field.mixture.domain
    if domain.is_sphere:
        return [np.array([degrees, 0.0]) for degrees in (-360.0, 0.0, 360.0)]
    shifts = [np.zeros(2)]
    for number, axis in enumerate(field.geometry.plot_axes):
        if domain.periodic[axis]:
            period = np.eye(2)[number] * (domain.upper[axis] - domain.lower[axis])
            shifts = [shift + turns * period for shift in shifts for turns in (-1, 0, 1)]
    return shifts


def _draw_bars(axes: Axes, mixture: GaussianMixture, channel: int) -> None:
    """Draws every Gaussian in one dimension as a bar of one standard deviation to either side."""
    heights = (mixture.offset[channel] + mixture.amplitudes[:, channel]).numpy()
    colors = [COLORS[int(amplitude > 0)] for amplitude in mixture.amplitudes[:, channel]]
    centers, scales = mixture.centers[:, 0].numpy(), mixture.scales[:, 0].numpy()
    axes.hlines(heights, centers - scales, centers + scales, colors=colors, linewidth=0.9)
