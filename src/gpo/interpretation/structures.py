"""Do particles follow structures? Rank correlations over sites, each with its null distribution.

Structures are where the input field changes: its gradient, its Laplacian, its vorticity. With
several variables the first two are taken of all of them, each normalised. Displacements of particles
are compared with the velocity, too.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.batches import Batch
from gpo.interpretation.derivatives import LocalFits
from gpo.interpretation.drift import fraction_from_field, particle_quantities
from gpo.interpretation.flow import Flow, FlowVariables, vorticity
from gpo.interpretation.motion import MotionFields, fraction_at_reach, has_moving_particles
from gpo.interpretation.null import MEANINGS, Comparison, Null, rank_test
from gpo.interpretation.particle_fields import ParticleFields, fits_and_nulls

MISSING = {
    "footprints": "too many pairs of site and particle",
    "anisotropy": "particles on a line have no direction",
    "vorticity": "no velocity with a component along every axis is known",
}
"""Why a quantity may be missing."""

Fields = dict[str, np.ndarray | None]


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
        variables: Those among which the velocity is looked for; known by name alone where not given.
        generator: Draws the null distributions.
    """
    kind = MotionFields if has_moving_particles(forecaster.model) else ParticleFields
    particles: list[ParticleFields | MotionFields] = []
    structures: list[Fields] = []
    tensors: list[np.ndarray] = []
    flows: list[np.ndarray | None] = []
    nulls: list[Null] = []
    has_same_sites = all(batch.geometry is batches[0].geometry for batch in batches)
    names = forecaster.task.fields
    variables = variables or FlowVariables.named(names)
    for batch in batches:
        flow = variables.on(batch.geometry)
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
                fits, flow, raw, normal[number, :, -raw.shape[-1] :], names
            )
            particles.append(kind.of(made, number, batch.geometry, fits))
            structures.append(fields)
            tensors.append(tensor)
            flows.append(None if flow is None else flow(raw))
            nulls.append(null)
    drawn: dict[str, list[np.ndarray | None]] = {
        name: [getattr(one, name) for one in particles] for name in kind.QUANTITIES
    }
    drawn |= {name: [fields[name] for fields in structures] for name in structures[0]}
    return {
        "null": nulls[0].kind,
        "null_means": MEANINGS[nulls[0].kind],
        "num_draws": len(nulls[0].orders),
        "correlations": {
            first: {second: _tested(drawn, first, second, nulls) for second in structures[0]}
            for first in kind.QUANTITIES
        },
        "direction": kind.DIRECTION,
        "alignment": _alignment([one.orientation for one in particles], tensors, nulls),
        "fraction_outside": float(np.mean([one.fraction_outside for one in particles])),
        **_of_kind(forecaster, particles, flows, nulls, has_same_sites),
        "fraction_from_field": fraction_from_field(particle_quantities(forecaster, batches)),
    }


def _of_kind(
    forecaster: Forecaster,
    particles: Sequence[ParticleFields | MotionFields],
    flows: Sequence[np.ndarray | None],
    nulls: Sequence[Null],
    has_same_sites: bool,
) -> dict[str, Any]:
    """Returns what is told of one kind of particles alone."""
    moving = [one for one in particles if isinstance(one, MotionFields)]
    if forecaster.operator.transports:
        return {
            "along_flow": _along_flow(moving, flows, nulls, has_same_sites),
            "fraction_at_reach": fraction_at_reach(moving, forecaster.operator),
        }
    encoded = [one.basis_at_site for one in particles if isinstance(one, ParticleFields)]
    return {"basis_at_site": float(np.mean(encoded))}


def structure_fields(
    fits: LocalFits,
    flow: Flow | None,
    raw: np.ndarray,
    normal: np.ndarray,
    names: Sequence[str],
) -> tuple[Fields, np.ndarray]:
    """Returns gradient, Laplacian and vorticity by name, and the gradient's tensor.

    Args:
        fits: How derivatives are taken.
        flow: How the velocity is found, where it is known.
        raw: The input in its units, points by variables.
        normal: The same normalised.
        names: Names of the variables.
    """
    gradient = fits.gradient(normal)
    tensor = np.einsum("nac,nbc->nab", gradient, gradient)
    fields: Fields = {
        "gradient": np.sqrt(np.trace(tensor, axis1=1, axis2=2)),
        "laplacian": np.linalg.norm(fits.laplacian(normal), axis=-1),
        "vorticity": vorticity(fits, flow, raw, names),
    }
    shown = {
        name: None if field is None else np.where(fits.is_fitted, field, np.nan)
        for name, field in fields.items()
    }
    return shown, tensor


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
    orientations: Sequence[np.ndarray | None], tensors: Sequence[np.ndarray], nulls: Sequence[Null]
) -> dict[str, Any]:
    """Returns the mean cosine of twice the angle between gradients and long axes or displacements.

    1: these lie across fronts; -1: along them; 0: no relation.
    """
    if orientations[0] is None:
        return {"reason": MISSING["anisotropy"]}
    pairs = zip((one for one in orientations if one is not None), tensors, strict=True)
    return _compared([_alignment_with(*pair) for pair in pairs], nulls)


def _along_flow(
    moving: Sequence[MotionFields],
    flows: Sequence[np.ndarray | None],
    nulls: Sequence[Null],
    has_same_sites: bool,
) -> dict[str, Any]:
    """Returns the mean cosine of the angle between displacements and the velocity of the input.

    1: what arrives came with the flow; 0: no relation. That of the mean displacement of a site has
    a null, and the velocity of other examples at the same sites as a control: a motion that is the
    same in all fields agrees with both. `each` is that of every particle.
    """
    known = [flow for flow in flows if flow is not None]
    if len(known) < len(flows):
        return {"reason": MISSING["vorticity"]}
    means = [one.mean for one in moving]
    found = _compared([_cosine_with(*pair) for pair in zip(means, known, strict=True)], nulls)
    if "reason" in found:
        return found
    others = None
    if has_same_sites and len(moving) > 1:
        pairs = itertools.permutations(range(len(moving)), 2)
        others = float(np.mean([_cosine(means[one], known[other]) for one, other in pairs]))
    numbers = range(moving[0].each.shape[1])
    each = [
        float(np.mean([_cosine(one.each[:, n], flow) for one, flow in zip(moving, known, strict=True)]))
        for n in numbers
    ]  # fmt: skip
    return {**found, "other_examples": others, "each": each}


def _compared(
    measures: Sequence[Callable[[np.ndarray], float]], nulls: Sequence[Null]
) -> dict[str, Any]:
    """Returns the mean over examples, with its null; every measure is given an order of the sites."""
    values, draws = [], []
    for measure, null in zip(measures, nulls, strict=True):
        values.append(measure(np.arange(null.orders.shape[1])))
        draws.append([measure(order) for order in null.orders])
    if not np.isfinite(values).all() or not np.isfinite(draws).all():
        return {"reason": "the same at all sites"}
    return asdict(Comparison.of(float(np.mean(values)), np.mean(draws, axis=0)))


def _cosine(ways: np.ndarray, flow: np.ndarray) -> float:
    return _cosine_with(ways, flow)(np.arange(len(flow)))


def _cosine_with(ways: np.ndarray, flow: np.ndarray) -> Callable[[np.ndarray], float]:
    ways = np.where(np.isfinite(ways).all(1, keepdims=True), ways, 0.0)
    # Every site counts by how far its particles look and how fast the flow is.
    lengths, speeds = np.linalg.norm(ways, axis=1), np.linalg.norm(flow, axis=1)

    def measure(order: np.ndarray) -> float:
        total = float(lengths @ speeds[order])
        return float(np.vdot(ways, flow[order]) / total) if total > 0 else np.nan

    return measure


def _alignment_with(oriented: np.ndarray, tensor: np.ndarray) -> Callable[[np.ndarray], float]:
    is_there = np.asarray(np.isfinite(oriented).all((1, 2)))
    oriented = np.where(is_there[:, None, None], oriented, 0.0)
    squared = np.trace(tensor, axis1=1, axis2=2)
    strength, num_axes = np.sqrt(squared), tensor.shape[-1]
    free = tensor - squared[:, None, None] / num_axes * np.eye(num_axes)
    size = np.linalg.norm(free, axis=(1, 2))
    # Every site counts by how long its particles or displacements are and how steep the field is.
    direction = free * (strength / np.where(size > 0, size, 1.0))[:, None, None]
    lengths = np.linalg.norm(oriented, axis=(1, 2))

    def measure(order: np.ndarray) -> float:
        total = float(lengths @ np.where(size[order] > 0, strength[order], 0.0))
        return float(np.vdot(oriented, direction[order]) / total) if total > 0 else np.nan

    return measure
