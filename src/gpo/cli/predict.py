"""`gpo predict`: forecasts a time series, or applies static maps, at sites or query points."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from rich.progress import track
from tyro.conf import Positional, arg

from gpo.atomic_files import cleans_up_on_sigterm
from gpo.cli.console import say
from gpo.cli.query_flags import QueryFile, QueryGrid, check_query_flags, read_query_flags
from gpo.data.coarsen import coarsen
from gpo.data.dataset import FieldData
from gpo.data.precision import precision_notes
from gpo.data.query_points import QueryPoints, block_shape, blocks
from gpo.data.writers.layout import AbstractForecastWriter
from gpo.data.writers.netcdf import new_forecast_file
from gpo.data.writers.table import new_table
from gpo.data.writers.zarr import ForecastStore
from gpo.forecast.compatibility import convert_to_training_units, frame_at
from gpo.forecast.forecaster import Forecaster
from gpo.forecast.predict import Forecasts
from gpo.forecast.queries import MAX_QUERIES
from gpo.forecast.resolution import with_means_at
from gpo.runs import check_task, open_other
from gpo.training.run_folder import Run

SUFFIXES = (".nc", ".nc4", ".cdf", ".csv", ".zarr")


@dataclass(frozen=True, kw_only=True)
class PredictCommand:
    """Forecasts a time series, or maps fields, with a trained run; writes NetCDF, Zarr or CSV."""

    folder: Positional[Path]
    """Run folder."""
    input: Path
    """File with the input variables; forecasts start from its last frame."""
    output: Path
    """New file: NetCDF .nc, table .csv, or Zarr store .zarr, which resumes after an interruption."""
    steps: int = 1
    """Number of autoregressive steps, each of the trained lead time."""
    start: Annotated[str | None, arg(metavar="DATE", help_behavior_hint="(default: last)")] = None
    """Date (or time) of the frame to start from, such as 2019-03-01T06:00."""
    queries: QueryFile = None
    """Query points, one per row (x y z, or longitude latitude), as text or .npy."""
    grid: QueryGrid = ()
    """Points per axis of a regular grid of queries, such as 128 256."""
    chunk_size: int = MAX_QUERIES
    """Number of points predicted at a time; fewer need less memory."""
    untrusted: bool = False
    """Read the input in a child process with limits on memory and time."""

    def run(self) -> None:
        """Reads the input, predicts and writes the forecast."""
        if self.output.exists():
            raise ValueError(f"{self.output} exists. Choose another --output.")
        for name, value in (("steps", self.steps), ("chunk-size", self.chunk_size)):
            if value < 1:
                raise ValueError(f"--{name} must be at least 1, got {value}.")
        check_query_flags(self.queries, self.grid)
        if self.output.suffix not in SUFFIXES:
            raise ValueError(
                f"--output must be NetCDF, a table or Zarr, named {', '.join(SUFFIXES)}, got "
                f"{self.output.name}."
            )
        forecasts = self._forecasts(Run(self.folder))
        if self.output.suffix == ".zarr":
            self._store(forecasts)
        else:
            new_file = new_table if self.output.suffix == ".csv" else new_forecast_file
            with (
                cleans_up_on_sigterm() as check_signal,
                new_file(self.output, forecasts.layout) as writer,
            ):
                self._write(forecasts, writer, check_signal)
        say(f"forecast: {self.output}")

    def _forecasts(self, run: Run) -> Forecasts:
        forecaster = Forecaster.load(run.trained_model()).eval()
        task, trained_on = forecaster.task, run.config()
        if self.untrusted:
            trained_on = trained_on.changed(untrusted=True)
        data, notes = convert_to_training_units(
            open_other(self.input, trained_on, task), task.trained_on
        )
        for note in (*notes, *precision_notes(data)):
            say(note)
        check_task(run, trained_on, data, task)
        data = with_sites_of_training(data, forecaster, trained_on.data.coarsen)
        forecaster = with_means_at(forecaster, data.geometry())
        queries = read_query_flags(self.queries, self.grid, data.geometry())
        if forecaster.reconstructs:
            raise ValueError(
                f"{self.folder} holds a reconstruction (lead 0), which cannot forecast."
            )
        if self.start is not None and task.lead == 0:
            raise ValueError(f"--start needs a time series; {self.input} holds static maps.")
        start = -1 if self.start is None else frame_at(data, self.start)
        return Forecasts(forecaster, data, self.steps if task.lead else 1, queries, start)

    def _block(self, forecasts: Forecasts) -> tuple[int, ...]:
        return block_shape(forecasts.layout.points.shape, self.chunk_size)

    def _write(
        self,
        forecasts: Forecasts,
        writer: AbstractForecastWriter,
        check_signal: Callable[[], None],
    ) -> None:
        layout = forecasts.layout
        parts = blocks(layout.points.shape, self._block(forecasts))
        total = layout.num_cases * layout.num_steps * len(parts) - writer.num_done
        for _ in track(forecasts.write(writer, parts), "predicting", total=total, transient=True):
            check_signal()

    def _settings(self, forecasts: Forecasts) -> dict[str, Any]:
        """Returns everything that determines the forecast; a store resumes only if it is equal."""
        return {
            "run": _digest([*sorted(self.folder.glob("model/*")), self.folder / "config.yaml"]),
            "input": _identity(self.input),
            "steps": forecasts.num_steps,
            "start": forecasts.start,
            "places": _digest_queries(forecasts.places),
            "chunk size": list(self._block(forecasts)),
            "version of gpo": version("gpo"),
        }

    def _store(self, forecasts: Forecasts) -> None:
        block, settings = self._block(forecasts), self._settings(forecasts)
        with cleans_up_on_sigterm() as check_signal:
            store = ForecastStore(self.output, forecasts.layout, block, settings)
            if store.num_done:
                say(f"resuming in {store.folder}: {store.num_done} chunks are finished")
            try:
                self._write(forecasts, store, check_signal)
            except (KeyboardInterrupt, SystemExit):
                done = f"{store.num_done} finished chunks are kept in {store.folder}"
                say(f"interrupted: {done}; run the same command again to resume")
                raise
            store.finish()


def with_sites_of_training(data: FieldData, forecaster: Forecaster, factor: int) -> FieldData:
    """Returns data on every n-th point, as in training, if the model needs that grid.

    Args:
        data: The data of the file.
        forecaster: The trained model.
        factor: `coarsen` of the training data.
    """
    shape = forecaster.model.fixed_shape
    if factor == 1 or not shape or data.geometry().grid_shape == shape:
        return data
    coarse = coarsen(data, factor)
    return coarse if coarse.geometry().grid_shape == shape else data


def _digest(paths: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _identity(path: Path) -> list[Any]:
    """Returns path, size and time of change, which identify the version of an input file."""
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    stats = [file.stat() for file in files]
    size, changed = sum(s.st_size for s in stats), max(s.st_mtime_ns for s in stats)
    return [str(path.resolve()), size, changed]


def _digest_queries(queries: QueryPoints | None) -> str:
    if queries is None:
        return "sites"
    digest = hashlib.sha256(repr((queries.dims, queries.shape)).encode())
    for numbers in queries.numbers:
        for (part,) in blocks(numbers.shape, (2**20,)):
            digest.update(np.ascontiguousarray(numbers[part]).tobytes())
    return digest.hexdigest()
