r"""How time and memory grow with the sites, and with the size of gpo-paper.

The paper claims a cost linear in the number of sites (section 2.2, "Complexity"); the fitted
exponent $p$ of $y\propto x^p$ says how nearly. The allocator of the C library changes its ways at
tensors of 32 MB, which would bend every curve: times are taken while it keeps all memory, peaks
while it returns all at once, so that they are those of the tensors alive.
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
    three_digits,
)
from gpo_bench.table import Entry, Table

SMALL = preset("ns2d", hidden_dim=64, num_layers=4, num_heads=4, num_gaussians=16)[1]
"""The gpo-paper whose cost is followed; gpo is as runs build it."""
SWEEPS: Mapping[str, Sequence[int]] = {
    "num_gaussians": (8, 16, 32, 64, 128),
    "hidden_dim": (32, 64, 128, 256),
    "num_layers": (1, 2, 4, 8, 16),
}
"""Fields of gpo-paper's configuration and the values they take, one field at a time."""
SCATTERED = frozenset(("transolver",))
"""Models that take the sites as points, not as a grid."""
NAMES = {
    "sites": "sites N", "num_gaussians": "Gaussians G", "hidden_dim": "width", "num_layers": "depth"
}  # fmt: skip
QUANTITIES = {
    "inference_seconds": "seconds of inference",
    "training_seconds": "seconds of a training step",
    "inference_bytes": "peak memory of inference, MB",
    "training_bytes": "peak memory of a training step, MB",
}
"""What is followed, by its name in a row."""
ALLOCATOR_NOTE = (
    "On a CPU, times are taken while the allocator keeps freed memory, and peaks while it returns "
    "it: they are those of tensors, above the model and its batch. By default glibc is slower "
    "where tensors pass 32 MB, and takes up to twice the memory where they do not."
)
KEPT = 2.0
"""Memory that is taken where the allocator keeps it, over what tensors take; 1.8 was seen."""


@dataclass(frozen=True)
class Point:
    """One place along a sweep."""

    model: str
    against: str
    """What is varied: sites, or a field of gpo-paper's configuration."""
    value: int
    workload: Workload

    def __str__(self) -> str:
        return f"{self.model}, {_spell(self.against)} = {self.value:,}"


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
    """Returns tables and rows: the cost at every place of every sweep, and the sweep's exponents.

    Args:
        models: Those that are followed over the sites, one sample at a time; transolver sees
            them as points, the others as a square grid.
        min_sites: The first power of four is not below it.
        max_sites: The last power of four is not above it.
        sweeps: Fields of gpo-paper's configuration with their values, smallest first; at 64×64 sites
            and batch 16.
        repeats: Rounds over all places, each with two steps of training and of inference.
        memory_limit: Gigabytes of memory; a step that should take more, judged by the place
            before, is left out.
        device: On a GPU, times are those of the clock.
        on_progress: Called with what is measured next.
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
            for before, point in zip((None, *line), line, strict=False):
                workload, note = point.workload, ""
                if before is not None:
                    workload, note = _affordable(before, costs[before], point, memory_limit)
                cost = Cost(note=note)
                if workload is not None:
                    on_progress(f"round {number} of {repeats}: {point}")
                    cost = _measure_steady(workload)
                    cost = replace(cost, note=cost.note or note)
                costs[point] = costs[point].beside(cost) if point in costs else cost
    rows = [row for line in lines for row in _rows(line, costs)]
    return scaling_tables(rows), rows


def fit_exponent(
    places: Sequence[int | float], heights: Sequence[int | float | None]
) -> float | None:
    r"""Returns $p$ of $y\propto x^p$, fitted in logarithms over the larger half of the places.

    Args:
        places: Positive and growing.
        heights: None where nothing was measured; fewer than two numbers have no exponent.
    """
    known = [(x, y) for x, y in zip(places, heights, strict=True) if y is not None and y > 0]
    if len(known) < 2:
        return None
    x, y = np.log(known[min(len(known) // 2, len(known) - 2) :]).T
    return float(np.polyfit(x, y, 1)[0])


def scaling_tables(rows: Sequence[Row]) -> list[Table]:
    """Returns a table per quantity against the sites, and one per field of gpo-paper's configuration."""
    over_sites = [row for row in rows if row["against"] == "sites"]
    fields = dict.fromkeys(row["against"] for row in rows if row["against"] != "sites")
    tables = [_site_table(over_sites, name) for name in QUANTITIES if over_sites]
    return tables + [
        _size_table([row for row in rows if row["against"] == name]) for name in fields
    ]


def _at_sites(model: str, side: int, device: Device) -> Point:
    workload = make_workload(
        model, SMALL, is_scattered=model in SCATTERED,
        grid_shape=(side, side), batch_size=1, device=device,
    )  # fmt: skip
    return Point(model, "sites", side**2, workload)


def _at_size(name: str, value: int, device: Device) -> Point:
    config = replace(SMALL, **{name: value})
    return Point("gpo-paper", name, value, make_workload("gpo-paper", config, device=device))


def _measure_steady(workload: Workload) -> Cost:
    """Returns times of one process and peaks of another, neither bent by the allocator."""
    if workload.device != "cpu":
        return measure_cost(workload)
    released = measure_cost(replace(workload, allocator="releasing"))
    if released.parameters is None:
        return released
    kept = measure_cost(replace(workload, allocator="keeping"))
    if kept.parameters is None:
        return kept
    return replace(
        kept, training_bytes=released.training_bytes, inference_bytes=released.inference_bytes
    )


def _affordable(
    before: Point, known: Cost, point: Point, memory_limit: float
) -> tuple[Workload | None, str]:
    """Returns as much of a workload as fits into memory, and why the rest does not.

    Memory is taken to grow in proportion from the place before, and to be kept once used.
    """
    if known.inference_bytes is None:
        return None, known.note

    def excess(part: str, measured: int) -> str:
        gigabytes = KEPT * measured * point.value / before.value / 2**30
        what = f"{part} at {_spell(point.against)} = {point.value:,}"
        return f"{what} would take about {gigabytes:.3g} GB" if gigabytes > memory_limit else ""

    if note := excess("inference", known.inference_bytes):
        return None, note
    note = known.note if known.training_bytes is None else excess("training", known.training_bytes)
    return replace(point.workload, trains=not note), note


def _rows(line: Sequence[Point], costs: Mapping[Point, Cost]) -> list[Row]:
    places = [point.value for point in line]
    exponents = {
        name: fit_exponent(places, [getattr(costs[point], name) for point in line])
        for name in QUANTITIES
    }
    return [
        {
            "model": point.model, "against": point.against,
            "label": _spell(point.against), "value": point.value,
            "batch_size": point.workload.batch_size, "device": point.workload.device,
            **asdict(costs[point]), "exponents": exponents,
        }
        for point in line
    ]  # fmt: skip


def _site_table(rows: Sequence[Row], quantity: str) -> Table:
    places = list(dict.fromkeys(row["value"] for row in rows))
    columns = [f"N = {place:,}" for place in places]
    title = f"Scaling with sites: {_title(quantity, rows[0])}"
    table = Table(title, "model", [*columns, "exponent"], best="none")
    for model in dict.fromkeys(row["model"] for row in rows):
        mine = [row for row in rows if row["model"] == model]
        table.add(model, [*(_entry(row, quantity) for row in mine), _exponent(mine[0], quantity)])
    sizes = {row["model"]: row["parameters"] for row in rows if row["parameters"]}
    table.notes.append(
        "One sample at a time. Parameters: "
        + ", ".join(f"{name} {size:,}" for name, size in sizes.items())
        + f". The exponent is fitted over the larger half of the sites. {ALLOCATOR_NOTE}"
    )
    return table


def _size_table(rows: Sequence[Row]) -> Table:
    name = _spell(rows[0]["against"])
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


def _spell(against: str) -> str:
    return NAMES.get(against, against)


def _title(quantity: str, row: Row) -> str:
    is_cpu_time = quantity.endswith("seconds") and row["device"] == "cpu"
    return f"CPU {QUANTITIES[quantity]}" if is_cpu_time else QUANTITIES[quantity]


def _entry(row: Row, quantity: str) -> Entry:
    value = row[quantity]
    if value is None:
        return Entry(note=row["note"])
    return Entry(three_digits(value / MEGABYTE if quantity.endswith("bytes") else value))


def _exponent(row: Row, quantity: str) -> Entry:
    return Entry(row["exponents"][quantity])
