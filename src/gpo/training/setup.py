"""Setup of training: the split of the data, the task and the untrained forecaster."""

from dataclasses import replace

import numpy as np
import torch

from gpo.data.dataset import DataError, FieldData
from gpo.data.geometry import Geometry
from gpo.data.splits import (
    Split,
    split_by_date,
    split_by_file,
    split_time_slices,
)
from gpo.execution.memory import memory_problem
from gpo.forecast.forecaster import Forecaster
from gpo.forecast.statistics import (
    Normalizer,
    SiteMeans,
    forcing_statistics,
    training_statistics,
)
from gpo.forecast.task import Task, TrainedOn
from gpo.model.model import AbstractModel, build_model
from gpo.model.problem import Problem
from gpo.model.registry import MODELS
from gpo.training.base import with_base
from gpo.training.config import RunConfig


def split_of(data: FieldData, config: RunConfig) -> Split:
    """Returns the split of a run."""
    if not data.has_time:
        _check_for_maps(data, config)
    source, history, lead = config.data, config.task.history, config.task.lead
    if source.test_files is not None:
        return split_by_file(data, source.test_files, history=history, lead=lead)
    if source.test_from is not None:
        begins = source.validation_from, source.test_from
        return split_by_date(data, *begins, history=history, lead=lead)
    return split_time_slices(data, history=history, lead=lead)


def _check_for_maps(data: FieldData, config: RunConfig) -> None:
    """Raises an error for settings that only time series can have."""
    refused = {
        "test_from": config.data.test_from is not None,
        "test_files": config.data.test_files is not None,
        "phase": config.task.phase == "field",
        "rollout": config.optimizer.rollout > 1,
        "relative_to": config.optimizer.relative_to == "change",
    }
    names = [name for name, is_set in refused.items() if is_set]
    if names:
        raise ValueError(
            f"`{names[0]}` must not be set: {data.source} holds static maps, which have no times "
            "and are split by sample."
        )


def new_forecaster(
    data: FieldData, split: Split, config: RunConfig, *, is_quiet: bool = True
) -> Forecaster:
    """Returns an untrained model with the statistics of the training split."""
    means = _pointwise(data, split, config)
    task, geometry = make_task(data, split, config, means, is_quiet=is_quiet), data.geometry()
    channels = task.history * len(task.inputs), len(task.outputs)
    model = new_model(config, make_problem(*channels, geometry))
    forecaster = Forecaster(model, task, means)
    return with_base(forecaster, data, split.training, uses_climatology=config.task.blend)


def _pointwise(data: FieldData, split: Split, config: RunConfig) -> SiteMeans | None:
    """Returns pointwise statistics where a run has them."""
    is_pointwise = config.task.normalise == "points"
    if split.training[0].lead == 0:
        if is_pointwise:
            raise ValueError(
                f"`normalise` must be variables, got points: {data.source} holds static maps, whose "
                "means are pointwise with --predict increment."
            )
        return SiteMeans.of(data, split.training) if config.task.predict == "increment" else None
    if not is_pointwise:
        return None
    forcings = Normalizer(np.zeros(0), np.ones(0))
    if data.known:
        forcings = forcing_statistics(data, split.training)
    return SiteMeans.of_series(data, split.training, forcings)


def make_problem(in_channels: int, out_channels: int, geometry: Geometry) -> Problem:
    """Returns the problem that a model is built for."""
    shape = geometry.grid_shape
    return Problem(
        in_channels, out_channels, geometry.domain, shape,
        is_fitted=bool(shape) and not geometry.axes,
        num_points=None if shape else geometry.num_points,
    )  # fmt: skip


def new_model(config: RunConfig, problem: Problem) -> AbstractModel:
    """Returns the untrained model of a run."""
    name = "gaussian-field" if config.task.phase == "field" else config.model.name
    sizes = MODELS[name].prepared(problem, config.model.config, config.optimizer.seed)
    return build_model(name, problem, sizes)


def make_task(
    data: FieldData,
    split: Split,
    config: RunConfig,
    means: SiteMeans | None = None,
    *,
    is_quiet: bool = True,
) -> Task:
    """Returns the task, with statistics of the training split."""
    settings, first = config.task, split.training[0]
    inputs, outputs, changes = training_statistics(data, split.training, means, is_quiet=is_quiet)
    unknown = [n for n in settings.non_negative if n not in {v.name for v in data.outputs}]
    if unknown:
        listed = ", ".join(variable.name for variable in data.outputs)
        raise ValueError(f"`non_negative` must be among the outputs, {listed}, got {unknown[0]}.")
    names, forcings = (), Normalizer(np.zeros(0), np.ones(0))
    if data.known:
        forcings = forcing_statistics(data, split.training)
        names = tuple(variable.name for variable in data.forcings)
    task = Task(
        inputs=(*names, *(variable.name for variable in data.inputs)),
        outputs=tuple(variable.name for variable in data.outputs),
        units=tuple(variable.units for variable in data.outputs),
        history=len(first.inputs),
        lead=first.lead,
        predict=settings.predict if first.lead else "state",
        input_mean=(*forcings.mean.tolist(), *inputs.mean.tolist()),
        input_std=(*forcings.std.tolist(), *inputs.std.tolist()),
        output_mean=tuple(outputs.mean.tolist()),
        output_std=tuple(outputs.std.tolist()),
        increment_std=tuple(changes.tolist()),
        is_per_site=means is not None,
        trained_on=TrainedOn.of(data),
        forcings=names,
        non_negative=settings.non_negative,
    )
    if settings.phase == "field":
        return replace(task, lead=0, predict="state")
    return task


def training_memory(data: FieldData, config: RunConfig, *, space_shards: int = 1) -> int:
    """Estimates the bytes of a training step; raises an error if there is not enough memory.

    The estimate of a baseline is 0.
    """
    if not MODELS[config.model.name].is_operator:
        return 0
    geometry = data.geometry()
    num_inputs = len(data.forcings) + len(data.inputs)
    num_sites = -(-max(geometry.num_points for geometry in data.geometries) // space_shards)
    with torch.device("meta"):
        problem = make_problem(config.task.history * num_inputs, 1, geometry)
        operator = new_model(config, problem).operator
    assert operator is not None
    is_grid, samples = bool(geometry.grid_shape), config.optimizer.batch_size
    needed = operator.execution.needed_bytes(num_sites, samples, is_grid=is_grid, trains=True)
    advice = "Reduce it: a smaller --batch-size or --hidden-dim, --coarsen 2, --space-shards 2"
    problem = memory_problem(needed, num_sites, advice)
    if problem is not None:
        raise DataError(data.source, "coords", problem)
    return needed
