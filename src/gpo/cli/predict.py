"""`gpo predict`: forecasts from the last frames of a file, or static maps, anywhere."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor
from tyro.conf import Positional

from gpo.assignments import assignments
from gpo.data.errors import DataError
from gpo.data.forecast_file import write_forecast
from gpo.data.geometry import Geometry
from gpo.data.places import read_places, regular_places
from gpo.data.readers.base import ReadOptions
from gpo.data.readers.registry import open_data
from gpo.data.trajectories import Pairs, Trajectories
from gpo.evaluate.rollout import roll_out
from gpo.train.config import RunConfig
from gpo.train.forecaster import Forecaster
from gpo.train.run_folder import Run


@dataclass(frozen=True, kw_only=True)
class PredictCommand:
    """Continues a time series, or maps fields, with a trained run; writes NetCDF."""

    folder: Positional[Path]
    """A run folder."""
    input: Path
    """File with the variables of the run; a time series ends where the forecast shall begin."""
    output: Path
    """NetCDF file to write; one that is there is not overwritten."""
    steps: int = 1
    """Forecasts to make, each a lead after the one before."""
    queries: Path | None = None
    """Points to predict at, one per row: x y z, or longitude latitude; text or .npy."""
    grid: tuple[int, ...] = ()
    """Sites along each axis of a regular grid to predict at, such as 128 256."""

    def run(self) -> None:
        """Reads, predicts, writes."""
        if self.output.exists():
            raise ValueError(f"{self.output} exists. Choose another --output.")
        if self.steps < 1:
            raise ValueError(f"--steps must be at least 1, got {self.steps}.")
        if self.queries and self.grid:
            raise ValueError("Give either --queries or --grid, not both.")
        run = Run(self.folder)
        forecaster = Forecaster.load(run.trained_model()).eval()
        task, trained_on = forecaster.task, RunConfig.load(run.config_file)
        data = open_data(
            self.input,
            ReadOptions(
                # Of static maps, the reader itself tells inputs from outputs.
                variables=trained_on.var if task.lead == 0 else task.inputs,
                select=assignments("select", trained_on.select),
            ),
        )
        places = self._places(data.geometry())
        if isinstance(data, Pairs):
            self._map(forecaster, data, places)
        elif task.lead == 0:
            raise ValueError(f"{self.folder} does not forecast: there is nothing to continue.")
        else:
            self._continue(forecaster, data, places)
        Console(soft_wrap=True, highlight=False).print(f"forecast: {self.output}", markup=False)

    def _places(self, geometry: Geometry) -> Geometry | None:
        if self.queries:
            return read_places(self.queries, geometry)
        return regular_places(self.grid, geometry) if self.grid else None

    def _continue(
        self, forecaster: Forecaster, data: Trajectories, places: Geometry | None
    ) -> None:
        forecast = forecast_series(forecaster, data, self.steps, places)
        step = float(np.median(np.diff(data.time))) if len(data.time) > 1 else 1.0
        times = data.time[-1] + forecaster.task.lead * step * np.arange(1, self.steps + 1)
        where = places or data.geometry()
        write_forecast(self.output, forecast, where, data.variables, times, data.time_units)

    def _map(self, forecaster: Forecaster, data: Pairs, places: Geometry | None) -> None:
        if forecaster.task.lead > 0:
            raise DataError(self.input, "file", "holds static maps, not a time series.")
        names = tuple(variable.name for variable in data.inputs)
        if names != forecaster.task.inputs:
            problem = f"must be {', '.join(forecaster.task.inputs)}, got {', '.join(names)}."
            raise DataError(self.input, "inputs", problem)
        if len(data.geometries) > 1:
            counts = {geometry.num_points for geometry in data.geometries}
            if places is None and len(counts) > 1:
                problem = "differ from sample to sample: ask at --queries or on a --grid."
                raise DataError(self.input, "coords", problem)
        rows: list[np.ndarray] = []
        for number in track(range(data.num_samples), "predicting", transient=True):
            geometry = data.geometry(number)
            given, _ = data.sample(number)
            frames, coords, weights = _start(given[None], geometry)
            with torch.no_grad():
                guess = forecaster(frames, coords, weights=weights, queries=_tensor(places))
            rows.append(guess[0].numpy())
        write_forecast(self.output, np.stack(rows), places or data.geometry(), data.outputs)


def forecast_series(
    forecaster: Forecaster, data: Trajectories, num_steps: int, places: Geometry | None = None
) -> np.ndarray:
    """Returns trajectories by steps by points by variables; NaN where sites are masked.

    Args:
        forecaster: The trained model.
        data: The series to continue.
        num_steps: How often.
        places: Where to predict; at the sites when not given.
    """
    task = forecaster.task
    needed = (task.history - 1) * task.lead + 1
    if len(data.time) < needed:
        problem = f"must have at least {needed} frames to start from, got {len(data.time)}."
        raise DataError(data.source, "time", problem)
    rows: list[np.ndarray] = []
    for number in track(range(data.num_trajectories), "predicting", transient=True):
        geometry = data.geometry(number)
        frames = data.frames(number, slice(-needed, None, task.lead))
        start, coords, weights = _start(frames, geometry)
        out = roll_out(forecaster, start, coords, num_steps, weights=weights)
        if places is None:
            known = weights.numpy()[:, None] > 0
            rows.append(np.where(known, out[0].numpy(), np.nan))
            continue
        history = torch.cat([start, out], 1)
        asked = [
            forecaster(
                history[:, step : step + task.history], coords, weights=weights, queries=_tensor(places)
            )[0]
            for step in range(num_steps)
        ]  # fmt: skip
        rows.append(torch.stack(asked).detach().numpy())
    return np.stack(rows)


def _start(frames: np.ndarray, geometry: Geometry) -> tuple[Tensor, Tensor, Tensor]:
    """Returns frames, sites and weights as a model takes them; what is missing has weight zero."""
    is_known = np.isfinite(frames).all((0, 2)) & ~geometry.is_masked
    if not is_known.any():
        raise ValueError(
            "every site of the last frames is missing: there is nothing to start from."
        )
    start = torch.from_numpy(np.where(is_known[:, None], frames, 0).astype(np.float32))[None]
    coords = torch.from_numpy(geometry.coords.astype(np.float32))
    return (
        start,
        coords,
        torch.from_numpy(np.where(is_known, geometry.weights, 0).astype(np.float32)),
    )


def _tensor(places: Geometry | None) -> Tensor | None:
    return None if places is None else torch.from_numpy(places.coords.astype(np.float32))
