"""Inference time of a model on fixed sites: eager, exported, compiled and in onnxruntime.

Models have the default sizes of a run and random weights, which do not affect the time. Each
backend runs in a new process with one thread.
"""

import os
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path

import torch
from torch import Tensor

from gpo.exporting.program import export_program, write_program
from gpo.forecast.fixed import FixedForecaster
from gpo.forecast.forecaster import Forecaster
from gpo.model.problem import Problem
from gpo.numerics.domain import Domain
from gpo.training.config import RunConfig
from gpo.training.setup import new_model
from gpo_bench.cost import Row, in_new_process, make_task, round_large, shortest_time
from gpo_bench.table import Entry, Table

Predict = Callable[[Tensor], Tensor]

GRIDS: dict[str, tuple[Domain, tuple[int, int]]] = {
    "64×64, periodic (ns2d)": (Domain.unit_box(2, periodic=True), (64, 64)),
    "181×360, sphere (era5 at 1°)": (Domain.sphere(), (181, 360)),
}
"""Domain and shape of the grids, by name."""


@dataclass(frozen=True)
class InferenceCase:
    """A model and its grid; can be sent to another process."""

    model: str
    """gpo or gpo-paper."""
    domain: Domain
    """Domain of the grid."""
    grid_shape: tuple[int, ...]
    """Number of sites along each axis."""

    def forecaster(self) -> Forecaster:
        """Returns a forecaster with the default sizes of a run and weights of a fixed seed."""
        torch.manual_seed(0)
        problem = Problem(1, 1, self.domain, self.grid_shape)
        model = new_model(RunConfig.of(model=self.model), problem)
        return Forecaster(model, make_task()).eval()

    def eager(self) -> Predict:
        """Returns the forecaster itself, whose calls include the sites."""
        forecaster, (coords, weights) = self.forecaster(), self.domain.grid(*self.grid_shape)
        return lambda frames: forecaster(frames, coords, weights=weights)

    def fixed(self) -> FixedForecaster:
        """Returns the forecaster with fixed sites."""
        coords, weights = self.domain.grid(*self.grid_shape)
        return FixedForecaster(self.forecaster(), coords, weights=weights).eval()

    def program(self) -> Predict:
        """Returns the program of a `.pt2` file."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "program.pt2"
            write_program(path, export_program(self.fixed()), {})
            return torch.export.load(path).module()

    def compiled(self) -> Predict:
        """Returns the program compiled by torch.compile, separately for each batch size."""
        import torch._inductor.config as inductor

        # A cache of earlier runs would hide the time of compilation.
        inductor.compile_threads, inductor.force_disable_caches = 1, True
        warnings.filterwarnings("ignore", "dynamo_pgo force disabled")
        return torch.compile(export_program(self.fixed()).module(), dynamic=False)

    def onnx(self) -> Predict:
        """Returns the program of an `.onnx` file in onnxruntime."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "program.onnx"
            write_program(path, export_program(self.fixed()), {})
            session = onnxruntime.InferenceSession(path, options)
        return lambda frames: torch.from_numpy(session.run(None, {"frames": frames.numpy()})[0])


BACKENDS: dict[str, Callable[[InferenceCase], Predict]] = {
    "eager": InferenceCase.eager,
    "fixed sites, eager": InferenceCase.fixed,
    "torch.export (.pt2)": InferenceCase.program,
    "torch.compile": InferenceCase.compiled,
    "onnxruntime (.onnx)": InferenceCase.onnx,
}


@dataclass(frozen=True)
class Speed:
    """Times of a backend; None where they were not measured, for the reason in `note`."""

    seconds: tuple[float, ...] | None = None
    """CPU seconds of a call, by batch size."""
    start_seconds: float | None = None
    """CPU seconds of preparation and of the first call of each batch size."""
    difference: float | None = None
    """Largest difference from the eager output, relative to its largest value."""
    note: str = ""
    """Reason why a backend was not measured."""

    def combine(self, other: "Speed") -> "Speed":
        """Returns the shorter times and the larger difference of two measurements."""
        if self.seconds is None or other.seconds is None:
            return self if self.seconds is None else other
        pairs = zip(self.seconds, other.seconds, strict=True)
        return replace(
            self,
            seconds=tuple(min(pair) for pair in pairs),
            start_seconds=min(self.start_seconds or 0.0, other.start_seconds or 0.0),
            difference=max(self.difference or 0.0, other.difference or 0.0),
        )


def measure_export(
    models: Sequence[str] = ("gpo", "gpo-paper"),
    grids: dict[str, tuple[Domain, tuple[int, int]]] = GRIDS,
    forms: Sequence[str] = tuple(BACKENDS),
    *,
    batch_sizes: tuple[int, ...] = (1, 16),
    repeats: int = 2,
    on_progress: Callable[[str], None] = lambda _: None,
) -> tuple[list[Table], list[Row]]:
    """Returns a table per model and grid, and the rows of all tables.

    Args:
        models: gpo, gpo-paper or both.
        grids: Domain and shape of the grids, by name.
        forms: Names of `BACKENDS`; ratios refer to the first.
        batch_sizes: Numbers of samples in a call.
        repeats: Number of rounds over all backends.
        on_progress: Called with a message before each measurement.
    """
    if repeats < 1:
        raise ValueError(f"`repeats` must be at least 1, got {repeats}.")
    speeds: dict[tuple[str, str, str], Speed] = {}
    for number in range(1, repeats + 1):
        for grid, domain_and_shape in grids.items():
            for model in models:
                for form in forms:
                    key = grid, model, form
                    if key in speeds and speeds[key].note:
                        continue
                    on_progress(f"round {number} of {repeats}: {model} at {grid}: {form}")
                    speed = _measure(InferenceCase(model, *domain_and_shape), form, batch_sizes)
                    speeds[key] = speeds[key].combine(speed) if key in speeds else speed
    rows = [
        {"grid": grid, "model": model, "form": form, "batch_sizes": batch_sizes, **asdict(speed)}
        for (grid, model, form), speed in speeds.items()
    ]
    return [export_table(rows, grid, model) for grid in grids for model in models], rows


def export_table(rows: Sequence[Row], grid: str, model: str) -> Table:
    """Returns the table of one model on one grid, with ratios to its first row."""
    rows = [row for row in rows if (row["grid"], row["model"]) == (grid, model)]
    columns: list[str] = []
    for size in rows[0]["batch_sizes"]:
        columns += [f"batch {size}, ms", f"batch {size}, × {rows[0]['form']}"]
    others = ["preparation, s", "largest difference"]
    ratios = [name for name in columns if "×" in name]
    title = f"Inference of {model} at {grid}"
    table = Table(title, "backend", [*columns, *others], unranked=frozenset([*ratios, *others]))
    for row in rows:
        entries: list[Entry] = []
        unmeasured = (None,) * len(row["batch_sizes"])
        times = zip(row["seconds"] or unmeasured, rows[0]["seconds"] or unmeasured, strict=True)
        for seconds, first in times:
            entries.append(Entry(round_large(None if seconds is None else 1000 * seconds)))
            entries.append(Entry(None if seconds is None or first is None else seconds / first))
        entries += [Entry(round_large(row["start_seconds"])), Entry(row["difference"], digits=2)]
        entries[0] = replace(entries[0], note=row["note"])
        table.add(row["form"], entries)
    table.notes += [
        "CPU time of one thread for one call, the shortest of all repeats. Preparation: CPU seconds "
        "to solve, trace, compile, write and load, and for the first call of each batch size. "
        "Largest difference: from the first row, relative to its largest value.",
    ]
    return table


def versions() -> str:
    """Returns a note on the versions of the ONNX packages."""
    names = ("onnx", "onnxscript", "onnxruntime")
    return ", ".join(f"{name} {version(name)}" for name in names)


def _measure(case: InferenceCase, form: str, batch_sizes: tuple[int, ...]) -> Speed:
    try:
        return in_new_process(_measure_here, (case, form, batch_sizes))
    except Exception as error:  # A failure is reported, so that other backends can be measured.
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return Speed(note=f"failed: {lines[0]}")


def _measure_here(task: tuple[InferenceCase, str, tuple[int, ...]]) -> Speed:
    case, form, batch_sizes = task
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(1)
    sites = case.domain.grid(*case.grid_shape)[0]
    batches = [torch.randn(n, 1, len(sites), 1, generator=generator) for n in batch_sizes]
    with torch.no_grad():
        start = _cpu_seconds()
        predict = BACKENDS[form](case)
        for frames in batches:
            predict(frames)
        start_seconds = _cpu_seconds() - start
        seconds = tuple(shortest_time(partial(predict, frames), max_steps=20) for frames in batches)
        smallest = batches[0]
        expected = case.eager()(smallest)
        difference = (predict(smallest) - expected).abs().max() / expected.abs().max()
    return Speed(seconds, start_seconds, float(difference))


def _cpu_seconds() -> float:
    """Returns the CPU time of this process and of its children, such as a compiler."""
    return sum(os.times()[:4])
