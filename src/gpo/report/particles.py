"""The Gaussian particles of an encoder as ellipses, and the field that is reconstructed from them.

An ellipse has its center at mu, half axes proportional to sigma, and its weight as colour.
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

from gpo.data.geometry import Geometry
from gpo.forecast.examples import Example
from gpo.forecast.forecaster import Forecaster
from gpo.inspect.cloud import ParticleCloud
from gpo.interpretation.reconstruction import ParticleReconstruction, reconstruct
from gpo.model.particles import Particles
from gpo.numerics.domain import Domain
from gpo.report.appearance import add_bar, labelled
from gpo.report.contact_sheet import color_limits, draw_panel, draw_values, panel_height
from gpo.report.fields import label_plane
from gpo.report.motion import draw_motion

OTHER_DATA = "other-data"
"""Name of the picture that shows other data than that of training, too."""
FRACTIONS = (0.05, 0.1, 0.15, 0.25, 0.5, 1.0)
"""Half axes of ellipses, in units of sigma."""
LARGEST = 0.03
"""Half axes that most ellipses do not exceed, in lengths of the domain."""


def draw_particles(
    axes: Axes,
    particles: Particles,
    coords: Float[Tensor, "points dim"],
    domain: Domain,
    *,
    sample: int = 0,
    num_particles: int = 250,
    fraction: float | None = None,
) -> None:
    """Draws a selection of the particles of one sample: ellipses, or dots in 1-D.

    In three dimensions those are drawn that the middle plane of the last axis cuts, as seen along it.

    Args:
        axes: Where to draw, over a field.
        particles: The particles of a batch.
        coords: The sites that own them.
        domain: Where they live.
        sample: Which sample of the batch.
        num_particles: How many to draw: spread over the sites, each the heaviest of its site.
        fraction: Half axes in units of sigma; when not given, as much as reads at a glance.
    """
    shown = chosen_particles(particles, sample, domain, num_particles)
    weights = shown.weights.numpy()
    if domain.dim == 1:
        marks = axes.scatter(shown.centers[:, 0], shown.scales[:, 0], c=weights, s=12)
        axes.set(xlabel="center μ", ylabel="scale σ")
        plt.colorbar(marks, ax=axes, label="weight w")
        return
    fraction = fraction or readable_fraction(shown)
    ellipses = PolyCollection(
        list(outlines(shown, fraction)), array=weights, cmap="viridis", linewidths=1.0
    )
    ellipses.set_facecolor("none")
    # A light rim keeps dark ellipses apart from a dark field.
    ellipses.set_path_effects([withStroke(linewidth=2.0, foreground="white")])
    axes.add_collection(ellipses)
    add_bar(axes, ellipses, f"weight w (half axes {fraction:g} σ)")
    label_plane(axes, coords, domain)


def chosen_particles(
    particles: Particles, sample: int, domain: Domain, count: int
) -> ParticleCloud:
    """Returns the heaviest particle of some sites, chosen by a fixed shuffle.

    Args:
        particles: The particles of a batch.
        sample: Which sample of the batch.
        domain: Where they live; in three dimensions those that the middle plane cuts.
        count: How many, at most.
    """
    detached = Particles(
        particles.centers[sample : sample + 1].detach().cpu(),
        particles.scales[sample : sample + 1].detach().cpu(),
        particles.weights[sample : sample + 1].detach().cpu(),
    )
    cloud = detached.cloud(domain)
    heaviest = detached.weights[0].argmax(-1)
    is_drawn = cloud.gaussians == heaviest[cloud.sites]
    if domain.dim == 3 and not domain.is_sphere:
        middle = (domain.lower[2] + domain.upper[2]) / 2
        is_drawn &= (cloud.centers[:, 2] - middle).abs() < cloud.scales[:, 2]
    rows = is_drawn.nonzero().flatten()
    # A fixed shuffle: evenly spaced sites of a grid would draw stripes.
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
    return cloud.rows(rows[order[:count]])


def readable_fraction(cloud: ParticleCloud) -> float:
    """Returns the largest round fraction that draws most particles small beside the domain."""
    size = float((cloud.scales / cloud.domain.unit_lengths(cloud.scales)).amax(-1).median())
    return max((part for part in FRACTIONS if part * size <= LARGEST), default=FRACTIONS[0])


def outlines(
    cloud: ParticleCloud, fraction: float, drawn_axes: tuple[int, int] = (0, 1)
) -> Float[np.ndarray, "particles corners axes"]:
    """Returns ellipses around centers, on the sphere by longitude and latitude.

    Args:
        cloud: The particles.
        fraction: Half axes in units of sigma.
        drawn_axes: The axes across and upwards.
    """
    if cloud.domain.is_sphere:
        return cloud.footprints(fraction).map_outlines(32).numpy()
    angle = np.linspace(0, 2 * np.pi, 32, endpoint=False)
    around = np.stack([np.cos(angle), np.sin(angle)], -1)
    parts = (cloud.centers, cloud.scales)
    centers, scales = (part[:, None, list(drawn_axes)].numpy() for part in parts)
    return centers + fraction * scales * around


def draw_particle_panels(
    forecaster: Forecaster, rows: Mapping[str, tuple[Example, Geometry]]
) -> Figure | None:
    """Returns field, particle reconstruction, difference and particles; None where there is none.

    On a line, and where particles move, no reconstruction is drawn.

    Args:
        forecaster: A trained model.
        rows: By name, an example and its sites: one row of panels each.
    """
    found = {name: reconstruct(forecaster, example) for name, (example, _) in rows.items()}
    drawn = {name: part for name, part in found.items() if part is not None}
    if not drawn or any(geometry.domain.dim == 1 for _, geometry in rows.values()):
        return None
    height = sum(panel_height(rows[name][1]) for name in drawn) + 0.3
    figure, grid = plt.subplots(
        len(drawn), 4, figsize=(12.4, height), squeeze=False, layout="constrained"
    )
    variable = forecaster.task.fields[0]
    units = dict(zip(forecaster.task.outputs, forecaster.task.units, strict=True))
    label = labelled(variable, units.get(variable, ""))
    for (name, part), panels in zip(drawn.items(), grid, strict=True):
        _draw_row(list(panels), f"{name}: {variable}", label, part, *rows[name])
    return figure


def _draw_row(
    panels: list[Axes],
    title: str,
    label: str,
    found: ParticleReconstruction,
    example: Example,
    geometry: Geometry,
) -> None:
    is_known = example.weights[0].numpy() > 0
    field, reconstructed = (part[:, 0].numpy() for part in (found.field, found.reconstructed))
    error, limits = np.abs(reconstructed - field), color_limits(field[is_known])
    largest = float(np.nan_to_num(error[is_known]).max()) or 1.0
    for panel, name, shown, ends in (
        (panels[0], title, field, limits),
        (panels[1], "particle reconstruction", reconstructed, limits),
        (panels[2], "absolute difference", error, (0.0, largest)),
    ):
        draw_panel(panel, name, label, geometry, np.where(is_known, shown, np.nan), ends)
    draw_values(panels[3], geometry, np.where(is_known, field, np.nan), limits)
    draw_particles(panels[3], found.particles, example.coords[0], geometry.domain)
    panels[3].set_title("particles, over the field", fontsize=9)
    panels[3].tick_params(labelsize=7)


def save_other_data(
    forecaster: Forecaster, rows: Mapping[str, tuple[Example, Geometry]], folder: Path
) -> None:
    """Writes the panels of test split and other data, for `write_report`; nothing without particles."""
    figure = draw_motion(forecaster, rows) or draw_particle_panels(forecaster, rows)
    if figure is None:
        return
    folder.mkdir(exist_ok=True)
    figure.savefig(folder / f"{OTHER_DATA}.png", dpi=90)
    plt.close(figure)
