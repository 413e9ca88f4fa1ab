r"""Scaling of time and memory with the number of sites, and with the size of gpo-paper.

The paper claims a cost linear in the number of sites (section 2.2, "Complexity"), which is tested
by fitting the exponent $p$ of $y\propto x^p$. The allocator of the C library treats tensors above
32 MB differently, which would put a kink into each curve. Times are therefore measured while it
keeps all freed memory, and peaks while it returns all freed memory, so that they are those of live
tensors.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from gpo.model.presets import preset
from gpo_bench.cost import (
    MEGABYTE,
    Cost,
    Device,
    Row,
    Workload,
    make_workload,
    measure_cost,
    round_large,
)
from gpo_bench.table import Entry, Table

SMALL = preset("ns2d", hidden_dim=64, num_layers=4, num_heads=4, num_gaussians=16)[1]
"""Configuration of gpo-paper; gpo has the defaults of a run."""
SWEEPS: Mapping[str, Sequence[int]] = {
    "num_gaussians": (8, 16, 32, 64, 128),
    "hidden_dim": (32, 64, 128, 256),
    "num_layers": (1, 2, 4, 8, 16),
}
"""Fields of gpo-paper's configuration and their values; one field is varied at a time."""
ON_POINTS = frozenset(("transolver",))
"""Models that treat the sites as unstructured points instead of a grid."""
LABELS = {
    "sites": "sites N", "num_gaussians": "Gaussians G", "hidden_dim": "width", "num_layers": "depth"
}  # fmt: skip
QUANTITIES = {
    "inference_seconds": "seconds of inference",
    "training_seconds": "seconds of a training step",
    "inference_bytes": "peak memory of inference, MB",
    "training_bytes": "peak memory of a training step, MB",
}
"""Measured quantities, by their name in a row."""
ALLOCATOR_NOTE = (
    "On a CPU, times are measured while the allocator keeps freed memory, and peaks while it "
    "returns it; peaks are those of tensors, without the model and its batch. By default glibc is "
    "slower for tensors above 32 MB, and needs up to twice the memory for smaller ones."
)
KEPT_MEMORY_RATIO = 2.0
"""Bound on the ratio of process to tensor memory if the allocator keeps memory; 1.8 was measured."""


@dataclass(frozen=True)
class Point:
    """One measurement of a sweep."""

    model: str
    """Name of the model."""
    against: str
    """The varied quantity: sites, or a field of gpo-paper's configuration."""
    value: int
    """Value of the varied quantity."""
    workload: Workload
    """The model and its batch."""

    def __str__(self) -> str:
        return f"{self.model}, {_label(self.against)} = {self.value:,}"


def measure_scaling(
    models: Sequence[str] = ("gpo", "gpo-paper", "fno", "transolver"),
    *,
    min_sites: int = 4**5,
    max_sites: int = 4**10,
    sweeps: Mapping[str, Sequence[int]] = SWEEPS,
    repeats: int = 1,
    memory_limit: float = 16.0,
    device: Device = "cpu",
    on_progress: Callable[[str], None] = lambda _: None,
) -> tuple[list[Table], list[Row]]:
    """Returns tables and rows with the cost at each point of each sweep, and the fitted exponents.

    Args:
        models: Models whose number of sites is varied, with one sample per step. Transolver treats
            the sites as unstructured points, the others as a square grid.
        min_sites: Lower bound of the numbers of sites, which are powers of four.
        max_sites: Upper bound of the numbers of sites.
        sweeps: Fields of gpo-paper's configuration with increasing values, measured at 64×64 sites
            and batch size 16.
        repeats: Number of rounds over all points.
        memory_limit: Memory in gigabytes; steps that would need more, extrapolated from the
            previous point, are omitted.
        device: Device of the models; times on a GPU are wall times.
        on_progress: Called with a message before each measurement.
    """
    if repeats < 1:
        raise ValueError(f"`repeats` must be at least 1, got {repeats}.")
    sides = [2**power for power in range(16) if min_sites <= 4**power <= max_sites]
    lines = [[_at_sites(model, side, device) for side in sides] for model in models]
    lines += [
        [_at_size(name, value, device) for value in values] for name, values in sweeps.items()
    ]
    costs: dict[Point, Cost] = {}
    for number in range(1, repeats + 1):
        for line in lines:
            for previous, point in zip((None, *line), line, strict=False):
                workload, note = point.workload, ""
                if previous is not None:
                    workload, note = _fit_into_memory(
                        previous, costs[previous], point, memory_limit
                    )
                cost = Cost(note=note)
                if workload is not None:
                    on_progress(f"round {number} of {repeats}: {point}")
                    cost = _measure_time_and_peak(workload)
                    cost = replace(cost, note=cost.note or note)
                costs[point] = costs[point].combine(cost) if point in costs else cost
    rows = [row for line in lines for row in _rows(line, costs)]
    return scaling_tables(rows), rows


def fit_exponent(
    values: Sequence[int | float], costs: Sequence[int | float | None]
) -> float | None:
    r"""Returns $p$ of $y\propto x^p$, fitted to logarithms over the larger half of the values.

    Args:
        values: Positive, increasing values of $x$.
        costs: Values of $y$; None where it was not measured. At least two are needed.
    """
    measured = [(x, y) for x, y in zip(values, costs, strict=True) if y is not None and y > 0]
    if len(measured) < 2:
        return None
    x, y = np.log(measured[min(len(measured) // 2, len(measured) - 2) :]).T
    return float(np.polyfit(x, y, 1)[0])


def scaling_tables(rows: Sequence[Row]) -> list[Table]:
    """Returns a table per quantity against sites, and a table per varied field of gpo-paper."""
    over_sites = [row for row in rows if row["against"] == "sites"]
    fields = dict.fromkeys(row["against"] for row in rows if row["against"] != "sites")
    tables = [_site_table(over_sites, name) for name in QUANTITIES if over_sites]
    return tables + [
        _size_table([row for row in rows if row["against"] == name]) for name in fields
    ]


def _at_sites(model: str, side: int, device: Device) -> Point:
    workload = make_workload(
        model, SMALL, is_unstructured=model in ON_POINTS,
        grid_shape=(side, side), batch_size=1, device=device,
    )  # fmt: skip
    return Point(model, "sites", side**2, workload)


def _at_size(name: str, value: int, device: Device) -> Point:
    config = replace(SMALL, **{name: value})
    return Point("gpo-paper", name, value, make_workload("gpo-paper", config, device=device))


def _measure_time_and_peak(workload: Workload) -> Cost:
    """Returns times and peaks of two processes, each with the allocator that suits it."""
    if workload.device != "cpu":
        return measure_cost(workload)
    peaks = measure_cost(replace(workload, allocator="releasing"))
    if peaks.parameters is None:
        return peaks
    times = measure_cost(replace(workload, allocator="keeping"))
    if times.parameters is None:
        return times
    return replace(
        times, training_bytes=peaks.training_bytes, inference_bytes=peaks.inference_bytes
    )


def _fit_into_memory(
    previous: Point, cost: Cost, point: Point, memory_limit: float
) -> tuple[Workload | None, str]:
    """Returns the part of a workload that fits into memory, and why the rest is omitted.

    Memory is extrapolated linearly from the previous point and its cost.
    """
    if cost.inference_bytes is None:
        return None, cost.note

    def excess(part: str, measured: int) -> str:
        gigabytes = KEPT_MEMORY_RATIO * measured * point.value / previous.value / 2**30
        name = f"{part} at {_label(point.against)} = {point.value:,}"
        return f"{name} would take about {gigabytes:.3g} GB" if gigabytes > memory_limit else ""

    if note := excess("inference", cost.inference_bytes):
        return None, note
    note = cost.note if cost.training_bytes is None else excess("training", cost.training_bytes)
    return replace(point.workload, trains=not note), note


def _rows(line: Sequence[Point], costs: Mapping[Point, Cost]) -> list[Row]:
    values = [point.value for point in line]
    exponents = {
        name: fit_exponent(values, [getattr(costs[point], name) for point in line])
        for name in QUANTITIES
    }
    return [
        {
            "model": point.model, "against": point.against,
            "label": _label(point.against), "value": point.value,
            "batch_size": point.workload.batch_size, "device": point.workload.device,
            **asdict(costs[point]), "exponents": exponents,
        }
        for point in line
    ]  # fmt: skip


def _site_table(rows: Sequence[Row], quantity: str) -> Table:
    columns = [f"N = {value:,}" for value in dict.fromkeys(row["value"] for row in rows)]
    title = f"Scaling with sites: {_title(quantity, rows[0])}"
    table = Table(title, "model", [*columns, "exponent"], best="none")
    for model in dict.fromkeys(row["model"] for row in rows):
        line = [row for row in rows if row["model"] == model]
        table.add(model, [*(_entry(row, quantity) for row in line), _exponent(line[0], quantity)])
    sizes = {row["model"]: row["parameters"] for row in rows if row["parameters"]}
    table.notes.append(
        "One sample per step. Parameters: "
        + ", ".join(f"{name} {size:,}" for name, size in sizes.items())
        + f". The exponent is fitted over the larger half of the sites. {ALLOCATOR_NOTE}"
    )
    return table


def _size_table(rows: Sequence[Row]) -> Table:
    name = _label(rows[0]["against"])
    columns = [_title(quantity, rows[0]) for quantity in QUANTITIES]
    table = Table(f"Scaling of gpo-paper with {name}", name, ["parameters", *columns], best="none")
    for row in rows:
        entries = [_entry(row, quantity) for quantity in QUANTITIES]
        table.add(f"{row['value']:,}", [Entry(row["parameters"]), *entries])
    exponents = [_exponent(rows[0], quantity) for quantity in QUANTITIES]
    table.add("exponent", [Entry(), *exponents])
    table.notes.append(
        f"At 64×64 sites and batch {rows[0]['batch_size']}. "
        f"The exponent is fitted over the larger half. {ALLOCATOR_NOTE}"
    )
    return table


def _label(against: str) -> str:
    return LABELS.get(against, against)


def _title(quantity: str, row: Row) -> str:
    is_cpu_time = quantity.endswith("seconds") and row["device"] == "cpu"
    return f"CPU {QUANTITIES[quantity]}" if is_cpu_time else QUANTITIES[quantity]


def _entry(row: Row, quantity: str) -> Entry:
    value = row[quantity]
    if value is None:
        return Entry(note=row["note"])
    return Entry(round_large(value / MEGABYTE if quantity.endswith("bytes") else value))


def _exponent(row: Row, quantity: str) -> Entry:
    return Entry(row["exponents"][quantity])
