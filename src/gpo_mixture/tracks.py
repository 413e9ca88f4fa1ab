"""Displacements and changes of particles from frame to frame."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from gpo.inspect.cloud import ParticleCloud


@dataclass(frozen=True)
class Tracks:
    """Changes of particles between consecutive frames, one row per particle and pair of frames.

    Particles are identified by site and Gaussian. A particle that is absent from either frame, for
    instance because it was not selected, has no row.
    """

    frames: Int64[Tensor, " steps"]
    """The earlier frame."""
    next_frames: Int64[Tensor, " steps"]
    """The later frame."""
    sites: Int64[Tensor, " steps"]
    gaussians: Int64[Tensor, " steps"]
    centers: Float[Tensor, "steps dim"]
    """Center in the earlier frame."""
    displacements: Float[Tensor, "steps dim"]
    """Displacement of the center: minimum image on periodic axes, the chord on the sphere."""
    scale_changes: Float[Tensor, "steps dim"]
    """Later minus earlier scale, in domain units."""
    weight_changes: Float[Tensor, " steps"]
    """Later minus earlier weight."""

    @classmethod
    def of(cls, cloud: ParticleCloud) -> "Tracks":
        """Returns the tracks of a cloud whose samples are frames of a series."""
        frames, order_in_time = cloud.samples.unique(return_inverse=True)
        if len(frames) < 2:
            raise ValueError(
                f"A cloud must hold at least two frames to be tracked, got {len(frames)}: "
                "encode the frames of a series as one batch."
            )
        # Keys are unique; the key of the same particle in the next frame is larger by `stride`.
        per_site = int(cloud.gaussians.max()) + 1
        stride = (int(cloud.sites.max()) + 1) * per_site
        key = order_in_time * stride + cloud.sites * per_site + cloud.gaussians
        keys, rows = key.sort()
        candidates = torch.searchsorted(keys, keys + stride).clamp(max=len(keys) - 1)
        is_match = keys[candidates] == keys + stride
        earlier, later = rows[is_match], rows[candidates[is_match]]
        return cls(
            cloud.samples[earlier],
            cloud.samples[later],
            cloud.sites[earlier],
            cloud.gaussians[earlier],
            cloud.centers[earlier],
            cloud.domain.offset(cloud.centers[later], cloud.centers[earlier]),
            cloud.scales[later] - cloud.scales[earlier],
            cloud.weights[later] - cloud.weights[earlier],
        )
