"""Is the interpretation stable? On other data, at half resolution, and in a run of another seed."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from gpo.data.coarsen import coarsen
from gpo.data.dataset import DataError, StaticMaps, Trajectories
from gpo.data.splits import owner
from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.batches import Batch, distances, make_batches
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
    """Returns how much worse the model is on other data, and how far its particles drift.

    Args:
        forecaster: A trained gpo.
        usual: Test examples.
        other: Examples of the other data.
    """
    rows = {
        who: {"relative_l2": _error(forecaster, some), "last_frame": _last_frame(some)}
        for who, some in (("usual", usual), ("other", other))
    }
    degradation = rows["other"]["relative_l2"] / max(rows["usual"]["relative_l2"], 1e-300)
    try:
        moved = drift(
            particle_quantities(forecaster, usual), particle_quantities(forecaster, other)
        )
    except ValueError as error:
        moved = {"reason": str(error)}
    return {**rows, "degradation": degradation, "drift": moved}


def half_resolution(
    forecaster: Forecaster,
    data: Trajectories | StaticMaps,
    members: Sequence[Any],
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
        data: What it was trained on.
        members: Test examples.
        reconstructs: Whether it learned to reconstruct its input.
    """  # fmt: skip
    rows: list[dict[str, float]] = []
    try:
        coarse = coarsen(data, 2)
        for member in members:
            (full,), (half,) = (
                make_batches(some, [member], reconstructs=reconstructs) for some in (data, coarse)
            )
            kept = data.geometry(owner(member)).coarsen(2)[1]
            rows.append(_moved(forecaster, full, half, kept))
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
        other: Another run of the same configuration but seed.
        batches: Test examples.
    """
    firsts, seconds, nulls = [], [], []
    generator = np.random.default_rng(0)
    kind = MotionFields if has_moving_particles(forecaster.model) else ParticleFields
    for batch in batches:
        try:
            pair = [batch.particles(one) for one in (forecaster, other)]
        except ValueError as error:
            return {"reason": str(error)}
        for number, (fits, null) in enumerate(
            fits_and_nulls(batch.geometry, batch.is_known, generator)
        ):
            one, two = (kind.of(p, number, batch.geometry, fits) for p in pair)
            firsts.append(one.density)
            seconds.append(two.density)
            nulls.append(null)
    compared = rank_test(firsts, seconds, nulls)
    return asdict(compared) if compared else {"reason": "the same at all sites"}


def _error(forecaster: Forecaster, batches: Sequence[Batch]) -> float:
    rows = [error for batch in batches for error in batch.errors(batch.predicted(forecaster))]
    return float(np.mean(rows))


def _last_frame(batches: Sequence[Batch]) -> float | None:
    """Returns the error of leaving the field as it is; None where outputs are other variables."""
    if batches[0].example.fields.shape[-1] != batches[0].example.target.shape[-1]:
        return None
    return float(np.mean([e for batch in batches for e in batch.errors(batch.example.fields[:, -1])]))  # fmt: skip


def _moved(forecaster: Forecaster, full: Batch, half: Batch, kept: np.ndarray) -> dict[str, float]:
    chosen = torch.from_numpy(kept)
    guesses = full.predicted(forecaster)[:, chosen], half.predicted(forecaster)
    row = {"prediction": distances(guesses[1], guesses[0], half.example.weights)[0]}
    fine, coarse = full.particles(forecaster), half.particles(forecaster)
    row["weights"] = _rms(coarse.weights - fine.weights[:, chosen])
    domain = full.geometry.domain
    if has_moving_particles(forecaster.model):
        before = displacements(fine, full.example.coords, domain)[:, chosen]
        after = displacements(coarse, half.example.coords, domain)
        row["displacements"] = _rms((after - before).norm(dim=-1)) / max(_rms(before.norm(dim=-1)), 1e-300)  # fmt: skip
        return row
    size = fine.scales.mean().item()
    row["centers"] = _rms(domain.offset(coarse.centers, fine.centers[:, chosen]).norm(dim=-1)) / size  # fmt: skip
    row["scales"] = _rms(coarse.scales - fine.scales[:, chosen]) / size
    return row


def _rms(values: torch.Tensor) -> float:
    return values.square().mean().sqrt().item()
