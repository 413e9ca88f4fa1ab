"""The paper's ablation of its variant, and the rows its readers asked for, on one column."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpo.bench.campaign import Campaign
from gpo.bench.cell import Cell
from gpo.bench.columns import COLUMNS
from gpo.bench.protocol import Protocol
from gpo.bench.table import Entry, Table

ROWS: dict[str, dict[str, Any]] = {
    "gpo": {},
    "without PG operator": {"ablation": "without-pg-operator"},
    "without Gaussian field": {"ablation": "without-gaussian-field"},
    "1 Gaussian": {"ablation": "gaussians-1"},
    "32 Gaussians": {"ablation": "gaussians-32"},
    "64 Gaussians": {"ablation": "gaussians-64"},
    "without L_mu": {"loss": ("center=0",)},
    "without L_sigma, the scale bounds": {"loss": ("scale=0",)},
    "learned lambda": {"operator": ("learns_mixing=true",)},
    "without renormalisation": {"operator": ("renormalises=false",)},
    "absolute centers": {"centers": "absolute"},
    "shared layers": {"operator": ("share_layers=true",)},
    "signed readout": {"operator": ("signed_readout=true",)},
    "predicting the state": {"predict": "state"},
}
"""Changes to the configuration of gpo; the full one has 16 Gaussians and fixed lambda."""

PAPER = {
    "gpo": 3.90e-2, "without PG operator": 8.57e-2, "without Gaussian field": 7.44e-2,
    "1 Gaussian": 6.28e-2, "64 Gaussians": 3.84e-2,
}  # fmt: skip
"""The paper's numbers; its baseline has 32 Gaussians, and 4.21e-2 with 16."""


def ablation_cells(
    column: str, protocol: Protocol, files: Path, seeds: Sequence[int]
) -> list[Cell]:
    """Returns one cell per row and seed."""
    source = COLUMNS[column].source(column, files, protocol.settings()["preset"])
    return [
        Cell(
            row,
            column,
            {**source, "variant": "paper", **changes, "model": "gpo", "seed": seed},
            protocol,
        )
        for row, changes in ROWS.items()
        for seed in seeds
    ]


def ablation_table(campaign: Campaign, column: str, protocol: Protocol) -> Table:
    """Returns relative L2, parameters and steps of every row."""
    columns = ("relative L2", "steps", "parameters", "relative L2 (paper)")
    table = Table(
        f"Ablation on {column}, {protocol.name} protocol", "row", columns,
        unranked=frozenset(columns[1:]),
    )  # fmt: skip
    for row in ROWS:
        outcomes = campaign.outcomes.get((row, column), [])
        paper = Entry(PAPER.get(row))
        if not outcomes:
            reason = campaign.failures.get((row, column), "not run")
            table.add(row, [Entry(note=reason), Entry(), Entry(), paper])
            continue
        errors = [outcome.relative_l2 for outcome in outcomes]
        spread = float(np.std(errors, ddof=1)) if len(errors) > 1 else None
        steps = int(np.mean([outcome.steps for outcome in outcomes]))
        table.add(row, [Entry(float(np.mean(errors)), spread), Entry(steps), Entry(outcomes[0].parameters), paper])  # fmt: skip
    table.notes.append(f"{protocol}. Persistence: {_persistence(campaign, column)}.")
    return table


def _persistence(campaign: Campaign, column: str) -> str:
    for (_, place), outcomes in campaign.outcomes.items():
        if place == column and "persistence" in outcomes[0].references:
            return f"{outcomes[0].references['persistence']:.3g}"
    return "not measured"
