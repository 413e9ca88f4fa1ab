"""The displacement of the particle that carries most, beside the optical flow of the same step.

Both are compared where it rains, by the vector correlation. Its controls: the flow of other examples,
and both without their means over cells and examples, because one constant motion already correlates.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from gpo import open_run
from gpo.data.splits import TimeSlice
from gpo.evaluation.flow import FlowVariables
from gpo.interpretation.attribution import particle_rows
from gpo.interpretation.batches import make_batches
from gpo.interpretation.correlations import VelocityMatch
from gpo.interpretation.displacements import displacements, has_moving_particles
from gpo_bench.extrapolation import ExtrapolationConfig, estimate_motion

if TYPE_CHECKING:
    from nowcast import Radar

RAIN = 0.1
"""Rain rate in mm/h from which a cell counts as raining."""


def compare_motions(
    radar: "Radar", run: Path, starts: Sequence[int], config: ExtrapolationConfig
) -> dict[str, Any]:
    """Returns correlations and sizes of displacement and flow, and the particle.

    Args:
        radar: The data.
        run: Folder of a trained gpo.
        starts: Last input frames.
        config: Settings of the optical flow.
    """
    opened = open_run(run)
    forecaster = opened.forecaster().eval()
    if not has_moving_particles(forecaster.model):
        return {"reason": "particles of this model do not move"}
    history = forecaster.task.history
    batches = make_batches(opened.data, [TimeSlice(0, t - history + 1, t, t + 1) for t in starts])
    rows, _ = particle_rows(
        forecaster, batches, FlowVariables(radar.data.variables), np.random.default_rng(0)
    )
    best = max(rows, key=lambda row: row["share"])
    layer, particle = best["layer"], best["particle"]
    number = forecaster.operator.transports.index(layer)
    own = []
    for batch in batches:
        particles = batch.layer_particles(forecaster)[number]
        vectors = displacements(particles, batch.example.coords, batch.geometry.domain)
        own += list(vectors[:, :, [particle]].double().numpy())
    flows = [_flow(radar, t, config) for t in starts]
    raining = [(radar.frames[t] >= RAIN).ravel() for t in starts]
    anomalies = _anomalies([one[:, 0] for one in own], raining)
    return {
        "layer": layer,
        "particle": particle,
        "importance": best["share"],
        "whole": _described(radar, own, flows, raining),
        "anomalies": _described(
            radar, [one[:, None] for one in anomalies], _anomalies(flows, raining), raining
        ),
        "rms_displacement_km": _rms([one[:, 0] for one in own], raining),
        "rms_flow_km": _rms(flows, raining),
    }


def _flow(radar: "Radar", start: int, config: ExtrapolationConfig) -> Float[np.ndarray, "points 2"]:
    """Returns the flow from the last input to the target, in the units of the axes."""
    frames = radar.frames[start + 1 - config.num_pairs : start + 2]
    motion = estimate_motion(frames, radar.is_seen, config)
    spacings = [np.diff(axis).mean() for axis in radar.data.geometry().axes]
    return np.stack([part.ravel() * h for part, h in zip(motion, spacings, strict=True)], -1)


def _described(
    radar: "Radar",
    own: Sequence[Float[np.ndarray, "points 1 2"]],
    flows: Sequence[Float[np.ndarray, "points 2"]],
    raining: Sequence[np.ndarray],
) -> dict[str, Any]:
    match, geometry = VelocityMatch(), radar.data.geometry()
    for displacement, flow, is_raining in zip(own, flows, raining, strict=True):
        match.add(displacement, flow, is_raining.astype(float), geometry)
    _, rows = match.describe(np.random.default_rng(0))
    return rows[0]


def _anomalies(
    vectors: Sequence[Float[np.ndarray, "points 2"]], raining: Sequence[np.ndarray]
) -> list[Float[np.ndarray, "points 2"]]:
    """Returns vectors without their mean over raining cells of all examples."""
    mean = np.concatenate([v[r] for v, r in zip(vectors, raining, strict=True)]).mean(0)
    return [vector - mean for vector in vectors]


def _rms(vectors: Sequence[Float[np.ndarray, "points 2"]], raining: Sequence[np.ndarray]) -> float:
    squares = [np.square(v[r]).sum(-1) for v, r in zip(vectors, raining, strict=True)]
    return float(np.sqrt(np.concatenate(squares).mean()))
