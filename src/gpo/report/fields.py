"""One channel of a field on any points: a line in 1-D, colours in 2-D, a map on the sphere."""

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
    """Returns coordinates to draw at: degrees on the sphere, the first two axes in space."""
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
    """Draws one channel of a field on any points.

    Args:
        axes: Where to draw.
        coords: The points.
        values: The channel's values there.
        domain: Its periodic axes are continued across the edge.
        title: Of the panel.
        limits: Ends of the colour scale; symmetric around zero when not given.
        color_map: A perceptual colour map of matplotlib.
    """
    where = flat_coords(coords.detach().cpu(), domain).numpy()
    where, shown = _continued(where, values.detach().cpu().numpy(), domain)
    axes.set_title(title)
    if where.shape[1] == 1:
        order = np.argsort(where[:, 0])
        axes.plot(where[order, 0], shown[order])
        axes.set(xlabel="x", xlim=(domain.lower[0], domain.upper[0]))
        return
    largest = float(np.abs(shown).max()) or 1.0
    low, high = limits or (-largest, largest)
    mesh = axes.tripcolor(
        Triangulation(where[:, 0], where[:, 1]),
        shown,
        shading="gouraud",
        cmap=color_map,
        vmin=low,
        vmax=high,
    )
    plt.colorbar(mesh, ax=axes, shrink=0.8)
    label_plane(axes, coords, domain)


def _continued(
    where: np.ndarray, values: np.ndarray, domain: Domain
) -> tuple[np.ndarray, np.ndarray]:
    """Repeats the margins of periodic axes on the other side, so that colours reach the edge."""
    if domain.is_sphere:
        spans = [None if _is_patch(domain) else (-180.0, 360.0)]
    else:
        spans = [
            (low, high - low) if is_periodic else None
            for low, high, is_periodic in zip(
                domain.lower, domain.upper, domain.periodic, strict=True
            )
        ]
    for axis, span in enumerate(spans[: where.shape[1]]):
        if span is None:
            continue
        low, length = span
        margin = 0.25 * length
        begin, end = where[:, axis] < low + margin, where[:, axis] > low + length - margin
        step = np.zeros(where.shape[1])
        step[axis] = length
        where = np.concatenate([where, where[begin] + step, where[end] - step])
        values = np.concatenate([values, values[begin], values[end]])
    return where, values


def label_plane(axes: Axes, coords: Float[Tensor, "points dim"], domain: Domain) -> None:
    """Sets aspect, limits and names of the two drawn axes: the domain, or where a patch lies."""
    if domain.is_sphere:
        axes.set(xlabel="longitude (°)", ylabel="latitude (°)")
        low, high = (-180.0, -90.0), (180.0, 90.0)
        if _is_patch(domain):
            flat = flat_coords(coords.detach().cpu(), domain)
            low, high = flat.amin(0).tolist(), flat.amax(0).tolist()
    else:
        axes.set(xlabel="x", ylabel="y")
        low, high = domain.lower, domain.upper
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")


def _is_patch(domain: Domain) -> bool:
    return domain.is_sphere and domain != Domain.sphere()
