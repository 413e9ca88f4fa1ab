"""What becomes of particles from frame to frame."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from gpo.inspect.cloud import ParticleCloud


@dataclass(frozen=True)
class Tracks:
    """One row per particle and step in time: where it was, and how it changed.

    The same Gaussian of the same site is the same particle. One that is missing in either of two
    consecutive frames, because it was left out as too light, has no row there.
    """

    frames: Int64[Tensor, " steps"]
    """The earlier frame of the step."""
    next_frames: Int64[Tensor, " steps"]
    """The later one."""
    sites: Int64[Tensor, " steps"]
    gaussians: Int64[Tensor, " steps"]
    centers: Float[Tensor, "steps dim"]
    """Where the particle was in the earlier frame."""
    displacements: Float[Tensor, "steps dim"]
    """How far it went: the shortest way on periodic axes, the chord on the sphere."""
    scale_changes: Float[Tensor, "steps dim"]
    """The later scale minus the earlier, in domain units."""
    weight_changes: Float[Tensor, " steps"]
    """The later weight minus the earlier."""

    @classmethod
    def of(cls, cloud: ParticleCloud) -> "Tracks":
        """Returns the steps of all particles of a cloud whose samples are frames of one series."""
        frames, order_in_time = cloud.samples.unique(return_inverse=True)
        if len(frames) < 2:
            raise ValueError(
                f"A cloud must hold at least two frames to be tracked, got {len(frames)}: "
                "encode the frames of a series as one batch."
            )
        # Every particle has a number per frame; the same one is next found `stride` farther on.
        per_site = int(cloud.gaussians.max()) + 1
        stride = (int(cloud.sites.max()) + 1) * per_site
        key = order_in_time * stride + cloud.sites * per_site + cloud.gaussians
        known, row = key.sort()
        place = torch.searchsorted(known, known + stride).clamp(max=len(known) - 1)
        is_found = known[place] == known + stride
        earlier, later = row[is_found], row[place[is_found]]
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
