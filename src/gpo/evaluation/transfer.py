"""Errors at sites other than those of training: on other resolutions and at withheld sites."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from scipy.signal import resample
from torch import Tensor

from gpo.data.coarsen import coarsen, sampled
from gpo.data.dataset import DataError, FieldData
from gpo.data.geometry import Geometry
from gpo.data.splits import TimeSlice, evenly
from gpo.forecast.examples import Example, TimeSliceExamples
from gpo.forecast.forecaster import Forecaster
from gpo.forecast.queries import MAX_QUERIES, QueryForecast
from gpo.model.problem import UnsupportedGeometryError
from gpo.numerics.norms import relative_l2

MAX_EXAMPLES = 64
"""Maximum number of test examples that are scored; they are evenly spaced."""
FRACTION = 0.7
"""Fraction of the sites in the random subset."""

Scores = dict[str, float | str]
"""Relative L2 of the model and of the last frame, or the `reason` why there is none."""


def resolution_transfer(
    forecaster: Forecaster,
    data: FieldData,
    samples: Sequence[TimeSlice],
    finer: FieldData | None = None,
) -> dict[str, Scores]:
    """Returns errors at half, equal and double resolution, and on a random subset of the sites.

    Args:
        forecaster: The trained model.
        data: The data it was trained on.
        samples: The test split.
        finer: The same data at double resolution. When not given, periodic fields are interpolated by
            their Fourier series, and the name of the row says so.
    """
    rows: dict[str, Scores] = {}
    for name, make in (
        ("0.5x", lambda: coarsen(data, 2)),
        ("1x", lambda: data),
        ("2x" if finer else "2x, interpolated", lambda: finer or refined(data)),
        (f"random {FRACTION:.0%} of the sites", lambda: sampled(data, FRACTION)),
    ):
        try:
            rows[name] = _score(forecaster, make(), samples)
        except UnsupportedGeometryError as error:
            rows[name] = {"reason": str(error)}
        except DataError as error:
            rows[name] = {"reason": error.problem.rstrip(".")}
    return rows


def refined(data: FieldData) -> FieldData:
    """Returns periodic fields at double resolution, interpolated by their Fourier series."""
    geometry = data.geometry()
    is_periodic = all(geometry.domain.periodic) and bool(geometry.axes)
    if not is_periodic or len(data.geometries) > 1:
        raise DataError(
            data.source, "coords", "there are no finer data, and the box is not periodic"
        )
    shape = tuple(2 * size for size in geometry.grid_shape)
    bounds = list(zip(geometry.domain.lower, geometry.domain.upper, strict=True))
    axes = [
        axis[0] + (high - low) * np.arange(size) / size
        for axis, (low, high), size in zip(geometry.axes, bounds, shape, strict=True)
    ]
    fine = Geometry.rectilinear(axes, periodic=True, bounds=bounds)

    def refine(number: int, frames: np.ndarray) -> np.ndarray:
        if not np.isfinite(frames).all():
            raise DataError(data.source, "values", "missing values have no Fourier series")
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
def between_sites(forecaster: Forecaster, data: FieldData, samples: Sequence[TimeSlice]) -> Scores:
    """Returns errors at withheld sites, where the model is queried from the other sites.

    A Gaussian field reconstructs its input. It is compared with the values of the sites next to a query,
    interpolated with the weights with which the model interpolates their particles.
    """
    if forecaster.model.operator is None:
        return {"reason": "the model predicts at its input sites only"}
    nodes = forecaster.model.problem.mesh_shape
    if nodes:
        return {"reason": f"the model needs all {' x '.join(map(str, nodes))} nodes of its mesh"}
    if forecaster.task.is_per_site:
        return {"reason": "the model has the means of its own sites"}
    scored = evenly(samples, MAX_EXAMPLES)
    examples = TimeSliceExamples(data, scored, reconstructs=forecaster.reconstructs)
    errors: dict[str, list[float]] = {}
    for number, sample in enumerate(scored):
        example, geometry = examples[number], data.geometry(sample.sample)
        inputs, weights = _input_sites(geometry)
        is_queried = np.ones(geometry.num_points, dtype=bool)
        is_queried[inputs] = False
        is_queried &= example.weights[0].numpy() > 0
        mask = torch.from_numpy(is_queried)
        site_weights = torch.from_numpy(weights) * (example.site_weights[0, inputs] > 0)
        forecast = QueryForecast(
            forecaster, example.frames[0, :, inputs], example.coords[0, inputs], site_weights,
            None if example.seasons is None else example.seasons[0],
        )  # fmt: skip
        queries = example.coords[0, mask].split(MAX_QUERIES)
        prediction = torch.cat([forecast.at(part) for part in queries])[None]
        if forecaster.reconstructs:
            _add_error(errors, "model", example, prediction, mask)
            blended = torch.cat([forecast.interpolated(part) for part in queries])[None]
            _add_error(errors, "interpolated values", example, blended, mask)
        else:
            _add_errors(errors, example, prediction, mask)
    return {name: float(np.mean(values)) for name, values in errors.items()}


def _input_sites(geometry: Geometry) -> tuple[np.ndarray, np.ndarray]:
    """Returns indices and weights of the input sites: every second one, or a random half."""
    try:
        coarse, numbers = geometry.coarsen(2)
    except ValueError:
        count = geometry.num_points
        numbers = np.sort(np.random.default_rng(0).permutation(count)[: (count + 1) // 2])
        return numbers, geometry.weights[numbers]
    return numbers, coarse.weights


def _add_errors(
    errors: dict[str, list[float]], example: Example, prediction: Tensor, mask: Tensor
) -> None:
    """Appends the errors of the model and of the last frame at the sites of the mask."""
    _add_error(errors, "model", example, prediction, mask)
    if example.fields.shape[-1] == example.target.shape[-1]:
        _add_error(errors, "last frame", example, example.fields[:, -1, mask], mask)


def _add_error(
    errors: dict[str, list[float]], name: str, example: Example, prediction: Tensor, mask: Tensor
) -> None:
    target, weights = example.target[:, mask], example.weights[:, mask]
    errors.setdefault(name, []).append(relative_l2(prediction, target, weights).item())


@torch.no_grad()
def _score(forecaster: Forecaster, data: FieldData, samples: Sequence[TimeSlice]) -> Scores:
    """Returns the errors on all sites of the data; raises where the model does not support them."""
    model, nodes = forecaster.model, forecaster.model.problem.mesh_shape
    if nodes and model.operator is not None and data.geometry().grid_shape != nodes:
        mesh = " x ".join(map(str, nodes))
        raise UnsupportedGeometryError(f"the model takes only the {mesh} nodes of its mesh")
    shape = data.geometry().grid_shape
    if model.operator is None and shape != model.fixed_shape:
        forecaster = Forecaster(
            model.on_grid(shape), forecaster.task, references=forecaster.references
        ).eval()
    errors: dict[str, list[float]] = {}
    everywhere = torch.ones(data.geometry().num_points, dtype=torch.bool)
    examples = TimeSliceExamples(data, evenly(samples, MAX_EXAMPLES))
    for number in range(len(examples)):
        example = examples[number]
        prediction = forecaster(
            example.frames, example.coords, weights=example.site_weights, seasons=example.seasons
        )
        _add_errors(errors, example, prediction, everywhere)
    return {name: float(np.mean(values)) for name, values in errors.items()}
