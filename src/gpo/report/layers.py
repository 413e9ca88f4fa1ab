"""Figure of the states of the layers, between input and target, with footprints of particles."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from gpo.data.geometry import Geometry
from gpo.data.splits import evenly
from gpo.evaluation.example import ReportExample
from gpo.forecast.examples import Example
from gpo.forecast.forecaster import Task
from gpo.model.particles import Particles
from gpo.report.appearance import input_label, label_with_units
from gpo.report.contact_sheet import color_limits, draw_panel, in_plane, panel_height
from gpo.report.particles import outlines_in, readable_fraction, select_particles

MAX_COLUMNS = 4
MAX_LAYERS = 6
"""Maximum number of states; layers are thinned evenly."""
NUM_FOOTPRINTS = 90
"""Maximum number of particles that are outlined in a panel."""


@dataclass(frozen=True)
class _Panel:
    title: str
    label: str
    values: np.ndarray
    particles: Particles | None = None
    """Drawn over the values."""


def draw_layers(
    shown: ReportExample,
    geometry: Geometry,
    example: Example,
    task: Task,
    particles: Sequence[Particles] = (),
) -> Figure | None:
    r"""Returns input, states of the layers, windows and target; None where there are no states.

    The paper draws $A^{(k)}(x)=\sum_gz^{(k)}_g(x)$. Row renormalisation keeps that sum, so that all
    layers would look alike; $\sum_gz_g^2$ shows how the mass is distributed over the Gaussians. The
    geometric variant has a state $h$ instead of a basis, and its waves do not depend on the field.

    Args:
        shown: Activations and windows of one example.
        geometry: The sites.
        example: The example.
        task: Names and units of its variables.
        particles: The particles of the last layers; those of an encoder belong to all layers.
    """
    if len(shown.activations) == 0:
        return None
    panels = _panels(shown, example, task, particles)
    columns = min(MAX_COLUMNS, len(panels))
    rows = math.ceil(len(panels) / columns)
    size = (3.1 * columns, rows * panel_height(geometry) + 0.2)
    figure, grid = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    is_known = example.weights[0].numpy() > 0
    for axes, panel in zip(grid.flat, panels, strict=False):
        numbers = np.where(is_known, panel.values, np.nan)
        limits = color_limits(in_plane(geometry, numbers))
        draw_panel(axes, panel.title, panel.label, geometry, numbers, limits, along_grid_axes=True)
        if panel.particles is not None:
            parts = (panel.particles.centers, panel.particles.scales, panel.particles.weights)
            active = Particles(*(part[:1, torch.from_numpy(is_known)] for part in parts))
            draw_footprints(axes, active, geometry, is_one_sigma=len(shown.windows) == 0)
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    return figure


def _panels(
    shown: ReportExample, example: Example, task: Task, particles: Sequence[Particles]
) -> list[_Panel]:
    """Returns the panels, in reading order."""
    has_windows, num_layers = len(shown.windows) > 0, len(shown.activations) - 1
    quantity = "Σ z²" if has_windows else "Σ h²"
    inputs, target = example.fields[0, -1, :, 0].numpy(), task.outputs[0]
    panels = [_Panel(f"input: {task.fields[0]}", input_label(task), inputs)]
    for layer in evenly(range(num_layers + 1), MAX_LAYERS):
        title = f"{quantity} before layer 1" if layer == 0 else f"{quantity} after layer {layer}"
        drawn = None
        if particles and has_windows:
            drawn = particles[-1]
        elif particles and layer > num_layers - len(particles):
            drawn = particles[layer - 1 - num_layers + len(particles)]
        panels.append(_Panel(title, f"{quantity}, no units", shown.activations[layer], drawn))
    if has_windows:
        panels += [
            _Panel(f"a window of layer {layer}", "weight p", shown.windows[layer - 1])
            for layer in evenly(range(1, num_layers + 1), MAX_LAYERS)
        ]
    truth = example.target[0, :, 0].numpy()
    return [*panels, _Panel(f"target: {target}", label_with_units(target, task.units[0]), truth)]


def draw_footprints(
    axes: Axes, particles: Particles, geometry: Geometry, *, is_one_sigma: bool = True
) -> None:
    """Outlines the particle of largest weight at some of the sites.

    Args:
        axes: The panel, with a field.
        particles: The particles of a batch; the first sample is drawn.
        geometry: Their sites.
        is_one_sigma: Whether half axes are the scales; else a fraction of them that is readable.
    """
    domain = geometry.domain
    cloud = select_particles(particles, domain, NUM_FOOTPRINTS)
    fraction = 1.0 if is_one_sigma else readable_fraction(cloud)
    limits = axes.get_xlim(), axes.get_ylim()
    if domain.dim == 1:
        centers, scales = cloud.centers[:, 0].numpy(), fraction * cloud.scales[:, 0].numpy()
        low, high = limits[1]
        heights = np.full(len(centers), low + 0.03 * (high - low))
        axes.hlines(heights, centers - scales, centers + scales, color="#d55e00", alpha=0.5)
        axes.set(xlim=limits[0], ylim=limits[1])
        return
    shapes = outlines_in(axes, cloud, fraction, geometry)
    ellipses = PolyCollection(list(shapes), facecolors="none", edgecolors="0.1", linewidths=0.7)
    ellipses.set_path_effects([withStroke(linewidth=1.8, foreground="white")])
    axes.add_collection(ellipses, autolim=False)
    axes.set(xlim=limits[0], ylim=limits[1])
