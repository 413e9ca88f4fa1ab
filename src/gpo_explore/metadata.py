"""Metadata of a run, which the page loads first: names, units, sizes, and why panels are disabled."""

from typing import Any

import numpy as np

from gpo.data.dataset import FieldData
from gpo.data.splits import TimeSlice, evenly
from gpo.data.units import readable
from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.displacements import has_moving_particles, transporting_layers
from gpo_explore.coastlines import projected_coastlines
from gpo_explore.session import Session

NUM_RANGE_EXAMPLES = 8
"""Examples that determine the limits of colour scales."""


def run_metadata(session: Session) -> dict[str, Any]:
    """Returns names, units, counts and ranges of a run."""
    task, data = session.forecaster.task, session.data
    input_ranges, output_ranges = _ranges(session)
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
            {"name": variable.name, "units": readable(variable.units), "range": limits}
            for variable, limits in zip(data.inputs, input_ranges, strict=True)
        ],
        "outputs": [
            {"name": name, "units": readable(units), "range": limits}
            for name, units, limits in zip(task.outputs, task.units, output_ranges, strict=True)
        ],
        "time_units": data.time_units,
        "examples": [_example(session, sample) for sample in session.samples],
        "operator": _operator(session.forecaster),
        "sites_vary": len(data.geometries) > 1,
        # A sphere with dates is taken for the Earth; a simulated one may be any planet.
        "is_earth": data.origin is not None and _has_degrees(data),
        "coast": projected_coastlines(data.geometry()),
        "velocity": _velocity(session),
        "reasons": _reasons(session),
    }


def _has_degrees(data: FieldData) -> bool:
    geometry = data.geometry()
    return geometry.domain.is_sphere or geometry.projected_from is not None


def _example(session: Session, sample: TimeSlice) -> dict[str, Any]:
    """Returns the trajectory of an example, and the times of its input and target frames."""
    if sample.lead == 0:
        return {"trajectory": 0, "sample": sample.sample}
    time = session.data.time
    target = sample.last if session.reconstructs else sample.target
    labels = session.data.time_labels([*sample.inputs, target])
    return {
        "trajectory": sample.sample,
        "given": [float(time[number]) for number in sample.inputs],
        "time": float(time[target]),
        "labels": labels,
        "label": labels[-1] if target == sample.last else " → ".join(labels[-2:]),
    }


def _operator(forecaster: Forecaster) -> dict[str, Any] | None:
    """Returns the numbers of layers, heads and modes, and the wave vectors; None for other models."""
    model = forecaster.model.operator
    if model is None or forecaster.reconstructs:
        return None
    config, waves = model.config, model.waves
    sizes = {
        "variant": "paper" if waves is None else "geometric",
        "num_layers": len(model.applied_layers),
        "num_modes": model.num_modes,
        "num_gaussians": config.num_gaussians,
        "num_heads": getattr(config, "num_heads", 1),
    }
    if has_moving_particles(model):
        sizes["transports"] = list(transporting_layers(model))
    if waves is not None:
        names = ["axis 1", "axis 2", "axis 3"] if waves.mesh_shape else ["x", "y", "z"]
        if waves.domain.is_sphere:
            names = ["latitude", "longitude"]
        sizes["waves"] = {
            "limits": list(waves.limits),
            "periods": list(waves.periods),
            "names": names[: len(waves.limits)],
            "is_map": waves.domain.is_sphere and not waves.mesh_shape,
        }
    return sizes


def _velocity(session: Session) -> str | None:
    """Returns how the true velocity is recognised in the data; None if it is not."""
    flow = session.flow_variables.on(session.data.geometry())
    return None if flow is None else flow.known_by


def _reasons(session: Session) -> dict[str, str]:
    """Returns, for every panel that is not available for this run, the reason."""
    reasons: dict[str, str] = {}
    model, task = session.forecaster.model, session.forecaster.task
    name = session.model_name
    operator = model.operator
    if operator is None or session.forecaster.reconstructs:
        for part in ("modes", "coupling", "layers", "ablation"):
            reasons[part] = f"{name} has no modes to inspect."
        reasons["value"] = f"{name} predicts at its sites only."
        if operator is None:
            reasons["particles"] = f"{name} has no particles."
    elif not operator.has_particles:
        reasons["particles"] = "The model of this run has no particles."
    if not has_moving_particles(model):
        reasons["flow"] = reasons.get("particles", f"The particles of {name} do not move.")
    if session.forecaster.reconstructs:
        reasons["rollout"] = "This run reconstructs fields and does not forecast."
    elif task.lead == 0:
        reasons["rollout"] = "Static maps have no time steps."
    return reasons


def _ranges(session: Session) -> tuple[list[list[float]], list[list[float]]]:
    """Returns the smallest and the largest value of every input and output."""
    inputs, targets = [], []
    for number in evenly(range(len(session.samples)), NUM_RANGE_EXAMPLES):
        example = session.example(number)
        is_active = example.weights[0] > 0
        inputs.append(example.fields[0][:, is_active].flatten(0, 1).numpy())
        targets.append(example.target[0][is_active].numpy())
    return _limits(np.concatenate(inputs)), _limits(np.concatenate(targets))


def _limits(values: np.ndarray) -> list[list[float]]:
    if not len(values):
        return [[0.0, 1.0]] * values.shape[1]
    return np.stack([values.min(0), values.max(0)], -1).astype(float).tolist()
