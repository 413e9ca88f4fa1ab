"""What a stranger gets: `gpo run --data FILE --budget-cpu 60` on real files, with nothing else set.

    python benchmarks/files.py --files FOLDER --runs runs/files --out benchmarks/results/files

Scores are those of one step on the test split, as the run itself tells them: the forecast that is
written, the model alone and every reference; beside them the ratio of errors to the best reference,
with an interval, on test and on validation data, and the largest ratio in rollouts. Opens and reads of
files are counted (`counted_run.py`). `before.json` in the folder of the table has the scores of earlier
versions.
"""

import json
import os
import subprocess
import sys
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from gpo_bench.protocol import describe_machine

FILES: dict[str, tuple[str, ...]] = {
    "era5/era5-2mt-2019-03-uk.grib": (),
    "era5/era5_u10v10sst_med_daily12z_2022-01.nc": (),
    "era5/wam2layers_ERA5_2020-01-01_*.nc": (),
    "era5/era5_tcwv_global025_20220617T09-12.grib": (),
    "era5/era5_lsm_orography_global025.nc": (),
    "ssh_med/dt_med_allsat_phy_l4_2005T2.nc": (),
    "cylinder_channel": (),
    "cylinder_wake/cylinder_nektar_wake.mat": (),
    "small_pde/KS.mat": (),
    "small_pde/burgers_shock.mat": (),
    "radar_knmi": (),
    "wfde5_uk": (),
}
"""Every file, and the flags that it needs: `--var` where several grids are in it."""
OWN = ("model", "blend")
"""Forecasts that are no references."""
COMMAND = "python benchmarks/files.py --files FOLDER"


def run_file(path: Path, flags: tuple[str, ...], out: Path, seconds: float) -> dict[str, Any]:
    """Returns what came out of one run: scores and verdict, or the reason why there are none."""
    if not (out / "results.json").exists():
        script = Path(__file__).with_name("counted_run.py")
        out.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, str(script), str(counts_of(out)), str(path.parent), "--"]
        command += ["run", "--data", str(path), *flags]
        command += ["--budget-cpu", f"{seconds:g}", "--quiet", "--out", str(out)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if not (out / "results.json").exists():
            told = (done.stderr.strip() or done.stdout.strip()).splitlines()
            return {"refused": told[-1].replace(f"{path.parent}{os.sep}", "") if told else "?"}
    results = json.loads((out / "results.json").read_text(encoding="utf-8"))
    scores = {who: row["relative_l2"] for who, row in results["one_step"].items()}
    found = {
        "scores": scores,
        "examples": results["num_examples"],
        "comparisons": results["comparisons"],
        "comparisons_alone": results["comparisons_alone"],
        "blend": results["blend"],
        "lost_after": results["lost_after"],
        "verdict": results["verdict"],
        "validation": results["validation"],
        "reasons": results["reasons"],
        "has_report": (out / "report.html").exists(),
        "rollout": worst_step(results["rollout"]),
        "counts": json.loads(counts_of(out).read_text(encoding="utf-8")),
    }
    found["counts"]["cpu_seconds_outside"] = found["counts"].pop("cpu_seconds") - sum(
        json.loads((out / name).read_text(encoding="utf-8"))["cpu_seconds"]
        for name in ("training.json", "auto.json") if (out / name).exists()
    )  # fmt: skip
    if (out / "auto.json").exists():
        choice = json.loads((out / "auto.json").read_text(encoding="utf-8"))
        found["chosen"] = choice["settings"]
    return found


def counts_of(out: Path) -> Path:
    """Returns the file with what was counted in the run of a folder."""
    return out.with_name(f"{out.name}-counts.json")


def worst_step(rollout: dict[str, list[float]]) -> dict[str, float] | None:
    """Returns the largest ratio of errors to those of the best reference of each step, and its step."""
    if not rollout:
        return None
    # JSON stores errors that are not finite as null.
    errors = {who: [inf if part is None else part for part in v] for who, v in rollout.items()}
    best = np.min([rows for who, rows in errors.items() if who not in OWN], axis=0)
    ratios = (np.array(errors.get("blend", errors["model"])) / best).tolist()
    step = max(range(len(ratios)), key=ratios.__getitem__)
    return {"ratio": ratios[step], "step": step + 1, "last": ratios[-1], "num_steps": len(ratios)}


def table(found: dict[str, dict[str, Any]], before: dict[str, dict[str, Any]]) -> str:
    """Returns a row for every file, and below what every run says."""
    references = [
        who
        for who in dict.fromkeys(who for row in found.values() for who in row.get("scores", {}))
        if who not in OWN
    ]
    columns = ["file", *before, "forecast", "model alone", *references, "best reference"]
    columns += ["test / best", "model alone / best", "validation / best", "worst step / best"]
    columns += ["last step / best", "chosen", "opens", "reads", "CPU s outside of training"]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for name, row in found.items():
        scores, counts, worst = row.get("scores", {}), row.get("counts", {}), row.get("rollout")
        checked, best = row.get("validation", {}), best_reference(row.get("comparisons", {}))
        alone = row.get("comparisons_alone") or row.get("comparisons", {})
        cells = [
            name,
            *(_earlier(rows.get(name, "-")) for rows in before.values()),
            _number(scores.get("blend", scores.get("model")), "refused"),
            _number(scores.get("model"), "refused"),
            *(_number(scores.get(who), "-") for who in references),
            best,
            _ratio(row.get("comparisons", {}).get(best), row.get("examples")),
            _ratio(alone.get(best), row.get("examples")),
            _ratio(checked.get("comparisons", {}).get(best), checked.get("num_examples")),
            f"{worst['ratio']:.3g} (step {worst['step']})" if worst else "-",
            f"{worst['last']:.3g} (step {worst['num_steps']})" if worst else "-",
            ", ".join(f"{key} {value}" for key, value in row.get("chosen", {}).items()) or "-",
            *(_number(counts.get(key), "-") for key in ("opens", "reads", "cpu_seconds_outside")),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "What every run says at its end, on test data, on validation data, and why not:",
        "",
    ]
    for name, row in found.items():
        told = [row.get("verdict") or row.get("refused", ""), row.get("blend", "")]
        told += [row["validation"]["verdict"]] if row.get("validation") else []
        lines.append(
            f"- {name}: {' '.join(filter(None, [*told, *row.get('reasons', {}).values()]))}"
        )
    return "\n".join(lines)


def best_reference(comparisons: dict[str, dict[str, Any]]) -> str:
    """Returns the name of the reference with the smallest error on test data, in RMSE / std."""
    ratios = {who: part["ratio"] for who, part in comparisons.items()}
    # JSON stores infinity, the ratio to a reference without error, as null.
    return max(ratios, key=lambda who: inf if ratios[who] is None else ratios[who], default="-")


def _ratio(comparison: dict[str, Any] | None, count: int | None) -> str:
    """Returns the error relative to that of a reference, its interval and the number of examples."""
    if comparison is None:
        return "-"
    ends = comparison["interval"]
    told = f" ({ends[0]:.3g} to {ends[1]:.3g})" if ends else ""
    return f"{_number(comparison['ratio'], 'infinite')}{told}, n = {count}"


def _earlier(told: dict[str, float] | str) -> str:
    """Returns the score of an earlier version, and its ratio to persistence, where it is known."""
    if isinstance(told, str):
        return told
    ratio = told.get("persistence_ratio")
    return f"{told['relative_l2']:.3g}" + (f" ({ratio:.3g} of persistence)" if ratio else "")


def _number(value: float | None, otherwise: str) -> str:
    return otherwise if value is None else f"{value:.3g}"


def main(
    files: Path,
    runs: Path = Path("runs/files"),
    out: Path = Path("benchmarks/results/files"),
    seconds: float = 60.0,
    only: tuple[str, ...] = (),
) -> None:
    """Runs every file that is there, and writes a table.

    Args:
        files: Folder of the real files.
        runs: Where run folders go; what is finished there is not run again.
        out: Where the table goes.
        seconds: CPU seconds of every run.
        only: Texts, one of which is in the name of a file to run; others keep their rows.
    """
    found: dict[str, dict[str, Any]] = {}
    out.mkdir(parents=True, exist_ok=True)
    stored = out / "files.json"
    kept = json.loads(stored.read_text(encoding="utf-8")) if only and stored.exists() else {}
    for name, flags in FILES.items():
        if only and not any(text in name for text in only):
            found |= {name: kept[name]} if name in kept else {}
            continue
        if not any(files.glob(name)):
            continue
        found[name] = run_file(files / name, flags, runs / Path(name).stem.strip("*_"), seconds)
        print(name, json.dumps(found[name]), flush=True)
    stored.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    before = out / "before.json"
    earlier = json.loads(before.read_text(encoding="utf-8")) if before.exists() else {}
    text = f"### `gpo run --data FILE --budget-cpu {seconds:g}` on real files\n\n{table(found, earlier)}\n\n"
    notes = [
        "Earlier versions (with the ratio of errors to persistence), forecast (what `gpo predict` writes), "
        "model alone and references: relative L2 of one step on the test split. Then: the ratio of errors, in standard deviations of the training "
        "data, to the reference that is best on test data, with its 95 % interval (blocks of examples) and the number of "
        "examples; better where all of the interval is below 1. Best epoch, settings and weights were chosen on validation data, where scores are optimistic. The worst and the last step are those "
        "of rollouts: relative L2 over that of the reference that is best at this step, which nobody "
        "knows beforehand. Opens are those of files, by Python, NetCDF or HDF5 (cfgrib opens a file for "
        "each message); reads are those of whole or parts of arrays. CPU seconds outside of training "
        "are those of imports, reading, scores, rollouts, weights and the report.",
        *describe_machine(COMMAND),
    ]
    (out / "table.md").write_text(text + "\n\n".join(notes) + "\n", encoding="utf-8")


if __name__ == "__main__":
    tyro.cli(main)
