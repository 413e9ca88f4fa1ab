r"""Frames between frames: a fraction of a step by scaling displacements and diffusion lengths.

    python benchmarks/frames_between.py RUN [RUN ...]

RUN is a run on ns2d (`gpo run ns2d --preset quick --coarsen 2`). From a frame $u_0$ and its forecast
$\hat u_1$, frames a quarter, a half and three quarters of a step ahead are made in several ways and
compared with the solver, whose trajectories are solved anew and recorded four times as often. All
ways know $u_0$ and $\hat u_1$ only; validation data.

- linear: $(1-\alpha)u_0+\alpha\hat u_1$;
- optical flow: Farnebäck's flow from $u_0$ to $\hat u_1$; both are advected along it and blended;
- true velocity: the same along the velocity of $u_0$, straight on;
- best particle: the same along the displacement of the particle that carries most;
- particles at a fraction: the model with displacements $\alpha\delta$ and scales $\sqrt\alpha\,\sigma$, what
  it predicts without transport being added linearly;
- layers at a fraction: the same, and the contributions of gates in layers with transport times
  $\alpha$;
- particles, no diffusion scaled: displacements $\alpha\delta$ with scales $\sigma$, the control of diffusion.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import tyro
from scipy.ndimage import map_coordinates
from torch import Tensor
from tyro.conf import Positional, arg

from gpo import FieldData, open_run
from gpo.data.solvers.navier_stokes_2d import PRESETS, NavierStokes2D, advance, fno_forcing
from gpo.data.splits import TimeSlice
from gpo.evaluation.flow import FlowVariables, flow_of_vorticity
from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.attribution import particle_rows
from gpo.interpretation.batches import Batch, make_batches
from gpo.interpretation.diffusion import learned_scales, replaced_scales, scales_at_floor
from gpo.interpretation.displacements import layer_displacements
from gpo.model.ablation import Ablation
from gpo.model.taps import Tap, tapped
from gpo.numerics.spectral import resample

PARTS = 4
"""Recorded frames in a step."""
WINDOWS = (5, 7, 9, 13)
"""Windows of the optical flow in cells; the one with the lowest error on training data is used."""
FLOW_SAMPLES = 8
"""Training examples on which it is chosen."""
NUM_TRAJECTORIES = 6


def recorded(solver: NavierStokes2D, trajectories: Sequence[int]) -> Tensor:
    """Returns frames of trajectories, recorded `PARTS` times as often: trajectory, time, rows, columns."""
    initial = torch.stack([solver.initial_field(index) for index in trajectories])
    size = solver.size * solver.refinement
    spectrum = resample(torch.fft.rfft2(initial), size).to(torch.complex64)
    forcing = fno_forcing(size, spectrum.real.dtype, spectrum.device)
    frames = []
    for _ in range(PARTS * solver.num_frames):
        spectrum = advance(
            spectrum, 1 / PARTS, viscosity=solver.viscosity, forcing=forcing, courant=solver.courant
        )
        frames.append(torch.fft.irfft2(resample(spectrum, solver.size)))
    return torch.stack(frames, 1)


def sampled(field: np.ndarray, departure: np.ndarray) -> np.ndarray:
    """Returns a periodic field at departure points, in cells, by cubic interpolation."""
    return map_coordinates(field, departure, order=3, mode="grid-wrap")


def blended(first: np.ndarray, last: np.ndarray, shift: np.ndarray, part: float) -> np.ndarray:
    """Returns a frame between two, both advected by a motion in cells per step, and blended."""
    cells = np.stack(np.meshgrid(*map(np.arange, first.shape), indexing="ij")).astype(float)
    before, after = sampled(first, cells - part * shift), sampled(last, cells + (1 - part) * shift)
    return (1 - part) * before + part * after


def optical_flow(first: np.ndarray, last: np.ndarray, window: int) -> np.ndarray:
    """Returns Farnebäck's flow between two periodic fields, in cells."""
    margin = len(first) // 2
    low, high = min(first.min(), last.min()), max(first.max(), last.max())
    padded = [np.pad(one, margin, mode="wrap") for one in (first, last)]
    images = [np.round(255 * (one - low) / (high - low)).astype(np.uint8) for one in padded]
    flow = import_module("cv2").calcOpticalFlowFarneback(
        *images, np.zeros((*images[0].shape, 2), np.float32), pyr_scale=0.5, levels=3,
        winsize=window, iterations=5, poly_n=5, poly_sigma=1.1, flags=0,
    )  # fmt: skip
    inner = slice(margin, -margin)
    return np.moveaxis(flow[inner, inner, ::-1], -1, 0).astype(float)


class Between:
    """All ways to make frames between frames, for the examples of a batch."""

    def __init__(self, forecaster: Forecaster, batch: Batch, best: tuple[int, int]) -> None:
        self.forecaster, self.batch, self.best = forecaster, batch, best
        self.own = layer_displacements(forecaster, batch)
        self.scales = learned_scales(forecaster)
        self.size = round(batch.example.coords.shape[1] ** 0.5)
        self.first = self._grids(batch.example.fields[:, -1])
        self.last = self._grids(batch.predicted(forecaster))
        self.rest = self._fraction(0.0, 0.0) - self.first

    def _grids(self, fields: Tensor) -> np.ndarray:
        return fields[..., 0].double().numpy().reshape(-1, self.size, self.size)

    def _fraction(self, part: float, variance: float, gates: float = 1.0) -> np.ndarray:
        """Returns predictions with fractions of displacements, variances, and gates beside transport."""
        scales = {n: max(variance, 0) ** 0.5 * one for n, one in self.scales.items()}
        if variance == 0:
            scales = scales_at_floor(self.scales)
        change = Ablation(
            displacing=lambda layer, own: part * self.own[layer], scaling=replaced_scales(scales)
        )

        def fade(layer: int, fields: Tensor) -> Tensor:
            if layer not in self.scales:
                return fields
            gate, transported = fields.chunk(2, -1)
            return torch.cat([gate, gates * transported], -1)

        with tapped([Tap("factors", fade)]):
            return self._grids(self.batch.predicted(self.forecaster, change))

    def linear(self, part: float) -> np.ndarray:
        """Returns the linear interpolation."""
        return (1 - part) * self.first + part * self.last

    def particles(self, part: float) -> np.ndarray:
        """Returns frames with fractions of displacements and variances."""
        return self._fraction(part, part) - (1 - part) * self.rest

    def undiffused(self, part: float) -> np.ndarray:
        """Returns frames with fractions of displacements, and scales of a whole step."""
        return self._fraction(part, 1.0) - (1 - part) * self.rest

    def layers(self, part: float) -> np.ndarray:
        """Returns frames with fractions of displacements, variances and gates beside transport."""
        at_zero = self._fraction(0.0, 0.0, 0.0) - self.first
        return self._fraction(part, part, part) - (1 - part) * at_zero

    def best_particle(self, part: float) -> np.ndarray:
        """Returns frames advected along the displacement of the particle that carries most."""
        layer, particle = self.best
        shifts = self.own[layer][:, :, particle].double().numpy() * self.size
        return self._along(shifts.transpose(1, 2, 0).reshape(-1, 2, self.size, self.size), part)

    def true_velocity(self, part: float) -> np.ndarray:
        """Returns frames advected along the velocity of the first frame."""
        flows = [flow_of_vorticity(one.ravel(), self.batch.geometry) for one in self.first]
        shifts = np.stack([flow.T.reshape(2, self.size, self.size) for flow in flows]) * self.size
        return self._along(shifts, part)

    def optical_flow(self, part: float, window: int) -> np.ndarray:
        """Returns frames advected along the optical flow."""
        pairs = zip(self.first, self.last, strict=True)
        return self._along(np.stack([optical_flow(*pair, window) for pair in pairs]), part)

    def _along(self, shifts: np.ndarray, part: float) -> np.ndarray:
        triples = zip(self.first, self.last, shifts, strict=True)
        return np.stack([blended(*triple, part) for triple in triples])


def error(fields: np.ndarray, truth: np.ndarray) -> float:
    """Returns the relative L2 error, the mean over examples."""
    norms = [np.sqrt(np.square(one).sum((1, 2))) for one in (fields - truth, truth)]
    return float((norms[0] / norms[1]).mean())


def measure(run: Path, truth: dict[int, Tensor]) -> dict[str, Any]:
    """Returns errors by way and fraction of a step, on validation data."""
    opened = open_run(run)
    forecaster, data = opened.forecaster().eval(), opened.data
    variables = FlowVariables.named(forecaster.task.fields)
    slices = [one for one in opened.split.validation if one.sample in truth]
    (batch,) = make_batches(data, slices)
    rows, _ = particle_rows(forecaster, [batch], variables, np.random.default_rng(0))
    top = max(rows, key=lambda row: row["share"])
    between = Between(forecaster, batch, (top["layer"], top["particle"]))
    window = choose_window(forecaster, data, opened.split.training)
    ways: dict[str, Callable[[float], np.ndarray]] = {
        "linear": between.linear,
        "optical flow": lambda part: between.optical_flow(part, window),
        "true velocity": between.true_velocity,
        "best particle": between.best_particle,
        "particles at a fraction": between.particles,
        "layers at a fraction": between.layers,
        "particles, no diffusion scaled": between.undiffused,
    }
    step = PRESETS["quick"].size // between.size

    def at(part: float) -> np.ndarray:
        times = [(one, PARTS * (one.last + 1) - 1 + round(PARTS * part)) for one in slices]
        frames = [truth[one.sample][time, ::step, ::step] for one, time in times]
        return torch.stack(frames).double().numpy()

    check = error(between.first, at(0.0))
    parts = [number / PARTS for number in range(1, PARTS + 1)]
    errors = {name: [error(way(part), at(part)) for part in parts] for name, way in ways.items()}
    return {"run": run.name, "num_examples": len(slices), "window": window, "parts": parts,
            "solved_anew": check, "errors": errors}  # fmt: skip


def choose_window(forecaster: Forecaster, data: FieldData, training: Sequence[Any]) -> int:
    """Returns the window whose flow carries a frame to the next one best, on training examples."""
    chosen = training[:: max(1, len(training) // FLOW_SAMPLES)]
    (batch,) = make_batches(data, chosen)
    size = round(batch.example.coords.shape[1] ** 0.5)
    first, last = (
        fields[..., 0].double().numpy().reshape(-1, size, size)
        for fields in (batch.example.fields[:, -1], batch.example.target)
    )
    cells = np.stack(np.meshgrid(np.arange(size), np.arange(size), indexing="ij")).astype(float)

    def misfit(window: int) -> float:
        shifts = [optical_flow(*pair, window) for pair in zip(first, last, strict=True)]
        pairs = zip(first, shifts, strict=True)
        return error(np.stack([sampled(one, cells - shift) for one, shift in pairs]), last)

    return min(WINDOWS, key=misfit)


def main(
    runs: Positional[Annotated[tuple[Path, ...], arg(metavar="RUN")]],
    /,
    out: Path = Path("benchmarks/results/frames_between"),
) -> None:
    """Measures all runs and writes a table with the mean over them."""
    torch.set_num_threads(1)
    solver = replace(PRESETS["quick"])
    validation = [one for one in open_run(runs[0]).split.validation if isinstance(one, TimeSlice)]
    trajectories = sorted({one.sample for one in validation})[:NUM_TRAJECTORIES]
    truth = dict(zip(trajectories, recorded(solver, trajectories), strict=True))
    rows = [measure(run, truth) for run in runs]
    parts = rows[0]["parts"]
    lines = ["| frame made by | " + " | ".join(f"{part:g} of a step" for part in parts) + " |"]
    lines.append("|---|" + "---|" * len(parts))
    for name in rows[0]["errors"]:
        means = np.mean([row["errors"][name] for row in rows], axis=0)
        lines.append(f"| {name} | " + " | ".join(f"{mean:.4f}" for mean in means) + " |")
    text = "\n".join(lines) + "\n"
    out.mkdir(parents=True, exist_ok=True)
    (out / "table.md").write_text(text, encoding="utf-8")
    (out / "frames_between.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    print(text, "solved anew:", [row["solved_anew"] for row in rows])


if __name__ == "__main__":
    tyro.cli(main)
