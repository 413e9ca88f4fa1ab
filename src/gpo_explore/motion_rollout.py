"""Displacements of all particles in every step of a rollout, and the true frames of these steps."""

from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gpo.data.dataset import FieldData
from gpo.data.splits import evenly
from gpo.interpretation.displacements import (
    displacements,
    has_moving_particles,
    transporting_layers,
)
from gpo.interpretation.tracers import rollout_particles
from gpo_explore.answers import rollout_start
from gpo_explore.requests import FlowRequest, RolloutRequest
from gpo_explore.session import Session

MAX_STEPS = 20
"""Largest number of rollout steps."""
MAX_VALUES = 2**25
"""Largest number of stored displacement components; larger fields have fewer steps."""
NUM_CONTROLS = 7
"""Number of other test examples whose velocity is the control."""


class MotionRollout:
    """A rollout whose displacements are computed step by step, on demand.

    Args:
        session: The run; hold its `rollout_lock` while using this.
        request: The example and the ablation.
    """

    def __init__(self, session: Session, request: FlowRequest) -> None:
        task = session.forecaster.task
        with session.lock:
            self.example = session.example(request.example)
            self.plane = session.plane(request.example)
            self.frames = self.example.fields[0, -1:].numpy()
            self.labels, self.times, self.num_steps = [""], np.zeros(1), 1
            if task.lead > 0:
                self._read_series(session, session.data, request)
            self.flow = session.flow_variables.on(self.plane.geometry)
            self.other_frames = _other_frames(session, request.example)
        self._per_time = self._lengths_per_time(session.data)
        forecaster = session.rollout_forecaster
        self._particles = rollout_particles(
            forecaster, self.example, self.num_steps, request.ablation
        )
        self._displacements: list[Float[Tensor, "points gaussians axes"]] = []

    @property
    def has_units(self) -> bool:
        """Whether the units of the velocity determine the displacement per step."""
        return self._per_time is not None

    def displacements(self, step: int) -> Float[Tensor, "points gaussians axes"]:
        """Returns the displacements of all particles in a step, concatenated over transport layers."""
        if not 1 <= step <= self.num_steps:
            raise ValueError(f"`step` must be from 1 to {self.num_steps}, got {step}.")
        domain, coords = self.plane.geometry.domain, self.example.coords
        while len(self._displacements) < step:
            layers = next(self._particles, None)
            if layers is None:
                raise ValueError(
                    f"`step` must be at most {len(self._displacements)}, got {step}: the forecast is "
                    "not finite after that."
                )
            by_layer = [displacements(particles, coords, domain)[0] for particles in layers]
            self._displacements.append(torch.cat(by_layer, 1).float())
        return self._displacements[step - 1]

    def velocity(self, frame: int) -> Float[np.ndarray, "points axes"]:
        """Returns the true velocity in a frame, in domain lengths per time if its units are known."""
        assert self.flow is not None
        return self.flow(self.frames[frame].astype(np.float64)) * (self._per_time or 1.0)

    def duration(self, step: int) -> float:
        """Returns the time of a step; 1 if there is no time axis."""
        return float(self.times[step] - self.times[step - 1]) if step < len(self.times) else 1.0

    def quadrature(self, frame: int) -> Float[np.ndarray, " points"]:
        """Returns the quadrature weights of a frame; zero at masked sites and missing values."""
        is_finite = np.asarray(np.isfinite(self.frames[frame]).all(-1))
        return np.where(is_finite, self.example.site_weights[0].double().numpy(), 0.0)

    def _read_series(self, session: Session, data: FieldData, request: FlowRequest) -> None:
        example = self.example
        max_steps = MAX_VALUES // max(1, example.coords[0].numel() * num_particles(session))
        steps = max(1, min(MAX_STEPS, max_steps))
        start = rollout_start(
            session, RolloutRequest(example=request.example, ablation=request.ablation, steps=steps)
        )
        last = session.samples[request.example].last
        self.example = replace(example, forcings=start.forcings, seasons=start.example.seasons)
        self.frames = np.concatenate([self.frames, start.truth])
        self.labels = [*data.time_labels([last]), *start.labels]
        self.times = np.array([float(data.time[last]), *start.times])
        self.num_steps = len(start.truth)

    def _lengths_per_time(self, data: FieldData) -> float | None:
        if self.flow is None or len(self.times) < 2:
            return None
        return self.flow.lengths_per_time(data.time_units)


def num_particles(session: Session) -> int:
    """Returns the number of moving particles per site, over all transport layers."""
    model = session.operator
    if not has_moving_particles(model):
        raise ValueError(
            f"The particles of {session.model_name} do not move. Open a run of --model gpo."
        )
    return len(transporting_layers(model)) * model.config.num_gaussians


def _other_frames(session: Session, number: int) -> list[np.ndarray]:
    """Returns the last input frames of other examples on the same sites, of other trajectories first."""
    if len(session.data.geometries) > 1:
        return []
    trajectory = session.samples[number].sample
    numbers = [n for n in range(len(session.samples)) if n != number]
    others = [n for n in numbers if session.samples[n].sample != trajectory] or numbers
    controls = evenly(others, NUM_CONTROLS) if others else []
    return [session.example(n).fields[0, -1].numpy() for n in controls]
