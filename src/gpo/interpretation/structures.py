"""Do particles sit on structures? Rank correlations over sites, each with its null distribution.

Structures are where the input field changes: its gradient, its Laplacian, its vorticity. With
several variables the first two are taken of all of them, each normalised.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from gpo.data.geometry import Geometry
from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.batches import Batch
from gpo.interpretation.derivatives import LocalFits
from gpo.interpretation.drift import fraction_from_field, particle_quantities
from gpo.interpretation.null import MEANINGS, Comparison, Null, rank_test
from gpo.interpretation.particle_fields import ParticleFields, fits_and_nulls

VELOCITIES = (
    ("u", "v", "w"),
    ("vx", "vy", "vz"),
    ("ux", "uy", "uz"),
    ("velocity_x", "velocity_y", "velocity_z"),
    ("u10", "v10", ""),
    ("10u", "10v", ""),
    ("10m_u_component_of_wind", "10m_v_component_of_wind", ""),
    ("u_component_of_wind", "v_component_of_wind", ""),
)
"""Names of the components of a velocity, in lower case."""

MISSING = {
    "footprints": "too many pairs of site and particle",
    "anisotropy": "particles on a line have no direction",
    "vorticity": "no velocity with a component along every axis is known by name",
}
"""Why a quantity may be missing."""

Fields = dict[str, np.ndarray | None]


def describe_structures(
    forecaster: Forecaster, batches: Sequence[Batch], generator: np.random.Generator
) -> dict[str, Any]:
    """Returns rank correlations between particles and structures, for `interpret.json`.

    Args:
        forecaster: A trained gpo.
        batches: The examples.
        generator: Draws the null distributions.
    """
    particles: list[ParticleFields] = []
    structures: list[Fields] = []
    tensors: list[np.ndarray] = []
    nulls: list[Null] = []
    for batch in batches:
        try:
            made = batch.particles(forecaster)
        except ValueError as error:
            return {"reason": str(error)}
        normal = forecaster.normalised_input(batch.example.frames).double().numpy()
        for number, (fits, null) in enumerate(
            fits_and_nulls(batch.geometry, batch.is_known, generator)
        ):
            raw = batch.example.fields[number, -1].double().numpy()
            fields, tensor = structure_fields(
                fits, batch.geometry, raw, normal[number, :, -raw.shape[-1] :], forecaster.task.fields
            )  # fmt: skip
            particles.append(ParticleFields.of(made, number, batch.geometry, fits))
            structures.append(fields)
            tensors.append(tensor)
            nulls.append(null)
    drawn: dict[str, list[np.ndarray | None]] = {
        name: [getattr(one, name) for one in particles]
        for name in ("density", "footprints", "scale", "anisotropy")
    }
    drawn |= {name: [fields[name] for fields in structures] for name in structures[0]}
    table = {
        first: {second: _tested(drawn, first, second, nulls) for second in structures[0]}
        for first in ("density", "footprints", "scale", "anisotropy")
    }
    return {
        "null": nulls[0].kind,
        "null_means": MEANINGS[nulls[0].kind],
        "num_draws": len(nulls[0].orders),
        "correlations": table,
        "alignment": _alignment(particles, tensors, nulls),
        "fraction_outside": float(np.mean([one.fraction_outside for one in particles])),
        "basis_at_site": float(np.mean([one.basis_at_site for one in particles])),
        "fraction_from_field": fraction_from_field(particle_quantities(forecaster, batches)),
    }


def structure_fields(
    fits: LocalFits,
    geometry: Geometry,
    raw: np.ndarray,
    normal: np.ndarray,
    names: Sequence[str],
) -> tuple[Fields, np.ndarray]:
    """Returns gradient, Laplacian and vorticity by name, and the gradient's tensor.

    Args:
        fits: How derivatives are taken.
        geometry: The sites.
        raw: The input in its units, points by variables.
        normal: The same normalised.
        names: Names of the variables.
    """
    gradient = fits.gradient(normal)
    tensor = np.einsum("nac,nbc->nab", gradient, gradient)
    fields: Fields = {
        "gradient": np.sqrt(np.trace(tensor, axis1=1, axis2=2)),
        "laplacian": np.linalg.norm(fits.laplacian(normal), axis=-1),
        "vorticity": vorticity(fits, geometry, raw, names),
    }
    shown = {
        name: None if field is None else np.where(fits.is_fitted, field, np.nan)
        for name, field in fields.items()
    }
    return shown, tensor


def vorticity(
    fits: LocalFits, geometry: Geometry, raw: np.ndarray, names: Sequence[str]
) -> np.ndarray | None:
    """Returns the size of the curl of a velocity that is known by name; None where none is."""
    known = {name.lower(): channel for channel, name in enumerate(names)}
    if "vorticity" in known:
        return np.abs(raw[:, known["vorticity"]])
    num_axes = fits.directions.shape[1]
    for components in VELOCITIES:
        channels = [known[name] for name in components[:num_axes] if name in known]
        if num_axes > 1 and len(channels) == num_axes:
            # As a vector of space, so that on the sphere its direction may turn from site to site.
            flow = np.einsum("nad,na->nd", fits.directions, raw[:, channels])
            gradient = np.einsum("nad,nbd->nab", fits.gradient(flow), fits.directions)
            return np.linalg.norm(gradient - np.swapaxes(gradient, 1, 2), axis=(1, 2)) / np.sqrt(2)
    return None


def _tested(
    drawn: dict[str, list[np.ndarray | None]], first: str, second: str, nulls: Sequence[Null]
) -> dict[str, Any]:
    pair = []
    for name in (first, second):
        fields = [field for field in drawn[name] if field is not None]
        if len(fields) < len(drawn[name]):
            return {"reason": MISSING[name]}
        pair.append(fields)
    compared = rank_test(pair[0], pair[1], nulls)
    return asdict(compared) if compared else {"reason": "the same at all sites"}


def _alignment(
    particles: Sequence[ParticleFields], tensors: Sequence[np.ndarray], nulls: Sequence[Null]
) -> dict[str, Any]:
    """Returns the mean cosine of twice the angle between long axes and gradients.

    1: particles are long across fronts; -1: along them; 0: no relation.
    """
    if particles[0].anisotropy is None:
        return {"reason": MISSING["anisotropy"]}
    values, draws = [], []
    for one, tensor, null in zip(particles, tensors, nulls, strict=True):
        measure = _alignment_with(one.stretch, tensor)
        values.append(measure(np.arange(len(tensor))))
        draws.append([measure(order) for order in null.orders])
    if not np.isfinite(values).all() or not np.isfinite(draws).all():
        return {"reason": "the same at all sites"}
    return asdict(Comparison.of(float(np.mean(values)), np.mean(draws, axis=0)))


def _alignment_with(stretch: np.ndarray, tensor: np.ndarray) -> Callable[[np.ndarray], float]:
    is_there = np.asarray(np.isfinite(stretch).all((1, 2)))
    stretch = np.where(is_there[:, None, None], stretch, 0.0)
    squared = np.trace(tensor, axis1=1, axis2=2)
    strength, num_axes = np.sqrt(squared), tensor.shape[-1]
    free = tensor - squared[:, None, None] / num_axes * np.eye(num_axes)
    size = np.linalg.norm(free, axis=(1, 2))
    # Every site counts by how stretched its particles are and how steep the field is.
    direction = free * (strength / np.where(size > 0, size, 1.0))[:, None, None]
    lengths = np.linalg.norm(stretch, axis=(1, 2))

    def measure(order: np.ndarray) -> float:
        total = float(lengths @ np.where(size[order] > 0, strength[order], 0.0))
        return float(np.vdot(stretch, direction[order]) / total) if total > 0 else np.nan

    return measure
