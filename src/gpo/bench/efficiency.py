"""What a model costs in parameters, memory and time (the paper's table of efficiency).

Every measurement has a process of its own, with one thread. A processor that is shared adds
to a time and never takes away from it: of all repeats the smallest counts, and the repeats of
one model lie between those of the others.
"""

import ctypes
import multiprocessing
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from gpo.baselines import REGISTRY, Problem, UnsupportedGeometryError
from gpo.bench.table import Entry, Table
from gpo.model.config import OperatorConfig
from gpo.model.operator import GaussianParticleOperator
from gpo.model.presets import preset
from gpo.numerics.domain import Domain
from gpo.train.examples import Example
from gpo.train.forecaster import Forecaster, Task
from gpo.train.models import count_weights
from gpo.train.objective import training_losses

Row = dict[str, Any]
"""A measurement as plain values, which JSON can hold and a figure can be drawn from."""
Device = Literal["cpu", "cuda"]
Allocator = Literal["default", "keeping", "releasing"]

MEGABYTE = 2**20
EPOCH = 1000
"""Samples that an epoch has in the table."""
DOMAIN = Domain.unit_box(2, periodic=True)
TASK = Task(
    inputs=("field",), outputs=("field",), units=("",), history=1, lead=1, predict="state",
    input_mean=(0.0,), input_std=(1.0,), output_mean=(0.0,), output_std=(1.0,),
    increment_std=(1.0,),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A model and the batch that it is given; can be sent to another process."""

    build: Callable[[], nn.Module]
    grid_shape: tuple[int, int] = (64, 64)
    """Sites along both axes; a model may be told nothing of the grid they lie on."""
    batch_size: int = 16
    trains: bool = True
    """Whether training steps are made, or inference alone."""
    device: Device = "cpu"
    allocator: Allocator = "default"
    """What the C library does with freed memory of the CPU: as it likes, keep it, or return it."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a workload takes; None where it was not measured, for the reason in `note`."""

    parameters: int | None = None
    """A complex one counts once."""
    weight_bytes: int | None = None
    training_bytes: int | None = None
    """Peak of a training step, above model and batch."""
    inference_bytes: int | None = None
    training_seconds: float | None = None
    """Of forward, backward and AdamW: CPU seconds; on a GPU, those of the clock."""
    inference_seconds: float | None = None
    note: str = ""

    def beside(self, other: "Cost") -> "Cost":
        """Returns one cost of a workload measured twice: the shorter times, the higher peaks."""
        if self.parameters is None or other.parameters is None:
            return self if self.parameters is None else other
        both: Row = {}
        for part in ("training", "inference"):
            for unit, choose in (("seconds", min), ("bytes", max)):
                name = f"{part}_{unit}"
                known = [getattr(cost, name) for cost in (self, other)]
                both[name] = None if None in known else choose(known)
        return replace(self, **both)


def make_workload(
    model: str, config: OperatorConfig, *, is_scattered: bool = False, **settings: Any
) -> Workload:
    """Returns the workload of a model by name, for one field in and one out.

    Args:
        model: gpo, or a name in the registry.
        config: Architecture of gpo; the others are built as registered.
        is_scattered: Whether the model is to take the sites of the grid as mere points.
        **settings: Further fields of `Workload`.
    """
    if model == "gpo":
        return Workload(build=partial(GaussianParticleOperator, config), **settings)
    if model not in REGISTRY:
        raise ValueError(f"`models` must be of gpo, {', '.join(REGISTRY)}, got {model!r}.")
    shape = () if is_scattered else settings.get("grid_shape", Workload.grid_shape)
    return Workload(build=partial(REGISTRY[model], Problem(1, 1, DOMAIN, shape)), **settings)


def measure_cost(workload: Workload) -> Cost:
    """Returns what a workload takes in a new process, or the reason why it cannot be run."""
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(method)
    # AdamW imports dynamo at its first step; loaded once, it costs no child anything.
    context.set_forkserver_preload(["__main__", __name__, "torch._dynamo"])
    with ProcessPoolExecutor(1, context) as process:
        try:
            return process.submit(_measure_here, workload).result()
        except UnsupportedGeometryError as error:
            return Cost(note=str(error))
        except BrokenProcessPool:
            return Cost(note="its process was killed, as happens where memory is short")
        except Exception as error:  # A model that fails is reported; the others go on.
            return Cost(note=f"failed: {str(error).strip().splitlines()[0]}")


def _measure_here(workload: Workload) -> Cost:
    """Runs a workload in this process, which should be new: its peak of memory is the peak."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    _set_allocator(workload.allocator)
    device = workload.device
    _warm_up(device)
    model = workload.build()
    forecaster, batch = Forecaster(model, TASK).to(device), _random_batch(workload)
    optimizer = torch.optim.AdamW(forecaster.parameters())
    before = _memory(device)[0]

    def infer() -> None:
        with torch.no_grad():
            forecaster(batch.frames, batch.coords, weights=batch.weights)

    def train() -> None:
        optimizer.zero_grad()
        training_losses(forecaster, batch)["total"].backward()
        optimizer.step()

    forecaster.eval()
    inference_seconds = _shortest(infer, device)
    cost = Cost(
        parameters=count_weights(model),
        weight_bytes=sum(part.numel() * part.element_size() for part in model.parameters()),
        inference_bytes=_memory(device)[1] - before,
        inference_seconds=inference_seconds,
    )
    if not workload.trains:
        return cost
    forecaster.train()
    seconds = _shortest(train, device)
    return replace(cost, training_bytes=_memory(device)[1] - before, training_seconds=seconds)


def _set_allocator(allocator: Allocator) -> None:
    """Fixes what glibc otherwise decides by the size of a tensor; elsewhere does nothing.

    By default a tensor above 32 MB gets new pages from the system every time, which can take
    as long as the arithmetic, and leaves none behind; a smaller one is cut from pages that
    were kept. Times and peaks then bend where tensors of a model pass 32 MB.
    """
    trim_threshold, mmap_threshold, mmap_max = -1, -3, -4  # Of malloc.h.
    options = {
        "default": {},
        "keeping": {mmap_max: 0, trim_threshold: -1},
        "releasing": {mmap_threshold: 2**16},
    }
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        for option, value in options[allocator].items():
            mallopt(option, value)


def _warm_up(device: Device) -> None:
    """Takes one step of a tiny model: what libraries load at their first use is no model's cost."""
    config = preset("ns2d", hidden_dim=4, num_layers=1, num_heads=1, num_gaussians=2)
    model, batch = (
        GaussianParticleOperator(config),
        _random_batch(Workload(build=nn.Identity, grid_shape=(4, 4), batch_size=1, device=device)),
    )
    forecaster = Forecaster(model, TASK).to(device)
    optimizer = torch.optim.AdamW(forecaster.parameters())
    training_losses(forecaster, batch)["total"].backward()
    optimizer.step()


def _random_batch(workload: Workload) -> Example:
    coords, weights = DOMAIN.grid(*workload.grid_shape)
    batch = workload.batch_size
    example = Example(
        frames=torch.randn(batch, 1, len(coords), 1),
        targets=torch.randn(batch, 1, len(coords), 1),
        coords=coords.repeat(batch, 1, 1),
        weights=weights.repeat(batch, 1),
    )
    return example.to(workload.device)


def _shortest(step: Callable[[], None], device: Device) -> float:
    """Returns the seconds of the shorter of two steps; only the second finds AdamW's state made."""
    seconds = []
    for _ in range(2):
        start = _now(device)
        step()
        seconds.append(_now(device) - start)
    return min(seconds)


def _now(device: Device) -> float:
    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def _memory(device: Device) -> tuple[int, int]:
    """Returns the bytes in use now and at the peak."""
    if device == "cuda":
        return torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
    status = Path("/proc/self/status")
    if status.exists():
        # Not `ru_maxrss`, which on Linux begins with the peak of the parent process.
        fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
        now, peak = (1024 * int(fields[name].split()[0]) for name in ("VmRSS", "VmHWM"))
        return now, peak
    import resource  # Not there on Windows.

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak *= 1 if sys.platform == "darwin" else 1024
    return peak, peak


def measure_efficiency(
    models: Sequence[str] = ("gpo", *REGISTRY),
    *,
    repeats: int = 3,
    grid_shape: tuple[int, int] = (64, 64),
    batch_size: int = 16,
    device: Device = "cpu",
    on_progress: Callable[[str], None] = lambda _: None,
) -> tuple[list[Table], list[Row]]:
    """Returns tables and rows: the cost of every model, gpo as the paper has it for ns2d.

    Args:
        models: gpo and names in the registry.
        repeats: Rounds over all models, each with two steps of training and of inference.
        grid_shape: Sites along both axes.
        batch_size: Samples in a step.
        device: On a GPU, times are those of the clock.
        on_progress: Told what is measured next.
    """
    if repeats < 1:
        raise ValueError(f"`repeats` must be at least 1, got {repeats}.")
    setting: Row = {"grid_shape": grid_shape, "batch_size": batch_size, "device": device}
    workloads = {name: make_workload(name, preset("ns2d"), **setting) for name in models}
    costs: dict[str, Cost] = {}
    for number in range(1, repeats + 1):
        for name, workload in workloads.items():
            if name in costs and costs[name].note:
                continue
            on_progress(f"round {number} of {repeats}: {name}")
            cost = measure_cost(workload)
            costs[name] = costs[name].beside(cost) if name in costs else cost
    rows = [{"model": name, **setting, **asdict(cost)} for name, cost in costs.items()]
    return efficiency_tables(rows), rows


Numbers = tuple[int | float | None, ...]
"""One for each of `COLUMNS`."""
COLUMNS = (
    "parameters", "weights, MB", "peak memory, MB", "training, s/epoch", "inference, s/epoch"
)  # fmt: skip
STEPS = ("training, s/step", "inference, s/step")
PAPER: dict[str, Numbers] = {
    "gpo": (1_598_257, 6.10, 2_313, 44.66, 1.67),
    "fno": (640_305, 4.84, 949, 28.27, 0.5),
    "lsm": (19_187_457, 73.23, 2_875, 48.42, 1.73),
    "galerkin": (1_096_321, 4.18, 4_301, 65.29, 2.96),
    "gnot": (2_485_901, 9.48, 8_643, 139.42, 6.09),
    "transolver": (3_069_889, 11.71, 4_917, 97.03, 4.10),
    "ono": (1_596_673, 6.09, 6_163, 94.80, 4.27),
}
"""What the paper states, measured on a GPU."""


def efficiency_tables(rows: Sequence[Row]) -> list[Table]:
    """Returns the table of costs, and the same as multiples of what gpo takes."""
    setting = rows[0]
    size, batch = "×".join(map(str, setting["grid_shape"])), setting["batch_size"]
    kind = "CPU seconds of one thread" if setting["device"] == "cpu" else "seconds on a GPU"
    title = f"Efficiency at {size}, one field and two coordinates, batch {batch}"
    of_paper = [f"{name} (paper)" for name in COLUMNS]
    beside = [name for pair in zip(COLUMNS, of_paper, strict=True) for name in pair]
    costs = Table(title, "model", [*beside, *STEPS], unranked=frozenset(of_paper))
    bare = [name.replace(", MB", "").replace(", s/epoch", "") for name in beside]
    ratios = Table(f"{title}: multiples of gpo", "model", bare, best="none")
    ours = {row["model"]: _numbers(row) for row in rows}
    nothing: Numbers = (None,) * len(COLUMNS)
    for row in rows:
        name, note = row["model"], row["note"]
        mine, stated = ours[name], PAPER.get(name, nothing)
        steps = [Entry(row["training_seconds"]), Entry(row["inference_seconds"])]
        costs.add(name, [*_entries(mine, stated, note, digits=5), *steps])
        mine = _ratios(mine, ours.get("gpo", nothing))
        ratios.add(name, _entries(mine, _ratios(stated, PAPER["gpo"]), note, digits=3))
    costs.notes += [
        f"Times are {kind}, the smallest of all repeats; an epoch is {EPOCH:,} samples, that is "
        f"{EPOCH / batch:g} steps. A training step is forward, backward and AdamW.",
        "Peak memory is that of a training step above the model and its batch: activations, "
        "gradients, the state of AdamW and what the allocator keeps. A MB has 2^20 bytes. Under "
        "glibc, tensors above 32 MB get new pages every time: a part of the time of large models.",
    ]
    ratios.notes += [
        "The paper measured at 64×64 and batch 16 on an NVIDIA RTX 4090, with epochs of a size it does "
        "not state: its memory and seconds compare with ours as multiples only. Its gpo has "
        "1,598,257 parameters, which the sizes it states do not give.",
    ]
    return [costs, ratios]


def _numbers(row: Row) -> Numbers:
    """Returns a row in the units of the table."""
    steps = EPOCH / row["batch_size"]
    scaled = (
        None if row[name] is None else row[name] * factor
        for name, factor in (
            ("weight_bytes", 1 / MEGABYTE), ("training_bytes", 1 / MEGABYTE),
            ("training_seconds", steps), ("inference_seconds", steps),
        )
    )  # fmt: skip
    return (row["parameters"], *scaled)


def _ratios(ours: Numbers, those_of_gpo: Numbers) -> Numbers:
    pairs = zip(ours, those_of_gpo, strict=True)
    return tuple(None if mine is None or not its else mine / its for mine, its in pairs)


def _entries(ours: Numbers, paper: Numbers, note: str, *, digits: int) -> list[Entry]:
    """Returns ours and the paper's by turns; a reason stands once, for the first of ours."""
    entries: list[Entry] = []
    for mine, stated in zip(ours, paper, strict=True):
        reason = "" if entries else note
        entries += [Entry(three_digits(mine), note=reason), Entry(stated, digits=digits)]
    return entries


def three_digits(value: int | float | None) -> int | float | None:
    """Returns a number that an entry spells with at least three digits and without an exponent."""
    return round(value) if value is not None and value >= 100 else value
