"""`gpo predict`: forecasts from the last frames of a file, or static maps, anywhere."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track
from tyro.conf import Positional

from gpo.atomic_files import unwinds_on_sigterm
from gpo.cli.console import say
from gpo.data.coarsen import coarsen
from gpo.data.dataset import StaticMaps, Trajectories
from gpo.data.geometry import Geometry
from gpo.data.precision import precision_notes
from gpo.data.query_points import (
    QueryPoints,
    block_shape,
    blocks,
    read_query_points,
    regular_query_points,
)
from gpo.data.writers.layout import AbstractForecastWriter
from gpo.data.writers.netcdf import new_forecast_file
from gpo.data.writers.table import new_table
from gpo.data.writers.zarr import ForecastStore
from gpo.forecast.compatibility import as_trained, frame_at
from gpo.forecast.forecaster import Forecaster
from gpo.forecast.predict import Forecasts
from gpo.forecast.queries import MAX_QUERIES
from gpo.runs import check_task, open_like
from gpo.training.run_folder import Run

SUFFIXES = (".nc", ".nc4", ".cdf", ".csv", ".zarr")


@dataclass(frozen=True, kw_only=True)
class PredictCommand:
    """Continues a time series, or maps fields, with a trained run; writes NetCDF, Zarr or CSV."""

    folder: Positional[Path]
    """A run folder."""
    input: Path
    """File with the variables of the run; a time series ends where the forecast shall begin."""
    output: Path
    """NetCDF file NAME.nc, table NAME.csv, or Zarr store NAME.zarr, which the same command continues after a kill; one that is there is not overwritten."""
    steps: int = 1
    """Forecasts to make, each a lead after the one before."""
    start: str | None = None
    """Date of the frame to start from, such as 2019-03-01T06:00, or its time where frames have no dates; the last frame when not given."""
    queries: Path | None = None
    """Points to predict at, one per row: x y z, or longitude latitude; text or .npy."""
    grid: tuple[int, ...] = ()
    """Sites along each axis of a regular grid to predict at, such as 128 256."""
    chunk_size: int = MAX_QUERIES
    """Points that are answered and written at a time; less needs less memory."""

    def run(self) -> None:
        """Reads, predicts, writes."""
        if self.output.exists():
            raise ValueError(f"{self.output} exists. Choose another --output.")
        for name, value in (("steps", self.steps), ("chunk-size", self.chunk_size)):
            if value < 1:
                raise ValueError(f"--{name} must be at least 1, got {value}.")
        if self.queries and self.grid:
            raise ValueError("Give either --queries or --grid, not both.")
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
                unwinds_on_sigterm() as check_signal,
                new_file(self.output, forecasts.layout) as writer,
            ):
                self._write(forecasts, writer, check_signal)
        say(f"forecast: {self.output}")

    def _forecasts(self, run: Run) -> Forecasts:
        forecaster = Forecaster.load(run.trained_model()).eval()
        task, trained_on = forecaster.task, run.config()
        data, notes = as_trained(open_like(self.input, trained_on, task), task.trained_on)
        for note in (*notes, *precision_notes(data)):
            say(note)
        check_task(run, trained_on, data, task)
        data = with_sites_of_training(data, forecaster, trained_on.data.coarsen)
        places = self._places(data.geometry())
        if isinstance(data, StaticMaps):
            if self.start is not None:
                raise ValueError(f"--start needs a time series; {self.input} holds static maps.")
            return Forecasts(forecaster, data, 1, places)
        if task.lead == 0:
            raise ValueError(f"{self.folder} does not forecast: there is nothing to continue.")
        start = -1 if self.start is None else frame_at(data, self.start)
        return Forecasts(forecaster, data, self.steps, places, start)

    def _places(self, geometry: Geometry) -> QueryPoints | None:
        if self.queries:
            return read_query_points(self.queries, geometry)
        return regular_query_points(self.grid, geometry) if self.grid else None

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
        """Returns all that decides the numbers of a forecast."""
        return {
            "run": _digest([*sorted(self.folder.glob("model/*")), self.folder / "config.yaml"]),
            "input": _identity(self.input),
            "steps": forecasts.num_steps,
            "start": forecasts.start,
            "places": _digest_places(forecasts.places),
            "chunk size": list(self._block(forecasts)),
            "version of gpo": version("gpo"),
        }

    def _store(self, forecasts: Forecasts) -> None:
        block, settings = self._block(forecasts), self._settings(forecasts)
        with unwinds_on_sigterm() as check_signal:
            store = ForecastStore(self.output, forecasts.layout, block, settings)
            if store.num_done:
                say(f"goes on in {store.folder}, where {store.num_done} chunks are done")
            try:
                self._write(forecasts, store, check_signal)
            except (KeyboardInterrupt, SystemExit):
                done = f"{store.num_done} finished chunks are kept in {store.folder}"
                say(f"interrupted: {done}; the same command goes on from there")
                raise
            store.finish()


def with_sites_of_training(
    data: Trajectories | StaticMaps, forecaster: Forecaster, factor: int
) -> Trajectories | StaticMaps:
    """Returns data on every n-th site, as in training, where the model takes that grid only.

    Args:
        data: What the file holds.
        forecaster: The trained model.
        factor: Every how many sites along each axis were trained on.
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
    """Returns what tells an input file from another, or from itself before it was changed."""
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    found = [file.stat() for file in files]
    size, changed = sum(one.st_size for one in found), max(one.st_mtime_ns for one in found)
    return [str(path.resolve()), size, changed]


def _digest_places(places: QueryPoints | None) -> str:
    if places is None:
        return "sites"
    digest = hashlib.sha256(repr((places.dims, places.shape)).encode())
    for numbers in places.numbers:
        for (part,) in blocks(numbers.shape, (2**20,)):
            digest.update(np.ascontiguousarray(numbers[part]).tobytes())
    return digest.hexdigest()
