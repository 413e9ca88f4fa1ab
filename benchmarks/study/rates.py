"""Learning rates: what gradient norms tell of divergence, and which rate the range test finds.

    python benchmarks/study/rates.py darcy --rates 6e-3 1e-3 --seeds 0 1 2 --budget-cpu 30
    python benchmarks/study/rates.py ns2d --rates 6e-3 --seeds 0 --budget-cpu 60
    python benchmarks/study/rates.py FILE --rates 6e-3 --seeds 0 --budget-cpu 60

Every rate is trained with, and the one of the range test. Scores are those on validation data.
Darcy maps are made here: 1,000 of 16 x 16, the coefficient 12 where a random field is positive and
3 elsewhere, the pressure zero around the box.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import scipy.sparse.linalg
import torch
import tyro

from gpo.model.registry import OptimizerName
from gpo.runs import read_data
from gpo.training.config import RunConfig
from gpo.training.divergence import DivergenceDetector
from gpo.training.fit import train
from gpo.training.run_folder import Run

NUM_NODES, FINER = 16, 2
"""Nodes along an axis of a map, and how many times finer it is solved."""
SHOWN = (1, 5, 10, 20, 40, 60, 80, 120, 200, 400)
"""Steps whose losses and gradient norms are printed."""


def darcy_maps(num_samples: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    r"""Returns coefficients and pressures, samples by nodes by nodes, of $-\\nabla(a\\nabla u)=1$."""
    generator, count = np.random.default_rng(seed), FINER * (NUM_NODES - 1) + 1
    waves = np.arange(count)
    decay = 1 / (np.pi**2 * (waves[:, None] ** 2 + waves**2) + 9)
    cosines = np.cos(np.pi * np.outer(waves, np.linspace(0, 1, count)))
    noise = decay * generator.normal(size=(num_samples, count, count))
    noise[:, 0, 0] = 0
    fields = np.einsum("kx,skl,ly->sxy", cosines, noise, cosines)
    coefficients = np.where(fields > 0, 12.0, 3.0)
    solved = np.stack([_pressure(one) for one in coefficients])
    coarse = np.s_[:, ::FINER, ::FINER]
    return coefficients[coarse].astype(np.float32), solved[coarse].astype(np.float32)


def _pressure(coefficient: np.ndarray) -> np.ndarray:
    """Solves by five points, with the harmonic mean of the coefficient between two nodes."""
    count = len(coefficient)
    number = np.arange(count**2).reshape(count, count)
    rows, columns, values = [], [], []
    for axis in (0, 1):
        left, right = (np.take(number, np.arange(s, count - 1 + s), axis).ravel() for s in (0, 1))
        flat = coefficient.ravel()
        between = 2 * flat[left] * flat[right] / (flat[left] + flat[right])
        rows += [left, right, left, right]
        columns += [right, left, left, right]
        values += [-between, -between, between, between]
    shape = (count**2, count**2)
    matrix = scipy.sparse.csr_matrix(
        (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), shape
    )
    inside = number[1:-1, 1:-1].ravel()
    pressure = np.zeros(count**2)
    source = np.full(len(inside), 1 / (count - 1) ** 2)
    pressure[inside] = scipy.sparse.linalg.spsolve(matrix[inside][:, inside], source)
    return pressure.reshape(count, count)


def configuration(what: str, folder: Path, seconds: float) -> RunConfig:
    """Returns the run of a benchmark at its quick size, of a file, or of Darcy maps."""
    budget: dict[str, Any] = {"budget_cpu": seconds, "epochs": 100_000, "patience": 100_000}
    if what == "ns2d":
        return RunConfig.of(benchmark="ns2d", preset="quick", coarsen=2, noise=0.0, **budget)
    if what == "darcy":
        path = folder / "darcy.npz"
        if not path.exists():
            a, u = darcy_maps(1000)
            np.savez(path, a=a, u=u)
        return RunConfig.of(data=str(path), **budget)
    return RunConfig.of(data=what, **budget)


def measure(config: RunConfig, folder: Path) -> dict[str, Any]:
    """Returns what a run came to, with the loss and the gradient norm of every step."""
    seen: list[tuple[float, float]] = []
    original = DivergenceDetector.after_step

    def recorded(self: DivergenceDetector, loss: float, gradient_norm: float, clip: float) -> str:
        seen.append((loss, gradient_norm))
        return original(self, loss, gradient_norm, clip)

    DivergenceDetector.after_step = recorded
    try:
        train(read_data(config), config, folder, is_quiet=True)
    finally:
        DivergenceDetector.after_step = original
    record = Run(folder).record()
    assert record is not None
    return {
        "asked": config.optimizer.learning_rate,
        "seed": config.optimizer.seed,
        "rate": record.learning_rate,
        "best": record.best_score,
        "steps": record.steps,
        "events": list(record.events),
        "seen": seen,
    }


def main(
    what: tyro.conf.Positional[str],
    rates: tuple[float, ...] = (6e-3, 1e-3),
    seeds: tuple[int, ...] = (0, 1, 2),
    budget_cpu: float = 30.0,
    optimizer: OptimizerName = "muon",
    out: Path | None = None,
) -> None:
    """Trains with every rate and with that of the range test.

    Args:
        what: darcy, ns2d, or a file.
        rates: Learning rates to train with.
        seeds: One run each.
        budget_cpu: CPU seconds of every run.
        optimizer: The optimizer.
        out: Where all losses and norms go, as JSON.
    """
    torch.set_num_threads(1)
    found = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = configuration(what, folder, budget_cpu)
        for seed in seeds:
            for rate in (None, *rates):
                changed = config.changed(seed=seed, learning_rate=rate, optimizer=optimizer)
                found.append(measure(changed, folder / f"{seed}-{rate}"))
                row = found[-1]
                asked = "range test" if rate is None else f"{rate:g}"
                print(f"{what} seed {seed} {asked}: {row['best']:.4g} after {row['steps']} steps")
                print("  " + "\n  ".join(row["events"]))
                steps = [step for step in SHOWN if step <= len(row["seen"])]
                told = ((s, *row["seen"][s - 1]) for s in steps)
                print("  step loss norm: " + "; ".join(f"{s} {a:.3g} {b:.3g}" for s, a, b in told), flush=True)  # fmt: skip
                if out is not None:
                    out.write_text(json.dumps(found) + "\n", encoding="utf-8")


if __name__ == "__main__":
    tyro.cli(main)
