"""What a million sites take: memory, time per site, bytes between processes, and a roofline.

Run it with `python benchmarks/scale.py`; it writes `results/scale`. Every measurement has a
process of its own with one thread, and all of one run stand beside each other.
"""

import json
import math
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
import tyro
from rich.console import Console
from roofline import Machine, Work

from gpo.model.config import OperatorConfig
from gpo.model.losses import operator_losses
from gpo.model.model import AbstractModel, build_model
from gpo.model.operator import GaussianParticleOperator
from gpo.model.presets import preset
from gpo.model.problem import Problem
from gpo.numerics.domain import Domain
from gpo.numerics.norms import relative_l2
from gpo.parallel.shard import DistributedShard
from gpo_bench.baselines.transolver import TransolverConfig
from gpo_bench.cost import MEGABYTE, Row, Workload, in_new_process, measure_cost
from gpo_bench.protocol import describe_machine
from gpo_bench.table import Entry, Table

RESULTS = Path(__file__).parent / "results" / "scale"
GRIDS = ((46, 90), (91, 180), (181, 360), (361, 720), (721, 1440))
"""The globe at 4, 2, 1, 0.5 and 0.25 degrees."""
MOST_BYTES = 16 * 2**30
"""Of address space that a model may have here; the machine has little more memory."""
SPHERE, TORUS = Domain.sphere(), Domain.unit_box(2, periodic=True)

Part = Literal["sites", "step", "bytes"]


def builders(domain: Domain, shape: tuple[int, int]) -> dict[str, Callable[[], AbstractModel]]:
    """The era5 preset, the default model, and Transolver of the same width and depth."""
    problem = Problem(1, 1, domain, shape)
    sizes = TransolverConfig(width=64, num_layers=4, num_heads=4)
    return {
        "gpo-paper": partial(GaussianParticleOperator, *preset("era5-temp")),
        "gpo": partial(build_model, "gpo", problem),
        "transolver": partial(build_model, "transolver", problem, sizes),
    }


def measure_sites(
    say: Callable[[str], None], models: Sequence[str]
) -> tuple[list[Table], list[Row]]:
    """Returns memory and time of a training step against the number of sites, batch 1."""
    rows: list[Row] = []
    for shape in GRIDS:
        for name in models:
            build = builders(SPHERE, shape)[name]
            say(f"{name} at {math.prod(shape):,} sites")
            cost = measure_cost(
                Workload(
                    build=build, grid_shape=shape, batch_size=1, domain=SPHERE,
                    max_bytes=MOST_BYTES,
                )
            )  # fmt: skip
            rows.append({"model": name, "sites": math.prod(shape), **asdict(cost)})
    counts = [math.prod(shape) for shape in GRIDS]
    columns = [f"{count:,} sites" for count in counts]
    memory = Table("Peak memory of a training step, MB", "model", columns)
    speed = Table("Training step, CPU microseconds per site", "model", [*columns, "exponent"])
    for name in models:
        mine = [row for row in rows if row["model"] == name]
        memory.add(name, [_entry(row["training_bytes"], 1 / MEGABYTE, row["note"]) for row in mine])
        times = [_entry(row["training_seconds"], 1e6 / row["sites"], row["note"]) for row in mine]
        known = [row for row in mine if row["training_seconds"] is not None]
        speed.add(name, [*times, Entry(_exponent(known))])
    memory.notes += [
        "Above the interpreter, the model and the batch of one sample: what is kept for the backward "
        "pass, gradients, the state of AdamW and what the allocator holds back. A MB has 2^20 bytes.",
        f"Address space is limited to {MOST_BYTES / 2**30:g} GiB. gpo-paper is the era5 preset "
        "(64/4/4/16); transolver has its width, depth and heads.",
    ]
    speed.notes.append(
        "Exponent: of the number of sites, fitted to the logarithms of all seconds that are known."
    )
    return [memory, speed], rows


def _entry(value: float | None, factor: float, note: str) -> Entry:
    return Entry(None, note=note) if value is None else Entry(value * factor)


def _exponent(rows: list[Row]) -> float | None:
    if len(rows) < 2:
        return None
    sites, seconds = (np.log([row[name] for row in rows]) for name in ("sites", "training_seconds"))
    return float(np.polyfit(sites, seconds, 1)[0])


@dataclass(frozen=True)
class Step:
    """A training step at 64 x 64, batch 16."""

    model: str
    compiles: bool = False

    def build(self) -> AbstractModel:
        """Returns the model with the paper's sizes."""
        sizes = preset("ns2d")[1] if self.model == "gpo-paper" else None
        return build_model(self.model, Problem(1, 1, TORUS, (64, 64)), sizes)


def measure_step(say: Callable[[str], None]) -> tuple[list[Table], list[Row]]:
    """Returns the time of a training step beside the least time that its own work takes."""
    steps = [Step(name) for name in ("gpo-paper", "gpo", "transolver", "galerkin", "fno")]
    steps += [Step("gpo-paper", compiles=True), Step("gpo", compiles=True)]
    rows: list[Row] = []
    for step in steps:
        say(f"{step.model} at 64 x 64, batch 16{', compiled' * step.compiles}")
        try:
            rows.append(in_new_process(_time_step, step))
        except Exception as error:  # What fails is reported; the others go on.
            note = f"failed: {str(error).strip().splitlines()[0]}"
            rows.append({**asdict(step), "note": note})
    ours = next(row["seconds"] for row in rows if row["model"] == "gpo-paper")
    columns = ["parameters", "CPU s", "× gpo-paper", "GFLOP", "GB", "least s", "least / measured",
               "first step, s"]  # fmt: skip
    table = Table("Training step at 64×64, batch 16", "model", columns, best="none")
    for row in rows:
        name = row["model"] + ", torch.compile" * row["compiles"]
        if "seconds" not in row:
            table.add(name, [Entry(None, note=row["note"]), *[Entry()] * (len(columns) - 1)])
            continue
        least = row["least"]
        numbers = [
            row["seconds"], row["seconds"] / ours, _billions(row["flops"]),
            _billions(row["num_bytes"]), least, None if least is None else least / row["seconds"], row["first"],
        ]  # fmt: skip
        table.add(name, [Entry(row["parameters"]), *(Entry(number) for number in numbers)])
    speeds = [
        (row["machine"]["flops"], row["machine"]["bandwidth"]) for row in rows if "machine" in row
    ]
    flops, bandwidth = np.median(np.array(speeds), axis=0)
    table.notes += [
        "Forward, backward and AdamW on one thread, the shortest of at least four. Least: matrix products at "
        f"the {flops / 1e9:.0f} GFLOP/s that one thread reaches here with large matrices, plus the "
        f"bytes that all other operations read and write at {bandwidth / 1e9:.1f} GB/s, both "
        "measured in the process of each row. Of a compiled model the work is not counted.",
        "First step: with all that is compiled or searched for.",
    ]
    return [table], rows


def _billions(number: int | None) -> float | None:
    return None if number is None else number / 1e9


def _time_step(step: Step) -> Row:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    machine, model = Machine.measured(), step.build()
    coords, weights = TORUS.grid(64, 64)
    coords, weights = coords.float(), weights.float()
    values, target = torch.randn(16, 4096, 1), torch.randn(16, 4096, 1)
    optimizer = torch.optim.AdamW(model.parameters(), fused=step.model != "fno")
    forward = torch.compile(model) if step.compiles else model

    def train() -> None:
        optimizer.zero_grad()
        if isinstance(model, GaussianParticleOperator) and not step.compiles:
            loss = operator_losses(model, values, coords, target, weights=weights)["total"]
        else:
            loss = relative_l2(forward(values, coords, weights=weights), target, weights[None])
        loss.backward()
        optimizer.step()

    seconds: list[float] = []
    while len(seconds) < 5 or (sum(seconds[1:]) < 30 and len(seconds) < 20):
        # Compilers work in processes of their own.
        start = time.process_time() + sum(os.times()[2:4])
        train()
        seconds.append(time.process_time() + sum(os.times()[2:4]) - start)
    work = None if step.compiles else Work.of(train)
    return {
        **asdict(step),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "seconds": min(seconds[1:]), "first": seconds[0],
        "flops": work.flops if work else None, "num_bytes": work.num_bytes if work else None,
        "least": work.seconds(machine) if work else None, "machine": asdict(machine),
    }  # fmt: skip


def measure_bytes(say: Callable[[str], None]) -> tuple[list[Table], list[Row]]:
    """Returns what two processes that share the sites tell each other in a training step."""
    rows: list[Row] = []
    shapes = ((72, 144), (721, 1440))
    for name in ("gpo-paper", "gpo"):
        for shape in shapes:
            say(f"{name}, two processes, {math.prod(shape):,} sites")
            with tempfile.TemporaryDirectory() as folder:
                multiprocessing.spawn(_count_bytes, (name, shape, folder), nprocs=2)
                found = json.loads((Path(folder) / "found.json").read_text())
            rows.append({"model": name, "sites": math.prod(shape), **found})
    columns = [f"{math.prod(shape):,} sites" for shape in shapes]
    table = Table("Bytes that a process sends in a training step, per layer", "model", columns)
    for name in ("gpo-paper", "gpo"):
        mine = [row for row in rows if row["model"] == name]
        table.add(name, [Entry(row["per_layer"]) for row in mine])
        once = [Entry(row["one_layer"] - row["per_layer"]) for row in mine]
        table.add(f"{name}, once a step beside its layers", once)
    table.notes.append(
        "Batch 1, forwards and backwards, before the first step. Once a step: the loss and, in gpo, "
        "content within reach of particles, as many lines of the grid as the farthest of them "
        "looks away, which is a way and not a number of lines. "
        "gpo-paper (era5 preset) tells 4 heads × 16 modes × (16 + 1) numbers of 4 bytes, twice."
    )
    table.best = "none"
    return [table], rows


def _count_bytes(rank: int, name: str, shape: tuple[int, int], folder: str) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    store = dist.FileStore(str(Path(folder) / "store"), 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    spent: dict[int, int] = {}
    coords, weights = (part.float() for part in SPHERE.grid(*shape))
    half = slice(None, shape[0] // 2 * shape[1]) if rank == 0 else slice(shape[0] // 2 * shape[1], None)  # fmt: skip
    coords, weights = coords[half], weights[half]
    values = torch.randn(1, len(coords), 1)
    for num_layers in (1, 2):
        problem, config = preset("era5-temp", num_layers=num_layers)
        if name == "gpo":
            config = OperatorConfig(num_waves=16, num_layers=num_layers)
        model = GaussianParticleOperator(problem, config)
        shards = DistributedShard(dist.group.WORLD)
        model.execution.shard = shards
        losses = operator_losses(model, values, coords, values, weights=weights)
        losses["total"].backward()
        spent[num_layers] = shards.num_bytes
    if rank == 0:
        found = {"per_layer": spent[2] - spent[1], "one_layer": spent[1]}
        (Path(folder) / "found.json").write_text(json.dumps(found))
    dist.destroy_process_group()


MEASURES: dict[str, Any] = {"step": measure_step, "bytes": measure_bytes}


def main(
    only: tuple[Part, ...] = ("bytes", "step", "sites"),
    models: tuple[str, ...] = tuple(builders(SPHERE, GRIDS[0])),
    out: Path = RESULTS,
) -> None:
    """Measures and writes.

    Args:
        only: Which parts.
        models: Of the part `sites`.
        out: Folder of the results.
    """
    console = Console()
    command = shlex.join(["python", "benchmarks/scale.py", *sys.argv[1:]])
    out.mkdir(parents=True, exist_ok=True)
    for part in only:
        say = partial(console.print, style="dim")
        tables, rows = measure_sites(say, models) if part == "sites" else MEASURES[part](say)
        text = "\n\n".join(
            "\n\n".join([table.markdown(), *describe_machine(command)]) for table in tables
        )
        (out / f"{part}.md").write_text(text + "\n", encoding="utf-8")
        (out / f"{part}.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        console.print(text, markup=False)


if __name__ == "__main__":
    tyro.cli(main)
