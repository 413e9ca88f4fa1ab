"""Do Gaussians that are followed in time move with the flow? Forced turbulence, frames near and far apart.

Displacements from frame to frame are compared with the true velocity half way between both centers.
Controls: the velocity of the other trajectory at the same places, and a null in which the true one is
moved by random distances.
"""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.ndimage import map_coordinates

from gpo import Domain
from gpo.data.solvers.navier_stokes_2d import Flow, NavierStokes2D, advance, fno_forcing
from gpo.numerics.spectral import resample
from gpo_mixture import MixtureSeries

SOLVED, SIZE, START = 128, 32, 10.0
NUM_PARTICLES, NUM_FRAMES, NUM_DRAWS = 20, 5, 200
GAPS = (1.0, 0.25)
"""Time between frames."""
LONG = 2.0
"""Ratio of half axes from which on a Gaussian is called long."""
HEAD = (
    "| time between frames | Gaussians | steps | rms displacement | rms way of the flow | correlation | "
    "other trajectory's velocity | null |\n|" + "---|" * 8
)


@dataclass(frozen=True)
class Steps:
    """Steps of Gaussians, and what flows would have done there."""

    ways: np.ndarray
    """Displacements, steps by axes."""
    own: np.ndarray
    """The way of the true flow, steps by axes."""
    other: np.ndarray
    """That of the other trajectory."""
    moved: np.ndarray
    """That of the true flow, moved: draws by steps by axes."""
    ratios: np.ndarray
    """Long over short half axis."""


def rows() -> list[str]:
    """Returns the rows of the table."""
    solver = NavierStokes2D(num_trajectories=2)
    fields = torch.stack([solver.initial_field(number) for number in range(2)])
    spectrum = resample(torch.fft.rfft2(fields), SOLVED).to(torch.complex64)
    forcing = fno_forcing(SOLVED, torch.float32, "cpu")
    start = advance(spectrum, START, viscosity=solver.viscosity, forcing=forcing)
    found = []
    for gap in GAPS:
        states = [start]
        for _ in range(NUM_FRAMES - 1):
            states.append(advance(states[-1], gap, viscosity=solver.viscosity, forcing=forcing))
        parts = [_followed(states, number, gap) for number in range(2)]
        joined = {name: np.concatenate([getattr(part, name) for part in parts], axis=int(name == "moved")) for name in vars(parts[0])}  # fmt: skip
        found += _described(Steps(**joined), gap)
    return found


def _followed(states: list[torch.Tensor], number: int, gap: float) -> Steps:
    """Returns the steps of the Gaussians of one trajectory."""
    domain = Domain.unit_box(2, periodic=True)
    coords, weights = (part.double() for part in domain.grid(SIZE, SIZE))
    frames = [torch.fft.irfft2(resample(state[number], SIZE)).double().reshape(-1, 1) for state in states]  # fmt: skip
    series = MixtureSeries.fit(frames, coords, weights, NUM_PARTICLES, domain=domain, num_steps=10)
    tracks = series.tracks()
    flow = Flow(SOLVED, torch.float32, "cpu")
    speeds = [np.stack([part.numpy() for part in flow.velocity(state)], 1) for state in states]
    middle = (tracks.centers + tracks.displacements / 2).numpy()
    generator = np.random.default_rng(0)

    def way(whose: int, shift: np.ndarray) -> np.ndarray:
        found = np.zeros_like(middle)
        for frame in range(NUM_FRAMES - 1):
            mean = (speeds[frame][whose] + speeds[frame + 1][whose]) / 2
            chosen = (tracks.frames == frame).numpy()
            places = SOLVED * (middle[chosen] + shift).T
            found[chosen] = np.stack([map_coordinates(part, places, order=1, mode="grid-wrap") for part in mean], -1)  # fmt: skip
        return gap * found

    axes = {
        (frame, label): float(axes[0] / axes[1])
        for frame, mixture in enumerate(series.mixtures)
        for label, axes in zip(mixture.labels.tolist(), mixture.footprints().semi_axes, strict=True)
    }
    keys = zip(tracks.frames.tolist(), tracks.sites.tolist(), strict=True)
    still = np.zeros(2)
    return Steps(
        tracks.displacements.numpy(),
        way(number, still),
        way(1 - number, still),
        np.stack([way(number, generator.random(2)) for _ in range(NUM_DRAWS)]),
        np.array([axes[key] for key in keys]),
    )


def _described(steps: Steps, gap: float) -> list[str]:
    kinds = {
        "all": steps.ratios > 0,
        f"round, half axes up to 1 : {LONG:g}": steps.ratios < LONG,
        "long": steps.ratios >= LONG,
    }
    found = []
    for name, chosen in kinds.items():
        ways, own = steps.ways[chosen], steps.own[chosen]
        draws = [_correlation(ways, moved) for moved in steps.moved[:, chosen]]
        low, high = np.quantile(draws, [0.025, 0.975])
        sizes = [np.sqrt((part**2).sum(-1).mean()) for part in (ways, own)]
        cells = [
            f"{gap:g}", name, str(len(ways)), f"{sizes[0]:.3f}", f"{sizes[1]:.3f}",
            f"{_correlation(ways, own):+.2f}", f"{_correlation(ways, steps.other[chosen]):+.2f}",
            f"{low:+.2f} to {high:+.2f}",
        ]  # fmt: skip
        found.append("| " + " | ".join(cells) + " |")
    return found


def _correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Returns the vector correlation."""
    return float((first * second).sum() / np.sqrt((first**2).sum() * (second**2).sum()))
