"""Opens a run folder together with the data it was made from."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpo.assignments import assignments
from gpo.data.benchmarks import DATA_SETS, cache_folder, solver_for
from gpo.data.coarsen import coarsen
from gpo.data.dataset import StaticMaps, Trajectories
from gpo.data.forcings import TimeFeatures
from gpo.data.generate import generate
from gpo.data.readers.base import ReadOptions
from gpo.data.readers.registry import open_data
from gpo.data.splits import Split
from gpo.forecast.forecaster import Forecaster
from gpo.parallel.processes import global_rank
from gpo.training.config import RunConfig
from gpo.training.run_folder import Run
from gpo.training.setup import split_of


@dataclass(frozen=True)
class OpenRun:
    """A run folder, its configuration, its data and their split."""

    folder: Run
    config: RunConfig
    data: Trajectories | StaticMaps
    split: Split[Any]

    def forecaster(self) -> Forecaster:
        """Returns the trained model; raises an error where training has not ended."""
        return Forecaster.load(self.folder.trained_model())


def open_run(path: str | Path) -> OpenRun:
    """Returns an existing run folder and its data.

    Args:
        path: What `train` or `gpo run` made.
    """
    folder = Run(Path(path))
    config = folder.config()
    data = read_data(config)
    return OpenRun(folder, config, data, split_of(data, config))


def read_data(config: RunConfig, factor: int | None = None) -> Trajectories | StaticMaps:
    """Returns the data of a run; those of a benchmark are made where they are missing.

    Args:
        config: Which data, and what of them.
        factor: Every how many sites along each axis, in place of what the run says.
    """
    source = config.data
    variables, path = source.var, source.data or ""
    if source.benchmark is not None:
        path = benchmark_file(source.benchmark, source.preset)
        variables = variables or DATA_SETS[source.benchmark].variables
    data = open_data(path, read_options(config, variables))
    return coarsen(with_time_features(data, config.task.time_features), factor or source.coarsen)


def read_options(config: RunConfig, variables: tuple[str, ...]) -> ReadOptions:
    """Returns how the data of a run are read, and other files for it.

    Args:
        config: The run.
        variables: The variables to read.
    """
    source = config.data
    return ReadOptions(
        variables=variables,
        select=assignments("select", source.select),
        coords=source.coords,
        periodic=source.periodic,
    )


def with_time_features(
    data: Trajectories | StaticMaps, time_features: TimeFeatures
) -> Trajectories | StaticMaps:
    """Returns data whose frames have time features; refuses them for static maps."""
    if isinstance(data, Trajectories):
        return data.with_time_features(time_features)
    if time_features != "none":
        raise ValueError(
            f"`time_features` must be none, got {time_features}: {data.source} holds static maps."
        )
    return data


def benchmark_file(benchmark: str, preset: str) -> Path:
    """Returns the data file of a benchmark; the first process makes it, others wait for it."""
    path = benchmark_path(benchmark, preset)
    if global_rank() == 0:
        generate(solver_for(benchmark, preset, {}), path)
    while not path.exists():
        time.sleep(0.5)
    return path


def benchmark_path(benchmark: str, preset: str) -> Path:
    """Returns where the data of a benchmark are kept."""
    return cache_folder() / f"{benchmark}-{preset}{solver_for(benchmark, preset, {}).suffix}"
