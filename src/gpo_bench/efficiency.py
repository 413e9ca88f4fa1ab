"""What every model costs in parameters, memory and time: the paper's table of efficiency.

A processor that is shared adds to a time and never takes away from it: of all repeats the
smallest counts, and the repeats of one model lie between those of the others.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict

from gpo.model.presets import preset
from gpo_bench.cost import MEGABYTE, Cost, Device, Row, make_workload, measure_cost, three_digits
from gpo_bench.protocol import MODELS
from gpo_bench.table import Entry, Table

EPOCH = 1000
"""Samples that an epoch has in the table."""
Numbers = tuple[int | float | None, ...]
"""One for each of `COLUMNS`."""
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
"""What the paper states, measured on a GPU."""


def measure_efficiency(
    models: Sequence[str] = MODELS,
    *,
    repeats: int = 3,
    grid_shape: tuple[int, int] = (64, 64),
    batch_size: int = 16,
    device: Device = "cpu",
    on_progress: Callable[[str], None] = lambda _: None,
) -> tuple[list[Table], list[Row]]:
    """Returns tables and rows: the cost of every model; gpo-paper has the sizes that the paper states for ns2d.

    Args:
        models: Names of `MODELS`.
        repeats: Rounds over all models, each with two steps of training and of inference.
        grid_shape: Sites along both axes.
        batch_size: Samples in a step.
        device: On a GPU, times are those of the clock.
        on_progress: Called with what is measured next.
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
            costs[name] = costs[name].beside(cost) if name in costs else cost
    rows = [{"model": name, **setting, **asdict(cost)} for name, cost in costs.items()]
    return efficiency_tables(rows), rows


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
        ratios.add(name, _entries(mine, _ratios(stated, PAPER["gpo-paper"]), note, digits=3))
    costs.notes += [
        f"Times are {kind}, the smallest of all repeats; an epoch is {EPOCH:,} samples, that is "
        f"{EPOCH / batch:g} steps. A training step is forward, backward and AdamW.",
        "Peak memory is that of a training step above the model and its batch: activations, "
        "gradients, the state of AdamW and what the allocator keeps. A MB has 2^20 bytes. Under "
        "glibc, tensors above 32 MB get new pages every time: a part of the time of large models.",
    ]
    ratios.notes += [
        "The paper measured at 64×64 and batch 16 on an NVIDIA RTX 4090, with epochs of a size it does "
        "not state: its memory and seconds compare with ours as multiples only, and its multiples are "
        "of its own gpo. That has 1,598,257 parameters, which the sizes it states do not give.",
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
