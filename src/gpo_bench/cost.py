"""Time and memory of a training step and an inference step.

Each measurement runs in a new process with one thread.
"""

import ctypes
import multiprocessing
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch

from gpo.forecast.examples import Example
from gpo.forecast.forecaster import Forecaster, Task
from gpo.model.config import PaperConfig
from gpo.model.model import AbstractModel, build_model
from gpo.model.presets import preset
from gpo.model.problem import Problem, UnsupportedGeometryError
from gpo.numerics.domain import Domain
from gpo.training.objective import training_losses
from gpo_bench.protocol import MODELS

Row = dict[str, Any]
"""A measurement as plain values that JSON can store, the input of tables and figures."""
Device = Literal["cpu", "cuda"]
Allocator = Literal["default", "keeping", "releasing"]
Argument = TypeVar("Argument")
Result = TypeVar("Result")

MEGABYTE = 2**20
MAX_SECONDS, MAX_STEPS = 2.0, 10
"""A step is repeated up to this time or number of steps, but at least twice."""
DOMAIN = Domain.unit_box(2, periodic=True)


def make_task(channels: int = 1) -> Task:
    """Returns a task with normalised fields."""
    names = tuple(f"field {number}" for number in range(channels))
    zeros, ones = (0.0,) * channels, (1.0,) * channels
    return Task(
        inputs=names, outputs=names, units=("",) * channels, history=1, lead=1, predict="state",
        input_mean=zeros, input_std=ones, output_mean=zeros, output_std=ones, increment_std=ones,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A model and the size of its batch; can be sent to another process."""

    build: Callable[[], AbstractModel]
    """Returns a new model."""
    grid_shape: tuple[int, ...] = (64, 64)
    """Number of sites along every axis, also for models on unstructured points."""
    channels: int = 1
    """Number of input and of output fields."""
    batch_size: int = 16
    """Number of samples in a step."""
    trains: bool = True
    """Whether to measure training steps as well as inference."""
    device: Device = "cpu"
    """Device of the model."""
    allocator: Allocator = "default"
    """Whether the C library's allocator keeps freed memory, returns it, or decides by size."""
    domain: Domain = DOMAIN
    """Domain of the sites."""
    max_bytes: int | None = None
    """Limit of the process's address space; a model that needs more fails with an error."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The cost of a workload; None where it was not measured, for the reason in `note`."""

    parameters: int | None = None
    """Number of parameters; a complex parameter counts once."""
    weight_bytes: int | None = None
    """Memory of the parameters."""
    training_bytes: int | None = None
    """Peak memory of a training step, without model and batch."""
    inference_bytes: int | None = None
    """Peak memory of an inference step, without model and batch."""
    training_seconds: float | None = None
    """Time of forward, backward and AdamW: CPU time, or wall time on a GPU."""
    inference_seconds: float | None = None
    """Time of a forward pass."""
    note: str = ""
    """Reason why a quantity was not measured."""

    def combine(self, other: "Cost") -> "Cost":
        """Returns the shorter times and higher peaks of two measurements of the same workload."""
        if self.parameters is None or other.parameters is None:
            return self if self.parameters is None else other
        combined: Row = {}
        for part in ("training", "inference"):
            for unit, select in (("seconds", min), ("bytes", max)):
                name = f"{part}_{unit}"
                values = [getattr(cost, name) for cost in (self, other)]
                combined[name] = None if None in values else select(values)
        return replace(self, **combined)


def make_workload(
    model: str, config: PaperConfig, *, is_unstructured: bool = False, **settings: Any
) -> Workload:
    """Returns the workload of a model with one input and one output field.

    Args:
        model: A name of `MODELS`.
        config: Architecture of gpo-paper; other models have the defaults of a run.
        is_unstructured: Whether the model treats the sites of the grid as unstructured points.
        **settings: Further fields of `Workload`.
    """
    if model not in MODELS:
        raise ValueError(f"`models` must be among {', '.join(MODELS)}, got {model!r}.")
    shape = () if is_unstructured else settings.get("grid_shape", Workload.grid_shape)
    sizes = config if model == "gpo-paper" else None
    build = partial(build_model, model, Problem(1, 1, DOMAIN, shape), sizes)
    return Workload(build=build, **settings)


def measure_cost(workload: Workload) -> Cost:
    """Returns the cost of a workload, measured in a new process, or the reason why it failed."""
    try:
        return in_new_process(_measure_here, workload)
    except UnsupportedGeometryError as error:
        return Cost(note=str(error))
    except BrokenProcessPool:
        return Cost(note="its process was killed, probably for lack of memory")
    except Exception as error:  # A failure is reported, so that other models can be measured.
        if workload.max_bytes is not None and "can't allocate memory" in str(error):
            return Cost(note=f"needs more than {workload.max_bytes / 2**30:g} GiB")
        return Cost(note=f"failed: {str(error).strip().splitlines()[0]}")


def in_new_process(call: Callable[[Argument], Result], argument: Argument) -> Result:
    """Returns the result of a function call in a new process, or raises its exception."""
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(method)
    # AdamW imports dynamo at its first step; preloaded, it adds nothing to a measurement.
    context.set_forkserver_preload(["__main__", __name__, "torch._dynamo"])
    with ProcessPoolExecutor(1, context) as process:
        return process.submit(call, argument).result()


def _measure_here(workload: Workload) -> Cost:
    """Returns the cost of a workload in this process, which must be new: its peak is measured."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    _set_allocator(workload.allocator)
    if workload.max_bytes is not None:
        import resource  # Does not exist on Windows.

        resource.setrlimit(resource.RLIMIT_AS, (workload.max_bytes, workload.max_bytes))
    device = workload.device
    _warm_up(device)
    model = workload.build()
    forecaster, batch = (
        Forecaster(model, make_task(workload.channels)).to(device),
        _random_batch(workload),
    )
    optimizer = torch.optim.AdamW(forecaster.parameters())
    before = _memory(device)[0]

    def infer() -> None:
        with torch.no_grad():
            forecaster(
                batch.frames, batch.coords, weights=batch.site_weights, seasons=batch.seasons
            )

    def train() -> None:
        optimizer.zero_grad()
        training_losses(forecaster, batch)["total"].backward()
        optimizer.step()

    forecaster.eval()
    inference_seconds = shortest_time(infer, device)
    cost = Cost(
        parameters=model.num_parameters,
        weight_bytes=sum(part.numel() * part.element_size() for part in model.parameters()),
        inference_bytes=_memory(device)[1] - before,
        inference_seconds=inference_seconds,
    )
    if not workload.trains:
        return cost
    forecaster.train()
    seconds = shortest_time(train, device)
    return replace(cost, training_bytes=_memory(device)[1] - before, training_seconds=seconds)


def _set_allocator(allocator: Allocator) -> None:
    """Sets the policy of glibc's allocator for freed memory; does nothing with other C libraries.

    By default, glibc maps tensors above 32 MB from the system each time, which can take as long as
    the arithmetic, and unmaps them when freed; smaller tensors come from memory that it keeps. Time
    and peak memory against size would therefore have a kink at 32 MB.
    """
    trim_threshold, mmap_threshold, mmap_max = -1, -3, -4  # Constants of malloc.h.
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
    """Makes one step of a tiny model, so that lazy initialisation of libraries is not measured."""
    problem, config = preset("ns2d", hidden_dim=4, num_layers=1, num_heads=1, num_gaussians=2)
    build = partial(build_model, "gpo-paper", problem, config)
    workload = Workload(build=build, grid_shape=(4, 4), batch_size=1, device=device)
    forecaster = Forecaster(build(), make_task()).to(device)
    optimizer = torch.optim.AdamW(forecaster.parameters())
    training_losses(forecaster, _random_batch(workload))["total"].backward()
    optimizer.step()


def _random_batch(workload: Workload) -> Example:
    coords, weights = workload.domain.grid(*workload.grid_shape)
    batch = workload.batch_size
    example = Example(
        frames=torch.randn(batch, 1, len(coords), workload.channels),
        targets=torch.randn(batch, 1, len(coords), workload.channels),
        coords=coords.repeat(batch, 1, 1),
        weights=weights.repeat(batch, 1),
        site_weights=weights.repeat(batch, 1),
        num_sites=(len(coords),) * batch,
    )
    return example.to(workload.device)


def shortest_time(
    step: Callable[[], object], device: Device = "cpu", max_steps: int = MAX_STEPS
) -> float:
    """Returns the seconds of the shortest of at least two steps; the first one is a warm-up."""
    seconds: list[float] = []
    while len(seconds) < 2 or (sum(seconds) < MAX_SECONDS and len(seconds) < max_steps):
        start = _now(device)
        step()
        seconds.append(_now(device) - start)
    return min(seconds)


def _now(device: Device) -> float:
    """Returns CPU time, or wall time after synchronisation with the GPU."""
    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def _memory(device: Device) -> tuple[int, int]:
    """Returns the current and the peak memory use in bytes."""
    if device == "cuda":
        return torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
    status = Path("/proc/self/status")
    if status.exists():
        # On Linux, `ru_maxrss` would start with the peak of the parent process.
        fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
        now, peak = (1024 * int(fields[name].split()[0]) for name in ("VmRSS", "VmHWM"))
        return now, peak
    import resource  # Does not exist on Windows.

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak *= 1 if sys.platform == "darwin" else 1024
    return peak, peak


def round_large(value: int | float | None) -> int | float | None:
    """Returns a value, rounded to an integer from 100 on, which tables print without exponent."""
    return round(value) if value is not None and value >= 100 else value
