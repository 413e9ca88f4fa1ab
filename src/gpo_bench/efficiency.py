"""The paper's table of efficiency: parameters, memory and time of each model.

Other processes on the machine can only lengthen a time. The shortest of all repeats is therefore
used, and the repeats of all models are interleaved.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict

from gpo.model.presets import preset
from gpo_bench.cost import MEGABYTE, Cost, Device, Row, make_workload, measure_cost, round_large
from gpo_bench.protocol import MODELS
from gpo_bench.table import Entry, Table

EPOCH = 1000
"""Number of samples of an epoch in the table."""
Numbers = tuple[int | float | None, ...]
"""One number for each of `COLUMNS`."""
COLUMNS = (
    "parameters", "weights, MB", "peak memory, MB", "training, s/epoch", "inference, s/epoch"
)  # fmt: skip
STEPS = ("training, s/step", "inference, s/step")
PAPER: dict[str, Numbers] = {
    "gpo-paper": (1_598_257, 6.10, 2_313, 44.66, 1.67),
    "fno": (640_305, 4.84, 949, 28.27, 0.5),
    "lsm": (19_187_457, 73.23, 2_875, 48.42, 1.73),
    "galerkin": (1_096_321, 4.18, 4_301, 65.29, 2.96),
    "gnot": (2_485_901, 9.48, 8_643, 139.42, 6.09),
    "transolver": (3_069_889, 11.71, 4_917, 97.03, 4.10),
    "ono": (1_596_673, 6.09, 6_163, 94.80, 4.27),
}
"""Numbers of the paper, measured on a GPU."""


def measure_efficiency(
    models: Sequence[str] = MODELS,
    *,
    repeats: int = 3,
    grid_shape: tuple[int, int] = (64, 64),
    batch_size: int = 16,
    device: Device = "cpu",
    on_progress: Callable[[str], None] = lambda _: None,
) -> tuple[list[Table], list[Row]]:
    """Returns tables and rows of the cost of each model; gpo-paper has the paper's sizes for ns2d.

    Args:
        models: Names of `MODELS`.
        repeats: Number of rounds over all models.
        grid_shape: Number of sites along both axes.
        batch_size: Number of samples in a step.
        device: Device of the models; times on a GPU are wall times.
        on_progress: Called with a message before each measurement.
    """
    if repeats < 1:
        raise ValueError(f"`repeats` must be at least 1, got {repeats}.")
    setting: Row = {"grid_shape": grid_shape, "batch_size": batch_size, "device": device}
    workloads = {name: make_workload(name, preset("ns2d")[1], **setting) for name in models}
    costs: dict[str, Cost] = {}
    for number in range(1, repeats + 1):
        for name, workload in workloads.items():
            if name in costs and costs[name].note:
                continue
            on_progress(f"round {number} of {repeats}: {name}")
            cost = measure_cost(workload)
            costs[name] = costs[name].combine(cost) if name in costs else cost
    rows = [{"model": name, **setting, **asdict(cost)} for name, cost in costs.items()]
    return efficiency_tables(rows), rows


def efficiency_tables(rows: Sequence[Row]) -> list[Table]:
    """Returns the table of costs, and the table of ratios to the costs of gpo."""
    setting = rows[0]
    size, batch = "×".join(map(str, setting["grid_shape"])), setting["batch_size"]
    unit = "CPU seconds of one thread" if setting["device"] == "cpu" else "seconds on a GPU"
    title = f"Efficiency at {size}, one field and two coordinates, batch {batch}"
    paper_columns = [f"{name} (paper)" for name in COLUMNS]
    columns = [name for pair in zip(COLUMNS, paper_columns, strict=True) for name in pair]
    costs = Table(title, "model", [*columns, *STEPS], unranked=frozenset(paper_columns))
    unitless = [name.replace(", MB", "").replace(", s/epoch", "") for name in columns]
    ratios = Table(f"{title}: multiples of gpo", "model", unitless, best="none")
    measured = {row["model"]: _numbers(row) for row in rows}
    unknown: Numbers = (None,) * len(COLUMNS)
    for row in rows:
        name, note = row["model"], row["note"]
        paper = PAPER.get(name, unknown)
        steps = [Entry(row["training_seconds"]), Entry(row["inference_seconds"])]
        costs.add(name, [*_entries(measured[name], paper, note, digits=5), *steps])
        multiples = _ratios(measured[name], measured.get("gpo", unknown))
        ratios.add(name, _entries(multiples, _ratios(paper, PAPER["gpo-paper"]), note, digits=3))
    costs.notes += [
        f"Times are {unit}, the shortest of all repeats. An epoch is {EPOCH:,} samples, or "
        f"{EPOCH / batch:g} steps. A training step is forward, backward and AdamW.",
        "Peak memory is that of a training step without the model and its batch: activations, "
        "gradients, the state of AdamW and memory that the allocator keeps. 1 MB is 2^20 bytes. "
        "glibc maps tensors above 32 MB again each time, which adds to the time of large models.",
    ]
    ratios.notes += [
        "The paper measured at 64×64 and batch 16 on an NVIDIA RTX 4090, with epochs of unknown "
        "size. Its memory and seconds are therefore comparable only as multiples, which refer to "
        "its own gpo. That model has 1,598,257 parameters, which one reading of the paper among many "
        "has; the literal one, gpo-paper, has fewer.",
    ]
    return [costs, ratios]


def _numbers(row: Row) -> Numbers:
    """Returns the numbers of a row in the units of the table."""
    steps = EPOCH / row["batch_size"]
    scaled = (
        None if row[name] is None else row[name] * factor
        for name, factor in (
            ("weight_bytes", 1 / MEGABYTE), ("training_bytes", 1 / MEGABYTE),
            ("training_seconds", steps), ("inference_seconds", steps),
        )
    )  # fmt: skip
    return (row["parameters"], *scaled)


def _ratios(numerators: Numbers, denominators: Numbers) -> Numbers:
    pairs = zip(numerators, denominators, strict=True)
    return tuple(None if value is None or not unit else value / unit for value, unit in pairs)


def _entries(measured: Numbers, paper: Numbers, note: str, *, digits: int) -> list[Entry]:
    """Returns alternating entries of measured and paper numbers; the note is in the first."""
    entries: list[Entry] = []
    for value, paper_value in zip(measured, paper, strict=True):
        reason = "" if entries else note
        entries += [Entry(round_large(value), note=reason), Entry(paper_value, digits=digits)]
    return entries
