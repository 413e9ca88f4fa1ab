"""Is the reading stable? On other data, at another resolution, and in a run of another seed."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from gpo.data.coarsen import coarsen
from gpo.data.dataset import DataError, StaticMaps, Trajectories
from gpo.data.splits import owner
from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.ablations import (
    Track,
    layer_effects,
    mode_effects,
    region_effects,
    shell_effects,
    strongest,
)
from gpo.interpretation.batches import Batch, distances, make_batches
from gpo.interpretation.components import make_parts
from gpo.interpretation.drift import drift, particle_quantities
from gpo.interpretation.effects import Effects
from gpo.interpretation.null import rank_test, spearman
from gpo.interpretation.particle_fields import ParticleFields
from gpo.interpretation.structures import fits_of
from gpo.model.geometric import GeometricLayers
from gpo.model.operator import GaussianParticleOperator


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
    """Returns how far particles and predictions move at sites that every second site leaves.

    `centers` and `scales` are root mean squares in units of the particles' mean scale, `weights`
    is one of the weights themselves; `prediction` is the relative L2 between both predictions.

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


def other_seed(
    forecaster: Forecaster, other: Forecaster, batches: Sequence[Batch], track: Track
) -> dict[str, Any]:
    """Returns rank correlations between what two runs of different seeds rely on.

    Args:
        forecaster: A trained gpo.
        other: One of the same configuration but seed.
        batches: Test examples.
        track: Shows progress.
    """
    found: dict[str, Any] = {"density": _densities(forecaster, other, batches)}
    model = forecaster.model
    if not isinstance(model, GaussianParticleOperator) or model.config.num_layers == 0:
        return {**found, "effects": {"reason": "the model has no layers"}}
    pair = [Effects.of(one, batches) for one in (forecaster, other)]
    found["errors"] = [effects.error for effects in pair]
    rankings = {
        "layers": [layer_effects(effects, track) for effects in pair],
        "regions": [region_effects(effects, track)["effects"] for effects in pair],
    }
    if isinstance(model.layers, GeometricLayers):
        rankings["shells"] = [shell_effects(effects, track)["all_layers"] for effects in pair]
        # The waves that the first run relies on, by name: those of the other are the same waves.
        names = [part.name for part in strongest(model, make_parts(forecaster, batches))]
        chosen = [_named(one, batches, names) for one in (forecaster, other)]
        rankings["modes"] = [
            mode_effects(effects, parts, track) for effects, parts in zip(pair, chosen, strict=True)
        ]
    ranked: dict[str, float | str | None] = {}
    for name, both in rankings.items():
        first, second = (np.array([row["relative_l2"] for row in rows]) for rows in both)
        ranked[name] = spearman(first, second)
    if "modes" not in rankings:
        ranked["modes"] = "content windows of two runs do not correspond"
    return {**found, "effects": ranked}


def _named(forecaster: Forecaster, batches: Sequence[Batch], names: Sequence[str]) -> list[Any]:
    parts = {part.name: part for part in make_parts(forecaster, batches)}
    return [parts[name] for name in names]


def _densities(forecaster: Forecaster, other: Forecaster, batches: Sequence[Batch]) -> Any:
    firsts, seconds, nulls = [], [], []
    generator = np.random.default_rng(0)
    for batch in batches:
        try:
            pair = [batch.particles(one) for one in (forecaster, other)]
        except ValueError as error:
            return {"reason": str(error)}
        for number, (fits, null) in enumerate(fits_of(batch, generator)):
            one, two = (ParticleFields.of(p, number, batch.geometry, fits) for p in pair)
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
    size = fine.scales.mean().item()
    offset = full.geometry.domain.offset(coarse.centers, fine.centers[:, chosen])
    return {
        **row,
        "centers": _rms(offset.norm(dim=-1)) / size,
        "scales": _rms(coarse.scales - fine.scales[:, chosen]) / size,
        "weights": _rms(coarse.weights - fine.weights[:, chosen]),
    }


def _rms(values: torch.Tensor) -> float:
    return values.square().mean().sqrt().item()
