"""Transfer to other sites than those of training: coarser, finer and random ones, and between sites."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy.signal import resample
from torch import Tensor

from gpo.data.coarsen import coarsen, sampled
from gpo.data.dataset import DataError, StaticMaps, Trajectories
from gpo.data.geometry import Geometry
from gpo.data.splits import evenly, owner
from gpo.forecast.examples import Example, make_examples
from gpo.forecast.forecaster import Forecaster
from gpo.forecast.queries import MAX_QUERIES, QueryForecast
from gpo.model.problem import UnsupportedGeometryError
from gpo.numerics.norms import relative_l2

MAX_EXAMPLES = 64
"""Test examples that are scored, evenly chosen."""

FRACTION = 0.7
"""Fraction of the sites in the row of randomly chosen ones."""

Scores = dict[str, float | str]
"""Relative L2 of the model and of the last frame, or the `reason` why there is none."""


def resolution_transfer(
    forecaster: Forecaster,
    data: Trajectories | StaticMaps,
    members: Sequence[Any],
    finer: Trajectories | StaticMaps | None = None,
) -> dict[str, Scores]:
    """Returns errors at half, equal and double resolution along every axis, and on some of the sites.

    Args:
        forecaster: The trained model.
        data: What it was trained on.
        members: The test split.
        finer: The same data at double resolution. Where there is none, a periodic field is
            interpolated by its Fourier series, and the row says so.
    """
    rows: dict[str, Scores] = {}
    for name, make in (
        ("0.5x", lambda: coarsen(data, 2)),
        ("1x", lambda: data),
        ("2x" if finer else "2x, interpolated", lambda: finer or refined(data)),
        (f"random {FRACTION:.0%} of the sites", lambda: sampled(data, FRACTION)),
    ):
        try:
            rows[name] = _score(forecaster, make(), members)
        except UnsupportedGeometryError as error:
            rows[name] = {"reason": str(error)}
        except DataError as error:
            rows[name] = {"reason": error.problem.rstrip(".")}
    return rows


def refined(data: Trajectories | StaticMaps) -> Trajectories:
    """Returns periodic fields at double resolution, interpolated by their Fourier series."""
    geometry = data.geometry()
    is_periodic = all(geometry.domain.periodic) and bool(geometry.axes)
    if isinstance(data, StaticMaps) or not is_periodic or len(data.geometries) > 1:
        raise DataError(
            data.source, "coords", "there is no finer data, and the box is not periodic"
        )
    shape = tuple(2 * size for size in geometry.grid_shape)
    axes = []
    for axis, low, high in zip(
        geometry.axes, geometry.domain.lower, geometry.domain.upper, strict=True
    ):
        axes.append(axis[0] + (high - low) * np.arange(2 * len(axis)) / (2 * len(axis)))
    ends = list(zip(geometry.domain.lower, geometry.domain.upper, strict=True))
    fine = Geometry.rectilinear(axes, periodic=True, bounds=ends)

    def refine(number: int, frames: np.ndarray) -> np.ndarray:
        fields = frames.reshape(len(frames), *geometry.grid_shape, -1)
        for axis, size in enumerate(shape, start=1):
            fields = resample(fields, size, axis=axis)
        return np.asarray(fields).reshape(len(frames), fine.num_points, -1)

    known = tuple(forcing.on(refine) for forcing in data.known)
    return replace(
        data,
        geometries=(fine,),
        fetch=lambda number, times: refine(number, data.frames(number, times)),
        known=known,
    )


@torch.no_grad()
def between_sites(
    forecaster: Forecaster, data: Trajectories | StaticMaps, members: Sequence[Any]
) -> Scores:
    """Returns errors at withheld sites: the model is given the others and queried there.

    A Gaussian field reconstructs what it is given; beside it are the values of the sites next to a
    query, blended as the model blends their particles.
    """
    if forecaster.model.operator is None:
        return {"reason": "the model answers at its sites only"}
    nodes = forecaster.model.problem.mesh_shape
    if nodes:
        return {"reason": f"the model takes all {' x '.join(map(str, nodes))} nodes of its mesh"}
    chosen = evenly(members, MAX_EXAMPLES)
    examples = make_examples(data, chosen, reconstructs=forecaster.reconstructs)
    totals: dict[str, list[float]] = {}
    for number, member in enumerate(chosen):
        example, geometry = examples[number], data.geometry(owner(member))
        kept, weights = _half(geometry)
        is_queried = np.ones(geometry.num_points, dtype=bool)
        is_queried[kept] = False
        is_queried &= example.weights[0].numpy() > 0
        queried = torch.from_numpy(is_queried)
        given = torch.from_numpy(weights) * (example.site_weights[0, kept] > 0)
        forecast = QueryForecast(
            forecaster, example.frames[0, :, kept], example.coords[0, kept], given
        )
        queries = example.coords[0, queried].split(MAX_QUERIES)
        guess = torch.cat([forecast.at(part) for part in queries])[None]
        if forecaster.reconstructs:
            _add_error(totals, "model", example, guess, queried)
            blended = torch.cat([forecast.interpolated(part) for part in queries])[None]
            _add_error(totals, "interpolated values", example, blended, queried)
        else:
            _add_errors(totals, example, guess, queried)
    return {name: float(np.mean(errors)) for name, errors in totals.items()}


def _half(geometry: Geometry) -> tuple[np.ndarray, np.ndarray]:
    """Returns the numbers and weights of sites to give: every second one, or a random half."""
    try:
        coarse, numbers = geometry.coarsen(2)
    except ValueError:
        count = geometry.num_points
        numbers = np.sort(np.random.default_rng(0).permutation(count)[: (count + 1) // 2])
        return numbers, geometry.weights[numbers]
    return numbers, coarse.weights


def _add_errors(
    totals: dict[str, list[float]], example: Example, guess: Tensor, chosen: Tensor
) -> None:
    _add_error(totals, "model", example, guess, chosen)
    if example.fields.shape[-1] == example.target.shape[-1]:
        _add_error(totals, "last frame", example, example.fields[:, -1, chosen], chosen)


def _add_error(
    totals: dict[str, list[float]], name: str, example: Example, guess: Tensor, chosen: Tensor
) -> None:
    target, weights = example.target[:, chosen], example.weights[:, chosen]
    totals.setdefault(name, []).append(relative_l2(guess, target, weights).item())


@torch.no_grad()
def _score(
    forecaster: Forecaster, data: Trajectories | StaticMaps, members: Sequence[Any]
) -> Scores:
    model, nodes = forecaster.model, forecaster.model.problem.mesh_shape
    if nodes and model.operator is not None and data.geometry().grid_shape != nodes:
        shown = " x ".join(map(str, nodes))
        raise UnsupportedGeometryError(f"the model takes the {shown} nodes of its mesh only")
    shape = data.geometry().grid_shape
    if model.operator is None and shape != model.fixed_shape:
        forecaster = Forecaster(model.on_grid(shape), forecaster.task).eval()
    totals: dict[str, list[float]] = {}
    everywhere = torch.ones(data.geometry().num_points, dtype=torch.bool)
    examples = make_examples(data, evenly(members, MAX_EXAMPLES))
    for number in range(len(examples)):
        example = examples[number]
        guess = forecaster(example.frames, example.coords, weights=example.site_weights)
        _add_errors(totals, example, guess, everywhere)
    return {name: float(np.mean(errors)) for name, errors in totals.items()}
