"""Panels that draw one field on any sites, and contact sheets: frames or samples of a data set."""

import warnings
from pathlib import Path

import numpy as np
from jaxtyping import Float
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.tri import Triangulation

from gpo.data.dataset import FieldData
from gpo.data.geometry import Geometry, focus_box
from gpo.data.splits import evenly
from gpo.report.appearance import add_bar, label_with_units, readable_units

MAX_COLUMNS, MAX_ROWS = 6, 5

_Panel = tuple[str, str, Geometry, np.ndarray, tuple[float, float]]
"""Title, label of the colours, sites, values and colour limits."""


def draw_contact_sheet(data: FieldData, path: Path) -> Path:
    """Writes a PNG: a row for each variable, over time or over samples of one frame."""
    rows = _rows(data)
    shape = len(rows), len(rows[0])
    size = (3.2 * shape[1] + 0.8, panel_height(rows[0][0][2]) * shape[0])
    figure, grid = plt.subplots(*shape, figsize=size, squeeze=False, layout="constrained")
    for panels, row_axes in zip(rows, grid, strict=True):
        for panel, axes in zip(panels, row_axes, strict=True):
            draw_panel(axes, *panel)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
    plt.close(figure)
    return path


def panel_height(geometry: Geometry) -> float:
    """Returns the height of a panel that is 3.2 inches wide, in inches."""
    if geometry.domain.is_sphere and geometry.grid_shape:
        across, up = (float(extent) for extent in np.ptp(map_coords(geometry), axis=0))
    elif geometry.coords.shape[1] > 1 and not geometry.domain.is_sphere:
        extents = np.ptp(focus_box(geometry), axis=0)
        across, up = (float(extents[number]) for number in geometry.plot_axes)
    else:
        return 2.6
    return float(np.clip(2.3 * up / max(across, 1e-12) + 0.7, 1.3, 6.0))


def draw_panel(
    axes: Axes,
    title: str,
    label: str,
    geometry: Geometry,
    values: np.ndarray,
    limits: tuple[float, float],
    *,
    along_grid_axes: bool = False,
) -> None:
    """Draws one field with a title and a colour bar; for arguments see `draw_values`."""
    draw_values(axes, geometry, values, limits, along_grid_axes=along_grid_axes)
    axes.set_title(title, fontsize=9)
    axes.tick_params(labelsize=7)
    if geometry.domain.dim > 1:
        add_bar(axes, ScalarMappable(Normalize(*limits), color_map(limits)), label)
    else:
        axes.set_ylabel(label, fontsize=8)


def draw_values(
    axes: Axes,
    geometry: Geometry,
    values: np.ndarray,
    limits: tuple[float, float],
    *,
    along_grid_axes: bool = False,
) -> None:
    """Draws one field at its sites; missing values are grey.

    Args:
        axes: The panel.
        geometry: The sites.
        values: One number per site.
        limits: Ends of the colour scale.
        along_grid_axes: Whether to draw a rotated grid along its own axes instead of on the map.
    """
    axes.set_facecolor("0.8" if geometry.domain.dim > 1 else "none")
    style = {"cmap": color_map(limits), "vmin": limits[0], "vmax": limits[1]}
    shown = np.ma.masked_invalid(values)
    names = axis_labels(geometry)
    if geometry.axes and len(geometry.axes) == 1:
        axes.plot(geometry.axes[0], shown)
        # Without a margin, a constant line at a limit would lie on the frame.
        margin = 0.05 * (limits[1] - limits[0])
        axes.set(xlabel=names[0], ylim=(limits[0] - margin, limits[1] + margin))
    elif geometry.axes and len(geometry.axes) == 3:
        plane = in_plane(geometry, shown)
        axes.pcolormesh(*geometry.axes[:2], plane.T, shading="nearest", **style)
        ylabel = f"{names[1]}, at {slice_label(geometry)}"
        axes.set(xlabel=names[0], ylabel=ylabel, aspect="equal")
    elif _is_curvilinear(geometry) and not (along_grid_axes and geometry.axes):
        _draw_curvilinear(axes, geometry, shown, style)
    elif geometry.axes:
        # Latitude or y may be the first axis of the file but is drawn upwards.
        across, up = geometry.plot_axes
        plane = shown.reshape(geometry.grid_shape)
        plane = plane if across == 1 else plane.T
        axes.pcolormesh(geometry.axes[across], geometry.axes[up], plane, shading="nearest", **style)
        axes.set(xlabel=names[across], ylabel=names[up], aspect="equal")
    else:
        _draw_points(axes, geometry, shown, style)


def slice_label(geometry: Geometry) -> str:
    """Returns the position of the slice through a 3-D grid: the middle plane of its last axis."""
    position = float(geometry.axes[2][geometry.grid_shape[2] // 2])
    return f"{geometry.axis_names[2]} = {position:.3g} {readable_units(geometry.axis_units[2])}".rstrip()


def axis_labels(geometry: Geometry) -> list[str]:
    """Returns the name of each axis with its units, in the order of the file."""
    pairs = zip(geometry.axis_names, geometry.axis_units, strict=True)
    return [label_with_units(name, unit) for name, unit in pairs]


def in_plane(geometry: Geometry, values: Float[np.ndarray, " points"]) -> np.ndarray:
    """Returns the values that a panel shows: those of the middle plane of a 3-D grid, else all."""
    if len(geometry.axes) != 3:
        return values
    return values.reshape(geometry.grid_shape)[:, :, geometry.grid_shape[2] // 2]


def color_map(limits: tuple[float, float]) -> str:
    """Returns a diverging colour map where zero is in the middle, else a sequential one."""
    return "RdBu_r" if limits[0] == -limits[1] else "viridis"


def color_limits(values: np.ndarray) -> tuple[float, float]:
    """Returns the ends of a colour scale: symmetric where values have both signs."""
    known = values[np.isfinite(values)]
    if known.size == 0:
        return 0.0, 1.0
    low, high = float(known.min()), float(known.max())
    if low < 0 < high and min(-low, high) > 0.2 * max(-low, high):
        return -max(-low, high), max(-low, high)
    return (low, high) if high > low else (low, low + 1)


def map_coords(geometry: Geometry) -> np.ndarray:
    """Returns longitude and latitude of each site, as drawn on a map.

    Longitudes are those of the axes, or else continuous, without a jump inside the region.
    """
    if geometry.axes and geometry.pole is None:
        latitude, longitude = np.meshgrid(*geometry.axes, indexing="ij")
        return np.stack([longitude.ravel(), latitude.ravel()], -1)
    degrees = geometry.geographic_degrees()
    assert degrees is not None
    active = degrees[~geometry.is_masked, 0]
    ordered = np.sort(active % 360)
    gaps = np.diff(ordered, append=ordered[0] + 360)
    # The map begins after the widest gap, so that no region is cut in two.
    begin = ordered[(int(np.argmax(gaps)) + 1) % len(ordered)] - 1e-9
    if gaps.max() < 20:
        begin = -180.0
    active = (active - begin) % 360 + begin
    middle = (active.min() + active.max()) / 2
    # Masked sites may lie on either side of the active ones.
    longitude = (degrees[:, 0] - middle + 180) % 360 - 180 + middle
    longitude = longitude - 360 * np.round(middle / 360)
    return np.stack([longitude, degrees[:, 1]], -1)


def _is_curvilinear(geometry: Geometry) -> bool:
    """Returns whether sites are a curvilinear or rotated grid on the sphere."""
    is_rectilinear = bool(geometry.axes) and geometry.pole is None
    return geometry.domain.is_sphere and len(geometry.grid_shape) == 2 and not is_rectilinear


def _draw_curvilinear(
    axes: Axes, geometry: Geometry, shown: np.ma.MaskedArray, style: dict
) -> None:
    """Draws the cells of a curvilinear or rotated grid on the map."""
    longitude, latitude = (part.reshape(geometry.grid_shape) for part in map_coords(geometry).T)
    plane = shown.reshape(geometry.grid_shape)
    # A cell that crosses the seam of the map would be drawn across the whole map.
    is_cut = np.zeros(plane.shape, dtype=bool)
    for axis in (0, 1):
        jumps = np.abs(np.diff(longitude, axis=axis)) > 180
        np.moveaxis(is_cut, axis, 0)[1:] |= np.moveaxis(jumps, axis, 0)
        np.moveaxis(is_cut, axis, 0)[:-1] |= np.moveaxis(jumps, axis, 0)
    plane = np.ma.masked_where(is_cut, plane)
    with warnings.catch_warnings():
        # Longitudes may be non-monotonic near a pole; cells are drawn correctly nevertheless.
        warnings.filterwarnings("ignore", message="The input coordinates to pcolormesh")
        axes.pcolormesh(longitude, latitude, plane, shading="nearest", **style)
    axes.set(xlabel="longitude (°)", ylabel="latitude (°)", aspect="equal")


def _draw_points(axes: Axes, geometry: Geometry, shown: np.ma.MaskedArray, style: dict) -> None:
    coords = map_coords(geometry) if geometry.domain.is_sphere else geometry.coords
    if coords.shape[1] == 1:
        axes.plot(coords[:, 0], shown, ".")
        return
    is_complete, is_sphere = not np.ma.is_masked(shown), geometry.domain.is_sphere
    if is_complete and geometry.triangles is not None and geometry.triangles.shape[1] == 3:
        triangles = Triangulation(coords[:, 0], coords[:, 1], geometry.triangles)
        axes.tripcolor(triangles, shown, **style)
    elif is_complete and len(geometry.grid_shape) == 2 and not is_sphere:
        across, up, plane = (part.reshape(geometry.grid_shape) for part in (*coords.T, shown))
        axes.pcolormesh(across, up, plane, shading="gouraud", **style)
    else:
        is_known = ~np.ma.getmaskarray(shown)
        size = min(max(1.0, 20_000 / len(coords)), 20.0)
        axes.scatter(*coords[is_known, :2].T, c=shown[is_known].data, s=size, linewidths=0, **style)
    names = ("longitude (°)", "latitude (°)") if is_sphere else axis_labels(geometry)
    axes.set(xlabel=names[0], ylabel=names[1], aspect="auto" if is_sphere else "equal")
    if not is_sphere:
        low, high = focus_box(geometry)
        axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))


def _rows(data: FieldData) -> list[list[_Panel]]:
    """Returns a row for each variable: frames of a sample, or samples where each has one frame."""
    if len(data.time) > 1:
        numbers = evenly(range(len(data.time)), MAX_COLUMNS)
        labels = [f"t = {time}" for time in data.time_labels(numbers)]
        num_shown = min(data.num_samples, max(1, MAX_ROWS // len(data.variables)))
        groups = [[(sample, number) for number in numbers] for sample in range(num_shown)]
    else:
        samples = evenly(range(data.num_samples), MAX_COLUMNS)
        labels, groups = [f"sample {sample}" for sample in samples], [[(n, 0) for n in samples]]
    rows = []
    for group in groups:
        source = f" of sample {group[0][0]}" if len(groups) > 1 else ""
        frames = [data.frames(sample, slice(n, n + 1))[0] for sample, n in group]
        sites = [data.geometry(sample) for sample, _ in group]
        for channel, variable in enumerate(data.variables[:MAX_ROWS]):
            fields = [frame[:, channel] for frame in frames]
            units = label_with_units(variable.name, variable.units)
            limits, panels = (
                color_limits(np.concatenate(fields)),
                zip(labels, sites, fields, strict=True),
            )
            rows.append([
                (f"{variable.name}{source}, {label}", units, geometry, field, limits)
                for label, geometry, field in panels
            ])  # fmt: skip
    return rows
