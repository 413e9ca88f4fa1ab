"""`gpo export`: a trained run as one file that runs without gpo."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from torch import Tensor
from tyro.conf import Positional

from gpo.data.dataset import StaticMaps, Trajectories
from gpo.data.query_points import read_query_points, regular_query_points
from gpo.exporting.describe import describe_program
from gpo.exporting.program import check_output, export_program, write_program
from gpo.forecast.fixed import FixedForecaster
from gpo.forecast.forecaster import Task
from gpo.runs import open_run


@dataclass(frozen=True, kw_only=True)
class ExportCommand:
    """Writes a trained run on its sites as a program: .pt2 runs with torch, .onnx with onnxruntime."""

    folder: Positional[Path]
    """A run folder of a model gpo."""
    output: Path
    """File to write, .pt2 or .onnx; one that is there is not overwritten."""
    sample: int = 0
    """Trajectory or static map of the run's data whose sites are taken, where they differ."""
    queries: Path | None = None
    """Points to predict at, one per row: x y z, or longitude latitude; text or .npy."""
    grid: tuple[int, ...] = ()
    """Sites along each axis of a regular grid to predict at, such as 128 256."""

    def run(self) -> None:
        """Fixes the sites, traces, writes."""
        check_output(self.output)
        if self.queries and self.grid:
            raise ValueError("Give either --queries or --grid, not both.")
        run = open_run(self.folder)
        forecaster = run.forecaster()
        count = (
            run.data.num_samples if isinstance(run.data, StaticMaps) else run.data.num_trajectories
        )
        if not 0 <= self.sample < count:
            raise ValueError(f"--sample must be from 0 to {count - 1}, got {self.sample}.")
        sites = run.data.geometry(self.sample)
        is_known = known_sites(run.data, forecaster.task, self.sample)
        places = None
        if self.queries or self.grid:
            places = (
                read_query_points(self.queries, sites)
                if self.queries
                else regular_query_points(self.grid, sites)
            )
        fixed = FixedForecaster(
            forecaster,
            _tensor(sites.coords),
            weights=_tensor(np.where(is_known, sites.weights, 0)),
            queries=None if places is None else _tensor(places.coords(places.whole)),
        )
        with Console().status("tracing"):
            description = describe_program(forecaster.task, run.data, sites, is_known, places)
            write_program(self.output, export_program(fixed), description)
        megabytes = self.output.stat().st_size / 2**20
        say = Console(soft_wrap=True, highlight=False)
        say.print(f"program: {self.output} ({megabytes:.1f} MB)", markup=False)


def known_sites(data: Trajectories | StaticMaps, task: Task, number: int) -> np.ndarray:
    """Returns False at sites that are masked, or missing where a forecast would begin."""
    if isinstance(data, StaticMaps):
        frames = data.sample(number)[0][None]
    else:
        lead = max(task.lead, 1)
        frames = data.frames(number, slice(-(task.history - 1) * lead - 1, None, lead))
    return np.isfinite(frames).all((0, 2)) & ~data.geometry(number).is_masked


def _tensor(numbers: np.ndarray) -> Tensor:
    return torch.from_numpy(numbers.astype(np.float32))
