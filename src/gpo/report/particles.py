"""Figures of the Gaussian particles of an encoder, and of the field reconstructed from them.

A particle is an ellipse with center mu and half axes proportional to sigma; the colour is its weight.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from torch import Tensor

from gpo.atomic_files import atomic_file
from gpo.data.geometry import Geometry
from gpo.forecast.examples import Example
from gpo.forecast.forecaster import Forecaster
from gpo.inspect.cloud import ParticleCloud
from gpo.interpretation.particle_fields import ParticleReconstruction, reconstruct
from gpo.model.particles import Particles
from gpo.numerics.domain import Domain
from gpo.report.appearance import add_bar, input_label
from gpo.report.contact_sheet import color_limits, draw_panel, draw_values, panel_height
from gpo.report.fields import label_plane
from gpo.report.motion import draw_motion

OTHER_DATA = "other-data"
"""File name of the figure of the test split and other data, without its ending."""
MAX_PARTICLES = 250
"""Maximum number of particles that are drawn."""
FRACTIONS = (0.05, 0.1, 0.15, 0.25, 0.5, 1.0)
"""Choices of half axes, in units of sigma."""
MAX_HALF_AXIS = 0.03
"""Maximum median half axis, in lengths of the domain."""


def draw_particles(
    axes: Axes, particles: Particles, coords: Float[Tensor, "points dim"], domain: Domain
) -> None:
    """Draws some particles of the first sample: ellipses, or dots in 1-D.

    In three dimensions, particles that intersect the middle plane of the last axis are drawn.

    Args:
        axes: The panel, with a field.
        particles: The particles of a batch.
        coords: Their sites.
        domain: The domain.
    """
    shown = select_particles(particles, domain, MAX_PARTICLES)
    weights = shown.weights.numpy()
    if domain.dim == 1:
        marks = axes.scatter(shown.centers[:, 0], shown.scales[:, 0], c=weights, s=12)
        axes.set(xlabel="center μ", ylabel="scale σ")
        plt.colorbar(marks, ax=axes, label="weight w")
        return
    fraction = readable_fraction(shown)
    ellipses = PolyCollection(
        list(outlines(shown, fraction)), array=weights, cmap="viridis", linewidths=1.0
    )
    ellipses.set_facecolor("none")
    # A light outline separates dark ellipses from a dark field.
    ellipses.set_path_effects([withStroke(linewidth=2.0, foreground="white")])
    axes.add_collection(ellipses)
    add_bar(axes, ellipses, f"weight w (half axes {fraction:g} σ)")
    label_plane(axes, coords, domain)


def select_particles(particles: Particles, domain: Domain, max_particles: int) -> ParticleCloud:
    """Returns the particle of largest weight of random sites of the first sample, with a fixed seed.

    Args:
        particles: The particles of a batch.
        domain: The domain; in three dimensions only particles that intersect the middle plane.
        max_particles: Maximum number of particles.
    """
    parts = (particles.centers, particles.scales, particles.weights)
    detached = Particles(*(part[:1].detach().cpu() for part in parts))
    cloud = detached.cloud(domain)
    heaviest = detached.weights[0].argmax(-1)
    is_drawn = cloud.gaussians == heaviest[cloud.sites]
    if domain.dim == 3 and not domain.is_sphere:
        middle = (domain.lower[2] + domain.upper[2]) / 2
        is_drawn &= (cloud.centers[:, 2] - middle).abs() < cloud.scales[:, 2]
    rows = is_drawn.nonzero().flatten()
    # Random, because evenly spaced sites of a grid would form stripes.
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
    return cloud.rows(rows[order[:max_particles]])


def readable_fraction(cloud: ParticleCloud) -> float:
    """Returns the largest of `FRACTIONS` at which ellipses are small relative to the domain."""
    size = float((cloud.scales / cloud.domain.unit_lengths(cloud.scales)).amax(-1).median())
    return max((part for part in FRACTIONS if part * size <= MAX_HALF_AXIS), default=FRACTIONS[0])


def outlines(
    cloud: ParticleCloud, fraction: float, plot_axes: tuple[int, int] = (0, 1)
) -> Float[np.ndarray, "particles corners axes"]:
    """Returns ellipses around the centers, on the sphere in longitude and latitude.

    Args:
        cloud: The particles.
        fraction: Half axes in units of sigma.
        plot_axes: The horizontal and the vertical axis.
    """
    if cloud.domain.is_sphere:
        return cloud.footprints(fraction).map_outlines(32).numpy()
    angle = np.linspace(0, 2 * np.pi, 32, endpoint=False)
    circle = np.stack([np.cos(angle), np.sin(angle)], -1)
    parts = (cloud.centers, cloud.scales)
    centers, scales = (part[:, None, list(plot_axes)].numpy() for part in parts)
    return centers + fraction * scales * circle


def outlines_in(
    axes: Axes, cloud: ParticleCloud, fraction: float, geometry: Geometry
) -> Float[np.ndarray, "particles corners axes"]:
    """Returns ellipses in the coordinates of a panel that shows a field.

    Args:
        axes: The panel.
        cloud: The particles.
        fraction: Half axes in units of sigma.
        geometry: The sites of the field.
    """
    shapes = outlines(cloud, fraction, geometry.plot_axes)
    if cloud.domain.is_sphere:
        # Longitudes of the panel may differ from those of the outlines by full turns.
        middle, longitudes = sum(axes.get_xlim()) / 2, shapes[..., 0].mean(-1)
        shapes[..., 0] += 360 * np.round((middle - longitudes) / 360)[:, None]
    return shapes


def draw_particle_panels(
    forecaster: Forecaster, rows: Mapping[str, tuple[Example, Geometry]]
) -> Figure | None:
    """Returns field, particle reconstruction, difference and particles.

    Returns None in one dimension, and where no encoder produces particles.

    Args:
        forecaster: A trained model.
        rows: Examples and their sites by name; each has a row of panels.
    """
    results = {name: reconstruct(forecaster, example) for name, (example, _) in rows.items()}
    drawn = {name: part for name, part in results.items() if part is not None}
    if not drawn or any(geometry.domain.dim == 1 for _, geometry in rows.values()):
        return None
    height = sum(panel_height(rows[name][1]) for name in drawn) + 0.3
    figure, grid = plt.subplots(
        len(drawn), 4, figsize=(12.4, height), squeeze=False, layout="constrained"
    )
    task = forecaster.task
    for (name, part), panels in zip(drawn.items(), grid, strict=True):
        title = f"{name}: {task.fields[0]}"
        _draw_row(list(panels), title, input_label(task), part, *rows[name])
    return figure


def _draw_row(
    panels: list[Axes],
    title: str,
    label: str,
    reconstruction: ParticleReconstruction,
    example: Example,
    geometry: Geometry,
) -> None:
    is_known = example.weights[0].numpy() > 0
    field = reconstruction.field[:, 0].numpy()
    reconstructed = reconstruction.reconstructed[:, 0].numpy()
    error, limits = np.abs(reconstructed - field), color_limits(field[is_known])
    largest = float(np.nan_to_num(error[is_known]).max()) or 1.0
    for panel, name, shown, ends in (
        (panels[0], title, field, limits),
        (panels[1], "particle reconstruction", reconstructed, limits),
        (panels[2], "absolute difference", error, (0.0, largest)),
    ):
        draw_panel(panel, name, label, geometry, np.where(is_known, shown, np.nan), ends)
    draw_values(panels[3], geometry, np.where(is_known, field, np.nan), limits)
    draw_particles(panels[3], reconstruction.particles, example.coords[0], geometry.domain)
    panels[3].set_title("particles, over the field", fontsize=9)
    panels[3].tick_params(labelsize=7)


def save_other_data(
    forecaster: Forecaster, rows: Mapping[str, tuple[Example, Geometry]], folder: Path
) -> None:
    """Writes the figure of test split and other data for the report; no file without particles."""
    figure = draw_motion(forecaster, rows) or draw_particle_panels(forecaster, rows)
    if figure is None:
        return
    folder.mkdir(exist_ok=True)
    with atomic_file(folder / f"{OTHER_DATA}.png") as partial:
        figure.savefig(partial, dpi=90)
    plt.close(figure)
