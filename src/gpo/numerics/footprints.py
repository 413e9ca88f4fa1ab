r"""Where a Gaussian is at least $e^{-r^2/2}$: an ellipse or ellipsoid around its center.

In a box its axes are those of the box. On the sphere it is cut out of the ellipsoid
$\sum_d(x_d-\mu_d)^2/\sigma_d^2=r^2$ by the tangent plane at the center, an ellipse of any
orientation.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gpo.numerics.domain import Domain, longitude_latitude

LONGEST_CHORD = math.sqrt(2)
"""Outlines on the sphere end a quarter turn from their center: beyond, inside and outside would swap."""
LEAST_COSINE = 0.2
"""A length is more degrees of longitude near the poles; close to them it would fill a map."""


@dataclass(frozen=True)
class Footprints:
    """Ellipses and ellipsoids: centers, half axes and where these point."""

    centers: Float[Tensor, "particles dim"]
    semi_axes: Float[Tensor, "particles axes"]
    """Half the length of every axis, in domain units; on the sphere the longer of two first."""
    directions: Float[Tensor, "particles axes dim"]
    """Unit vectors along the axes; on the sphere tangent, counterclockwise seen from outside."""
    domain: Domain

    @classmethod
    def of(
        cls,
        centers: Float[Tensor, "particles dim"],
        scales: Float[Tensor, "particles dim"],
        domain: Domain,
        reach: float = 1.0,
    ) -> "Footprints":
        """Returns the footprints of Gaussians.

        Args:
            centers: Where they peak.
            scales: Their standard deviations along the axes of the domain.
            domain: Where they live.
            reach: How many standard deviations a footprint reaches.
        """
        if not domain.is_sphere:
            axes = torch.eye(domain.dim).to(centers).expand(len(centers), -1, -1)
            return cls(centers, reach * scales, axes, domain)
        frame = tangent_frame(centers)
        scaled = frame / scales.unsqueeze(-2)
        # Ascending: the flattest direction, which is the longest axis, comes first.
        squares, turns = torch.linalg.eigh(scaled @ scaled.mT)
        longest = turns[..., :1].mT @ frame
        across = torch.linalg.cross(centers.unsqueeze(-2), longest)
        return cls(centers, reach * squares.rsqrt(), torch.cat([longest, across], -2), domain)

    @property
    def tensors(self) -> Float[Tensor, "particles dim dim"]:
        """Symmetric matrices whose eigenvalues are the half axes, along whose eigenvectors they lie."""
        return self.directions.mT @ (self.semi_axes.unsqueeze(-1) * self.directions)

    def outlines(self, num_vertices: int = 64) -> Float[Tensor, "particles vertices dim"]:
        """Returns polygons around ellipses, counterclockwise; on the sphere their corners are unit vectors.

        Along a great circle a corner is as far as its chord is long, which for a round Gaussian is
        the exact outline, and no farther than a quarter turn. In a periodic box a polygon stays
        whole, also where it leaves the box.
        """
        if self.semi_axes.shape[-1] != 2:
            raise ValueError(
                "Outlines are drawn around ellipses, in two dimensions or on the sphere; here there "
                f"are {self.semi_axes.shape[-1]} axes. Use `semi_axes` and `directions`, or `tensors`."
            )
        if num_vertices < 3:
            raise ValueError(f"`num_vertices` must be at least 3, got {num_vertices}.")
        angle = torch.arange(num_vertices).to(self.centers) * (2 * math.pi / num_vertices)
        around = torch.stack([angle.cos(), angle.sin()], -1)
        arms = (around * self.semi_axes.unsqueeze(-2)) @ self.directions
        centers = self.centers.unsqueeze(-2)
        if not self.domain.is_sphere:
            return centers + arms
        length = arms.norm(dim=-1, keepdim=True)
        arms = arms * (LONGEST_CHORD / length).clamp(max=1)
        squared = arms.square().sum(-1, keepdim=True)
        return (1 - squared / 2) * centers + (1 - squared / 4).sqrt() * arms

    def map_outlines(self, num_vertices: int = 64) -> Float[Tensor, "particles corners 2"]:
        """Returns closed polygons in longitude and latitude, in degrees, for a map of the sphere.

        Longitudes run on past 180 degrees rather than jump, starting next to the center's. An
        outline around a pole goes all the way round and is closed along the pole.
        """
        if not self.domain.is_sphere:
            raise ValueError(
                "Only on the sphere are there longitudes and latitudes: use `outlines`."
            )
        longitude, latitude = longitude_latitude(self.outlines(num_vertices))
        middle = longitude_latitude(self.centers)[0].unsqueeze(-1)
        first = middle + _shortest(longitude[:, :1] - middle)
        steps = _shortest(torch.cat([longitude[:, 1:], longitude[:, :1]], -1) - longitude)
        longitude = torch.cat([first, first + steps.cumsum(-1)], -1)
        # Counterclockwise around the north pole is eastward, around the south pole westward.
        turns = torch.round((longitude[:, -1:] - first) / 360)
        end = torch.where(turns == 0, latitude[:, :1], 90 * turns)
        corners = torch.cat([longitude, longitude[:, -1:], first], -1)
        return torch.stack([corners, torch.cat([latitude, latitude[:, :1], end, end], -1)], -1)


def tangent_frame(points: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 2 3"]:
    """Returns the unit vectors that point east and north at points of the sphere."""
    longitude, latitude = (angle.deg2rad() for angle in longitude_latitude(points))
    zero = torch.zeros_like(longitude)
    east = torch.stack([-longitude.sin(), longitude.cos(), zero], -1)
    poleward = -latitude.sin()
    north = [poleward * longitude.cos(), poleward * longitude.sin(), latitude.cos()]
    return torch.stack([east, torch.stack(north, -1)], -2)


def _shortest(degrees: Tensor) -> Tensor:
    return torch.remainder(degrees + 180, 360) - 180


def longitude_stretch(latitude: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """Returns how many degrees of longitude a degree of arc to the east is, bounded near the poles.

    Args:
        latitude: In degrees.
    """
    return 1 / np.cos(np.deg2rad(latitude)).clip(LEAST_COSINE)
