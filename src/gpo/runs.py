"""Opens a run folder together with the data it was made from."""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpo.assignments import assignments
from gpo.data.benchmarks import DATA_SETS, cache_folder, solver_for
from gpo.data.coarsen import coarsen
from gpo.data.dataset import DataError, StaticMaps, Trajectories
from gpo.data.generate import generate
from gpo.data.inputs import open_with_forcings
from gpo.data.readers.base import ReadOptions
from gpo.data.readers.numbers import maps_of_numbers
from gpo.data.splits import Split
from gpo.forecast.forecaster import Forecaster, Task
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
        """Returns the trained model; refuses where training has not ended, or was of another task."""
        forecaster = Forecaster.load(self.folder.trained_model())
        check_task(self.folder, self.config, self.data, forecaster.task)
        return forecaster


def check_task(
    folder: Run, config: RunConfig, data: Trajectories | StaticMaps, learned: Task
) -> None:
    """Refuses a configuration that is not that of the model beside it."""
    asked = config.task
    if isinstance(data, StaticMaps) or asked.phase == "field":
        return
    names = tuple(variable.name for variable in data.forcings)
    pairs = {"forcings": (", ".join(names) or "none", ", ".join(learned.forcings) or "none")}
    for name in ("history", "lead", "predict"):
        pairs[f"task.{name}"] = getattr(asked, name), getattr(learned, name)
    for name, (here, there) in pairs.items():
        if here != there:
            raise ValueError(
                f"{folder.config_file}: field `{name}` is {here}, but the model learned "
                f"{there}. Write that, or train another run."
            )


def open_run(path: str | Path) -> OpenRun:
    """Returns an existing run folder and its data.

    Args:
        path: What `train` or `gpo run` made.
    """
    folder = Run(Path(path))
    config = folder.config()
    data = read_data(config)
    return OpenRun(folder, config, data, split_of(data, config))


def from_anywhere(config: RunConfig) -> RunConfig:
    """Returns a configuration whose paths do not depend on the folder a command is typed in."""
    data, init = config.data.data, config.optimizer.init
    files = tuple(map(_absolute, data)) if isinstance(data, tuple) else data and _absolute(data)
    found = {"data": files, "init": init and _absolute(init)}
    return config.changed(**{name: path for name, path in found.items() if path})


def _absolute(path: str) -> str:
    return path if "://" in path else os.path.abspath(path)


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
    return coarsen(
        open_with_forcings(path, read_options(config, variables), config.forcings),
        factor or source.coarsen,
    )


def read_options(config: RunConfig, variables: tuple[str, ...]) -> ReadOptions:
    """Returns how the data of a run are read, and other files for it.

    Args:
        config: The run.
        variables: The variables to read.
    """
    source = config.data
    return ReadOptions(
        variables=variables,
        inputs=source.inputs,
        select=assignments("select", source.select),
        coords=source.coords,
        periodic=source.periodic,
    )


def open_like(path: Path, config: RunConfig, task: Task) -> Trajectories | StaticMaps:
    """Returns another file, read as the data of a run were, with the forcings of the run.

    Args:
        path: The file.
        config: The run.
        task: What its model predicts.
    """
    # Of static maps, the reader itself tells inputs from outputs.
    variables = config.data.var if task.lead == 0 else task.fields
    reserve = Path(config.data.data) if isinstance(config.data.data, str) else None
    try:
        return open_with_forcings(
            path, read_options(config, variables), config.forcings, reserve=reserve
        )
    except DataError:
        # New parameters come without fields: their sites are those of the run.
        maps = read_data(config) if config.data.inputs else None
        if not isinstance(maps, StaticMaps):
            raise
        found = maps_of_numbers(path, config.data.inputs, maps)
        if found is None:
            raise
        return found


def read_other(path: Path, config: RunConfig, task: Task) -> Trajectories | StaticMaps:
    """Returns another file, read and coarsened as the data of a run were.

    Args:
        path: The file.
        config: The run.
        task: What its model predicts.
    """
    return coarsen(open_like(path, config, task), config.data.coarsen)


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
