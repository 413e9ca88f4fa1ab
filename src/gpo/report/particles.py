"""Gaussian particles as ellipses: center mu, half axes proportional to sigma, colour by weight."""

import numpy as np
import torch
from jaxtyping import Float
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.collections import EllipseCollection
from matplotlib.patheffects import withStroke
from torch import Tensor

from gpo.model.particles import Particles
from gpo.numerics.domain import Domain
from gpo.report.fields import flat_coords, label_plane


def draw_particles(
    axes: Axes,
    particles: Particles,
    coords: Float[Tensor, "points dim"],
    domain: Domain,
    *,
    sample: int = 0,
    num_particles: int = 250,
    fraction: float = 0.15,
) -> None:
    """Draws a thinned selection of the particles of one sample: ellipses, or dots in 1-D.

    Args:
        axes: Where to draw, over a field.
        particles: The particles of a batch.
        coords: The sites that own them.
        domain: Where they live.
        sample: Which sample of the batch.
        num_particles: How many to draw: spread over the sites, each the heaviest of its site.
        fraction: Half axes in units of sigma; a particle reaches much farther than it is drawn.
    """
    weights = particles.weights[sample].detach().cpu()
    heaviest = weights.argmax(-1)
    # A fixed shuffle: evenly spaced sites of a grid would draw stripes.
    generator = torch.Generator().manual_seed(0)
    sites = torch.randperm(len(weights), generator=generator)[:num_particles]
    chosen = (sites, heaviest[sites])
    centers = flat_coords(particles.centers[sample].detach().cpu()[chosen], domain).numpy()
    scales = particles.scales[sample].detach().cpu()[chosen].numpy()
    if domain.dim == 1:
        marks = axes.scatter(centers[:, 0], scales[:, 0], c=weights[chosen].numpy(), s=12)
        axes.set(xlabel="center μ", ylabel="scale σ")
        plt.colorbar(marks, ax=axes, label="weight w")
        return
    if domain.is_sphere:
        scales = _degrees(scales, *np.deg2rad(centers).T)
    ellipses = EllipseCollection(
        2 * fraction * scales[:, 0],
        2 * fraction * scales[:, 1],
        np.zeros(len(sites)),
        units="xy",
        offsets=centers,
        offset_transform=axes.transData,
        array=weights[chosen].numpy(),
        cmap="viridis",
        linewidths=1.0,
    )
    ellipses.set_facecolor("none")
    # A light rim keeps dark ellipses apart from a dark field.
    ellipses.set_path_effects([withStroke(linewidth=2.0, foreground="white")])
    axes.add_collection(ellipses)
    plt.colorbar(ellipses, ax=axes, shrink=0.8, label=f"weight w (half axes {fraction} σ)")
    label_plane(axes, coords, domain)


def _degrees(scales: np.ndarray, longitude: np.ndarray, latitude: np.ndarray) -> np.ndarray:
    """Returns how far ellipsoids with axes along x, y, z reach in longitude and latitude."""
    zero = np.zeros_like(longitude)
    east = np.stack([-np.sin(longitude), np.cos(longitude), zero], -1)
    poleward = -np.sin(latitude)
    north = np.stack(
        [poleward * np.cos(longitude), poleward * np.sin(longitude), np.cos(latitude)], -1
    )
    # A length is more degrees of longitude near the poles; close to them it would fill the map.
    eastward = np.linalg.norm(scales * east, axis=-1) / np.cos(latitude).clip(0.2)
    return np.rad2deg(np.stack([eastward, np.linalg.norm(scales * north, axis=-1)], -1))
