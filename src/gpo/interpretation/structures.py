"""Correlations of particles with structures of the field, each with its null distribution.

Structures are the gradient, the Laplacian and the vorticity of the input field; with several variables
the first two are taken over all of them, normalised. Displacements are also compared with the velocity.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from gpo.evaluation.derivatives import LocalFits
from gpo.evaluation.flow import Flow, FlowVariables, vorticity
from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.batches import Batch
from gpo.interpretation.correlations import MEANINGS, Comparison, Null, rank_test
from gpo.interpretation.displacements import has_moving_particles
from gpo.interpretation.particle_fields import (
    MotionFields,
    ParticleFields,
    fits_and_nulls,
    fraction_from_field,
    particle_quantities,
)
from gpo.model.operator import GaussianParticleOperator

AT_REACH = 0.99
"""Fraction of the reach from which a displacement counts as being at its limit."""
MISSING = {
    "footprints": "too many pairs of site and particle",
    "anisotropy": "particles on a line have no direction",
    "vorticity": "no velocity with a component along every axis is known",
}
"""Why a quantity may be missing."""
CONSTANT = {"reason": "the same at all sites"}

Fields = dict[str, np.ndarray | None]
Measure = Callable[[np.ndarray], float]
"""Returns a number for an order of the sites of one of two fields."""


def describe_structures(
    forecaster: Forecaster,
    batches: Sequence[Batch],
    generator: np.random.Generator,
    variables: FlowVariables | None = None,
) -> dict[str, Any]:
    """Returns rank correlations between particles and structures, for `interpret.json`.

    Args:
        forecaster: A trained gpo.
        batches: The examples.
        generator: Draws the null distributions.
        variables: The input variables, which may include a velocity; by default their names.
    """
    kind = MotionFields if has_moving_particles(forecaster.model) else ParticleFields
    particles: list[ParticleFields | MotionFields] = []
    structures: list[Fields] = []
    tensors: list[np.ndarray] = []
    velocities: list[np.ndarray | None] = []
    nulls: list[Null] = []
    names = forecaster.task.fields
    variables = variables or FlowVariables.named(names)
    for batch in batches:
        flow = variables.on(batch.geometry)
        try:
            batch_particles = batch.particles(forecaster)
        except ValueError as error:
            return {"reason": str(error)}
        normal = forecaster.normalised_input(batch.example.frames).double().numpy()
        for number, (fits, null) in enumerate(
            fits_and_nulls(batch.geometry, batch.is_known, generator)
        ):
            raw = batch.example.fields[number, -1].double().numpy()
            fields, tensor = structure_fields(
                fits, flow, raw, normal[number, :, -raw.shape[-1] :], names
            )
            particles.append(kind.of(batch_particles, number, batch.geometry, fits))
            structures.append(fields)
            tensors.append(tensor)
            velocities.append(None if flow is None else flow(raw))
            nulls.append(null)
    by_name: dict[str, list[np.ndarray | None]] = {
        name: [getattr(fields, name) for fields in particles] for name in kind.QUANTITIES
    }
    by_name |= {name: [fields[name] for fields in structures] for name in structures[0]}
    parts: dict[str, Any] = {
        "null": nulls[0].kind,
        "null_means": MEANINGS[nulls[0].kind],
        "num_draws": len(nulls[0].orders),
        "correlations": {
            first: {second: _tested(by_name, first, second, nulls) for second in structures[0]}
            for first in kind.QUANTITIES
        },
        "direction": kind.DIRECTION,
        "alignment": _alignment([fields.orientation for fields in particles], tensors, nulls),
        "fraction_outside": float(np.mean([fields.fraction_outside for fields in particles])),
    }
    moving = [fields for fields in particles if isinstance(fields, MotionFields)]
    if moving:
        has_same_sites = all(batch.geometry is batches[0].geometry for batch in batches)
        parts["along_flow"] = _along_flow(moving, velocities, nulls, has_same_sites)
        parts["fraction_at_reach"] = fraction_at_reach(moving, forecaster.operator)
    else:
        basis = [fields.basis_at_site for fields in particles if isinstance(fields, ParticleFields)]
        parts["basis_at_site"] = float(np.mean(basis))
    return {**parts, "fraction_from_field": fraction_from_field(particle_quantities(forecaster, batches))}  # fmt: skip


def structure_fields(
    fits: LocalFits,
    flow: Flow | None,
    raw: np.ndarray,
    normal: np.ndarray,
    names: Sequence[str],
) -> tuple[Fields, np.ndarray]:
    """Returns gradient, Laplacian and vorticity by name, and the gradient's tensor.

    Args:
        fits: Computes derivatives.
        flow: Computes the velocity, if it is known.
        raw: The input in its units, points by variables.
        normal: The normalised input.
        names: Names of the variables.
    """
    gradient = fits.gradient(normal)
    tensor = np.einsum("nac,nbc->nab", gradient, gradient)
    fields: Fields = {
        "gradient": np.sqrt(np.trace(tensor, axis1=1, axis2=2)),
        "laplacian": np.linalg.norm(fits.laplacian(normal), axis=-1),
        "vorticity": vorticity(fits, flow, raw, names),
    }
    masked = {
        name: None if field is None else np.where(fits.is_fitted, field, np.nan)
        for name, field in fields.items()
    }
    return masked, tensor


def fraction_at_reach(
    moving: Sequence[MotionFields], model: GaussianParticleOperator
) -> float | None:
    """Returns the fraction of displacements at their maximum along some axis.

    Such a displacement is saturated and has no gradient. None on a body-fitted mesh, where the reach
    is in nodes.
    """
    if model.problem.is_fitted:
        return None
    domain = model.problem.domain
    sides = np.subtract(domain.upper, domain.lower)
    limit = AT_REACH * model.config.reach * (sides.max() if domain.is_sphere else sides)
    rows = [fields.each[np.isfinite(fields.displacement)] for fields in moving]
    return float(np.mean([(np.abs(vectors) > limit).any(-1).mean() for vectors in rows]))


def _tested(
    by_name: dict[str, list[np.ndarray | None]], first: str, second: str, nulls: Sequence[Null]
) -> dict[str, Any]:
    pair = []
    for name in (first, second):
        fields = [field for field in by_name[name] if field is not None]
        if len(fields) < len(by_name[name]):
            return {"reason": MISSING[name]}
        pair.append(fields)
    compared = rank_test(pair[0], pair[1], nulls)
    return asdict(compared) if compared else CONSTANT


def _alignment(
    orientations: Sequence[np.ndarray | None], tensors: Sequence[np.ndarray], nulls: Sequence[Null]
) -> dict[str, Any]:
    """Returns the mean cosine of twice the angle between gradients and long axes or displacements.

    1: these lie across fronts; -1: along them; 0: no relation.
    """
    if orientations[0] is None:
        return {"reason": MISSING["anisotropy"]}
    known = [tensor for tensor in orientations if tensor is not None]
    measures = [_alignment_with(*pair) for pair in zip(known, tensors, strict=True)]
    return _compared(measures, nulls)


def _along_flow(
    moving: Sequence[MotionFields],
    velocities: Sequence[np.ndarray | None],
    nulls: Sequence[Null],
    has_same_sites: bool,
) -> dict[str, Any]:
    """Returns the mean cosine of the angle between displacements and the velocity of the input.

    1: displacements follow the flow; 0: no relation. The cosine of the mean displacement of a site
    has a null, and the velocity of other examples at the same sites as a control: a motion that is
    the same in all fields agrees with both. `each` is the cosine of every particle.
    """
    known = [velocity for velocity in velocities if velocity is not None]
    if len(known) < len(velocities):
        return {"reason": MISSING["vorticity"]}
    means = [fields.mean for fields in moving]
    compared = _compared([_cosine_with(*pair) for pair in zip(means, known, strict=True)], nulls)
    if "reason" in compared:
        return compared
    others = None
    if has_same_sites and len(moving) > 1:
        pairs = itertools.permutations(range(len(moving)), 2)
        others = float(np.mean([_cosine(means[a], known[b]) for a, b in pairs]))
    each = []
    for number in range(moving[0].each.shape[1]):
        vectors = [fields.each[:, number] for fields in moving]
        each.append(float(np.mean([_cosine(*pair) for pair in zip(vectors, known, strict=True)])))
    return {**compared, "other_examples": others, "each": each}


def _compared(measures: Sequence[Measure], nulls: Sequence[Null]) -> dict[str, Any]:
    """Returns the mean of one measure per example, with its null."""
    values, draws = [], []
    for measure, null in zip(measures, nulls, strict=True):
        values.append(measure(np.arange(null.orders.shape[1])))
        draws.append([measure(order) for order in null.orders])
    if not np.isfinite(values).all() or not np.isfinite(draws).all():
        return CONSTANT
    return asdict(Comparison.of(float(np.mean(values)), np.mean(draws, axis=0)))


def _cosine(vectors: np.ndarray, velocity: np.ndarray) -> float:
    return _cosine_with(vectors, velocity)(np.arange(len(velocity)))


def _cosine_with(vectors: np.ndarray, velocity: np.ndarray) -> Measure:
    vectors = np.where(np.isfinite(vectors).all(1, keepdims=True), vectors, 0.0)
    # Sites are weighted by the lengths of both vectors.
    lengths, speeds = np.linalg.norm(vectors, axis=1), np.linalg.norm(velocity, axis=1)

    def measure(order: np.ndarray) -> float:
        total = float(lengths @ speeds[order])
        return float(np.vdot(vectors, velocity[order]) / total) if total > 0 else np.nan

    return measure


def _alignment_with(orientation: np.ndarray, tensor: np.ndarray) -> Measure:
    is_known = np.asarray(np.isfinite(orientation).all((1, 2)))
    orientation = np.where(is_known[:, None, None], orientation, 0.0)
    squared = np.trace(tensor, axis1=1, axis2=2)
    strength, num_axes = np.sqrt(squared), tensor.shape[-1]
    traceless = tensor - squared[:, None, None] / num_axes * np.eye(num_axes)
    size = np.linalg.norm(traceless, axis=(1, 2))
    # Sites are weighted by the anisotropy or displacement and by the gradient.
    direction = traceless * (strength / np.where(size > 0, size, 1.0))[:, None, None]
    lengths = np.linalg.norm(orientation, axis=(1, 2))

    def measure(order: np.ndarray) -> float:
        total = float(lengths @ np.where(size[order] > 0, strength[order], 0.0))
        return float(np.vdot(orientation, direction[order]) / total) if total > 0 else np.nan

    return measure
