"""Interprets a trained gpo: assembles the results of the modules of this package.

The last part is the stability of the interpretation: on other data, at half resolution, and for
another seed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from scipy.stats import wasserstein_distance

from gpo.data.coarsen import coarsen
from gpo.data.dataset import DataError, FieldData
from gpo.data.splits import TimeSlice, evenly
from gpo.evaluation.flow import FlowVariables
from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.ablations import Track, compare_ablations, run_ablations
from gpo.interpretation.attribution import describe_motion
from gpo.interpretation.batches import Batch, distances, make_batches, mean_error
from gpo.interpretation.correlations import rank_test
from gpo.interpretation.diffusion import Viscosity, learned_scales, matched
from gpo.interpretation.displacements import displacements, has_moving_particles
from gpo.interpretation.modes import describe_modes
from gpo.interpretation.particle_fields import (
    MotionFields,
    ParticleFields,
    Quantities,
    fits_and_nulls,
    particle_quantities,
)
from gpo.interpretation.results import Interpretation
from gpo.interpretation.structures import describe_structures
from gpo.interpretation.tracers import follow_tracers

NUM_COMPARED = 32
"""Examples whose particles are compared with those of other data: one forward pass each."""
MAX_VALUES = 2**18
"""Particles of a data set that enter its distribution, evenly chosen."""


def interpret(
    forecaster: Forecaster,
    data: FieldData,
    samples: Sequence[TimeSlice],
    *,
    num_examples: int = 8,
    other: tuple[FieldData, Sequence[TimeSlice]] | None = None,
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
    reconstructs = forecaster.task.lead == 0
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


def other_data(
    forecaster: Forecaster, usual: Sequence[Batch], other: Sequence[Batch]
) -> dict[str, Any]:
    """Returns how much larger the error is on other data, and how far its particles drift.

    Args:
        forecaster: A trained gpo.
        usual: Test examples.
        other: Examples of the other data.
    """
    errors = {
        name: {
            "relative_l2": mean_error(batches, [batch.predicted(forecaster) for batch in batches]),
            "last_frame": _last_frame(batches),
        }
        for name, batches in (("usual", usual), ("other", other))
    }
    try:
        quantities = [particle_quantities(forecaster, batches) for batches in (usual, other)]
        drifts: dict[str, Any] = drift(*quantities)
    except ValueError as error:
        drifts = {"reason": str(error)}
    ratio = errors["other"]["relative_l2"] / max(errors["usual"]["relative_l2"], 1e-300)
    return {**errors, "degradation": ratio, "drift": drifts}


def half_resolution(
    forecaster: Forecaster,
    data: FieldData,
    samples: Sequence[TimeSlice],
    *,
    reconstructs: bool,
) -> dict[str, Any]:
    """Returns how much particles and predictions change when every second site is dropped.

    `prediction` is the relative L2 between both predictions at the common sites, `weights` the root
    mean square of their change. `centers` and `scales` are root mean squares in units of the
    particles' mean scale; of particles that move, `displacements` is the root mean square of their
    change over that of the displacements themselves.

    Args:
        forecaster: A trained gpo.
        data: The data set it was trained on.
        samples: Samples of the test split.
        reconstructs: Whether it was trained to reconstruct its input.
    """  # fmt: skip
    rows: list[dict[str, float]] = []
    try:
        coarse = coarsen(data, 2)
        for sample in samples:
            (full,), (half,) = (
                make_batches(source, [sample], reconstructs=reconstructs)
                for source in (data, coarse)
            )
            kept = data.geometry(sample.sample).coarsen(2)[1]
            rows.append(_change(forecaster, full, half, torch.from_numpy(kept)))
    except DataError as error:
        return {"reason": error.problem.rstrip(".")}
    except ValueError as error:
        return {"reason": str(error)}
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


def compare_densities(
    forecaster: Forecaster, other: Forecaster, batches: Sequence[Batch]
) -> dict[str, Any]:
    """Returns the rank correlation between the particle densities of two runs, with its null.

    Args:
        forecaster: A trained gpo.
        other: A run with the same configuration and another seed.
        batches: Test examples.
    """
    firsts, seconds, nulls = [], [], []
    generator = np.random.default_rng(0)
    kind = MotionFields if has_moving_particles(forecaster.model) else ParticleFields
    for batch in batches:
        try:
            pair = [batch.particles(run) for run in (forecaster, other)]
        except ValueError as error:
            return {"reason": str(error)}
        for number, (fits, null) in enumerate(
            fits_and_nulls(batch.geometry, batch.is_known, generator)
        ):
            first, second = (kind.of(p, number, batch.geometry, fits).density for p in pair)
            firsts.append(first)
            seconds.append(second)
            nulls.append(null)
    compared = rank_test(firsts, seconds, nulls)
    return asdict(compared) if compared else {"reason": "the same at all sites"}


def _last_frame(batches: Sequence[Batch]) -> float | None:
    """Returns the error of persistence; None if outputs are other variables than inputs."""
    if batches[0].example.fields.shape[-1] != batches[0].example.target.shape[-1]:
        return None
    return mean_error(batches, [batch.example.fields[:, -1] for batch in batches])


def _change(
    forecaster: Forecaster, full: Batch, half: Batch, kept: torch.Tensor
) -> dict[str, float]:
    """Returns the change of particles and prediction of one example at the kept sites."""
    before, after = full.predicted(forecaster)[:, kept], half.predicted(forecaster)
    row = {"prediction": distances(after, before, half.example.weights)[0]}
    fine, coarse = full.particles(forecaster), half.particles(forecaster)
    row["weights"] = _rms(coarse.weights - fine.weights[:, kept])
    domain = full.geometry.domain
    if has_moving_particles(forecaster.model):
        before = displacements(fine, full.example.coords, domain)[:, kept]
        after = displacements(coarse, half.example.coords, domain)
        size = max(_rms(before.norm(dim=-1)), 1e-300)
        row["displacements"] = _rms((after - before).norm(dim=-1)) / size
        return row
    size = fine.scales.mean().item()
    offset = domain.offset(coarse.centers, fine.centers[:, kept])
    row["centers"] = _rms(offset.norm(dim=-1)) / size
    row["scales"] = _rms(coarse.scales - fine.scales[:, kept]) / size
    return row


def _rms(values: torch.Tensor) -> float:
    return values.square().mean().sqrt().item()


def drift(usual: Quantities, other: Quantities) -> dict[str, dict[str, Any]]:
    """Returns the Wasserstein-1 distance of every quantity between two data sets.

    `spread` is the distance between the first and the second half of the usual examples, which
    `ratio` is relative to: 1 is no drift. None if both halves are the same.
    """
    rows = {}
    for name, arrays in usual.items():
        half = (len(arrays) + 1) // 2
        distance = _distance(arrays, other[name])
        spread = _distance(arrays[:half], arrays[half:]) if len(arrays) > 1 else 0.0
        ratio = distance / spread if spread > 0 else None
        rows[name] = {"distance": distance, "spread": spread, "ratio": ratio}
    return rows


def _distance(first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> float:
    pair = []
    for arrays in (first, second):
        values = np.concatenate(arrays)
        pair.append(values[:: max(1, -(-len(values) // MAX_VALUES))])
    return float(wasserstein_distance(*pair))
