"""Is the displacement of particles the velocity of the flow, which no model was shown?

    python benchmarks/motion.py RUN [RUN ...] --out benchmarks/results/motion

For every particle of the last layer that transports, over the validation examples of a run: the
vector correlation of displacement and true velocity, and as controls that with the velocity of
another example at the same sites, and with the velocity moved by half the grid. A particle's
weight is the fraction of what arrives that it brings; the first row of a run is the particle that
brings most.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from tyro.conf import Positional

from gpo import open_run
from gpo.interpretation.batches import make_batches
from gpo.interpretation.flow import velocity
from gpo.interpretation.motion import displacements

MAX_EXAMPLES = 32
"""Validation examples that are read, evenly chosen."""


@dataclass(frozen=True)
class Row:
    """One particle of one run."""

    particle: int
    weight: float
    correlation: float
    other_example: float
    moved: float
    size: float
    """Root mean square of the displacement, in lengths of the domain."""


def correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Returns the vector correlation of fields of vectors, a mean over examples."""
    products, squares = (
        (first * second).sum((1, 2)),
        (first**2).sum((1, 2)) * (second**2).sum((1, 2)),
    )
    return float(np.mean(products / np.sqrt(squares)))


def rows_of(run: Path) -> list[Row] | None:
    """Returns all particles of a run, the heaviest first; None where no velocity is known."""
    opened = open_run(run)
    forecaster, data, members = opened.forecaster(), opened.data, opened.split.validation
    step = max(1, len(members) // MAX_EXAMPLES)
    ways, flows, weights = [], [], []
    for batch in make_batches(data, members[::step]):
        particles, geometry = batch.particles(forecaster), batch.geometry
        moved = displacements(particles, batch.example.coords, geometry.domain).double().numpy()
        for sample, way in enumerate(moved):
            raw = batch.example.fields[sample, -1].double().numpy()
            flow = velocity(geometry, raw, forecaster.task.fields)
            if flow is None:
                return None
            known = batch.is_known[sample] & np.isfinite(flow).all(-1)
            ways.append(way[known])
            flows.append(flow[known])
            weights.append(particles.weights[sample].numpy()[known].mean(0))
    count = min(len(flow) for flow in flows)
    way, flow = (np.stack([one[:count] for one in part]) for part in (ways, flows))
    rows = []
    for particle, weight in enumerate(np.mean(weights, axis=0)):
        mine = way[:, :, particle]
        rows.append(
            Row(
                particle, float(weight), correlation(mine, flow),
                correlation(mine, np.roll(flow, len(flow) // 2, axis=0)),
                correlation(mine, np.roll(flow, count // 2, axis=1)),
                float(np.sqrt((mine**2).sum(-1).mean())),
            )
        )  # fmt: skip
    return sorted(rows, key=lambda row: -row.weight)


def main(
    runs: Positional[tuple[Path, ...]], out: Annotated[Path, tyro.conf.arg(name="out")]
) -> None:
    """Writes a table of all runs."""
    lines = ["| run | particle | weight | correlation | another example's velocity | velocity moved by half the grid | rms displacement |", "|---|---|---|---|---|---|---|"]  # fmt: skip
    for run in runs:
        rows = rows_of(run)
        if rows is None:
            lines.append(f"| {run.parent.parent.name} | - | no velocity is known | | | | |")
        lines += [
            f"| {run.parent.parent.name} | {row.particle} | {row.weight:.2f} | "
            f"{row.correlation:+.3f} | {row.other_example:+.3f} | {row.moved:+.3f} | "
            f"{row.size:.3g} |"
            for row in rows or ()
        ]
    out.mkdir(parents=True, exist_ok=True)
    (out / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    tyro.cli(main)
