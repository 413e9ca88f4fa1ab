"""Metadata of a run, which the page needs before any request: names, units, counts, reasons."""

from typing import Any

import numpy as np

from gpo.data.dataset import Trajectories
from gpo.data.splits import TimeSlice, evenly
from gpo.data.units import readable
from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.displacements import has_moving_particles, transporting_layers
from gpo_explore.motion_rollout import flow_variables
from gpo_explore.session import Session

NUM_RANGED = 8
"""Examples that set the limits of colour scales."""


def run_metadata(session: Session) -> dict[str, Any]:
    """Returns names, units, counts and ranges of a run."""
    task, data = session.forecaster.task, session.data
    is_series = isinstance(data, Trajectories)
    inputs = data.variables if is_series else data.inputs
    given, wanted = _ranges(session)
    return {
        "name": session.name,
        "source": data.source.name,
        "num_sites": session.example(0).frames.shape[2],
        "num_parameters": session.forecaster.num_parameters,
        "model": session.model_name,
        "predicts": task.predict,
        "history": task.history,
        "lead": task.lead,
        "inputs": [
            {"name": variable.name, "units": readable(variable.units), "range": ends}
            for variable, ends in zip(inputs, given, strict=True)
        ],
        "outputs": [
            {"name": name, "units": readable(units), "range": ends}
            for name, units, ends in zip(task.outputs, task.units, wanted, strict=True)
        ],
        "time_units": data.time_units if is_series else "",
        "examples": [_example(session, member) for member in session.members],
        "operator": _operator(session.forecaster),
        "sites_vary": len(data.geometries) > 1,
        # A sphere whose frames have dates is the Earth; a made one may be any planet.
        "is_earth": is_series and data.origin is not None and data.geometry().domain.is_sphere,
        "velocity": _velocity(session),
        "reasons": _reasons(session),
    }


def _example(session: Session, member: TimeSlice | int) -> dict[str, Any]:
    """Returns which trajectory an example is of, and the times of what is given and predicted."""
    if not isinstance(member, TimeSlice):
        return {"trajectory": 0, "sample": member}
    assert isinstance(session.data, Trajectories)
    time = session.data.time
    target = member.last if session.forecaster.task.lead == 0 else member.target
    labels = session.data.time_labels([*member.inputs, target])
    return {
        "trajectory": member.trajectory,
        "given": [float(time[number]) for number in member.inputs],
        "time": float(time[target]),
        "labels": labels,
        "label": labels[-1] if target == member.last else " → ".join(labels[-2:]),
    }


def _operator(forecaster: Forecaster) -> dict[str, Any] | None:
    """Returns how many layers, heads and modes there are, and which waves."""
    model = forecaster.model.operator
    if model is None or forecaster.reconstructs:
        return None
    config, waves = model.config, model.waves
    described = {
        "variant": "paper" if waves is None else "geometric",
        "num_layers": len(model.applied_layers),
        "num_modes": model.num_modes,
        "num_gaussians": config.num_gaussians,
        "num_heads": getattr(config, "num_heads", 1),
    }
    if has_moving_particles(model):
        described["transports"] = list(transporting_layers(model))
    if waves is not None:
        names = ["axis 1", "axis 2", "axis 3"] if waves.mesh_shape else ["x", "y", "z"]
        if waves.domain.is_sphere:
            names = ["latitude", "longitude"]
        described["waves"] = {
            "limits": list(waves.limits),
            "periods": list(waves.periods),
            "names": names[: len(waves.limits)],
            "is_map": waves.domain.is_sphere and not waves.mesh_shape,
        }
    return described


def _velocity(session: Session) -> str | None:
    """Returns by what the true velocity is known, or None."""
    flow = flow_variables(session).on(session.data.geometry())
    return None if flow is None else flow.known_by


def _reasons(session: Session) -> dict[str, str]:
    """Returns, for every part of the page that this run cannot fill, the reason."""
    reasons: dict[str, str] = {}
    model, task = session.forecaster.model, session.forecaster.task
    name = session.model_name
    operator = model.operator
    if operator is None or session.forecaster.reconstructs:
        for part in ("modes", "coupling", "layers", "ablation"):
            reasons[part] = f"{name} has no layers of windows and modes."
        reasons["value"] = f"{name} answers at its sites only."
        if operator is None:
            reasons["particles"] = f"{name} has no particles."
    elif not operator.has_particles:
        reasons["particles"] = "This run is the ablation without particles."
    if not has_moving_particles(model):
        reasons["flow"] = reasons.get("particles", f"Particles of {name} do not move.")
    if not isinstance(session.data, Trajectories):
        reasons["rollout"] = "Static maps have no next step."
    elif task.lead == 0:
        reasons["rollout"] = "This run reconstructs fields and forecasts nothing."
    return reasons


def _ranges(session: Session) -> tuple[list[list[float]], list[list[float]]]:
    """Returns the smallest and the largest value of every input and output."""
    numbers = evenly(range(len(session.members)), NUM_RANGED)
    given, wanted = [], []
    for number in numbers:
        example = session.example(number)
        is_known = example.weights[0] > 0
        given.append(example.fields[0][:, is_known].flatten(0, 1).numpy())
        wanted.append(example.target[0][is_known].numpy())
    return _ends(np.concatenate(given)), _ends(np.concatenate(wanted))


def _ends(rows: np.ndarray) -> list[list[float]]:
    if not len(rows):
        return [[0.0, 1.0]] * rows.shape[1]
    return np.stack([rows.min(0), rows.max(0)], -1).astype(float).tolist()
