"""Draws one channel of a field on any points: a curve in 1-D, colours in 2-D, a map on the sphere."""

import numpy as np
import torch
from jaxtyping import Float
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.tri import Triangulation
from torch import Tensor

from gpo.numerics.domain import Domain, longitude_latitude


def flat_coords(
    coords: Float[Tensor, "points dim"], domain: Domain
) -> Float[Tensor, "points flat"]:
    """Returns the drawn coordinates: degrees on the sphere, else the first two axes."""
    if domain.is_sphere:
        return torch.stack(longitude_latitude(coords), -1)
    return domain.wrap(coords)[:, :2]


def draw_field(
    axes: Axes,
    coords: Float[Tensor, "points dim"],
    values: Float[Tensor, " points"],
    domain: Domain,
    *,
    title: str,
    limits: tuple[float, float] | None = None,
    color_map: str = "RdBu_r",
) -> None:
    """Draws one channel of a field.

    Args:
        axes: The panel.
        coords: The points.
        values: The values of the channel at the points.
        domain: The domain; periodic axes are continued across the edge.
        title: Title of the panel.
        limits: Ends of the colour scale; symmetric around zero when not given.
        color_map: Name of a matplotlib colour map.
    """
    flat = flat_coords(coords.detach().cpu(), domain).numpy()
    flat, shown = _continued(flat, values.detach().cpu().numpy(), domain)
    axes.set_title(title)
    if flat.shape[1] == 1:
        order = np.argsort(flat[:, 0])
        axes.plot(flat[order, 0], shown[order])
        axes.set(xlabel="x", xlim=(domain.lower[0], domain.upper[0]))
        return
    largest = float(np.abs(shown).max()) or 1.0
    low, high = limits or (-largest, largest)
    mesh = axes.tripcolor(
        Triangulation(flat[:, 0], flat[:, 1]),
        shown,
        shading="gouraud",
        cmap=color_map,
        vmin=low,
        vmax=high,
    )
    plt.colorbar(mesh, ax=axes, shrink=0.8)
    label_plane(axes, coords, domain)


def _continued(
    flat: np.ndarray, values: np.ndarray, domain: Domain
) -> tuple[np.ndarray, np.ndarray]:
    """Repeats the margins of periodic axes on the opposite side, so that colours reach the edge."""
    if domain.is_sphere:
        spans = [None if _is_region(domain) else (-180.0, 360.0)]
    else:
        spans = [
            (low, high - low) if is_periodic else None
            for low, high, is_periodic in zip(
                domain.lower, domain.upper, domain.periodic, strict=True
            )
        ]
    for axis, span in enumerate(spans[: flat.shape[1]]):
        if span is None:
            continue
        low, length = span
        margin = 0.25 * length
        begin, end = flat[:, axis] < low + margin, flat[:, axis] > low + length - margin
        step = np.zeros(flat.shape[1])
        step[axis] = length
        flat = np.concatenate([flat, flat[begin] + step, flat[end] - step])
        values = np.concatenate([values, values[begin], values[end]])
    return flat, values


def label_plane(axes: Axes, coords: Float[Tensor, "points dim"], domain: Domain) -> None:
    """Sets labels, aspect and limits of the two drawn axes; on the sphere those of the globe or region."""
    if domain.is_sphere:
        axes.set(xlabel="longitude (°)", ylabel="latitude (°)")
        low, high = (-180.0, -90.0), (180.0, 90.0)
        if _is_region(domain):
            flat = flat_coords(coords.detach().cpu(), domain)
            low, high = flat.amin(0).tolist(), flat.amax(0).tolist()
    else:
        axes.set(xlabel="x", ylabel="y")
        low, high = domain.lower, domain.upper
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")


def _is_region(domain: Domain) -> bool:
    return domain.is_sphere and domain != Domain.sphere()
