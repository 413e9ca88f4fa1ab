"""Figures of displacements: the departure points from which sites sample the field.

An arrow points from the center of a particle to its site. In one dimension the displacement is a curve.
On the sphere its components are eastward and northward, in degrees of arc; arrows have the length that
these have on the map.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from torch import Tensor

from gpo.data.geometry import Geometry, focus_box
from gpo.forecast.examples import Example
from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.displacements import displacements, has_moving_particles
from gpo.model.particles import Particles
from gpo.numerics.domain import Domain
from gpo.numerics.footprints import longitude_stretch
from gpo.report.appearance import input_label
from gpo.report.contact_sheet import (
    color_limits,
    draw_panel,
    draw_values,
    in_plane,
    map_coords,
    panel_height,
    slice_label,
)
from gpo.report.fields import label_plane
from gpo.report.true_flow import TrueFlow

MAX_ARROWS = 25
"""Maximum number of arrows along an axis; sites are thinned evenly."""
MAX_COLUMNS = 4
"""Maximum number of panels per row; five or six panels are drawn in rows of three."""
FACTORS = (1, 2, 5, 10, 20, 50, 100)
"""Factors by which arrows may be lengthened."""
MAX_LENGTH = 0.04
"""Maximum root mean square length of lengthened arrows, relative to the side of the panel."""
FADE = 0.4
"""Opacity of the white layer between the field and the arrows."""


@dataclass(frozen=True)
class Motion:
    """Displacements of the particles of one layer and one sample, in the units of the figure."""

    geometry: Geometry
    quadrature: Float[np.ndarray, " points"]
    """Quadrature weights; 0 at masked sites."""
    displacement: Float[np.ndarray, "points gaussians axes"]
    """Vectors from the center of a particle to its site: in domain units, in degrees on the sphere."""
    scales: Float[np.ndarray, "points gaussians axes"]
    """Standard deviations of particles, in the same units."""
    weights: Float[np.ndarray, "points gaussians"]
    """Fraction of the sampled contribution at the site that is due to a particle."""

    @classmethod
    def of(
        cls,
        particles: Particles,
        coords: Float[Tensor, "#batch points dim"],
        quadrature: Float[Tensor, "#batch points"],
        geometry: Geometry,
    ) -> "Motion":
        """Returns the displacements of the first sample."""
        parts = (particles.centers, particles.scales, particles.weights)
        first = Particles(*(part[:1].detach().cpu().double() for part in parts))
        vectors = displacements(first, coords[:1].cpu().double(), geometry.domain)[0].numpy()
        scales = first.scales[0].numpy()
        if geometry.domain.is_sphere:
            vectors, scales = np.rad2deg(vectors), np.rad2deg(scales[..., :2])
        elif geometry.domain.dim > 1:
            drawn = list(geometry.plot_axes)
            vectors, scales = (
                np.concatenate([part[..., drawn], part[..., 2:]], -1) for part in (vectors, scales)
            )
        site_weights = quadrature[0].cpu().double().numpy()
        return cls(geometry, site_weights, vectors, scales, first.weights[0].numpy())

    @cached_property
    def visible(self) -> Int[np.ndarray, " visible"]:
        """Active sites inside the panel; of a 3-D grid those of the middle plane."""
        geometry, is_known = self.geometry, self.quadrature > 0
        if geometry.domain.dim == 1:
            return np.flatnonzero(is_known)
        if len(geometry.axes) == 3:
            plane = np.arange(geometry.num_points).reshape(geometry.grid_shape)
            plane = plane[:, :, geometry.grid_shape[2] // 2].ravel()
            return plane[is_known[plane]]
        low, high = self._box
        is_inside = ((self._coords >= low) & (self._coords <= high)).all(1)
        return np.flatnonzero(is_known & is_inside)

    @cached_property
    def sites(self) -> Int[np.ndarray, " shown"]:
        """Sites with an arrow: evenly spaced, at most `MAX_ARROWS` along each drawn axis."""
        if not self.geometry.axes:
            return self._site_per_cell
        rows, columns, *_ = np.unravel_index(self.visible, self.geometry.grid_shape)
        is_kept = np.ones(len(self.visible), dtype=bool)
        for numbers, count in zip((rows, columns), self.geometry.grid_shape, strict=False):
            step = math.ceil(count / MAX_ARROWS)
            is_kept &= numbers % step == step // 2
        return self.visible[is_kept]

    @cached_property
    def factor(self) -> int:
        """Factor by which arrows are lengthened: readable, but not beyond the next arrow."""
        if self.geometry.domain.dim == 1 or len(self.sites) == 0:
            return 1
        length = float(np.sqrt((self.displacement[self.sites, :, :2] ** 2).sum(-1).mean()))
        longest = min(MAX_LENGTH * self._side, self._spacing)
        return max((factor for factor in FACTORS if factor * length <= longest), default=1)

    @property
    def fractions(self) -> Float[np.ndarray, " gaussians"]:
        """Mean weight of each particle over the visible sites."""
        return self._mean(self.weights)

    def title(self, number: int, flow: TrueFlow | None = None) -> str:
        """Returns weight and displacement of a particle, and its correlation with the velocity.

        Args:
            number: Number of the particle.
            flow: The true velocity, where it is known.
        """
        if len(self.visible) == 0:
            return f"particle {number + 1}: no visible site"
        weight, size = self.fractions[number], self._size(number)
        scaling = "" if self.factor == 1 else f", arrows × {self.factor}"
        correlation = ""
        if flow is not None:
            weights = np.zeros_like(self.quadrature)
            weights[self.visible] = self.quadrature[self.visible]
            correlation = f"\n{flow.describe(self.displacement[:, number], weights)}"
        start = f"particle {number + 1}: weight {weight:.0%}, scale {self._scale(number)}"
        return f"{start}\nrms displacement {size}{scaling}{correlation}"

    def draw(self, axes: Axes, number: int) -> None:
        """Draws the displacement of one particle: arrows over a field, or a curve in one dimension."""
        vectors = self.displacement[:, number]
        if self.geometry.domain.dim == 1:
            x = self.geometry.coords[:, 0]
            curve = np.where(self.quadrature > 0, vectors[:, 0], np.nan)
            order = np.argsort(x, kind="stable")
            largest = float(np.abs(self.displacement[self.visible]).max()) or 1.0
            axes.axhline(0, color="0.6", linewidth=0.8)
            axes.plot(x[order], curve[order], color="0.1")
            axes.set_ylim(-1.05 * largest, 1.05 * largest)
            return
        self._draw_arrows(axes, vectors)
        self._draw_ellipses(axes, number)

    def draw_velocity(self, axes: Axes, flow: TrueFlow) -> None:
        """Draws the true velocity; its root mean square length is the distance between arrows."""
        if len(self.visible) == 0:
            return
        velocity = np.nan_to_num(flow.velocity)
        size = np.sqrt(self._mean(velocity**2)[:2].sum())
        length = self._spacing / self.factor
        self._draw_arrows(axes, velocity * (length / size if size > 0 else 0.0))

    def _draw_arrows(self, axes: Axes, vectors: np.ndarray) -> None:
        sites = self.sites
        limits = axes.get_xlim(), axes.get_ylim()
        coords, across = self._coords[sites], vectors[sites, 0]
        if self.geometry.domain.is_sphere:
            # Towards the poles, the same eastward distance spans more degrees of longitude.
            across = across * longitude_stretch(coords[:, 1])
        arrows = axes.quiver(
            *coords.T, across, vectors[sites, 1], color="0.1", pivot="tip",
            angles="xy", scale_units="xy", scale=1 / self.factor,
            width=0.004, headwidth=4, minlength=0.5,
        )  # fmt: skip
        # A light outline separates dark arrows from a dark field.
        arrows.set_path_effects([withStroke(linewidth=1.2, foreground="white")])
        axes.set(xlim=limits[0], ylim=limits[1])

    def _draw_ellipses(self, axes: Axes, number: int) -> None:
        """Draws particles at the tails of arrows: as many ellipses as have room, of one scale."""
        largest = self.scales[self.sites, number, :2].prod(-1).max(initial=1e-300)
        room = int(self._side**2 / (16 * largest))
        sites = np.random.default_rng(0).permutation(self.sites)[:room]
        coords, offset = self._coords[sites], self.displacement[sites, number, :2] * self.factor
        scales = self.scales[sites, number, :2]
        if self.geometry.domain.is_sphere:
            stretch = np.stack([longitude_stretch(coords[:, 1]), np.ones(len(coords))], -1)
            offset, scales = offset * stretch, scales * stretch
        angle = np.linspace(0, 2 * np.pi, 24, endpoint=False)
        circle = np.stack([np.cos(angle), np.sin(angle)], -1)
        outlines = (coords - offset)[:, None] + scales[:, None] * circle
        ellipses = PolyCollection(list(outlines), facecolors="none", edgecolors="0.1", lw=0.6)
        ellipses.set_path_effects([withStroke(linewidth=1.2, foreground="white")])
        axes.add_collection(ellipses, autolim=False)

    def label(self, axes: Axes) -> None:
        """Labels the axes with names and units."""
        geometry = self.geometry
        is_sphere = geometry.domain.is_sphere
        names = _drawn(geometry, geometry.axis_names)
        if is_sphere and geometry.pole is None:
            names = ["longitude", "latitude"]
        pairs = zip(names, self._units, strict=True)
        labels = [f"{name} ({unit})" if unit else name for name, unit in pairs]
        axes.set_xlabel(labels[0], fontsize=8)
        if len(geometry.axes) == 3:
            labels[1] += f", at {slice_label(geometry)}"
        if geometry.domain.dim > 1:
            axes.set_ylabel(labels[1], fontsize=8)

    def _scale(self, number: int) -> str:
        """Returns the scale of a particle along every axis with units; on a sphere one number."""
        scales = [f"{scale:.2g}" for scale in self._mean(self.scales[:, number])]
        is_sphere = self.geometry.domain.is_sphere
        return f"{scales[0]}°" if is_sphere else f"{' × '.join(scales)} {self._units[0]}".rstrip()

    def _size(self, number: int) -> str:
        """Returns the root mean square displacement with units; for each axis where units differ."""
        squares, units = self._mean(self.displacement[:, number] ** 2), self._units
        sizes = [squares.sum()] if len(set(units)) == 1 else squares
        pairs = zip(np.sqrt(sizes), units, strict=False)
        return ", ".join(f"{size:.2g}{unit if unit == '°' else f' {unit}'}".rstrip() for size, unit in pairs)  # fmt: skip

    @property
    def _side(self) -> float:
        """Side of a square with the area of the panel."""
        low, high = self._box
        return float(np.sqrt(np.prod(high - low)))

    @property
    def _spacing(self) -> float:
        """Mean distance between arrows."""
        return len(self.sites) ** -0.5 * self._side

    def _mean(self, values: np.ndarray) -> np.ndarray:
        """Returns the weighted mean over the visible sites."""
        weights = self.quadrature[self.visible]
        return weights @ values[self.visible] / weights.sum()

    @property
    def _units(self) -> tuple[str, ...]:
        is_sphere = self.geometry.domain.is_sphere
        return ("°", "°") if is_sphere else tuple(_drawn(self.geometry, self.geometry.axis_units))

    @cached_property
    def _coords(self) -> np.ndarray:
        """Drawn coordinates of the sites; longitudes are those of the axes of a grid."""
        geometry = self.geometry
        if not geometry.domain.is_sphere:
            return geometry.coords[:, list(geometry.plot_axes)]
        return map_coords(replace(geometry, pole=None))

    @cached_property
    def _box(self) -> np.ndarray:
        """Lower and upper corner of the panel."""
        if self.geometry.domain.is_sphere or self.geometry.axes:
            return np.stack([self._coords.min(0), self._coords.max(0)])
        return focus_box(self.geometry)

    @property
    def _site_per_cell(self) -> np.ndarray:
        low, high = self._box
        cells = MAX_ARROWS * (self._coords[self.visible] - low) / np.maximum(high - low, 1e-300)
        corners = np.minimum(np.floor(cells), MAX_ARROWS - 1)
        # The site nearest to the center of each cell gets the arrow.
        order = np.argsort(np.linalg.norm(cells - corners - 0.5, axis=1), kind="stable")
        _, first = np.unique(corners[order] @ [MAX_ARROWS, 1], return_index=True)
        return np.sort(self.visible[order[first]])


def _drawn(geometry: Geometry, parts: tuple[str, ...]) -> list[str]:
    """Returns one entry per axis: horizontal first, vertical second."""
    if len(parts) < 2:
        return list(parts)
    return [*(parts[number] for number in geometry.plot_axes), *parts[2:]]


def draw_motion(
    forecaster: Forecaster,
    rows: Mapping[str, tuple[Example, Geometry]],
    controls: Sequence[Example] = (),
) -> Figure | None:
    """Returns the input field and the displacements of each particle; None where none move.

    Where the velocity is known it has its own panel, and titles give its correlation with displacements.

    Args:
        forecaster: A trained model.
        rows: Examples and their sites by name. Each has a block of panels for each layer with
            particles.
        controls: Other examples at the same sites, whose velocity is the control.
    """
    if not has_moving_particles(forecaster.model):
        return None
    model = forecaster.operator
    blocks: list[tuple[str, Example, Motion, TrueFlow | None]] = []
    variable = forecaster.task.fields[0]
    for name, (example, geometry) in rows.items():
        values = forecaster.normalised_input(example.frames)
        flow = TrueFlow.of(example, geometry, forecaster.task.fields, controls)
        with torch.no_grad():
            layers = model.particles(values, example.coords, weights=example.site_weights)
        first = len(model.applied_layers) - len(layers) + 1
        for layer, particles in enumerate(layers, start=first):
            suffix = f", layer {layer}" if len(layers) > 1 else ""
            motion = Motion.of(particles, example.coords, example.weights, geometry)
            blocks.append((f"{name}: {variable}{suffix}", example, motion, flow))
    has_flow = any(flow is not None for *_, flow in blocks)
    num_panels = 1 + has_flow + model.config.num_gaussians
    columns = 3 if num_panels in (5, 6) else min(MAX_COLUMNS, num_panels)
    num_rows = math.ceil(num_panels / columns)
    height = num_rows * sum(
        panel_height(motion.geometry) * 3.1 / 3.2 + 0.6 + 0.5 * has_flow for *_, motion, _ in blocks
    )
    figure, grid = plt.subplots(
        num_rows * len(blocks), columns, figsize=(12.4 * columns / 4 + (2.0 if columns == 3 else 0.0), height),
        squeeze=False, layout="constrained",
    )  # fmt: skip
    for block, panels in zip(blocks, grid.reshape(len(blocks), -1), strict=True):
        _draw_block(list(panels), input_label(forecaster.task), *block)
    return figure


def _draw_block(
    panels: list[Axes],
    label: str,
    title: str,
    example: Example,
    motion: Motion,
    flow: TrueFlow | None,
) -> None:
    geometry, num_gaussians = motion.geometry, motion.weights.shape[1]
    field = np.where(motion.quadrature > 0, example.fields[0, -1, :, 0].numpy(), np.nan)
    limits = color_limits(in_plane(geometry, field))
    # Displacements are along the axes of the grid.
    draw_panel(panels[0], title, label, geometry, field, limits, along_grid_axes=True)
    motion.label(panels[0])
    if flow is not None:
        _draw_faded(panels[1], geometry, field, limits)
        motion.draw_velocity(panels[1], flow)
        motion.label(panels[1])
        panels[1].set_title("true velocity\n(relative lengths of arrows)", fontsize=9)
        panels[1].tick_params(labelsize=7)
    first = 1 if flow is None else 2
    for number, axes in enumerate(panels[first : first + num_gaussians]):
        if geometry.domain.dim > 1:
            _draw_faded(axes, geometry, field, limits)
        else:
            unit = geometry.axis_units[0]
            axes.set_ylabel(f"displacement ({unit})" if unit else "displacement", fontsize=8)
        motion.draw(axes, number)
        motion.label(axes)
        axes.set_title(motion.title(number, flow), fontsize=9)
        axes.tick_params(labelsize=7)
    for axes in panels[first + num_gaussians :]:
        axes.set_axis_off()


def _draw_faded(
    axes: Axes, geometry: Geometry, field: np.ndarray, limits: tuple[float, float]
) -> None:
    """Draws a faded field, as a background for arrows."""
    draw_values(axes, geometry, field, limits, along_grid_axes=True)
    axes.add_patch(Rectangle((0, 0), 1, 1, color="white", alpha=FADE, transform=axes.transAxes))


def draw_heaviest(
    axes: Axes, particles: Particles, coords: Float[Tensor, "points dim"], domain: Domain
) -> None:
    """Draws the displacement of the particle with the largest mean weight, of the first sample.

    Args:
        axes: The panel.
        particles: The particles of a layer.
        coords: Their sites.
        domain: The domain.
    """
    count, names = len(coords), ("x", "y", "z")[: domain.dim]
    weights = np.full(count, 1 / count)
    geometry = Geometry(coords.double().numpy(), weights, domain, names, ("",) * domain.dim)
    motion = Motion.of(particles, coords[None], torch.from_numpy(weights)[None], geometry)
    if domain.dim > 1:
        label_plane(axes, coords, domain)
    heaviest = int(motion.fractions.argmax())
    motion.draw(axes, heaviest)
    motion.label(axes)
    axes.set_title(motion.title(heaviest))
