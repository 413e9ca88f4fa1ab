"""The particles of the site next to the asked point, layer by layer: centers, displacements or scales, weights."""

import numpy as np
import torch

from gpo.interpretation.displacements import displacements, has_moving_particles
from gpo.model.particles import Particles
from gpo_explore.arrays import Packet
from gpo_explore.requests import PointRequest
from gpo_explore.session import Session

NO_SCALE = (
    "This variant learns no scale: a particle reads at its center and carries that to the site."
)


def nearby(session: Session, request: PointRequest) -> Packet:
    """Returns the particles that one site owns, of every layer that has some.

    Args:
        session: The run.
        request: The point; its nearest site that counts is taken, and its variable does not matter.
    """
    example, plane = session.example(request.example), session.plane(request.example)
    site = plane.nearest_site(request.point)
    held = _held(session, request)
    domain, at = plane.geometry.domain, slice(site, site + 1)
    centers = plane.flat(torch.stack([one.centers[0, site] for one in held]).double().numpy())
    arrays = {
        "centers": centers,
        "weights": torch.stack([one.weights[0, site] for one in held]).numpy(),
    }
    is_moving = has_moving_particles(session.forecaster.model)
    if is_moving:
        own = [Particles(one.centers[:, at], one.scales[:, at], one.weights[:, at]) for one in held]
        ways = np.stack(
            [displacements(o, example.coords[:, at], domain)[0, 0].numpy() for o in own]
        )
        arrays["displacements"] = np.rad2deg(ways) if domain.is_sphere else ways
    else:
        scales = torch.stack([one.scales[0, site] for one in held]).double().numpy()
        arrays["scales"] = plane.flat_scales(scales, centers)
    metadata = {
        "site": site,
        "place": plane.positions[site].tolist(),
        "layers": _layers(session, len(held)) if is_moving else [],
        "no_scale": NO_SCALE if is_moving else None,
    }
    return Packet(arrays, metadata)


def _held(session: Session, request: PointRequest) -> list[Particles]:
    trace = session.trace(request.example, request.ablation)
    held = list(trace.gaussians)
    if not held:
        raise ValueError("This run is the ablation without particles.")
    return held


def _layers(session: Session, count: int) -> list[int]:
    """Returns the numbers of the layers that transport, which are the last ones."""
    last = session.operator.config.num_layers
    return list(range(last - count, last))
