"""Stability of the interpretation: on other data, at half resolution, and for another seed."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from gpo.data.coarsen import coarsen
from gpo.data.dataset import DataError, StaticMaps, Trajectories
from gpo.data.splits import trajectory_of
from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.batches import Batch, distances, make_batches, mean_error
from gpo.interpretation.correlations import rank_test
from gpo.interpretation.displacements import displacements, has_moving_particles
from gpo.interpretation.particle_fields import (
    MotionFields,
    ParticleFields,
    drift,
    fits_and_nulls,
    particle_quantities,
)


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
    data: Trajectories | StaticMaps,
    samples: Sequence[Any],
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
            kept = data.geometry(trajectory_of(sample)).coarsen(2)[1]
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
