"""Table 1 of the paper: relative L2 of every model on every benchmark, and on real files."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from gpo_bench.columns import COLUMNS, PAPER, NoDataError
from gpo_bench.experiment import Experiment
from gpo_bench.experiment_grid import ExperimentGrid
from gpo_bench.protocol import MODELS, Protocol
from gpo_bench.table import Entry, Table

REFERENCES = ("persistence", "climatology", "training mean")


def table1_experiments(
    models: Sequence[str],
    columns: Sequence[str],
    protocol: Protocol,
    files: Path,
    seeds: Sequence[int],
    repeated: Sequence[str] = MODELS,
) -> tuple[list[Experiment], dict[str, str]]:
    """Returns the experiments, column by column, and the columns without data with their reasons.

    Args:
        models: Rows.
        columns: Columns.
        protocol: What every experiment is given.
        files: Folder of real files.
        seeds: Seeds of repeated rows.
        repeated: Rows that get all seeds; the others get the first.
    """
    names_of = {"models": models, "repeated": repeated, "benchmarks": columns}
    for kind, names in names_of.items():
        known = COLUMNS if kind == "benchmarks" else MODELS
        for name in names:
            if name not in known:
                raise ValueError(f"--{kind} must be of {', '.join(known)}, got {name!r}.")
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
    """Returns relative L2 with the steps made; the paper's numbers beside ours, marked as its own."""
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
            entries.append(_reference(grid, reference, column))
            if column in paper:
                entries.append(Entry())
        if any(entry.value is not None for entry in entries):
            table.add(reference, entries)
    for column, reason in missing.items():
        table.notes.append(f"{column}: - ({reason}).")
    counts = _test_examples(grid, columns)
    for rules in sorted(set(grid.other_rules.values())):
        table.notes.append(f"Marked other rules: {rules}.")
    table.notes += [
        f"{str(protocol)[0].upper()}{str(protocol)[1:]}.",
        "In brackets the optimiser steps made. Test examples: "
        + ", ".join(f"{column} {count}" for column, count in counts.items()) + ".",
        *_settings(counts),
        *_sizes(protocol, counts),
        "Columns marked (paper) are the paper's numbers, on its data and hardware, not reproduced "
        "by us.",
    ]  # fmt: skip
    return table


def _entry(grid: ExperimentGrid, model: str, column: str, missing: dict[str, str]) -> Entry:
    key = (model, column)
    mark = ", other rules" * (key in grid.other_rules)
    if column in missing:
        return Entry()
    if key in grid.failures:
        return Entry(note=_short(grid.failures[key]))
    outcomes = grid.outcomes.get(key)
    if not outcomes:
        return Entry(note="not run")
    errors = [outcome.relative_l2 for outcome in outcomes]
    spread = float(np.std(errors, ddof=1)) if len(errors) > 1 else None
    steps = int(np.mean([outcome.steps for outcome in outcomes]))
    return Entry(float(np.mean(errors)), spread, f"{steps:,}{mark}")


def _reference(grid: ExperimentGrid, who: str, column: str) -> Entry:
    for (_, place), outcomes in grid.outcomes.items():
        if place == column and who in outcomes[0].references:
            return Entry(outcomes[0].references[who])
    return Entry()


def _test_examples(grid: ExperimentGrid, columns: Sequence[str]) -> dict[str, int]:
    return {
        column: outcomes[0].num_examples
        for column in columns
        for (_, place), outcomes in grid.outcomes.items()
        if place == column
    }


def _settings(columns: Iterable[str]) -> list[str]:
    """Returns in words what columns set for all models alike."""
    named = [f"{name} {COLUMNS[name].rules}" for name in columns if COLUMNS[name].rules]
    return [f"Settings of columns: {'; '.join(named)}."] if named else []


def _sizes(protocol: Protocol, columns: Iterable[str]) -> list[str]:
    """Returns in words what makes the columns of the quick preset small."""
    if protocol.settings()["preset"] != "quick":
        return []
    sizes = {name: {"coarsen": 1, "batch_size": 8, **COLUMNS[name].quick} for name in columns}
    return [
        "Every n-th site along each axis: "
        + ", ".join(f"{name} {size['coarsen']}" for name, size in sizes.items())
        + ". Examples in a batch: "
        + ", ".join(f"{name} {size['batch_size']}" for name, size in sizes.items()) + "."
    ]  # fmt: skip


def _short(reason: str) -> str:
    """Returns the reason without the words that every refusal begins with."""
    return reason.split("cannot take these sites: ")[-1]
