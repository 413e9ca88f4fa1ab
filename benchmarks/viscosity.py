"""The viscosity that trained particles imply, beside that of the solver whose data they were trained on.

    python benchmarks/viscosity.py FOLDER --seeds 0 1 2

A particle of scale sigma spreads what it samples over a time step dt as a viscosity of sigma^2 / (2 dt)
does. For every viscosity, step length and seed, gpo is trained on ns2d on 32 x 32 sites, and its scales
are read; which particle matters most is found on validation data. Data and runs are kept in FOLDER.
Rows are appended to `runs.jsonl`, and those that are there are not made again.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from tyro.conf import Positional

from gpo import open_run
from gpo.cli import main as gpo
from gpo.data.generate import generate
from gpo.data.solvers.navier_stokes_2d import PRESETS
from gpo.data.splits import evenly
from gpo.evaluation.flow import FlowVariables
from gpo.interpretation.attribution import particle_rows
from gpo.interpretation.batches import make_batches
from gpo.interpretation.controls import Controls
from gpo.interpretation.diffusion import (
    Viscosity,
    describe_diffusion,
    learned_scales,
    scales_at_floor,
    scales_at_start,
)

RESULTS = Path(__file__).parent / "results" / "viscosity"
CHOSEN_ON = (1e-4, 4e-4, 2e-3)
"""Viscosities on which it is decided which estimate is used; the others are left for its test."""
ESTIMATES = {
    "best": "most important particle",
    "sharpest": "sharpest particle",
    "total": "sum over layers of the most important",
}
CONTROLS = {
    "initial": "scale before training",
    "initial_total": "sum over layers of scales before training",
    "floor": "floor of the lattice",
}
WITHIN = 0.25
MAX_EXAMPLES = 16
"""Validation examples on which importance is measured, evenly chosen."""


@dataclass(frozen=True)
class Case:
    """A training run."""

    viscosity: float
    lead: int
    seed: int

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"nu{self.viscosity:g}-lead{self.lead}-seed{self.seed}"

    def train(self, folder: Path, flags: Sequence[str], runs: Path | None = None) -> Path:
        """Makes data and run unless they exist, and returns the run, in `runs` or beside the data."""
        data, run = folder / f"ns2d-nu{self.viscosity:g}.mat", (runs or folder) / self.name
        generate(replace(PRESETS["quick"], viscosity=self.viscosity), data)
        gpo([
            "train", "--data", str(data), "--coarsen", "2", "--lead", str(self.lead),
            "--seed", str(self.seed), "--noise", "0", "--no-auto", "--quiet", *flags,
            "--out", str(run),
        ])  # fmt: skip
        return run

    def row(self, run: Path) -> dict[str, Any]:
        """Returns what the particles of a run imply, and errors with other scales."""
        opened = open_run(run)
        forecaster, data = opened.forecaster().eval(), opened.data
        batches = make_batches(data, evenly(opened.split.validation, MAX_EXAMPLES))
        variables = FlowVariables.named(forecaster.task.fields)
        rows, _ = particle_rows(forecaster, batches, variables, np.random.default_rng(0))
        true = Viscosity(self.viscosity, "the solver")
        rows, summary = describe_diffusion(forecaster, data, batches, rows, true)
        controls = Controls.of(forecaster, batches)
        errors = {
            "own": controls.error_with(learned_scales(forecaster)),
            "floor": controls.error_with(scales_at_floor(learned_scales(forecaster))),
            "initial": controls.error_with(scales_at_start(forecaster)),
        }
        num_layers = len(forecaster.operator.transports)
        for some in (summary, summary["ratio"]):
            some["initial_total"] = num_layers * some["initial"]
        kept = ("layer", "particle", "share", "diffusion_length", "implied_viscosity", "velocity_correlation")  # fmt: skip
        particles = [{name: row[name] for name in kept} for row in rows]
        return {**vars(self), **summary, "errors": errors, "particles": particles}


def read_rows(file: Path) -> list[dict[str, Any]]:
    """Returns the rows of finished runs."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [json.loads(line) for line in lines]


def log_error(rows: Iterable[dict[str, Any]], name: str) -> float:
    """Returns by which factor an estimate is off: the exponential of the mean size of its logarithm."""
    return float(np.exp(np.mean([abs(np.log(row["ratio"][name])) for row in rows])))


def tables(rows: list[dict[str, Any]]) -> str:
    """Returns what the runs imply, and which estimate is nearest to the truth."""
    lines = [
        "| viscosity | time step | seed | " + " | ".join(f"{label}; ratio" for label in ESTIMATES.values())
        + " | before training; ratio | sum before training; ratio | floor; ratio | error; scales at floor; before training |",
        "|---|---|---|" + "---|" * (len(ESTIMATES) + len(CONTROLS) + 1),
    ]  # fmt: skip
    for row in rows:
        numbers = [f"{row[name]:.2e}; {row['ratio'][name]:.2f}" for name in (*ESTIMATES, *CONTROLS)]
        errors = "; ".join(f"{row['errors'][name]:.4f}" for name in ("own", "floor", "initial"))
        lines.append(f"| {row['viscosity']:g} | {row['time_step']:g} | {row['seed']} | {' | '.join(numbers)} | {errors} |")  # fmt: skip
    sets = {
        "chosen on": [row for row in rows if row["viscosity"] in CHOSEN_ON],
        "left for its test": [row for row in rows if row["viscosity"] not in CHOSEN_ON],
    }
    lines += ["", "Factor by which an estimate is off, the mean over runs of the size of its logarithm, and runs within 25 %:", ""]  # fmt: skip
    lines += ["| estimate | " + " | ".join(f"{name} ({len(some)} runs)" for name, some in sets.items()) + " |", "|---|---|---|"]  # fmt: skip
    for name, label in {**ESTIMATES, **CONTROLS}.items():
        factors = [
            f"{log_error(some, name):.2f}; {sum(abs(row['ratio'][name] - 1) <= WITHIN for row in some)}"
            if some else "-" for some in sets.values()
        ]  # fmt: skip
        lines.append(f"| {label} | {' | '.join(factors)} |")
    return "\n".join(lines) + "\n"


def draw(rows: list[dict[str, Any]]) -> Figure:
    """Returns implied against true viscosity, a panel for every estimate."""
    figure, panels = plt.subplots(
        1, len(ESTIMATES), figsize=(12, 4.4), sharex=True, sharey=True, layout="constrained"
    )
    steps = sorted({row["time_step"] for row in rows})
    span = np.array([min(row["viscosity"] for row in rows), max(row["viscosity"] for row in rows)])
    for axes, (name, label) in zip(panels, ESTIMATES.items(), strict=True):
        axes.plot(span, span, color="0.2", linewidth=1, label="equal")
        for step, color in zip(steps, ("#0072b2", "#d55e00", "#009e73"), strict=False):
            some = [row for row in rows if row["time_step"] == step]
            axes.plot(
                [row["viscosity"] for row in some], [row[name] for row in some], "o", color=color,
                markersize=5, alpha=0.8, label=f"learned, time step {step:g}",
            )  # fmt: skip
            start = "initial_total" if name == "total" else "initial"
            axes.axhline(some[0][start], color=color, linestyle="--", linewidth=1, label=f"before training, {step:g}")  # fmt: skip
            axes.axhline(some[0]["floor"], color=color, linestyle=":", linewidth=1, label=f"floor of the lattice, {step:g}")  # fmt: skip
        axes.set(xscale="log", yscale="log", title=label, xlabel="viscosity of the solver")
        axes.grid(alpha=0.3, which="both")
    panels[0].set_ylabel("implied viscosity σ² / 2Δt")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    return figure


def main(
    folder: Positional[Path],
    seeds: tuple[int, ...] = (0, 1, 2),
    viscosities: tuple[float, ...] = (1e-4, 4e-4, 2e-3, 2e-4, 1e-3),
    leads: tuple[int, ...] = (1, 2),
    flags: tuple[str, ...] = ("--learning-rate=6e-3", "--steps=600"),
    out: Path = RESULTS,
) -> None:
    """Trains and reads all runs that are missing, then writes table and figure.

    Args:
        folder: Keeps data and runs.
        seeds: Seeds of every viscosity and step length.
        viscosities: Of the solver.
        leads: Frames from input to target, a unit of time each.
        flags: More flags of `gpo train`, such as --budget-cpu=45; with other flags, choose another
            folder and --out.
        out: Where `runs.jsonl`, `table.md` and `viscosity.png` are written.
    """
    torch.set_num_threads(1)
    out.mkdir(parents=True, exist_ok=True)
    file = out / "runs.jsonl"
    for case in (Case(nu, lead, seed) for seed in seeds for lead in leads for nu in viscosities):
        if any(vars(case).items() <= row.items() for row in read_rows(file)):
            continue
        row = case.row(case.train(folder, flags))
        with file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(row) + "\n")
        print(case.name, {name: round(value, 2) for name, value in row["ratio"].items()}, flush=True)  # fmt: skip
    rows = sorted(read_rows(file), key=lambda row: (row["lead"], row["viscosity"], row["seed"]))
    text = tables(rows)
    (out / "table.md").write_text(text, encoding="utf-8")
    draw(rows).savefig(out / "viscosity.png", dpi=120)
    print(text)


if __name__ == "__main__":
    tyro.cli(main)
