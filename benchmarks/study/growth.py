"""What the flow itself makes of a model's errors: how much of a rollout's error is the model's doing.

    python benchmarks/study/growth.py RUN [RUN ...]

Runs of ns2d at 32 x 32, validation trajectories. The errors of single steps are taken along the true
trajectory. Then the *solver* advances the flow, and after every step the model's error of that step is
added. What differs from the truth in the end is what exact dynamics make of the errors of single
steps: a model whose rollouts are worse than that amplifies errors, and one that is level can become
better in its single steps alone.
"""

from pathlib import Path

import numpy as np
import torch
import tyro
from torch import Tensor
from tyro.conf import Positional

from gpo import open_data, open_run
from gpo.data.solvers.navier_stokes_2d import PRESETS, advance, fno_forcing
from gpo.evaluation.rollout import make_rollouts
from gpo.numerics.spectral import resample

STEPS = (1, 6, 10, 15, 19)


def solved(fields: Tensor, size: int) -> Tensor:
    """Returns the spectrum of fields on the grid that the equation is solved on."""
    return resample(torch.fft.rfft2(fields), size)


@torch.no_grad()
def grown(path: Path) -> list[float]:
    """Returns the relative difference after every step, a mean over trajectories."""
    run, solver = open_run(path), PRESETS["quick"]
    forecaster, fine = run.forecaster(), open_data(str(run.config.data.data or run.data.source))
    geometry, size = run.data.geometry(), solver.size * solver.refinement
    coords = torch.as_tensor(geometry.coords)
    forcing, differences = fno_forcing(size, torch.float32, "cpu"), []
    for number in sorted({window.sample for window in run.split.validation}):
        coarse = torch.as_tensor(run.data.frames(number, slice(None)))
        errors = forecaster(coarse[:-1, None], coords.expand(len(coarse) - 1, -1, -1)) - coarse[1:]
        errors = errors.view(-1, *geometry.grid_shape)
        truth = torch.as_tensor(fine.frames(number, slice(None))).view(-1, solver.size, solver.size)
        exact = state = solved(truth[0], size)
        each = []
        for error in errors:
            exact, state = (
                advance(flow, 1.0, viscosity=solver.viscosity, forcing=forcing)
                for flow in (exact, state)
            )
            state = state + solved(error, size)
            apart = [torch.fft.irfft2(resample(flow, 32)) for flow in (state - exact, exact)]
            each.append(float(apart[0].norm() / apart[1].norm()))
        differences.append(each)
    return np.mean(differences, 0).tolist()


def main(runs: Positional[tuple[Path, ...]]) -> None:
    """Prints, for every run, its rollout beside what the flow makes of its errors of single steps."""
    for path in runs:
        run = open_run(path)
        rollouts = make_rollouts(run.forecaster(), run.data, run.split.validation, STEPS[-1], None)
        for name, errors in (
            ("rollout", rollouts.mean_errors()["model"]),
            ("exact flow with its errors of single steps", grown(path)),
        ):
            told = " | ".join(f"{errors[step - 1]:.4f}" for step in STEPS)
            print(f"| {path.name} | {name} | {told} |", flush=True)


if __name__ == "__main__":
    tyro.cli(main)
