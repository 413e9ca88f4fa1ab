"""What particles of trained runs do, on validation data, each number beside its control.

    python benchmarks/motion.py RUN [RUN ...] --out benchmarks/results/motion

The same numbers as `gpo interpret`, key `motion`, but of up to 32 validation examples: for every
particle how much of the predicted change is lost where it is held still, and its vector correlation
with the true velocity; the budget of the change; errors with displacements that are not the model's
own; and tracers beside those in the true flow.
"""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from tyro.conf import Positional

from gpo import open_run
from gpo.data.splits import evenly
from gpo.evaluation.flow import FlowVariables
from gpo.interpretation.attribution import describe_motion
from gpo.interpretation.batches import make_batches
from gpo.interpretation.results import best_of
from gpo.interpretation.tracers import follow_tracers

MAX_EXAMPLES = 32
"""Validation examples that are read, evenly chosen."""
STEPS = (0, 4, -1)
"""Steps of a rollout whose tracers are told: the first, the fifth and the last."""
REPLACED = ("own", "still", "constant", "site_mean", "other_example", "permuted", "no_change")


def motion_of(run: Path) -> dict[str, Any]:
    """Returns the key `motion` of a run, on its validation data."""
    opened = open_run(run)
    forecaster, data, samples = opened.forecaster().eval(), opened.data, opened.split.validation
    variables = FlowVariables.of(data)
    batches = make_batches(data, evenly(samples, MAX_EXAMPLES))
    found = describe_motion(forecaster, data, batches, variables, np.random.default_rng(0))
    found["num_examples"] = sum(len(batch.example.frames) for batch in batches)
    found["tracers"], _ = follow_tracers(
        forecaster, data, samples, variables, found["best"], num_examples=MAX_EXAMPLES
    )
    return found


def particle_rows(name: str, found: dict[str, Any]) -> list[list[str]]:
    """Returns a line for every particle, the one that carries most first and bold."""
    best, rows = best_of(found), []
    for row in sorted(found["particles"], key=lambda one: -one["share"]):
        mark = "**" if row is best else ""
        band = "" if row["low"] is None else f"{row['low']:+.2f} to {row['high']:+.2f}"
        rows.append([
            name, f"{mark}{row['particle'] + 1}{mark}", f"{mark}{row['share']:.2f}{mark}",
            f"{row['rms_displacement']:.3g}", signed(row["velocity_correlation"]), band,
            signed(row["other_examples"]),
        ])  # fmt: skip
    return rows


def signed(number: float | None) -> str:
    """Returns a correlation, or nothing."""
    return "" if number is None else f"{number:+.3f}"


def control_row(name: str, found: dict[str, Any]) -> list[str]:
    """Returns the errors of a run with its own displacements, and with others in their place."""
    rows = (found["controls"][control] for control in REPLACED)
    return [name, *(f"{row['error']:.3g}" if "error" in row else "-" for row in rows)]


def budget_row(name: str, found: dict[str, Any]) -> list[str]:
    """Returns what is lost where a part is held still, and its mean over all orders."""
    parts = found["budget"]["parts"]
    return [name, *(f"{row['share']:.2f}; {row['shapley']:+.2f}" for row in parts.values())]


def tracer_row(name: str, found: dict[str, Any]) -> list[str]:
    """Returns how far tracers are off at some steps, with those carried by another example."""
    tracers = found["tracers"]
    if "reason" in tracers:
        return [name, tracers["reason"], "", "", "", ""]
    rows, others = tracers["separation"], tracers["other_example"]
    steps = dict.fromkeys(min(step, len(rows) - 1) if step >= 0 else len(rows) - 1 for step in STEPS)  # fmt: skip
    told = [
        f"{rows[step]:.2f} ({'-' if others is None else f'{others[step]:.2f}'}) at {step + 1}"
        for step in steps
    ]
    return [name, *(told + [""] * len(STEPS))[: len(STEPS)], f"{tracers['spread'][0]:.3g}", f"{tracers['fraction_left']:.0%}"]  # fmt: skip


def table(heads: list[str], rows: list[list[str]]) -> str:
    """Returns a table in Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main(
    runs: Positional[tuple[Path, ...]], out: Annotated[Path, tyro.conf.arg(name="out")]
) -> None:
    """Writes tables of all runs."""
    found = {run.name: motion_of(run) for run in runs}
    particles = [row for name, one in found.items() for row in particle_rows(name, one)]
    known = [
        f"- {name}: {one['num_examples']} examples; velocity: "
        f"{one['velocity'].get('known_by', 'not known')}; band: {one.get('null', 'none')}"
        for name, one in found.items()
    ]
    parts = list(dict.fromkeys(part for one in found.values() for part in one["budget"]["parts"]))
    text = "\n\n".join([
        "### Particles: what is lost where each is held still, and correlation with the velocity",
        table(["run", "particle", "share", "rms displacement", "correlation", "band of 95 %", "velocity of other examples"], particles),
        "\n".join(known),
        "### Relative L2 with displacements that are not the model's own",
        table(["run", "own", "still", "one for all sites", "mean of every site", "another example's", "exchanged within a site", "nothing changes"], [control_row(name, one) for name, one in found.items()]),
        "### Budget of the predicted change: lost where held still; mean over all orders",
        table(["run", *parts], [budget_row(name, one) for name, one in found.items()]),
        "### Tracers: distance from those in the true flow, over that of tracers that stay (carried by another example's displacements), at a step",
        table(["run", "", "", "", "way of a true tracer in a step", "have left"], [tracer_row(name, one) for name, one in found.items()]),
    ])  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    (out / "table.md").write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    tyro.cli(main)
