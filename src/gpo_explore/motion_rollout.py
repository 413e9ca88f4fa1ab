"""A rollout of particles: what a model moves in every step, and the true frames that it should be given."""

from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gpo.data.dataset import StaticMaps, Trajectories
from gpo.data.splits import evenly, owner
from gpo.interpretation.displacements import (
    displacements,
    has_moving_particles,
    transporting_layers,
)
from gpo.interpretation.flow import FlowVariables
from gpo.interpretation.tracers import rollout_particles
from gpo_explore.answers import series
from gpo_explore.requests import FlowRequest, RolloutRequest
from gpo_explore.session import Session

STEPS = 20
"""Steps that can be followed, while the page waits."""
MAX_KEPT = 2**25
"""Displacements that are kept, as numbers; larger fields are followed for fewer steps."""
NUM_OTHERS = 7
"""Other test examples whose velocity is the control."""


class MotionRollout:
    """Displacements in every step of a rollout, made as far as they are asked for.

    Args:
        session: The run; whoever makes this holds its lock for rollouts.
        request: The example, and what is switched off.
    """

    def __init__(self, session: Session, request: FlowRequest) -> None:
        task = session.forecaster.task
        with session.lock:
            self.example = session.example(request.example)
            self.plane = session.plane(request.example)
            self.frames = self.example.fields[0, -1:].numpy()
            self.labels, self.times, self.num_steps = [""], np.zeros(1), 1
            if isinstance(session.data, Trajectories) and task.lead > 0:
                self._read_series(session, session.data, request)
            self.flow = flow_variables(session).on(self.plane.geometry)
            self.others = _other_frames(session, request.example)
        self._per_time = self._lengths_per_time(session.data)
        forecaster = session.rollout_forecaster
        self._more = rollout_particles(forecaster, self.example, self.num_steps, request.ablation)
        self._ways: list[Float[Tensor, "points gaussians axes"]] = []

    @property
    def is_told(self) -> bool:
        """Whether units tell how far the flow goes in a step."""
        return self._per_time is not None

    def ways(self, step: int) -> Float[Tensor, "points gaussians axes"]:
        """Returns the displacements of all particles in a step, of one transport after the other."""
        if not 1 <= step <= self.num_steps:
            raise ValueError(f"`step` must be from 1 to {self.num_steps}, got {step}.")
        domain, coords = self.plane.geometry.domain, self.example.coords
        while len(self._ways) < step:
            held = next(self._more, None)
            if held is None:
                raise ValueError(f"The rollout is not finite beyond step {len(self._ways)}.")
            each = [displacements(one, coords, domain)[0] for one in held]
            self._ways.append(torch.cat(each, 1).float())
        return self._ways[step - 1]

    def velocity(self, frame: int) -> Float[np.ndarray, "points axes"]:
        """Returns the true velocity in a frame, in lengths per time where units tell those."""
        assert self.flow is not None
        return self.flow(self.frames[frame].astype(np.float64)) * (self._per_time or 1.0)

    def duration(self, step: int) -> float:
        """Returns how long a step takes; one where there is no time."""
        return float(self.times[step] - self.times[step - 1]) if step < len(self.times) else 1.0

    def quadrature(self, frame: int) -> Float[np.ndarray, " points"]:
        """Returns the weights of sites; zero at masked ones, and where a frame has gaps."""
        is_known = np.asarray(np.isfinite(self.frames[frame]).all(-1))
        return np.where(is_known, self.example.site_weights[0].double().numpy(), 0.0)

    def _read_series(self, session: Session, data: Trajectories, request: FlowRequest) -> None:
        example = self.example
        most = MAX_KEPT // max(1, example.coords[0].numel() * num_carriers(session))
        steps = max(1, min(STEPS, most))
        start = series(
            session, RolloutRequest(example=request.example, ablation=request.ablation, steps=steps)
        )
        last = session.members[request.example].last
        self.example = replace(example, forcings=start.forcings)
        self.frames = np.concatenate([self.frames, start.truth])
        self.labels = [*data.time_labels([last]), *start.labels]
        self.times = np.array([float(data.time[last]), *start.times])
        self.num_steps = len(start.truth)

    def _lengths_per_time(self, data: Trajectories | StaticMaps) -> float | None:
        if self.flow is None or not isinstance(data, Trajectories) or len(self.times) < 2:
            return None
        return self.flow.lengths_per_time(data.time_units)


def flow_variables(session: Session) -> FlowVariables:
    """Returns the variables among which the velocity is looked for."""
    data = session.data
    given = data.inputs if isinstance(data, StaticMaps) else data.variables
    return FlowVariables(tuple(given), session.velocity)


def num_carriers(session: Session) -> int:
    """Returns how many particles can carry: those of a site, of every layer that transports."""
    model = session.operator
    if not has_moving_particles(model):
        raise ValueError(f"Particles of {session.model_name} do not move; those of --model gpo do.")
    return len(transporting_layers(model)) * model.config.num_gaussians


def _other_frames(session: Session, number: int) -> list[np.ndarray]:
    """Returns what other test examples were given last, on the same sites; of other series first."""
    if len(session.data.geometries) > 1:
        return []
    mine = owner(session.members[number])
    numbers = [n for n in range(len(session.members)) if n != number]
    apart = [n for n in numbers if owner(session.members[n]) != mine] or numbers
    chosen = evenly(apart, NUM_OTHERS) if apart else []
    return [session.example(n).fields[0, -1].numpy() for n in chosen]
