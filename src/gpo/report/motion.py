"""Particles that move, over the input field: where what arrives at a site came from.

An arrow leads from the center of a particle to the site that owns it. On a line the displacement is a
curve. On the sphere its components are those to the east and to the north, in degrees of arc; an arrow
is as long as they are on the map.
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
from gpo.report.appearance import labelled
from gpo.report.contact_sheet import (
    color_limits,
    draw_panel,
    draw_values,
    in_plane,
    map_places,
    panel_height,
    slice_label,
)
from gpo.report.fields import label_plane
from gpo.report.true_flow import TrueFlow

MAX_ARROWS = 25
"""Arrows along an axis; of more sites, evenly many."""
MAX_COLUMNS = 4
"""Panels in a row; of five or six panels three."""
FACTORS = (1, 2, 5, 10, 20, 50, 100)
"""By what arrows may be lengthened."""
READABLE = 0.04
"""Length beyond which arrows are not lengthened, in sides of what is drawn."""
VEIL = 0.4
"""Opacity of the white that is laid over a field, below arrows."""


@dataclass(frozen=True)
class Motion:
    """The particles of one layer and one sample, in the units in which they are drawn."""

    geometry: Geometry
    quadrature: Float[np.ndarray, " points"]
    """Quadrature weights; 0 where a site is masked."""
    displacement: Float[np.ndarray, "points gaussians axes"]
    """From the center of a particle to its site: in domain units, in degrees on the sphere."""
    weights: Float[np.ndarray, "points gaussians"]
    """Fraction of what arrives at the site that a particle brings."""

    @classmethod
    def of(
        cls,
        held: Particles,
        coords: Float[Tensor, "#batch points dim"],
        quadrature: Float[Tensor, "#batch points"],
        geometry: Geometry,
    ) -> "Motion":
        """Takes the particles of the first sample."""
        parts = (held.centers, held.scales, held.weights)
        first = Particles(*(part[:1].detach().cpu().double() for part in parts))
        ways = displacements(first, coords[:1].cpu().double(), geometry.domain)[0].numpy()
        if geometry.domain.dim > 1 and not geometry.domain.is_sphere:
            ways = np.concatenate([ways[..., list(geometry.drawn_axes)], ways[..., 2:]], -1)
        return cls(
            geometry,
            quadrature[0].cpu().double().numpy(),
            np.rad2deg(ways) if geometry.domain.is_sphere else ways,
            first.weights[0].numpy(),
        )

    @cached_property
    def in_view(self) -> Int[np.ndarray, " viewed"]:
        """Sites that count and are drawn: of a grid in three dimensions those of one plane."""
        geometry, is_known = self.geometry, self.quadrature > 0
        if geometry.domain.dim == 1:
            return np.flatnonzero(is_known)
        if len(geometry.axes) == 3:
            plane = np.arange(geometry.num_points).reshape(geometry.grid_shape)
            plane = plane[:, :, geometry.grid_shape[2] // 2].ravel()
            return plane[is_known[plane]]
        low, high = self._box
        is_inside = ((self._places >= low) & (self._places <= high)).all(1)
        return np.flatnonzero(is_known & is_inside)

    @cached_property
    def sites(self) -> Int[np.ndarray, " shown"]:
        """Sites that get an arrow: at most so many along both drawn axes, evenly chosen."""
        if not self.geometry.axes:
            return self._one_per_cell
        rows, columns, *_ = np.unravel_index(self.in_view, self.geometry.grid_shape)
        is_kept = np.ones(len(self.in_view), dtype=bool)
        for numbers, count in zip((rows, columns), self.geometry.grid_shape, strict=False):
            step = math.ceil(count / MAX_ARROWS)
            is_kept &= numbers % step == step // 2
        return self.in_view[is_kept]

    @cached_property
    def factor(self) -> int:
        """By what arrows are lengthened: until they can be read, and reach their neighbours at most."""
        if self.geometry.domain.dim == 1 or len(self.sites) == 0:
            return 1
        size = float(np.sqrt((self.displacement[self.sites, :, :2] ** 2).sum(-1).mean()))
        most = min(READABLE * self._side, self._spacing)
        return max((factor for factor in FACTORS if factor * size <= most), default=1)

    @property
    def fractions(self) -> Float[np.ndarray, " gaussians"]:
        """What every particle brings, the mean over the sites in view."""
        return self._mean(self.weights)

    def title(self, number: int, flow: TrueFlow | None = None) -> str:
        """Returns what a particle brings, how far it is displaced, and how it goes with the flow.

        Args:
            number: Of the particle.
            flow: The true velocity, where it is known.
        """
        if len(self.in_view) == 0:
            return f"particle {number + 1}: no site in view"
        fraction, size = self.fractions[number], self._size(number)
        longer = "" if self.factor == 1 else f", arrows × {self.factor}"
        told = "" if flow is None else f"\n{flow.told(self.displacement[:, number], self._seen)}"
        return f"particle {number + 1} brings {fraction:.0%}\nrms displacement {size}{longer}{told}"

    def draw(self, axes: Axes, number: int) -> None:
        """Draws the displacement of one particle of the chosen sites, over a field in the plane."""
        ways = self.displacement[:, number]
        if self.geometry.domain.dim == 1:
            x, curve = self.geometry.coords[:, 0], np.where(self.quadrature > 0, ways[:, 0], np.nan)
            order = np.argsort(x, kind="stable")
            largest = float(np.abs(self.displacement[self.in_view]).max()) or 1.0
            axes.axhline(0, color="0.6", linewidth=0.8)
            axes.plot(x[order], curve[order], color="0.1")
            axes.set_ylim(-1.05 * largest, 1.05 * largest)
            return
        self._draw_arrows(axes, ways)

    def draw_velocity(self, axes: Axes, flow: TrueFlow) -> None:
        """Draws the true velocity of the chosen sites; most arrows reach no farther than their neighbours."""
        if len(self.in_view) == 0:
            return
        velocity = np.nan_to_num(flow.velocity)
        size = np.sqrt(self._mean(velocity**2)[:2].sum())
        length = self._spacing / self.factor
        self._draw_arrows(axes, velocity * (length / size if size > 0 else 0.0))

    def _draw_arrows(self, axes: Axes, ways: np.ndarray) -> None:
        sites = self.sites
        limits = axes.get_xlim(), axes.get_ylim()
        places, across = self._places[sites], ways[sites, 0]
        if self.geometry.domain.is_sphere:
            # A way to the east is more degrees of longitude the nearer it is to a pole.
            across = across * longitude_stretch(places[:, 1])
        arrows = axes.quiver(
            *places.T, across, ways[sites, 1], color="0.1", pivot="tip",
            angles="xy", scale_units="xy", scale=1 / self.factor,
            width=0.004, headwidth=4, minlength=0.5,
        )  # fmt: skip
        # A light rim keeps dark arrows apart from a dark field.
        arrows.set_path_effects([withStroke(linewidth=1.2, foreground="white")])
        axes.set(xlim=limits[0], ylim=limits[1])

    def label(self, axes: Axes) -> None:
        """Puts units beside the names of the axes."""
        geometry = self.geometry
        is_sphere = geometry.domain.is_sphere
        names = _drawn(geometry, geometry.axis_names)
        if is_sphere and geometry.pole is None:
            names = ["longitude", "latitude"]
        pairs = zip(names, self._units, strict=True)
        named = [f"{name} ({unit})" if unit else name for name, unit in pairs]
        axes.set_xlabel(named[0], fontsize=8)
        if len(geometry.axes) == 3:
            named[1] += f", at {slice_label(geometry)}"
        if geometry.domain.dim > 1:
            axes.set_ylabel(named[1], fontsize=8)

    def _size(self, number: int) -> str:
        """Returns the root mean square of a displacement; by axis where units differ."""
        squares, units = self._mean(self.displacement[:, number] ** 2), self._units
        sizes = [squares.sum()] if len(set(units)) == 1 else squares
        pairs = zip(np.sqrt(sizes), units, strict=False)
        return ", ".join(f"{size:.2g}{unit if unit == '°' else f' {unit}'}".rstrip() for size, unit in pairs)  # fmt: skip

    @property
    def _side(self) -> float:
        """That of a square as large as what is drawn."""
        low, high = self._box
        return float(np.sqrt(np.prod(high - low)))

    @property
    def _spacing(self) -> float:
        """How far arrows are apart."""
        return len(self.sites) ** -0.5 * self._side

    @cached_property
    def _seen(self) -> np.ndarray:
        """Quadrature weights of the sites in view; 0 elsewhere."""
        seen = np.zeros_like(self.quadrature)
        seen[self.in_view] = self.quadrature[self.in_view]
        return seen

    def _mean(self, numbers: np.ndarray) -> np.ndarray:
        """Returns the mean over the sites in view."""
        counted = self.quadrature[self.in_view]
        return counted @ numbers[self.in_view] / counted.sum()

    @property
    def _units(self) -> tuple[str, ...]:
        is_sphere = self.geometry.domain.is_sphere
        return ("°", "°") if is_sphere else tuple(_drawn(self.geometry, self.geometry.axis_units))

    @cached_property
    def _places(self) -> np.ndarray:
        """Where sites are drawn; longitudes are those of the axes where there are some."""
        geometry = self.geometry
        if not geometry.domain.is_sphere:
            return geometry.coords[:, list(geometry.drawn_axes)]
        return map_places(replace(geometry, pole=None))

    @cached_property
    def _box(self) -> np.ndarray:
        """The corners of what is drawn."""
        if self.geometry.domain.is_sphere or self.geometry.axes:
            return np.stack([self._places.min(0), self._places.max(0)])
        return focus_box(self.geometry)

    @property
    def _one_per_cell(self) -> np.ndarray:
        low, high = self._box
        cells = MAX_ARROWS * (self._places[self.in_view] - low) / np.maximum(high - low, 1e-300)
        corners = np.minimum(np.floor(cells), MAX_ARROWS - 1)
        # The site nearest to the middle of a cell stands for it.
        order = np.argsort(np.linalg.norm(cells - corners - 0.5, axis=1), kind="stable")
        _, first = np.unique(corners[order] @ [MAX_ARROWS, 1], return_index=True)
        return np.sort(self.in_view[order[first]])


def _drawn(geometry: Geometry, parts: tuple[str, ...]) -> list[str]:
    """Returns what belongs to every axis, that across first and that upwards second."""
    if len(parts) < 2:
        return list(parts)
    return [*(parts[number] for number in geometry.drawn_axes), *parts[2:]]


def draw_motion(
    forecaster: Forecaster,
    rows: Mapping[str, tuple[Example, Geometry]],
    others: Sequence[Example] = (),
) -> Figure | None:
    """Returns the input field and, over it, the particles of every number; None where none move.

    Where the velocity is known it has a panel of its own, and titles tell how displacements go with it.

    Args:
        forecaster: A trained model.
        rows: By name, an example and its sites: one block of panels each, for every layer that
            has particles.
        others: Examples at the same sites, whose velocity is the control.
    """
    if not has_moving_particles(forecaster.model):
        return None
    model = forecaster.operator
    blocks: list[tuple[str, Example, Motion, TrueFlow | None]] = []
    variable = forecaster.task.fields[0]
    for name, (example, geometry) in rows.items():
        values = forecaster.normalised_input(example.frames)
        flow = TrueFlow.of(example, geometry, forecaster.task.fields, others)
        with torch.no_grad():
            found = model.particles(values, example.coords, weights=example.site_weights)
        for layer, held in enumerate(found, start=len(model.applied_layers) - len(found) + 1):
            where = f", layer {layer}" if len(found) > 1 else ""
            motion = Motion.of(held, example.coords, example.weights, geometry)
            blocks.append((f"{name}: {variable}{where}", example, motion, flow))
    has_flow = any(flow is not None for *_, flow in blocks)
    num_panels = 1 + has_flow + model.config.num_gaussians
    columns = 3 if num_panels in (5, 6) else min(MAX_COLUMNS, num_panels)
    lines = math.ceil(num_panels / columns)
    height = lines * sum(
        panel_height(motion.geometry) * 3.1 / 3.2 + 0.6 + 0.5 * has_flow for *_, motion, _ in blocks
    )
    figure, grid = plt.subplots(
        lines * len(blocks), columns, figsize=(12.4 * columns / 4 + (2.0 if columns == 3 else 0.0), height),
        squeeze=False, layout="constrained",
    )  # fmt: skip
    units = dict(zip(forecaster.task.outputs, forecaster.task.units, strict=True))
    label = labelled(variable, units.get(variable, ""))
    for block, panels in zip(blocks, grid.reshape(len(blocks), -1), strict=True):
        _draw_block(list(panels), label, *block)
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
    # Arrows are displacements along the axes of the grid.
    draw_panel(panels[0], title, label, geometry, field, limits, in_own_frame=True)
    motion.label(panels[0])
    if flow is not None:
        _draw_veiled(panels[1], geometry, field, limits)
        motion.draw_velocity(panels[1], flow)
        motion.label(panels[1])
        panels[1].set_title("true velocity, lengths of arrows\nrelative to each other", fontsize=9)
        panels[1].tick_params(labelsize=7)
    first = 1 if flow is None else 2
    for number, axes in enumerate(panels[first : first + num_gaussians]):
        if geometry.domain.dim > 1:
            _draw_veiled(axes, geometry, field, limits)
        else:
            unit = geometry.axis_units[0]
            axes.set_ylabel(f"displacement ({unit})" if unit else "displacement", fontsize=8)
        motion.draw(axes, number)
        motion.label(axes)
        axes.set_title(motion.title(number, flow), fontsize=9)
        axes.tick_params(labelsize=7)
    for axes in panels[first + num_gaussians :]:
        axes.set_axis_off()


def _draw_veiled(
    axes: Axes, geometry: Geometry, field: np.ndarray, limits: tuple[float, float]
) -> None:
    """Draws a field, faded, below arrows."""
    draw_values(axes, geometry, field, limits, in_own_frame=True)
    axes.add_patch(Rectangle((0, 0), 1, 1, color="white", alpha=VEIL, transform=axes.transAxes))


def draw_heaviest(
    axes: Axes, held: Particles, coords: Float[Tensor, "points dim"], domain: Domain
) -> None:
    """Draws the displacement of the particle that brings most, of the first sample.

    Args:
        axes: Where to draw.
        held: The particles of a layer.
        coords: The sites that own them.
        domain: Where they live.
    """
    count, names = len(coords), ("x", "y", "z")[: domain.dim]
    weights = np.full(count, 1 / count)
    geometry = Geometry(coords.double().numpy(), weights, domain, names, ("",) * domain.dim)
    motion = Motion.of(held, coords[None], torch.from_numpy(weights)[None], geometry)
    if domain.dim > 1:
        label_plane(axes, coords, domain)
    heaviest = int(motion.fractions.argmax())
    motion.draw(axes, heaviest)
    motion.label(axes)
    axes.set_title(motion.title(heaviest))
