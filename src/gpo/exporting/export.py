"""Exports a trained forecaster on the sites of its data as a file that runs without gpo."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gpo.data.dataset import StaticMaps, Trajectories
from gpo.data.query_points import QueryPoints
from gpo.exporting.describe import describe_program
from gpo.exporting.program import check_output, export_program, write_program
from gpo.forecast.fixed import FixedForecaster
from gpo.forecast.forecaster import Forecaster, Task


def export(
    forecaster: Forecaster,
    data: Trajectories | StaticMaps,
    output: str | Path,
    *,
    sample: int = 0,
    queries: QueryPoints | None = None,
) -> Path:
    """Traces the forecaster on the sites of a data set, writes the program and returns its path.

    Args:
        forecaster: A trained GPO with its task.
        data: Data set with the sites; sites with missing values are masked.
        output: New file, `.pt2` or `.onnx`.
        sample: Index of the trajectory or static map whose sites are used.
        queries: Points at which to predict; the sites if None.
    """
    output = check_output(Path(output))
    count = data.num_samples if isinstance(data, StaticMaps) else data.num_trajectories
    if not 0 <= sample < count:
        raise ValueError(f"`sample` must be from 0 to {count - 1}, got {sample}.")
    sites, is_known = data.geometry(sample), active_sites(data, forecaster.task, sample)
    fixed = FixedForecaster(
        forecaster,
        _tensor(sites.coords),
        weights=_tensor(np.where(is_known, sites.weights, 0)),
        queries=None if queries is None else _tensor(queries.coords(queries.whole)),
    )
    description = describe_program(forecaster.task, data, sites, is_known, queries)
    write_program(output, export_program(fixed), description)
    return output


def active_sites(data: Trajectories | StaticMaps, task: Task, number: int) -> np.ndarray:
    """Returns False at sites that are masked, or missing in the initial frames of a forecast."""
    if isinstance(data, StaticMaps):
        frames = data.sample(number)[0][None]
    else:
        lead = max(task.lead, 1)
        frames = data.frames(number, slice(-(task.history - 1) * lead - 1, None, lead))
    return np.isfinite(frames).all((0, 2)) & ~data.geometry(number).is_masked


def _tensor(array: np.ndarray) -> Tensor:
    return torch.from_numpy(array.astype(np.float64))
