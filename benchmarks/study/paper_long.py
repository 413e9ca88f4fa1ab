"""The literal model of the paper and a reading of it to their end, beside fno and gpo.

    OMP_NUM_THREADS=1 python benchmarks/study/paper_long.py --hours 1 --only 64
    python benchmarks/study/paper_long.py --table-only

500 epochs or early stopping on ns2d (quick data) at 32 x 32, with 64 / 4 / 4 / 16 and with
128 / 8 / 8 / 32 channels, layers, heads and Gaussians. The models of the paper have its recipe (AdamW
from 1e-3, StepLR, the state); fno and gpo have the same number of epochs, and gpo its own recipe.
Every run is a folder that `gpo run` resumes, so this command may be stopped at any time; curves of
all runs, also unfinished ones, are in a json file that is written after each.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import tyro
from paper_readings import GROUPS

from gpo import RunConfig
from gpo.atomic_files import write_text
from gpo.evaluation.results import Results
from gpo.training.run_folder import SCORE, SPENT, Run, read_log

SIZES: dict[str, dict[str, int]] = {
    "64": {"hidden_dim": 64, "num_layers": 4, "num_heads": 4, "num_gaussians": 16},
    "128": {"hidden_dim": 128, "num_layers": 8, "num_heads": 8, "num_gaussians": 32},
}
RECIPE: dict[str, Any] = {
    "optimizer": "adamw", "learning_rate": 1e-3, "schedule": "step", "predict": "state",
}  # fmt: skip
"""The paper's, for its models and for fno."""


def runs_of(reading: str) -> dict[str, dict[str, Any]]:
    """Returns the settings of all runs by name."""
    options = GROUPS["design"][reading]
    runs: dict[str, dict[str, Any]] = {}
    for size, sizes in SIZES.items():
        paper = {"model": "gpo-paper", **RECIPE, **sizes}
        runs[f"literal {size}"] = paper
        runs[f"{reading} {size}"] = {**paper, **options}
    return {**runs, "fno": {"model": "fno", **RECIPE}, "gpo": {"model": "gpo"}}


def curve_of(run: Run) -> dict[str, Any]:
    """Returns the curve of a run so far, and its scores where it is evaluated."""
    rows = [row for row in read_log(run) if SCORE in row] if run.config_file.exists() else []
    names = [name for name in ("train/prediction", SCORE, SPENT) if rows and name in rows[0]]
    found: dict[str, Any] = {
        "epochs": [row["epoch"] for row in rows],
        **{name: [row.get(name) for row in rows] for name in names},
    }
    record = run.record() if run.config_file.exists() else None
    if record is not None:
        found["ended"] = record.reason
    if run.results_file.exists():
        found["test"] = Results.load(run.results_file).one_step
    return found


def table(curves: dict[str, dict[str, Any]]) -> str:
    """Returns the best score and the number of epochs of every run as Markdown."""
    lines = ["| run | epochs | best validation score | test relative L2 | ended |", "|---|---|---|---|---|"]  # fmt: skip
    for name, curve in curves.items():
        scores = [score for score in curve.get(SCORE, []) if score is not None]
        best = f"{min(scores):.4f}" if scores else "-"
        test = curve.get("test", {}).get("model", {}).get("relative_l2")
        error = "-" if test is None else f"{test:.4f}"
        ended = curve.get("ended", "not yet")
        lines.append(f"| {name} | {len(curve['epochs'])} | {best} | {error} | {ended} |")
    return "\n".join(lines)


def main(
    hours: float = 1.3,
    epochs: int = 500,
    patience: int = 50,
    reading: str = "tls",
    only: tuple[str, ...] = (),
    benchmark: Literal["ns2d", "ns2d-1e-5"] = "ns2d",
    seed: int = 0,
    runs: Path = Path("runs/paper-long"),
    out: Path = Path("benchmarks/results/study/paper-long.json"),
    table_only: bool = False,
) -> None:
    """Trains the runs that are not finished, one after the other.

    Args:
        hours: Core hours at most for each of the six runs.
        epochs: Epochs at most.
        patience: Epochs without improvement before a run stops.
        reading: The best reading of the design in paper_readings.py.
        only: Parts of the names of runs to train, such as 64 or literal (default: all).
        benchmark: Data set, at viscosity 1e-4 or 1e-5.
        seed: Random seed.
        runs: Folder of the runs.
        out: File of the curves.
        table_only: Print the table of the runs that are there, and train nothing.
    """
    common = {
        "benchmark": benchmark, "preset": "quick", "coarsen": 2, "noise": 0.0, "batch_size": 16, "blend": False,
        "epochs": epochs, "patience": patience, "budget_cpu": 3600 * hours, "seed": seed,
    }  # fmt: skip
    chosen = runs_of(reading)
    for name, settings in chosen.items():
        run = Run(runs / name.replace(" ", "-"))
        if not table_only and (not only or any(part in name for part in only)):
            run.folder.parent.mkdir(parents=True, exist_ok=True)
            config = run.folder.with_name(f"{run.folder.name}.yaml")
            RunConfig.of(**common, **settings).save(config)
            command = [sys.executable, "-m", "gpo", "run", "--config", str(config)]
            subprocess.run([*command, "--out", str(run.folder), "--quiet"], check=True, env=os.environ)  # fmt: skip
        curves = {each: curve_of(Run(runs / each.replace(" ", "-"))) for each in chosen}
        out.parent.mkdir(parents=True, exist_ok=True)
        write_text(out, json.dumps(curves, indent=1) + "\n")
    print(table(curves))


if __name__ == "__main__":
    tyro.cli(main)
