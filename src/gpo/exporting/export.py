"""Exports a trained forecaster on the sites of its data as a file that runs without gpo."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gpo.data.dataset import FieldData
from gpo.data.query_points import QueryPoints
from gpo.exporting.describe import describe_program
from gpo.exporting.program import check_output, export_program, write_program
from gpo.forecast.fixed import FixedForecaster
from gpo.forecast.forecaster import Forecaster, Task


def export(
    forecaster: Forecaster,
    data: FieldData,
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
        sample: Index of the sample whose sites are used.
        queries: Points at which to predict; the sites if None.
    """
    output = check_output(Path(output))
    if not 0 <= sample < data.num_samples:
        raise ValueError(f"`sample` must be from 0 to {data.num_samples - 1}, got {sample}.")
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


def active_sites(data: FieldData, task: Task, number: int) -> np.ndarray:
    """Returns False at sites that are masked, or missing in the initial frames of a forecast."""
    lead = max(task.lead, 1)
    frames = data.frames(number, slice(-(task.history - 1) * lead - 1, None, lead))
    frames = frames[..., : data.num_inputs or None]
    return np.isfinite(frames).all((0, 2)) & ~data.geometry(number).is_masked


def _tensor(array: np.ndarray) -> Tensor:
    return torch.from_numpy(array.astype(np.float64))
