r"""Diffusion of particles: the length over which each spreads what it samples, and the viscosity it implies.

A particle samples the field through a Gaussian of scale $\sigma$. Over a time step $\Delta t$ a viscosity
$\nu$ spreads a point to a Gaussian of scale $\sqrt{2\nu\Delta t}$, so the particle implies
$\nu=\sigma^2/2\Delta t$. Where axes have scales of their own, $\sigma$ is their geometric mean. On a
lattice of spacing $h$ no scale is below $h/\sqrt6$: there the viscosity is an upper bound.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gpo.data.dataset import FieldData
from gpo.data.units import canonical
from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.batches import Batch
from gpo.model.ablation import Scaling
from gpo.model.scales import initial_scales

Scales = dict[int, Float[Tensor, "_ _"]]
"""Scales of all particles and axes by the number of the layer, in units of the axes; on a sphere one for
each particle, in radii."""
UNKNOWN_UNITS = "length^2/time"
ROUNDING = 1e-5
"""Relative difference below which a scale is that which was learned."""


@dataclass(frozen=True)
class Viscosity:
    """The true viscosity of the data, in squared units of the domain per unit of time."""

    value: float
    known_by: str
    """How it is known, for `interpret.json`."""


def learned_scales(forecaster: Forecaster) -> Scales:
    """Returns the scales of all layers with transport."""
    operator: Any = forecaster.operator
    return {n: operator.applied_layers[n].scales().detach() for n in operator.transports}


def scales_at_start(forecaster: Forecaster) -> Scales:
    """Returns the scales before training."""
    operator: Any = forecaster.operator
    start = initial_scales(operator.problem, operator.config, operator.waves.limits)
    return {n: start.expand_as(own) for n, own in learned_scales(forecaster).items()}


def scales_at_floor(own: Scales) -> Scales:
    """Returns scales below those of any lattice: the kernel is the multilinear one."""
    return {layer: torch.zeros_like(scales) for layer, scales in own.items()}


def one_scale(own: Scales) -> Scales:
    """Returns the same scale for all particles of a layer: the geometric mean of their scales."""
    return {
        layer: scales.log().mean(0).exp().expand_as(scales).contiguous()
        for layer, scales in own.items()
    }


def matched(own: Scales, other: Scales) -> Scales:
    """Returns the scales of another model in the order of those of this one.

    Particles of two models do not correspond, so the sharpest of a layer gets the scale of the
    sharpest, the next that of the next.
    """
    shapes, others = ([tuple(s.shape) for s in some.values()] for some in (own, other))
    if shapes != others:
        raise ValueError(
            "The run of --scales-of must have as many layers with transport, particles and axes as "
            f"this one, {shapes}, got {others}. Train it with the same --num-transports and "
            "--num-gaussians."
        )
    result = {}
    for (layer, scales), others_scales in zip(own.items(), other.values(), strict=True):
        ranks = _sizes(scales).argsort().argsort()
        result[layer] = others_scales[_sizes(others_scales).argsort()][ranks].to(scales)
    return result


def replaced_scales(by_layer: Scales) -> Scaling:
    """Returns the function that replaces the scales of some layers of a model."""
    return lambda layer, own: by_layer[layer].to(own) if layer in by_layer else own


def diffusion_lengths(
    forecaster: Forecaster, batches: Sequence[Batch], scales: Scales
) -> tuple[dict[int, Float[np.ndarray, "_ _"]], dict[int, list[bool]]]:
    """Returns the lengths that scales are on the lattices of examples, and which are at its floor.

    The lengths are along the axes of the domain, in its units; on a sphere one for each particle, in
    radii. On a body-fitted mesh, whose scales are in units of its axes, they are root mean squares
    over the nodes.

    Args:
        forecaster: A trained gpo.
        batches: The examples.
        scales: Of all particles.
    """
    operator = forecaster.operator
    problem, domain = operator.problem, operator.problem.domain
    squares: dict[int, list[Tensor]] = {layer: [] for layer in scales}
    at_floor = {layer: torch.zeros(len(one), dtype=torch.bool) for layer, one in scales.items()}
    for batch in batches:
        example = batch.example
        values = forecaster.normalised_input(example.frames)[:1]
        sites = operator.sites(values, example.coords[:1], example.site_weights[:1], is_whole=True)
        (points,) = sites.chunks
        assert points.geometry.on_lattice is not None
        smoothing = points.geometry.on_lattice.lattice.smoothing
        for layer, own in scales.items():
            still = own.new_zeros(points.values.shape[1], 1, len(own), problem.num_axes)
            _, lengths = points.departures(still, own, domain.local, is_fitted=problem.is_fitted)
            lengths = domain.lengths_from_local(lengths.double())
            squares[layer].append(lengths.square().mean((0, 1)))
            at_floor[layer] |= (smoothing.effective(own) > own * (1 + ROUNDING)).any(-1).cpu()
    axes = slice(0, 1 if domain.is_sphere and not problem.is_fitted else None)
    return (
        {n: torch.stack(one).mean(0).sqrt()[:, axes].cpu().numpy() for n, one in squares.items()},
        {n: flags.tolist() for n, flags in at_floor.items()},
    )


def implied_viscosity(length: Sequence[float] | np.ndarray, time_step: float) -> float:
    r"""Returns $\sigma^2/2\Delta t$, with the geometric mean over the axes."""
    return float(np.exp(2 * np.log(length).mean()) / (2 * time_step))


def describe_diffusion(
    forecaster: Forecaster,
    data: FieldData,
    batches: Sequence[Batch],
    rows: Sequence[Mapping[str, Any]],
    true: Viscosity | None = None,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Returns rows of particles with their diffusion, and a summary beside the true viscosity.

    Args:
        forecaster: A trained gpo whose particles move.
        data: The data set, which knows the time step.
        batches: The examples.
        rows: A row for every layer and particle, with its `share`.
        true: The viscosity of the data, where it is known.
    """
    own = learned_scales(forecaster)
    lengths, at_floor = diffusion_lengths(forecaster, batches, own)
    start, _ = diffusion_lengths(forecaster, batches, scales_at_start(forecaster))
    floor, _ = diffusion_lengths(forecaster, batches, scales_at_floor(own))
    time_step = _time_step(forecaster, data)
    units = viscosity_units(batches[0], data)

    def viscosity(length: np.ndarray) -> float | None:
        if time_step is None or units is None:
            return None
        return implied_viscosity(length, time_step)

    described = []
    for row in rows:
        layer, particle = row["layer"], row["particle"]
        length = lengths[layer][particle]
        described.append({
            **row, "diffusion_length": length.tolist(),
            "initial_diffusion_length": start[layer][particle].tolist(),
            "is_at_floor": at_floor[layer][particle], "implied_viscosity": viscosity(length),
        })  # fmt: skip
    if time_step is None:
        return described, {"reason": "static maps have no time step"}
    if units is None:
        return described, {"reason": "the axes have different units"}
    best = max(described, key=lambda row: row["share"])
    summary = {
        "time_step": time_step,
        "units": units,
        "is_at_floor": best["is_at_floor"],
        **_estimates(described),
        "initial": viscosity(start[best["layer"]][best["particle"]]),
        "floor": viscosity(floor[best["layer"]][best["particle"]]),
    }
    return described, {**summary, **_beside(summary, true)}


def _estimates(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Returns three estimates of the viscosity.

    `best` is that of the most important particle, `sharpest` that of the smallest scale, `total` the
    sum over the layers of that of the most important particle of each: variances of smoothings that
    follow each other add up.
    """
    by_layer: dict[int, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_layer.setdefault(row["layer"], []).append(row)
    firsts = [max(some, key=lambda row: row["share"]) for some in by_layer.values()]
    return {
        "best": max(firsts, key=lambda row: row["share"])["implied_viscosity"],
        "sharpest": min(row["implied_viscosity"] for row in rows),
        "total": sum(row["implied_viscosity"] for row in firsts),
    }


def _beside(summary: Mapping[str, Any], true: Viscosity | None) -> dict[str, Any]:
    """Returns the true viscosity, and the ratios of the estimates and of the controls to it."""
    if true is None:
        return {"true": None}
    names = ("best", "sharpest", "total", "initial", "floor")
    ratios = {name: summary[name] / true.value for name in names}
    return {"true": true.value, "known_by": true.known_by, "ratio": ratios}


def _time_step(forecaster: Forecaster, data: FieldData) -> float | None:
    """Returns the time that a prediction goes ahead, in the time units of the data."""
    if forecaster.task.lead == 0:
        return None
    return float(data.time_step * forecaster.task.lead)


def viscosity_units(batch: Batch, data: FieldData) -> str | None:
    """Returns the units of implied viscosities; None where axes have different units."""
    geometry = batch.geometry
    lengths = (
        {"radii"} if geometry.domain.is_sphere else {canonical(u) for u in geometry.axis_units}
    )
    if len(lengths) > 1:
        return None
    length, time = lengths.pop(), canonical(data.time_units)
    return f"{length}2 {time}-1" if {length, time}.isdisjoint({"", "1"}) else UNKNOWN_UNITS


def _sizes(scales: Float[Tensor, "gaussians axes"]) -> Float[Tensor, " gaussians"]:
    """Returns the geometric mean over the axes."""
    return scales.log().mean(-1).exp()
