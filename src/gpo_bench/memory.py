"""Memory and time of a training step on the grids of the paper's benchmarks, and the batch that fits.

Batches are doubled until the next one would exceed the memory, or the largest batch; every number is
measured, in a new process with one thread. A measurement is stored when it is made, and a repeated
command makes only those that are missing.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from gpo.model.config import PaperConfig
from gpo.model.model import build_model
from gpo.model.presets import PRESETS
from gpo.model.problem import Problem
from gpo_bench.cost import MEGABYTE, Device, Row, Workload, measure_cost, round_large
from gpo_bench.protocol import MODELS
from gpo_bench.table import Entry, Table

GRIDS: dict[str, tuple[int, ...]] = {
    "era5-temp": (721, 1440),
    "carra": (989, 789),
    "planetswe": (256, 512),
    "turbulent": (384, 128),
    "ns3d": (64, 64, 64),
}
"""Sites along every axis, by benchmark; era5-wind is as era5-temp."""


def workload_of(
    benchmark: str, model: str, batch_size: int, device: Device, shape: tuple[int, ...] = ()
) -> Workload:
    """Returns the training step of a model on the grid of a benchmark.

    Args:
        benchmark: A name of `GRIDS`; gpo-paper has its sizes, other models their defaults.
        model: A name of `MODELS`.
        batch_size: Samples in a step.
        device: Device of the model.
        shape: Another grid.
    """
    problem, config = PRESETS[benchmark]
    shape = shape or GRIDS[benchmark]
    sizes: PaperConfig | None = config if model == "gpo-paper" else None
    placed = Problem(problem.in_channels, problem.out_channels, problem.domain, shape)
    return Workload(
        build=partial(build_model, model, placed, sizes), grid_shape=shape,
        channels=problem.in_channels, batch_size=batch_size, device=device, domain=problem.domain,
    )  # fmt: skip


def measure_memory(
    benchmarks: Sequence[str],
    models: Sequence[str],
    store: Path,
    *,
    memory: float = 8.0,
    max_batch: int = 16,
    device: Device = "cpu",
    shape: tuple[int, ...] = (),
    on_progress: Callable[[str], None] = lambda _: None,
) -> tuple[Table, list[Row]]:
    """Returns a table with a row for each benchmark and model, and its measurements.

    Args:
        benchmarks: Names of `GRIDS`.
        models: Names of `MODELS`.
        store: File of the measurements, one per line, which may have some already.
        memory: Memory of the device in gigabytes.
        max_batch: Largest batch.
        device: Device of the models.
        shape: Another grid, the same for all.
        on_progress: Called with a message before each measurement.
    """
    for flag, names, choices in (("benchmarks", benchmarks, GRIDS), ("models", models, MODELS)):
        for name in names:
            if name not in choices:
                raise ValueError(f"--{flag} must be among {', '.join(choices)}, got {name!r}.")
    store.parent.mkdir(parents=True, exist_ok=True)
    lines = store.read_text(encoding="utf-8").splitlines() if store.exists() else []
    rows: list[Row] = [json.loads(line) for line in lines]
    chosen: list[list[Row]] = []
    for benchmark in benchmarks:
        for model in models:
            series: list[Row] = []
            batch = 1
            while batch <= max_batch:
                grid = list(shape or GRIDS[benchmark])
                key: Row = {"benchmark": benchmark, "model": model, "grid_shape": grid, "batch_size": batch, "device": device}  # fmt: skip
                row = next((row for row in rows if key.items() <= row.items()), None)
                if row is None:
                    on_progress(f"{model} on {benchmark}, batch {batch}")
                    cost = measure_cost(workload_of(benchmark, model, batch, device, shape))
                    row = {**key, **asdict(cost)}
                    with store.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(row) + "\n")
                series.append(row)
                # Twice the batch takes at most twice the memory.
                if row["training_bytes"] is None or 2 * row["training_bytes"] > memory * 2**30:
                    break
                batch *= 2
            chosen.append(series)
    return memory_table(chosen, memory, max_batch), [row for series in chosen for row in series]


def memory_table(chosen: Sequence[Sequence[Row]], memory: float, max_batch: int) -> Table:
    """Returns parameters, memory and time with one sample, and with the batch that fits."""
    unit = "CPU s" if chosen[0][0]["device"] == "cpu" else "s"
    step = f"step, {unit}"
    columns = ("parameters", "memory, MB", step, "batch that fits", "its memory, MB", f"its {step}")
    title = "A training step on the grids of the paper"
    table = Table(title, "benchmark and model", columns, best="none")
    for series in chosen:
        first = series[0]
        fitting = [row for row in series if (row["training_bytes"] or 2**62) <= memory * 2**30]
        entries = [Entry(first["parameters"]), *_measured(first)]
        if fitting:
            entries += [Entry(fitting[-1]["batch_size"]), *_measured(fitting[-1])]
        else:
            reason = first["note"] or f"one sample takes more than {memory:g} GB"
            entries += [Entry(note=reason), Entry(), Entry()]
        sites = "×".join(map(str, first["grid_shape"]))
        table.add(f"{first['benchmark']} {sites}, {first['model']}", entries)
    table.notes.append(
        "gpo-paper has the paper's sizes of each benchmark, other models their defaults. Memory is "
        "the peak of a training step (forward, backward, AdamW) without model and batch. The batch "
        f"is doubled while twice its memory is at most {memory:g} GB, up to {max_batch}; "
        "larger ones were not measured."
    )
    measured = {(series[0]["benchmark"], series[0]["model"]) for series in chosen}
    models = dict.fromkeys(model for _, model in sorted(measured))
    missing = [f"{name} {model}" for name in GRIDS for model in models if (name, model) not in measured]  # fmt: skip
    if missing:
        table.notes.append(f"Not measured: {', '.join(missing)}.")
    return table


def _measured(row: Row) -> list[Entry]:
    """Returns memory and time of a row."""
    size = row["training_bytes"]
    if size is None:
        return [Entry(note=row["note"]), Entry()]
    return [Entry(round_large(size / MEGABYTE)), Entry(row["training_seconds"])]
