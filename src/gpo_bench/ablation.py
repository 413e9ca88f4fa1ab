"""Ablations of gpo and of the paper's model: one change at a time, on one benchmark."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpo_bench.columns import COLUMNS
from gpo_bench.experiment import Experiment
from gpo_bench.experiment_grid import ExperimentGrid
from gpo_bench.protocol import Protocol
from gpo_bench.table import Entry, Table

ROWS: dict[str, dict[str, dict[str, Any]]] = {
    "gpo": {
        "gpo": {},
        "without layers": {"num_layers": 0},
        "2 layers": {"num_layers": 2},
        "without particles": {"num_transports": 0},
        "particles held still": {"reach": 1e-6},
        "particles in two layers": {"num_transports": 2},
        "particles in all layers": {"num_transports": 4},
        "1 particle": {"num_gaussians": 1},
        "8 particles": {"num_gaussians": 8},
        "half the reach": {"reach": 0.125},
        "without place": {"features": "none"},
        "8 waves": {"num_waves": 8},
        "4 waves": {"num_waves": 4},
        "packets of one width": {"packet_widths": (0.8,)},
        "modes on their own": {"packet_widths": ()},
        "unbounded gate": {"gate": "product"},
        "GELU for the gate": {"gate": "none"},
        "loss by the change": {"relative_to": "change"},
        "noisy input": {"noise": 0.03, "noise_fraction": 1.0},
        "predicting the state": {"predict": "state"},
    },
    "gpo-paper": {
        "gpo-paper": {},
        "without PG operator": {"ablation": "without-pg-operator"},
        "without Gaussian field": {"ablation": "without-gaussian-field"},
        "1 Gaussian": {"ablation": "gaussians-1"},
        "32 Gaussians": {"ablation": "gaussians-32"},
        "64 Gaussians": {"ablation": "gaussians-64"},
        "without L_mu": {"loss_center": 0.0},
        "without L_sigma, the scale bounds": {"loss_scale": 0.0},
        "learned lambda": {"learns_mixing": True},
        "without renormalisation": {"renormalises": False},
        "displaced centers": {"centers": "displacement"},
        "shared layers": {"share_layers": True},
        "softplus readout": {"readout": "softplus"},
        "feed-forward on tokens": {"token_width": 256},
        "layer norm, no renormalisation": {"layer_norm": True, "renormalises": False},
        "sharp windows": {"temperature": 0.05},
        "predicting the state": {"predict": "state"},
    },
}
"""Changes to the configuration, by model and row. gpo-paper has 16 Gaussians and fixed lambda."""

PAPER = {
    "gpo-paper": 4.21e-2, "without PG operator": 8.57e-2, "without Gaussian field": 7.44e-2,
    "1 Gaussian": 6.28e-2, "32 Gaussians": 3.90e-2, "64 Gaussians": 3.84e-2,
}  # fmt: skip
"""Relative L2 in the paper by number of Gaussians: gpo-paper has 16 here, the paper's baseline 32."""


def ablation_experiments(
    model: str, column: str, protocol: Protocol, files: Path, seeds: Sequence[int]
) -> list[Experiment]:
    """Returns one experiment per row and seed.

    Args:
        model: The full model, gpo or gpo-paper.
        column: A name of `COLUMNS`.
        protocol: Training budget, optimizers and learning rates.
        files: Folder of real data.
        seeds: Random seeds.
    """
    source = COLUMNS[column].source(column, files, protocol.settings()["preset"])
    return [
        Experiment(row, column, {**source, **changes, "model": model, "seed": seed}, protocol)
        for row, changes in ROWS[model].items()
        for seed in seeds
    ]


def ablation_table(grid: ExperimentGrid, model: str, column: str, protocol: Protocol) -> Table:
    """Returns relative L2, steps and parameters of each row, and the paper's numbers."""
    columns = ("relative L2", "steps", "parameters") + ("relative L2 (paper)",) * (model != "gpo")
    table = Table(
        f"Ablation of {model} on {column}, {protocol.name} protocol", "row", columns,
        unranked=frozenset(columns[1:]),
    )  # fmt: skip
    for row in ROWS[model]:
        outcomes = grid.outcomes.get((row, column))
        parameters = outcomes[0].parameters if outcomes else None
        entries = [grid.error(row, column), Entry(grid.mean_steps(row, column)), Entry(parameters)]
        table.add(row, entries if model == "gpo" else [*entries, Entry(PAPER.get(row))])
    persistence = grid.reference("persistence", column)
    text = "not measured" if persistence is None else f"{persistence:.3g}"
    table.notes.append(f"{protocol}. Persistence: {text}. {grid.optimizers()}")
    table.notes.append(separation(grid, model, column))
    return table


def separation(grid: ExperimentGrid, model: str, column: str) -> str:
    """Returns which rows differ from the full model by more than two standard deviations over seeds."""
    errors = {row: grid.error(row, column) for row in ROWS[model]}
    full = errors.pop(model)
    if full.value is None or full.spread is None:
        return "One seed: whether rows differ by more than seeds do is not known."
    apart = [
        row
        for row, entry in errors.items()
        if entry.value is not None
        and abs(entry.value - full.value) > 2 * math.hypot(full.spread, entry.spread or full.spread)
    ]
    rows = ", ".join(apart) or "none"
    return f"Rows that differ from {model} by more than two standard deviations over seeds: {rows}."
