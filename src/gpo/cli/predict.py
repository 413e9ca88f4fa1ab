"""`gpo predict`: forecasts from the last frames of a file."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from tyro.conf import Positional

from gpo.data.errors import DataError
from gpo.data.forecast_file import write_forecast
from gpo.data.readers.base import ReadOptions
from gpo.data.readers.registry import open_data
from gpo.data.trajectories import Trajectories
from gpo.evaluate.rollout import roll_out
from gpo.train.forecaster import Forecaster
from gpo.train.run_folder import Run


@dataclass(frozen=True, kw_only=True)
class PredictCommand:
    """Continues a time series with a trained run and writes the forecast as NetCDF."""

    folder: Positional[Path]
    """A run folder."""
    input: Path
    """File that ends where the forecast shall begin, with the variables of the run."""
    output: Path
    """NetCDF file to write; one that is there is not overwritten."""
    steps: int = 1
    """Forecasts to make, each a lead after the one before."""

    def run(self) -> None:
        """Reads, forecasts, writes."""
        if self.output.exists():
            raise ValueError(f"{self.output} exists. Choose another --output.")
        if self.steps < 1:
            raise ValueError(f"--steps must be at least 1, got {self.steps}.")
        forecaster = Forecaster.load(Run(self.folder).model_folder)
        if forecaster.task.lead == 0:
            raise ValueError(f"{self.folder} learned a static map: there is nothing to continue.")
        data = open_data(self.input, ReadOptions(variables=forecaster.task.inputs))
        if not isinstance(data, Trajectories):
            raise DataError(self.input, "file", "holds static maps, not a time series.")
        forecast = forecast_series(forecaster, data, self.steps)
        task = forecaster.task
        step = float(np.median(np.diff(data.time))) if len(data.time) > 1 else 1.0
        times = data.time[-1] + task.lead * step * np.arange(1, self.steps + 1)
        write_forecast(self.output, data, forecast, times)
        Console(soft_wrap=True, highlight=False).print(f"forecast: {self.output}", markup=False)


def forecast_series(forecaster: Forecaster, data: Trajectories, num_steps: int) -> np.ndarray:
    """Returns trajectories by steps by points by variables; NaN where sites are masked."""
    task = forecaster.task
    needed = (task.history - 1) * task.lead + 1
    if len(data.time) < needed:
        problem = f"must have at least {needed} frames to start from, got {len(data.time)}."
        raise DataError(data.source, "time", problem)
    rows: list[np.ndarray] = []
    for number in range(data.num_trajectories):
        geometry = data.geometry(number)
        frames = data.frames(number, slice(-needed, None, task.lead)).astype(np.float32)
        is_known = np.isfinite(frames).all((0, 2)) & ~geometry.is_masked
        start = torch.from_numpy(np.where(is_known[:, None], frames, 0))[None]
        coords = torch.from_numpy(geometry.coords.astype(np.float32))
        weights = torch.from_numpy(np.where(is_known, geometry.weights, 0).astype(np.float32))
        out = roll_out(forecaster, start, coords, num_steps, weights=weights)[0].numpy()
        rows.append(np.where(is_known[:, None], out, np.nan))
    return np.stack(rows)
