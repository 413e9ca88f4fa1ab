"""Answers about the internals of a forward pass: particles, windows, modes, layers."""

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gpo.interpretation.displacements import displacements, has_moving_particles
from gpo.model.particles import Particles
from gpo.model.trace import Trace
from gpo_explore.arrays import Packet
from gpo_explore.requests import AblationRequest, WindowRequest
from gpo_explore.session import Session

MAX_SITES = 20_000
"""Largest number of sites whose particles are sent; of more, a fixed random sample."""


def layers(session: Session, request: AblationRequest) -> Packet:
    """Returns the activation after every layer, the energy of the tokens, and the mode couplings.

    In the paper's variant the coupling is the attention between the modes of every head. In the
    geometric variant it is the magnitude of the response per wave vector, RMS over the channels.
    """
    trace = session.trace(request.example, request.ablation)
    activation = torch.stack([state[0].square().sum(-1) for state in trace.states])
    arrays = {"activation": activation, "tokens": _token_energy(trace)}
    if trace.waves is not None:
        arrays["waves"] = torch.cartesian_prod(*trace.waves.numbers).reshape(
            -1, len(trace.waves.limits)
        )
    if trace.responses:
        sizes = [response.square().sum(0).mean(-1).sqrt() for response in trace.responses]
        arrays["response"] = torch.stack(sizes)
    if trace.couplings:
        arrays["coupling"] = torch.stack([coupling[0] for coupling in trace.couplings])
    return Packet({name: array.detach().numpy() for name, array in arrays.items()})


def window(session: Session, request: WindowRequest) -> Packet:
    """Returns a window at the sites: its weight, or the cosine and sine of a wave."""
    operator = session.operator
    for name, number, count in (
        ("layer", request.layer, operator.config.num_layers),
        ("mode", request.mode, operator.num_modes),
    ):
        if number >= count:
            raise ValueError(f"`{name}` must be from 0 to {count - 1}, got {number}.")
    trace, example = session.trace(request.example), session.example(request.example)
    if trace.waves is None:
        windows = trace.windows[request.layer][0].permute(0, 2, 1).flatten(0, 1)
        return Packet({"window": windows[request.mode].numpy()[None]})
    positions = trace.waves.positions(example.coords)[0].double()
    angle = 2 * math.pi * positions @ trace.waves.vectors[request.mode].to(positions)
    parts = torch.stack([torch.cos(angle), torch.sin(angle)])
    return Packet({"window": parts.numpy()})


def particles(session: Session, request: AblationRequest) -> Packet:
    """Returns the particles of the last layer that has particles, and their state after every layer.

    The state is the basis of every Gaussian in the paper's variant, and the energy of the site's
    hidden state in the geometric variant. Particles that move have displacements, from their centers
    to their sites along the drawn axes; those of an encoder have scales.
    """
    cloud, states = _particles_and_states(session, request)
    plane, example = session.plane(request.example), session.example(request.example)
    domain = plane.geometry.domain
    sites = torch.from_numpy(session.active_sites(request.example, MAX_SITES))
    centers = plane.flat(cloud.centers[0, sites].double().numpy())
    weights = cloud.weights[0, sites].numpy()
    arrays = {"sites": sites.numpy(), "centers": centers, "weights": weights}
    if has_moving_particles(session.forecaster.model):
        moved = displacements(cloud, example.coords, domain)[0, sites].numpy()
        arrays["displacements"] = np.rad2deg(moved) if domain.is_sphere else moved
    else:
        arrays["scales"] = plane.flat_scales(cloud.scales[0, sites].double().numpy(), centers)
    if states is not None:
        arrays["states"] = states[:, sites].numpy()
    return Packet(arrays)


def _particles_and_states(
    session: Session, request: AblationRequest
) -> tuple[Particles, Float[Tensor, "layers points gaussians"] | None]:
    trace = session.trace(request.example, request.ablation)
    if not trace.gaussians:
        raise ValueError("The model of this run has no particles.")
    held = trace.gaussians[-1]
    if session.forecaster.reconstructs:
        return trace.gaussians[-1], None
    states = torch.stack([state[0] for state in trace.states])
    if trace.waves is not None:
        states = states.square().sum(-1, keepdim=True).expand(-1, -1, held.weights.shape[-1])
    return held, states


def _token_energy(trace: Trace) -> Float[Tensor, "layers modes"]:
    r"""Returns $\sum_c|T_{kc}|^2$ of every mode; a wave includes its complex conjugate."""
    if not trace.modes:
        return torch.zeros(0, 0)
    if trace.waves is not None:
        energy = torch.stack([tokens.square().sum((0, 2, 3)) for tokens in trace.tokens])
        return energy * trace.waves.multiplicities.to(energy)
    return torch.stack([tokens[0].square().sum(-1).flatten() for tokens in trace.tokens])
