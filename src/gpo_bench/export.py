"""How fast a trained model answers on sites that never change, in every form it can be given.

Models have the sizes that runs have by default, and random weights: what they take does not
depend on what they learned. Every form has a process of its own, with one thread.
"""

import os
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gpo.exporting.program import export_program, write_program
from gpo.forecast.fixed import FixedForecaster
from gpo.forecast.forecaster import Forecaster
from gpo.model.problem import Problem
from gpo.numerics.domain import Domain
from gpo.training.config import RunConfig
from gpo.training.setup import new_model
from gpo_bench.cost import TASK, Row, in_new_process, three_digits
from gpo_bench.table import Entry, Table

Predict = Callable[[Tensor], Tensor]

GRIDS: dict[str, tuple[Domain, tuple[int, int]]] = {
    "64×64, periodic (ns2d)": (Domain.unit_box(2, periodic=True), (64, 64)),
    "181×360, sphere (era5 at 1°)": (Domain.sphere(), (181, 360)),
}
MAX_SECONDS = 2.0
"""After so many seconds of the same, and two calls, a time is taken as known."""


@dataclass(frozen=True)
class InferenceCase:
    """A model and the grid it predicts on; can be sent to another process."""

    model: str
    """A row of ours: gpo or gpo-paper."""
    domain: Domain
    grid_shape: tuple[int, ...]

    def forecaster(self) -> Forecaster:
        """Returns a model as a run builds it, with weights that are the same every time."""
        torch.manual_seed(0)
        problem = Problem(1, 1, self.domain, self.grid_shape)
        model = new_model(RunConfig.of(model=self.model), problem)
        return Forecaster(model, TASK).eval()

    def eager(self) -> Predict:
        """Returns the forecaster as it is, which takes the sites in every call."""
        forecaster, (coords, weights) = self.forecaster(), self.domain.grid(*self.grid_shape)
        return lambda frames: forecaster(frames, coords, weights=weights)

    def fixed(self) -> FixedForecaster:
        """Returns it with its sites fixed."""
        coords, weights = self.domain.grid(*self.grid_shape)
        return FixedForecaster(self.forecaster(), coords, weights=weights).eval()

    def program(self) -> Predict:
        """Returns what a `.pt2` file gives."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "program.pt2"
            write_program(path, export_program(self.fixed()), {})
            return torch.export.load(path).module()

    def compiled(self) -> Predict:
        """Returns what torch.compile makes of the program, for every batch size anew."""
        import torch._inductor.config as inductor

        # What an earlier run compiled would hide what compiling takes.
        inductor.compile_threads, inductor.force_disable_caches = 1, True
        warnings.filterwarnings("ignore", "dynamo_pgo force disabled")
        return torch.compile(export_program(self.fixed()).module(), dynamic=False)

    def onnx(self) -> Predict:
        """Returns what an `.onnx` file gives in onnxruntime."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "program.onnx"
            write_program(path, export_program(self.fixed()), {})
            session = onnxruntime.InferenceSession(path, options)
        return lambda frames: torch.from_numpy(session.run(None, {"frames": frames.numpy()})[0])


FORMS: dict[str, Callable[[InferenceCase], Predict]] = {
    "eager": InferenceCase.eager,
    "fixed sites, eager": InferenceCase.fixed,
    "torch.export (.pt2)": InferenceCase.program,
    "torch.compile": InferenceCase.compiled,
    "onnxruntime (.onnx)": InferenceCase.onnx,
}


@dataclass(frozen=True)
class Speed:
    """What one form of a model takes; None where it was not measured, for the reason in `note`."""

    seconds: tuple[float, ...] | None = None
    """CPU seconds of a call, by batch size."""
    start_seconds: float | None = None
    """CPU seconds until all batch sizes were answered once: solving, tracing, compiling."""
    difference: float | None = None
    """Largest difference from eager, relative to the largest answer."""
    note: str = ""

    def beside(self, other: "Speed") -> "Speed":
        """Returns one speed of a form measured twice: the shorter times, the larger difference."""
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
    forms: Sequence[str] = tuple(FORMS),
    *,
    batch_sizes: tuple[int, ...] = (1, 16),
    repeats: int = 2,
    on_progress: Callable[[str], None] = lambda _: None,
) -> tuple[list[Table], list[Row]]:
    """Returns a table for every model and grid, and the rows in them.

    Args:
        models: Rows of ours.
        grids: Domain and shape of the grids, by name.
        forms: Names of `FORMS`; the first is what the others are compared with.
        batch_sizes: Samples in a call.
        repeats: Rounds over all forms.
        on_progress: Called with what is measured next.
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
                    speed = _measured(InferenceCase(model, *domain_and_shape), form, batch_sizes)
                    speeds[key] = speeds[key].beside(speed) if key in speeds else speed
    rows = [
        {"grid": grid, "model": model, "form": form, "batch_sizes": batch_sizes, **asdict(speed)}
        for (grid, model, form), speed in speeds.items()
    ]
    return [export_table(rows, grid, model) for grid in grids for model in models], rows


def export_table(rows: Sequence[Row], grid: str, model: str) -> Table:
    """Returns the table of one model on one grid, with multiples of its first row."""
    rows = [row for row in rows if (row["grid"], row["model"]) == (grid, model)]
    columns: list[str] = []
    for size in rows[0]["batch_sizes"]:
        columns += [f"batch {size}, ms", f"batch {size}, × {rows[0]['form']}"]
    others = ["until first answers, s", "largest difference"]
    ratios = [name for name in columns if "×" in name]
    title = f"Inference of {model} at {grid}"
    table = Table(title, "form", [*columns, *others], unranked=frozenset([*ratios, *others]))
    for row in rows:
        entries: list[Entry] = []
        for number in range(len(row["batch_sizes"])):
            mine, first = (
                None if one["seconds"] is None else one["seconds"][number] for one in (row, rows[0])
            )
            entries.append(Entry(three_digits(None if mine is None else 1000 * mine)))
            entries.append(Entry(None if mine is None or first is None else mine / first))
        entries += [Entry(three_digits(row["start_seconds"])), Entry(row["difference"], digits=2)]
        entries[0] = replace(entries[0], note=row["note"])
        table.add(row["form"], entries)
    table.notes += [
        "CPU time of one thread for one call, the smallest of all repeats. Until first answers: CPU "
        "seconds to solve, trace, compile, write and load, and to answer every batch size once. "
        "Largest difference: from the first row, relative to its largest answer.",
    ]
    return table


def versions() -> str:
    """Returns a line on packages that only exported programs need."""
    names = ("onnx", "onnxscript", "onnxruntime")
    return ", ".join(f"{name} {version(name)}" for name in names)


def _measured(case: InferenceCase, form: str, batch_sizes: tuple[int, ...]) -> Speed:
    try:
        return in_new_process(_measure_here, (case, form, batch_sizes))
    except Exception as error:  # A form that fails is reported; the others go on.
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
        predict = FORMS[form](case)
        for frames in batches:
            predict(frames)
        start_seconds = _cpu_seconds() - start
        seconds = tuple(_shortest(predict, frames) for frames in batches)
        smallest = batches[0]
        expected = case.eager()(smallest)
        difference = (predict(smallest) - expected).abs().max() / expected.abs().max()
    return Speed(seconds, start_seconds, float(difference))


def _shortest(predict: Predict, frames: Tensor) -> float:
    seconds: list[float] = []
    while len(seconds) < 2 or (sum(seconds) < MAX_SECONDS and len(seconds) < 20):
        start = time.process_time()
        predict(frames)
        seconds.append(time.process_time() - start)
    return min(seconds)


def _cpu_seconds() -> float:
    """Returns what this process and its children, such as a compiler, have used."""
    used: Any = os.times()
    return used.user + used.system + used.children_user + used.children_system
