"""Time and memory of a training step in several versions of gpo, alternating, one process each.

    python benchmarks/versions.py src ../gpo-0.6.0/src --case step --repeats 5
    python benchmarks/versions.py src ../gpo-0.6.0/src --case globe --repeats 2

Every version is a folder with the package `gpo`, such as `src` of a checkout of 0.6.0 or later. A case is
`step` (64 by 64 points, batch 16), `torus` or `globe` (721 by 1,440 points, batch 1). Times are CPU seconds of
one thread: forward, backward and AdamW, the shortest of the steps after the first. Memory is the peak of the
resident set above that before the first step.
"""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Literal

import tyro
from tyro.conf import Positional, arg

STEP = """
import inspect, json, resource, sys, time
import torch
torch.set_num_threads(1)
torch.manual_seed(0)
from gpo.numerics.domain import Domain
from gpo.model.losses import operator_losses
case, num_steps = sys.argv[1], int(sys.argv[2])
domain = Domain.sphere() if case == "globe" else Domain.unit_box(2, periodic=True)
shape = (64, 64) if case == "step" else (721, 1440)
try:
    from gpo.model.model import build_model
    from gpo.model.problem import Problem
    model = build_model("gpo", Problem(1, 1, domain, shape))
except ImportError:
    from gpo.training.config import RunConfig
    from gpo.training.models import build_model
    model = build_model(RunConfig(), in_channels=1, out_channels=1, domain=domain, grid_shape=shape)
coords, weights = (part.float() for part in domain.grid(*shape))
batch = 16 if case == "step" else 1
values, target = (torch.randn(batch, len(coords), 1) for _ in range(2))
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
def resident():
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before, times = resident(), []
for _ in range(num_steps):
    start = time.process_time()
    optimizer.zero_grad()
    operator_losses(model, values, coords, target, weights=weights)["total"].backward()
    optimizer.step()
    times.append(time.process_time() - start)
print(json.dumps({"seconds": min(times[1:]), "bytes": resident() - before}))
"""


def measure(source: Path, case: str, num_steps: int) -> dict[str, float]:
    """Returns seconds and bytes of a training step of the version in a folder."""
    environment = {**os.environ, "PYTHONPATH": str(source.resolve()), "OMP_NUM_THREADS": "1"}
    process = subprocess.run(
        [sys.executable, "-c", STEP, case, str(num_steps)],
        capture_output=True, text=True, check=True, env=environment,
    )  # fmt: skip
    return json.loads(process.stdout)


def main(
    sources: Positional[Annotated[tuple[Path, ...], arg(metavar="SRC")]],
    /,
    case: Literal["step", "torus", "globe"] = "step",
    repeats: int = 5,
    steps: int = 12,
) -> None:
    """Prints every measurement, and medians with ratios to the last version."""
    rows: dict[Path, list[dict[str, float]]] = {source: [] for source in sources}
    for _ in range(repeats):
        for source in sources:
            rows[source].append(measure(source, case, steps))
            row = rows[source][-1]
            print(f"{source}: {row['seconds']:.3f} s, {row['bytes'] / 1e6:,.0f} MB", flush=True)
    medians = {
        source: {name: statistics.median(row[name] for row in some) for name in some[0]}
        for source, some in rows.items()
    }
    base = medians[sources[-1]]
    for source, row in medians.items():
        print(
            f"{source}, median of {repeats}: {row['seconds']:.3f} s ({row['seconds'] / base['seconds']:.2f}), "
            f"{row['bytes'] / 1e6:,.0f} MB ({row['bytes'] / base['bytes']:.2f})"
        )


if __name__ == "__main__":
    tyro.cli(main)
