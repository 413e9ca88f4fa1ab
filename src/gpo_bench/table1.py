"""Table 1 of the paper: relative L2 of each model on each benchmark and on files of real data."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from gpo_bench.columns import COLUMNS, PAPER, NoDataError
from gpo_bench.experiment import Experiment
from gpo_bench.experiment_grid import ExperimentGrid
from gpo_bench.protocol import MODELS, Protocol
from gpo_bench.table import Entry, Table

REFERENCES = ("persistence", "climatology", "linear map", "training mean")
"""Reference forecasts, which are rows below the models."""


def table1_experiments(
    models: Sequence[str],
    columns: Sequence[str],
    protocol: Protocol,
    files: Path,
    seeds: Sequence[int],
    repeated: Sequence[str] = MODELS,
) -> tuple[list[Experiment], dict[str, str]]:
    """Returns the experiments, column by column, and the reasons of columns without data.

    Args:
        models: Names of the rows.
        columns: Names of the columns.
        protocol: Training budget, optimizers and learning rates.
        files: Folder of real data.
        seeds: Random seeds.
        repeated: Rows that use all seeds; the others use the first.
    """
    flags = (("models", models, MODELS), ("repeated", repeated, MODELS), ("benchmarks", columns, COLUMNS))  # fmt: skip
    for flag, names, choices in flags:
        for name in names:
            if name not in choices:
                raise ValueError(f"--{flag} must be among {', '.join(choices)}, got {name!r}.")
    experiments, missing = [], {}
    for column in columns:
        try:
            source = COLUMNS[column].source(column, files, protocol.settings()["preset"])
        except NoDataError as error:
            missing[column] = str(error)
            continue
        experiments += [
            Experiment(model, column, {**source, "model": model, "seed": seed}, protocol)
            for seed in seeds
            for model in models
            if model in repeated or seed == seeds[0]
        ]
    return experiments, missing


def table1(
    grid: ExperimentGrid,
    models: Sequence[str],
    columns: Sequence[str],
    missing: dict[str, str],
    protocol: Protocol,
) -> Table:
    """Returns the table of relative L2 with the number of steps, and the paper's numbers."""
    paper = [column for column in columns if column in PAPER["gpo-paper"]]
    names = [name for column in columns for name in (column, *([f"{column} (paper)"] if column in paper else []))]  # fmt: skip
    table = Table(
        f"Relative L2, {protocol.name} protocol", "model", names,
        unranked=frozenset((*REFERENCES, *(f"{column} (paper)" for column in paper))),
    )  # fmt: skip
    for model in models:
        entries = []
        for column in columns:
            entries.append(_entry(grid, model, column, missing))
            if column in paper:
                entries.append(Entry(PAPER.get(model, {}).get(column)))
        table.add(model, entries)
    for reference in REFERENCES:
        entries = []
        for column in columns:
            entries.append(Entry(grid.reference(reference, column)))
            if column in paper:
                entries.append(Entry())
        if any(entry.value is not None for entry in entries):
            table.add(reference, entries)
    for column, reason in missing.items():
        table.notes.append(f"{column}: - ({reason}).")
    counts = {
        column: outcomes[-1].num_examples
        for column in columns
        if (outcomes := grid.in_column(column))
    }
    for rules in sorted(set(grid.other_rules.values())):
        table.notes.append(f"Protocol of entries marked other rules: {rules}.")
    table.notes += [
        f"{str(protocol)[0].upper()}{str(protocol)[1:]}.",
        grid.optimizers(),
        "Numbers in parentheses are optimizer steps. Test examples: "
        + ", ".join(f"{column} {count}" for column, count in counts.items()) + ".",
        *_settings(counts),
        *_sizes(protocol, counts),
        "Columns marked (paper) are quoted from the paper, with its data and hardware.",
    ]  # fmt: skip
    return table


def _entry(grid: ExperimentGrid, model: str, column: str, missing: dict[str, str]) -> Entry:
    key = (model, column)
    if column in missing:
        return Entry()
    if key in grid.failures:
        # Errors about an unsupported geometry all start with the same words.
        return Entry(note=grid.failures[key].split("cannot take these sites: ")[-1])
    entry, steps = grid.error(model, column), grid.mean_steps(model, column)
    if steps is None:
        return entry
    return replace(entry, note=f"{steps:,}{', other rules' * (key in grid.other_rules)}")


def _settings(columns: Iterable[str]) -> list[str]:
    """Returns a note on the settings of columns, which are the same for all models."""
    texts = [f"{name} {COLUMNS[name].rules}" for name in columns if COLUMNS[name].rules]
    return [f"Settings of columns: {'; '.join(texts)}."] if texts else []


def _sizes(protocol: Protocol, columns: Iterable[str]) -> list[str]:
    """Returns a note on the resolution and batch size of columns with the quick preset."""
    if protocol.settings()["preset"] != "quick":
        return []
    sizes = {name: {"coarsen": 1, "batch_size": 8, **COLUMNS[name].quick} for name in columns}
    return [
        "Coarsening factor along each axis: "
        + ", ".join(f"{name} {size['coarsen']}" for name, size in sizes.items())
        + ". Batch size: "
        + ", ".join(f"{name} {size['batch_size']}" for name, size in sizes.items()) + "."
    ]  # fmt: skip
