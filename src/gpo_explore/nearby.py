"""The particles of the site nearest to a queried point: centers, displacements or scales, weights."""

import numpy as np
import torch

from gpo.interpretation.displacements import displacements, has_moving_particles
from gpo.model.particles import Particles
from gpo_explore.arrays import Packet
from gpo_explore.requests import PointRequest
from gpo_explore.session import Session

NO_SCALE = "Scales of this variant are the same at every site: gpo interpret lists them."


def nearby(session: Session, request: PointRequest) -> Packet:
    """Returns the particles of one site, for every layer that has particles.

    Args:
        session: The run.
        request: The point, whose nearest active site is used; the variable is ignored.
    """
    example, plane = session.example(request.example), session.plane(request.example)
    site = plane.nearest_site(request.point)
    layers = _particles_by_layer(session, request)
    domain, own = plane.geometry.domain, slice(site, site + 1)
    centers = torch.stack([particles.centers[0, site] for particles in layers])
    weights = torch.stack([particles.weights[0, site] for particles in layers])
    drawn_centers = plane.flat(centers.double().numpy())
    arrays = {"centers": drawn_centers, "weights": weights.numpy()}
    is_moving = has_moving_particles(session.forecaster.model)
    if is_moving:
        at_site = [
            Particles(layer.centers[:, own], layer.scales[:, own], layer.weights[:, own])
            for layer in layers
        ]
        moved = [
            displacements(particles, example.coords[:, own], domain)[0, 0] for particles in at_site
        ]
        arrays["displacements"] = torch.stack(moved).numpy()
        if domain.is_sphere:
            arrays["displacements"] = np.rad2deg(arrays["displacements"])
    else:
        scales = torch.stack([particles.scales[0, site] for particles in layers])
        arrays["scales"] = plane.flat_scales(scales.double().numpy(), drawn_centers)
    metadata = {
        "site": site,
        "place": plane.positions[site].tolist(),
        "layers": _layers(session, len(layers)) if is_moving else [],
        "no_scale": NO_SCALE if is_moving else None,
    }
    return Packet(arrays, metadata)


def _particles_by_layer(session: Session, request: PointRequest) -> list[Particles]:
    trace = session.trace(request.example, request.ablation)
    layers = list(trace.gaussians)
    if not layers:
        raise ValueError("The model of this run has no particles.")
    return layers


def _layers(session: Session, count: int) -> list[int]:
    """Returns the indices of the transport layers, which are the last ones."""
    last = session.operator.config.num_layers
    return list(range(last - count, last))
