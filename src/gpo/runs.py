"""Opens a run folder together with its data."""

import os
import time
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from gpo.data.benchmarks import DATA_SETS, cache_folder, solver_for
from gpo.data.coarsen import coarsen
from gpo.data.dataset import DataError, FieldData
from gpo.data.generate import generate
from gpo.data.inputs import open_with_forcings
from gpo.data.masks import with_mask
from gpo.data.readers.base import ReadOptions
from gpo.data.readers.registry import maps_from_parameters
from gpo.data.splits import Split
from gpo.forecast.forecaster import Forecaster, Task
from gpo.parallel.processes import global_rank
from gpo.settings_files import assignments
from gpo.training.config import RunConfig
from gpo.training.run_folder import Run
from gpo.training.setup import split_of


@dataclass(frozen=True, repr=False)
class OpenRun:
    """A run folder with its configuration, its data and their split."""

    folder: Run
    config: RunConfig
    data: FieldData
    split: Split
    trained: Forecaster | None = None
    """The trained model, where it is in memory already."""

    def __repr__(self) -> str:
        return f"OpenRun({self.folder.folder}: {self.data}, {self.split})"

    def forecaster(self) -> Forecaster:
        """Returns the trained model; raises an error if it is missing or of another task."""
        return self._forecaster

    @cached_property
    def _forecaster(self) -> Forecaster:
        forecaster = self.trained or Forecaster.load(self.folder.trained_model())
        check_task(self.folder, self.config, self.data, forecaster.task)
        return forecaster


def check_task(folder: Run, config: RunConfig, data: FieldData, learned: Task) -> None:
    """Raises an error if a configuration differs from the task of its model."""
    task = config.task
    if task.phase == "field" or not data.has_time:
        return
    names = tuple(variable.name for variable in data.forcings)
    pairs = {"forcings": (", ".join(names) or "none", ", ".join(learned.forcings) or "none")}
    for name in ("history", "lead", "predict"):
        pairs[f"task.{name}"] = getattr(task, name), getattr(learned, name)
    for name, (configured, expected) in pairs.items():
        if configured != expected:
            raise ValueError(
                f"{folder.config_file}: field `{name}` must be {expected}, as in the trained model, got "
                f"{configured}. Correct it, or train another run."
            )


def open_run(path: str | Path) -> OpenRun:
    """Returns an existing run folder and its data.

    Args:
        path: The folder, written by `train` or `gpo run`.
    """
    folder = Run(Path(path))
    config = folder.config()
    data = read_data(config)
    return OpenRun(folder, config, data, split_of(data, config))


def with_absolute_paths(config: RunConfig) -> RunConfig:
    """Returns a configuration with absolute paths."""
    data, init = config.data.data, config.optimizer.init
    files = tuple(map(_absolute, data)) if isinstance(data, tuple) else data and _absolute(data)
    mask = config.data.mask_from
    paths = {"data": files, "init": init and _absolute(init), "mask_from": mask and _absolute(mask)}
    return config.changed(**{name: path for name, path in paths.items() if path})


def _absolute(path: str) -> str:
    return path if "://" in path else os.path.abspath(path)


def read_data(config: RunConfig, factor: int | None = None) -> FieldData:
    """Returns the data of a run; those of a benchmark are generated unless a file has them.

    Args:
        config: The run.
        factor: Coarsening factor; overrides that of the run.
    """
    source = config.data
    variables, path = source.var, source.data or ""
    if source.benchmark is not None:
        path = path or benchmark_file(source.benchmark, source.preset)
        variables = variables or DATA_SETS[source.benchmark].variables
    options = read_options(config, variables)
    data = open_with_forcings(path, options, config.forcings)
    data = with_mask(data, path, options, source.mask, source.mask_from)
    return coarsen(data, factor or source.coarsen)


def read_options(config: RunConfig, variables: tuple[str, ...]) -> ReadOptions:
    """Returns the options for reading the data of a run, or other files for it.

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
        untrusted=source.untrusted,
    )


def open_other(path: Path, config: RunConfig, task: Task) -> FieldData:
    """Returns the data of another file, read like those of a run, with its forcings.

    Args:
        path: The file.
        config: The run.
        task: The task of its model.
    """
    # For static maps the reader separates inputs and outputs itself.
    variables = config.data.var if task.lead == 0 else task.fields
    reserve = Path(config.data.data) if isinstance(config.data.data, str) else None
    options = replace(read_options(config, variables), takes_frames=task.lead > 0)
    try:
        data = open_with_forcings(path, options, config.forcings, reserve=reserve)
        return with_mask(data, path, options, config.data.mask, config.data.mask_from)
    except DataError:
        # A file with scalars only has no points: those of the run are used.
        maps = read_data(config) if config.data.inputs else None
        if maps is None:
            raise
        scalar_maps = maps_from_parameters(
            path, config.data.inputs, maps, untrusted=config.data.untrusted
        )
        if scalar_maps is None:
            raise
        return scalar_maps


def open_other_coarsened(path: Path, config: RunConfig, task: Task) -> FieldData:
    """Returns the data of another file, read and coarsened like those of a run.

    Args:
        path: The file.
        config: The run.
        task: The task of its model.
    """
    return coarsen(open_other(path, config, task), config.data.coarsen)


def benchmark_file(benchmark: str, preset: str) -> Path:
    """Returns the data file of a benchmark; the first process generates it, others wait."""
    path = benchmark_path(benchmark, preset)
    if global_rank() == 0:
        generate(solver_for(benchmark, preset, {}), path)
    while not path.exists():
        time.sleep(0.5)
    return path


def benchmark_path(benchmark: str, preset: str) -> Path:
    """Returns the path of the data file of a benchmark."""
    return cache_folder() / f"{benchmark}-{preset}{solver_for(benchmark, preset, {}).suffix}"
