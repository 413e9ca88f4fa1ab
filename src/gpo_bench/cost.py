"""What steps of training and of inference take, in time and memory.

Every measurement has a process of its own, with one thread.
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
"""A measurement as plain values, which JSON can hold and a figure can be drawn from."""
Device = Literal["cpu", "cuda"]
Allocator = Literal["default", "keeping", "releasing"]
Given = TypeVar("Given")
Returned = TypeVar("Returned")

MEGABYTE = 2**20
MEASURED_SECONDS, MOST_STEPS = 2.0, 10
"""Steps are repeated until they took as long, or are as many; two are always made."""
DOMAIN = Domain.unit_box(2, periodic=True)
TASK = Task(
    inputs=("field",), outputs=("field",), units=("",), history=1, lead=1, predict="state",
    input_mean=(0.0,), input_std=(1.0,), output_mean=(0.0,), output_std=(1.0,),
    increment_std=(1.0,),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A model and the batch that it is given; can be sent to another process."""

    build: Callable[[], AbstractModel]
    grid_shape: tuple[int, int] = (64, 64)
    """Sites along both axes; a model may be told nothing of the grid they lie on."""
    batch_size: int = 16
    trains: bool = True
    """Whether training steps are made, or inference alone."""
    device: Device = "cpu"
    allocator: Allocator = "default"
    """What the C library does with freed memory of the CPU: as it likes, keep it, or return it."""
    domain: Domain = DOMAIN
    """Where the sites are."""
    most_bytes: int | None = None
    """Of address space that the process may have; a model that needs more fails, and nothing else."""


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
    model: str, config: PaperConfig, *, is_scattered: bool = False, **settings: Any
) -> Workload:
    """Returns the workload of a model by name, for one field in and one out.

    Args:
        model: A name of `MODELS`.
        config: Architecture of gpo-paper; the others are built as a run builds them.
        is_scattered: Whether the model is to take the sites of the grid as mere points.
        **settings: Further fields of `Workload`.
    """
    if model not in MODELS:
        raise ValueError(f"`models` must be of {', '.join(MODELS)}, got {model!r}.")
    shape = () if is_scattered else settings.get("grid_shape", Workload.grid_shape)
    sizes = config if model == "gpo-paper" else None
    build = partial(build_model, model, Problem(1, 1, DOMAIN, shape), sizes)
    return Workload(build=build, **settings)


def measure_cost(workload: Workload) -> Cost:
    """Returns what a workload takes in a new process, or the reason why it cannot be run."""
    try:
        return in_new_process(_measure_here, workload)
    except UnsupportedGeometryError as error:
        return Cost(note=str(error))
    except BrokenProcessPool:
        return Cost(note="its process was killed, as happens where memory is short")
    except Exception as error:  # A model that fails is reported; the others go on.
        if workload.most_bytes is not None and "can't allocate memory" in str(error):
            return Cost(note=f"needs more than {workload.most_bytes / 2**30:g} GiB")
        return Cost(note=f"failed: {str(error).strip().splitlines()[0]}")


def in_new_process(call: Callable[[Given], Returned], argument: Given) -> Returned:
    """Returns what a function returns, or raises what it raises, in a process of its own."""
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(method)
    # AdamW imports dynamo at its first step; loaded once, it costs no child anything.
    context.set_forkserver_preload(["__main__", __name__, "torch._dynamo"])
    with ProcessPoolExecutor(1, context) as process:
        return process.submit(call, argument).result()


def _measure_here(workload: Workload) -> Cost:
    """Runs a workload in this process, which should be new: its peak of memory is the peak."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    _set_allocator(workload.allocator)
    if workload.most_bytes is not None:
        import resource  # Not there on Windows.

        most = workload.most_bytes
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    device = workload.device
    _warm_up(device)
    model = workload.build()
    forecaster, batch = Forecaster(model, TASK).to(device), _random_batch(workload)
    optimizer = torch.optim.AdamW(forecaster.parameters())
    before = _memory(device)[0]

    def infer() -> None:
        with torch.no_grad():
            forecaster(batch.frames, batch.coords, weights=batch.site_weights)

    def train() -> None:
        optimizer.zero_grad()
        training_losses(forecaster, batch)["total"].backward()
        optimizer.step()

    forecaster.eval()
    inference_seconds = _shortest(infer, device)
    cost = Cost(
        parameters=model.num_parameters,
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
    problem, config = preset("ns2d", hidden_dim=4, num_layers=1, num_heads=1, num_gaussians=2)
    build = partial(build_model, "gpo-paper", problem, config)
    batch = _random_batch(Workload(build=build, grid_shape=(4, 4), batch_size=1, device=device))
    forecaster = Forecaster(build(), TASK).to(device)
    optimizer = torch.optim.AdamW(forecaster.parameters())
    training_losses(forecaster, batch)["total"].backward()
    optimizer.step()


def _random_batch(workload: Workload) -> Example:
    coords, weights = workload.domain.grid(*workload.grid_shape)
    batch = workload.batch_size
    example = Example(
        frames=torch.randn(batch, 1, len(coords), 1),
        targets=torch.randn(batch, 1, len(coords), 1),
        coords=coords.repeat(batch, 1, 1),
        weights=weights.repeat(batch, 1),
        site_weights=weights.repeat(batch, 1),
        num_sites=(len(coords),) * batch,
    )
    return example.to(workload.device)


def _shortest(step: Callable[[], None], device: Device) -> float:
    """Returns the seconds of the shortest of several steps, more of them where they are short.

    Only the second finds AdamW's state made.
    """
    seconds: list[float] = []
    while len(seconds) < 2 or (sum(seconds) < MEASURED_SECONDS and len(seconds) < MOST_STEPS):
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


def three_digits(value: int | float | None) -> int | float | None:
    """Returns a number that an entry spells with at least three digits and without an exponent."""
    return round(value) if value is not None and value >= 100 else value
