"""Which reading of the paper learns? Designs, controls and a path from gpo-paper to gpo.

    OMP_NUM_THREADS=1 python benchmarks/study/paper_readings.py --seconds 600
    OMP_NUM_THREADS=1 python benchmarks/study/paper_readings.py --seconds 600 --group controls
    OMP_NUM_THREADS=1 python benchmarks/study/paper_readings.py --seconds 600 --group path
    python benchmarks/study/paper_readings.py --table-only

The design is {feed-forward on tokens} x {LayerNorm, no renormalisation} x {sharp windows}, on ns2d
(quick data) at 32 x 32 sites, one step, the state itself, with AdamW and the step schedule of the
paper. A reading first overfits 16 examples, which says whether it can represent the map at all; then
it is trained on all, and its training error stands beside its validation error, which says whether
it generalises. Errors are relative L2 in the units of the data.

Every finished reading is a row of a jsonl file, with its curve; the same command leaves out the rows
that are there, and goes on with a reading that was stopped. Seconds are CPU seconds of steps.
"""

import json
from itertools import product
from pathlib import Path
from typing import Any, Literal

import tyro
from paper_training import Screening

PARTS: dict[str, dict[str, Any]] = {
    "t": {"token_width": 256},
    "l": {"layer_norm": True, "renormalises": False},
    "s": {"temperature": 0.05},
}
"""Parts of the design: feed-forward on tokens, LayerNorm without renormalisation, sharp windows."""
ALL = {key: value for part in PARTS.values() for key, value in part.items()}
PLACED = {"places_windows": True, "names_modes": True}
FOUR_HEADS = {"hidden_dim": 128, "num_heads": 8, "num_layers": 8, "num_gaussians": 32}
WAVES = {"model": "gpo", "num_transports": 0, "gate": "none"}

GROUPS: dict[str, dict[str, dict[str, Any]]] = {
    "design": {
        "".join(letters) or "literal": {k: v for part in letters for k, v in PARTS[part].items()}
        for letters in (
            [name for name, on in zip("tls", which, strict=True) if on]
            for which in product((False, True), repeat=3)
        )
    },
    "controls": {
        "without layers": {"num_layers": 0},
        "literal, increment": {"predict": "increment"},
        "tls, increment": {**ALL, "predict": "increment"},
        "literal, pointwise normaliser": {"normalise": "points"},
        "tls, pointwise normaliser": {**ALL, "normalise": "points"},
        "literal, two phases": {"phases": True, "loss_basis": 1.0},
        "tls, two phases": {**ALL, "phases": True, "loss_basis": 1.0},
        "literal, jointly with the basis": {"loss_basis": 1.0, "loss_input": 1.0, "loss_target": 1.0},
        "frozen field, FNO between the bases": {"fourier_layers": True},
        "tls, displaced centers": {**ALL, "centers": "displacement"},
        "tls, coordinates as input": {**ALL, "features": "none", "input_coordinates": True},
        "tls, published sizes": {**ALL, **FOUR_HEADS},
    },
    "path": {
        "1 literal": {},
        "2 tls": ALL,
        "3 and positions in the windows, named modes": {**ALL, **PLACED},
        "4 waves as windows": WAVES,
        "5 and the gate": {**WAVES, "gate": "bounded"},
        "6 and particles sampled upstream (gpo)": {"model": "gpo"},
    },
    "others": {
        "tls, positions in the windows": {**ALL, "places_windows": True},
        "tls, named modes": {**ALL, "names_modes": True},
        "literal, both, sharp": {**PARTS["s"], **PLACED},
    },
}  # fmt: skip
"""Settings of every reading that differ from the literal one, by group."""


def table(rows: list[dict[str, Any]]) -> str:
    """Returns the rows as Markdown."""
    lines = [
        "| reading | parameters | 16 examples overfitted | training | validation | steps | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        numbers = (f"{row[name]:.4f}" for name in ("overfitted", "training", "validation"))
        lines.append(
            f"| {row['reading']} | {row['parameters']:,} | {' | '.join(numbers)} | {row['steps']} "
            f"| {row['seconds']:g} |"
        )
    return "\n".join(lines)


def main(
    seconds: float = 600.0,
    overfit_seconds: float = 120.0,
    group: Literal["design", "controls", "path", "others"] = "design",
    only: tuple[str, ...] = (),
    benchmark: Literal["ns2d", "ns2d-1e-5"] = "ns2d",
    seed: int = 0,
    batch_size: int = 8,
    learning_rate: float = 1e-3,
    changes: str = "{}",
    out: Path = Path("benchmarks/results/study/paper-readings.jsonl"),
    table_only: bool = False,
) -> None:
    """Trains readings and appends a row for each.

    Args:
        seconds: CPU seconds of training on all examples.
        overfit_seconds: CPU seconds of overfitting.
        group: Readings to train.
        only: Names of readings in the group (default: all).
        benchmark: Data set, at viscosity 1e-4 or 1e-5.
        seed: Random seed.
        batch_size: Examples per batch.
        learning_rate: Learning rate at the start.
        changes: Further options for all readings, as a JSON object, such as {"fourier_std": 4.0}.
        out: The jsonl file.
        table_only: Print the rows that are there as a table, and train nothing.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    done = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    if table_only:
        print(table(done))
        return
    unknown = [name for name in only if name not in GROUPS[group]]
    if unknown:
        raise SystemExit(f"--only must be among {', '.join(GROUPS[group])}, got {unknown[0]!r}.")
    screening = Screening(
        benchmark, seconds, overfit_seconds, seed, batch_size, learning_rate, out.parent
    )
    for name in only or GROUPS[group]:
        options = {**GROUPS[group][name], **json.loads(changes)}
        expected = {"options": options, **screening.settings}
        if any(all(row.get(key) == value for key, value in expected.items()) for row in done):
            continue
        row = screening.row(name, options)
        done.append(row)
        with out.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(table([row]).splitlines()[-1], flush=True)


if __name__ == "__main__":
    tyro.cli(main)
