"""Interprets a trained gpo: assembles the results of the modules of this package."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gpo.data.dataset import StaticMaps, Trajectories
from gpo.data.splits import evenly
from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.ablations import Track, compare_ablations, run_ablations
from gpo.interpretation.attribution import describe_motion
from gpo.interpretation.batches import Batch, make_batches
from gpo.interpretation.diffusion import Viscosity, learned_scales, matched
from gpo.interpretation.flow import FlowVariables
from gpo.interpretation.modes import describe_modes
from gpo.interpretation.results import Interpretation
from gpo.interpretation.stability import compare_densities, half_resolution, other_data
from gpo.interpretation.structures import describe_structures
from gpo.interpretation.tracers import follow_tracers

NUM_COMPARED = 32
"""Examples whose particles are compared with those of other data: one forward pass each."""


def interpret(
    forecaster: Forecaster,
    data: Trajectories | StaticMaps,
    samples: Sequence[Any],
    *,
    num_examples: int = 8,
    other: tuple[Trajectories | StaticMaps, Sequence[Any]] | None = None,
    same: Mapping[str, Forecaster] | None = None,
    velocity: Sequence[str] = (),
    viscosity: Viscosity | None = None,
    scales_of: Forecaster | None = None,
    seed: int = 0,
    track: Track = lambda items, _: items,
) -> Interpretation:
    """Returns what particles, windows and modes of a trained gpo do.

    Args:
        forecaster: The trained model.
        data: The data set it was trained on.
        samples: Samples of its test split.
        num_examples: Number of examples of the split that are used, evenly selected.
        other: Another data set of the same variables, with samples of it.
        same: Runs with the same configuration and another seed, by name.
        velocity: Variables that are the velocity along x, y, z, or eastward and northward; by
            default they are identified by their names.
        viscosity: The true viscosity of the data, where it is known.
        scales_of: A model of the same sizes, trained on other data; its scales are a control.
        seed: Of all random draws; the same seed gives the same numbers.
        track: Shows progress.
    """
    if num_examples < 1:
        raise ValueError(f"`num_examples` must be at least 1, got {num_examples}.")
    forecaster.eval()
    other_scales = None
    if scales_of is not None:
        other_scales = matched(learned_scales(forecaster), learned_scales(scales_of))
    reconstructs = isinstance(data, Trajectories) and forecaster.task.lead == 0
    selected = evenly(samples, num_examples)
    batches = make_batches(data, selected, reconstructs=reconstructs)
    generator = np.random.default_rng(seed)
    variables = FlowVariables.of(data, velocity)
    stability: dict[str, Any] = {
        "half_resolution": half_resolution(forecaster, data, selected, reconstructs=reconstructs)
    }
    if other is not None:
        count = max(num_examples, NUM_COMPARED)
        pair = (
            make_batches(source, evenly(examples, count), reconstructs=reconstructs)
            for source, examples in ((data, samples), other)
        )
        stability["other_data"] = other_data(forecaster, *pair)
    if same:
        stability["other_seeds"] = {
            name: compare_runs(forecaster, run.eval(), batches, track) for name, run in same.items()
        }
    motion = describe_motion(
        forecaster, data, batches, variables, np.random.default_rng(seed),
        viscosity=viscosity, other_scales=other_scales,
    )  # fmt: skip
    tracers = None
    if "best" in motion:
        motion["tracers"], tracers = follow_tracers(
            forecaster, data, samples, variables, motion["best"], num_examples=num_examples
        )
    operator = forecaster.model.operator
    variant = "" if operator is None else "paper" if operator.waves is None else "geometric"
    return Interpretation(
        variant,
        len(selected),
        describe_structures(forecaster, batches, generator, variables),
        describe_modes(forecaster, batches),
        run_ablations(forecaster, batches, generator, track),
        stability,
        motion,
        tracers,
    )


def compare_runs(
    forecaster: Forecaster,
    other: Forecaster,
    batches: Sequence[Batch],
    track: Track = lambda items, _: items,
) -> dict[str, Any]:
    """Returns rank correlations between two runs: of particle density, and of ablation effects.

    Args:
        forecaster: A trained gpo.
        other: A run with the same configuration and another seed.
        batches: Test examples.
        track: Shows progress.
    """
    return {
        "density": compare_densities(forecaster, other, batches),
        **compare_ablations(forecaster, other, batches, track),
    }
