"""Reads a trained gpo: assembles what the modules of this package measure."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gpo.data.dataset import StaticMaps, Trajectories
from gpo.data.splits import evenly
from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.ablations import Track, compare_ablations, has_layers, run_ablations
from gpo.interpretation.batches import Batch, make_batches
from gpo.interpretation.flow import FlowVariables
from gpo.interpretation.motion_numbers import describe_motion
from gpo.interpretation.results import Interpretation
from gpo.interpretation.stability import compare_densities, half_resolution, other_data
from gpo.interpretation.structures import describe_structures
from gpo.interpretation.tracers import follow_tracers
from gpo.interpretation.waves import describe_waves
from gpo.interpretation.windows import describe_content_windows

NUM_COMPARED = 32
"""Examples whose particles are compared with those of other data: one forward pass each."""


def interpret(
    forecaster: Forecaster,
    data: Trajectories | StaticMaps,
    members: Sequence[Any],
    *,
    num_examples: int = 8,
    other: tuple[Trajectories | StaticMaps, Sequence[Any]] | None = None,
    same: Mapping[str, Forecaster] | None = None,
    velocity: Sequence[str] = (),
    seed: int = 0,
    track: Track = lambda items, _: items,
) -> Interpretation:
    """Returns what particles, windows and modes of a trained gpo do.

    Args:
        forecaster: The trained model.
        data: What it was trained on.
        members: Its test split.
        num_examples: How many examples of the split are read, evenly chosen.
        other: Other data of the same variables, and the examples of it.
        same: Runs of the same configuration but seed, by name.
        velocity: Variables that are the velocity along x, y, z, or to the east and north; found by
            their names where none are given.
        seed: Of all random draws; the same seed gives the same numbers.
        track: Shows progress.
    """
    if num_examples < 1:
        raise ValueError(f"`num_examples` must be at least 1, got {num_examples}.")
    forecaster.eval()
    reconstructs = isinstance(data, Trajectories) and forecaster.task.lead == 0
    chosen = evenly(members, num_examples)
    batches = make_batches(data, chosen, reconstructs=reconstructs)
    generator = np.random.default_rng(seed)
    given = data.inputs if isinstance(data, StaticMaps) else data.variables
    variables = FlowVariables(tuple(given), tuple(velocity))
    stability: dict[str, Any] = {
        "half_resolution": half_resolution(forecaster, data, chosen, reconstructs=reconstructs)
    }
    if other is not None:
        most = max(num_examples, NUM_COMPARED)
        pair = (
            make_batches(some, evenly(all_of, most), reconstructs=reconstructs)
            for some, all_of in ((data, members), other)
        )
        stability["other_data"] = other_data(forecaster, *pair)
    if same:
        stability["other_seeds"] = {
            name: compare_runs(forecaster, run.eval(), batches, track) for name, run in same.items()
        }
    motion, tracers = (
        describe_motion(forecaster, batches, variables, np.random.default_rng(seed)),
        None,
    )
    if "best" in motion:
        motion["tracers"], tracers = follow_tracers(
            forecaster, data, members, variables, motion["best"], num_examples=num_examples
        )
    return Interpretation(
        _variant(forecaster),
        len(chosen),
        describe_structures(forecaster, batches, generator, variables),
        describe_windows(forecaster, batches),
        run_ablations(forecaster, batches, generator, track),
        stability,
        motion,
        tracers,
    )


def _variant(forecaster: Forecaster) -> str:
    """Returns which of the operators a model is; empty for a baseline."""
    operator = forecaster.model.operator
    if operator is None:
        return ""
    return "paper" if operator.waves is None else "geometric"


def describe_windows(forecaster: Forecaster, batches: Sequence[Batch]) -> dict[str, Any]:
    """Returns how waves or content windows are used, layer by layer, for `interpret.json`.

    Args:
        forecaster: A trained gpo.
        batches: The examples.
    """
    if not has_layers(forecaster):
        return {"reason": "the model has no layers: there are no windows"}
    if forecaster.operator.waves is not None:
        return {"kind": "waves", **describe_waves(forecaster, batches)}
    return {"kind": "content", "layers": describe_content_windows(forecaster, batches)}


def compare_runs(
    forecaster: Forecaster,
    other: Forecaster,
    batches: Sequence[Batch],
    track: Track = lambda items, _: items,
) -> dict[str, Any]:
    """Returns rank correlations between two runs: of particle density, and of ablation effects.

    Args:
        forecaster: A trained gpo.
        other: Another run of the same configuration but seed.
        batches: Test examples.
        track: Shows progress.
    """
    return {
        "density": compare_densities(forecaster, other, batches),
        **compare_ablations(forecaster, other, batches, track),
    }
