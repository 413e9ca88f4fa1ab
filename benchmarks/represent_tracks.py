"""Do tracked Gaussians move with the flow? Forced turbulence, with short and long times between frames.

Displacements from frame to frame are compared with the true velocity half way between both centers.
Controls: the velocity of the other trajectory at the same points, and a null in which the true
velocity is shifted by random distances.
"""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.ndimage import map_coordinates

from gpo import Domain
from gpo.data.solvers.navier_stokes_2d import Flow, NavierStokes2D, advance, fno_forcing
from gpo.numerics.spectral import resample
from gpo_mixture import fit_series

SOLVED, SIZE, START = 128, 32, 10.0
NUM_PARTICLES, NUM_FRAMES, NUM_DRAWS = 20, 5, 200
GAPS = (1.0, 0.25)
"""Time between frames."""
ELONGATED = 2.0
"""Smallest ratio of the semi-axes of an elongated Gaussian."""
HEAD = (
    "| time between frames | Gaussians | steps | rms displacement | rms displacement by the flow | correlation | "
    "other trajectory's velocity | null |\n|" + "---|" * 8
)


@dataclass(frozen=True)
class Steps:
    """Displacements of Gaussians between frames, and those by the flow at the same points."""

    displacements: np.ndarray
    """Of the Gaussians, steps by axes."""
    by_flow: np.ndarray
    """By the true flow, steps by axes."""
    by_other: np.ndarray
    """By the flow of the other trajectory."""
    shifted: np.ndarray
    """By the shifted true flow: draws by steps by axes."""
    ratios: np.ndarray
    """Long over short semi-axis."""


def rows() -> list[str]:
    """Returns the rows of the table."""
    solver = NavierStokes2D(num_trajectories=2)
    fields = torch.stack([solver.initial_field(number) for number in range(2)])
    spectrum = resample(torch.fft.rfft2(fields), SOLVED).to(torch.complex64)
    forcing = fno_forcing(SOLVED, torch.float32, "cpu")
    start = advance(spectrum, START, viscosity=solver.viscosity, forcing=forcing)
    lines = []
    for gap in GAPS:
        states = [start]
        for _ in range(NUM_FRAMES - 1):
            states.append(advance(states[-1], gap, viscosity=solver.viscosity, forcing=forcing))
        parts = [_track(states, number, gap) for number in range(2)]
        joined = {name: np.concatenate([getattr(part, name) for part in parts], axis=int(name == "shifted")) for name in vars(parts[0])}  # fmt: skip
        lines += _describe(Steps(**joined), gap)
    return lines


def _track(states: list[torch.Tensor], number: int, gap: float) -> Steps:
    """Returns the steps of the Gaussians of a trajectory."""
    domain = Domain.unit_box(2, periodic=True)
    coords, weights = (part.double() for part in domain.grid(SIZE, SIZE))
    frames = [torch.fft.irfft2(resample(state[number], SIZE)).double().reshape(-1, 1) for state in states]  # fmt: skip
    series = fit_series(frames, coords, weights, NUM_PARTICLES, domain=domain, num_steps=10)
    tracks = series.tracks()
    flow = Flow(SOLVED, torch.float32, "cpu")
    velocities = [np.stack([part.numpy() for part in flow.velocity(state)], 1) for state in states]
    middle = (tracks.centers + tracks.displacements / 2).numpy()
    generator = np.random.default_rng(0)

    def displacement(trajectory: int, shift: np.ndarray) -> np.ndarray:
        velocity = np.zeros_like(middle)
        for frame in range(NUM_FRAMES - 1):
            mean = (velocities[frame][trajectory] + velocities[frame + 1][trajectory]) / 2
            rows = (tracks.frames == frame).numpy()
            coords = SOLVED * (middle[rows] + shift).T
            velocity[rows] = np.stack([map_coordinates(part, coords, order=1, mode="grid-wrap") for part in mean], -1)  # fmt: skip
        return gap * velocity

    ratios = {
        (frame, label): float(axes[0] / axes[1])
        for frame, mixture in enumerate(series.mixtures)
        for label, axes in zip(mixture.labels.tolist(), mixture.footprints().semi_axes, strict=True)
    }
    keys = zip(tracks.frames.tolist(), tracks.sites.tolist(), strict=True)
    zero = np.zeros(2)
    return Steps(
        tracks.displacements.numpy(),
        displacement(number, zero),
        displacement(1 - number, zero),
        np.stack([displacement(number, generator.random(2)) for _ in range(NUM_DRAWS)]),
        np.array([ratios[key] for key in keys]),
    )


def _describe(steps: Steps, gap: float) -> list[str]:
    groups = {
        "all": steps.ratios > 0,
        f"round, semi-axes up to 1 : {ELONGATED:g}": steps.ratios < ELONGATED,
        "elongated": steps.ratios >= ELONGATED,
    }
    lines = []
    for name, rows in groups.items():
        displacements, by_flow = steps.displacements[rows], steps.by_flow[rows]
        draws = [_correlation(displacements, shifted) for shifted in steps.shifted[:, rows]]
        low, high = np.quantile(draws, [0.025, 0.975])
        sizes = [np.sqrt((part**2).sum(-1).mean()) for part in (displacements, by_flow)]
        correlation = _correlation(displacements, by_flow)
        control = _correlation(displacements, steps.by_other[rows])
        cells = [
            f"{gap:g}", name, str(len(displacements)), f"{sizes[0]:.3f}", f"{sizes[1]:.3f}",
            f"{correlation:+.2f}", f"{control:+.2f}", f"{low:+.2f} to {high:+.2f}",
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Returns the vector correlation."""
    return float((first * second).sum() / np.sqrt((first**2).sum() * (second**2).sum()))
