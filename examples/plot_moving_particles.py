"""Particles that move with a turbulent flow, as an animation: trained in two CPU minutes, then drawn.

On the left the forecast of a vorticity that the model has not seen, rolled out from one frame, and
streaks of points that follow the displacement of the most important particle. On the right the truth,
and points that follow its velocity, which no model was shown. Between two steps a field is carried along
the same displacement, from both sides, and blended.
"""

import argparse
import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from matplotlib import pyplot as plt
from matplotlib.collections import LineCollection
from PIL import Image
from scipy.ndimage import map_coordinates

from gpo import (
    Forecaster,
    GaussianParticleOperator,
    open_run,
    relative_l2,
    rollout,
)

FINE = 128
"""Points along a side of the pictures, between which fields are interpolated by their Fourier series."""
NUM_TRACERS, TAIL, LIFETIME = 420, 7, 26
SUBSTEPS = 6
"""Pictures per step."""
MAX_BYTES = 2_000_000


@dataclass(frozen=True)
class Flow:
    """Fields of a trajectory and the displacements from each to the next, on a fine periodic grid."""

    fields: np.ndarray
    """Steps by rows by columns."""
    ways: np.ndarray
    """Steps by axes by rows by columns, in sides of the domain."""

    def between(self, time: float) -> np.ndarray:
        """Returns the field at a time between two steps, carried from both."""
        step = min(int(time), len(self.fields) - 2)
        part, way = time - step, self.way(time)
        places = np.stack(np.meshgrid(*[np.arange(FINE) / FINE] * 2, indexing="ij"))
        before = sample(self.fields[step], places - part * way)
        after = sample(self.fields[step + 1], places + (1 - part) * way)
        return (1 - part) * before + part * after

    def way(self, time: float) -> np.ndarray:
        """Returns the displacement of one step around a time."""
        step = min(int(time), len(self.ways) - 2)
        part = min(time - step, 1.0)
        return (1 - part) * self.ways[step] + part * self.ways[step + 1]


def sample(field: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Returns a periodic field at places in sides of the domain, by cubic splines."""
    return map_coordinates(field, places * FINE, order=3, mode="grid-wrap")


def refine(fields: np.ndarray) -> np.ndarray:
    """Returns periodic fields on the fine grid: the same Fourier series at more points."""
    size = fields.shape[-1]
    spectrum = np.fft.fftshift(np.fft.fft2(fields), axes=(-2, -1))
    width = (FINE - size) // 2
    padded = np.pad(spectrum, [(0, 0)] * (fields.ndim - 2) + [(width, width)] * 2)
    return np.fft.ifft2(np.fft.ifftshift(padded, axes=(-2, -1))).real * (FINE / size) ** 2


def velocity(vorticity: np.ndarray) -> np.ndarray:
    """Returns the flow without mean and divergence that has a vorticity on the unit torus."""
    numbers = 2 * np.pi * np.fft.fftfreq(vorticity.shape[-1], 1 / vorticity.shape[-1])
    x, y = np.meshgrid(numbers, numbers, indexing="ij")
    stream = np.fft.fft2(vorticity) / np.where(x**2 + y**2 > 0, x**2 + y**2, np.inf)
    return np.stack([np.fft.ifft2(part * stream).real for part in (1j * y, -1j * x)], -3)


@torch.no_grad()
def displacement(forecaster: Forecaster, fields: torch.Tensor, coords: torch.Tensor) -> np.ndarray:
    """Returns that of the most important particle: steps by axes by rows by columns.

    Args:
        forecaster: A trained model.
        fields: Steps by points.
        coords: The sites of a square grid.
    """
    values = forecaster.normalised_input(fields[:, None, :, None])
    model = forecaster.model
    assert isinstance(model, GaussianParticleOperator)
    held = model.particles(values, coords)[-1]
    heaviest = int(held.weights.mean((0, 1)).argmax())
    ways = model.problem.domain.offset(coords, held.centers[:, :, heaviest]).double().numpy()
    size = round(len(coords) ** 0.5)
    return ways.reshape(-1, size, size, 2).transpose(0, 3, 1, 2)


def correlation(ways: np.ndarray, flows: np.ndarray) -> float:
    """Returns the vector correlation over the domain, the mean over examples."""
    axes = (-3, -2, -1)
    size = np.sqrt((ways**2).sum(axes) * (flows**2).sum(axes))
    return float(((ways * flows).sum(axes) / size).mean())


def follow(flow: Flow, times: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Returns paths of points along displacements, times by points by axes; NaN where one starts anew."""
    places = generator.random((NUM_TRACERS, 2))
    ages = generator.integers(LIFETIME, size=NUM_TRACERS)
    paths = []
    for before, after in pairwise(times):
        paths.append(places.copy())
        way = flow.way((before + after) / 2)
        half = sample_ways(way, places) * (after - before) / 2
        places = places + sample_ways(way, places + half) * (after - before)
        ages += 1
        is_old = ages >= LIFETIME
        paths[-1][is_old] = np.nan
        places[is_old], ages[is_old] = generator.random((int(is_old.sum()), 2)), 0
    return np.stack([*paths, places])


def sample_ways(way: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Returns displacements at points."""
    return np.stack([sample(part, places.T) for part in way], -1)


def draw(
    flows: dict[str, Flow], paths: list[np.ndarray], times: np.ndarray, out: Path, scale: float
) -> int:
    """Writes the animation, as good as its size allows, and returns the quality."""
    figure, panels = plt.subplots(1, 2, figsize=(6.4, 3.4), dpi=100)
    figure.subplots_adjust(0.005, 0.005, 0.995, 0.9, wspace=0.015)
    images, tails = [], []
    for axes, (name, flow) in zip(panels, flows.items(), strict=True):
        box = {"origin": "lower", "extent": (0, 1, 0, 1), "interpolation": "bilinear"}
        images.append(axes.imshow(flow.fields[0].T, cmap="RdBu_r", vmin=-scale, vmax=scale, **box))
        tails.append(axes.add_collection(LineCollection([], capstyle="round"), autolim=False))
        axes.set(xlim=(0, 1), ylim=(0, 1), xticks=[], yticks=[])
        axes.set_title(name, fontsize=10)
        axes.spines[:].set_visible(False)
    frames = []
    for number in range(TAIL, len(times)):
        for image, tail, flow, path in zip(images, tails, flows.values(), paths, strict=True):
            image.set_data(flow.between(times[number]).T)
            _draw_tails(tail, path[number - TAIL : number + 1])
        figure.canvas.draw()
        rgb = np.asarray(figure.canvas.buffer_rgba())[..., :3]  # pyright: ignore[reportAttributeAccessIssue]
        frames.append(Image.fromarray(rgb.copy()))
    plt.close(figure)
    out.parent.mkdir(parents=True, exist_ok=True)
    quality = 0
    for quality in (75, 60, 45, 30, 20):
        frames[0].save(
            out, save_all=True, append_images=frames[1:], duration=90, loop=0, quality=quality, method=4
        )  # fmt: skip
        if out.stat().st_size <= MAX_BYTES:
            break
    return quality


def _draw_tails(tail: LineCollection, recent: np.ndarray) -> None:
    """Draws the last way of every point, which fades towards where it came from."""
    origin = np.floor(recent[-1])
    shown = recent - origin
    pieces = np.stack([shown[:-1], shown[1:]], -2)
    opacity = np.linspace(0.0, 0.85, len(pieces) + 1)[1:]
    # A tail ends where its point started anew.
    is_whole = np.cumsum(np.isnan(recent[::-1]).any(-1), 0)[::-1][:-1] == 0
    rows, points = np.nonzero(is_whole)
    colors = np.zeros((len(rows), 4))
    colors[:, :3], colors[:, 3] = 0.07, opacity[rows]
    tail.set_segments(list(pieces[rows, points]))
    tail.set(color=colors, linewidth=0.6 + 0.9 * opacity[rows])


def main(run: Path, out: Path, budget_cpu: float, num_steps: int) -> None:
    """Trains where there is no run yet, scores motion on test data, draws a rollout of it."""
    if not (run / "model").exists():
        command = ("train", "ns2d", "--preset", "quick", "--coarsen", "2", "--out", str(run))
        subprocess.run([sys.executable, "-m", "gpo", *command, "--budget-cpu", str(budget_cpu)], check=True)  # fmt: skip
    opened = open_run(run)
    forecaster, data, test = opened.forecaster().eval(), opened.data, opened.split.test
    coords = torch.from_numpy(data.geometry().coords).float()
    size = round(len(coords) ** 0.5)
    trajectories = sorted({member.sample for member in test})
    truths = {n: torch.from_numpy(data.frames(n)[..., 0]).float() for n in trajectories}

    inputs = [truths[n][:-1] for n in trajectories]
    ways = displacement(forecaster, torch.cat(inputs), coords)
    true = velocity(torch.cat(inputs).double().numpy().reshape(-1, size, size))
    other = np.roll(true, len(inputs[0]), axis=0)
    mine, control = correlation(ways, true), correlation(ways, other)

    truth = truths[trajectories[0]]
    num_steps = min(num_steps, len(truth) - 1)
    start = truth[None, :1, :, None]
    forecast = torch.cat([truth[None, :1], rollout(forecaster, start, coords, num_steps)[..., 0]], 1)[0]  # fmt: skip
    error = relative_l2(forecast[None, -1:].mT, truth[None, num_steps : num_steps + 1].mT).item()
    still = relative_l2(truth[None, :1].mT, truth[None, num_steps : num_steps + 1].mT).item()
    fields = [part.double().numpy().reshape(-1, size, size) for part in (forecast, truth[: num_steps + 1])]  # fmt: skip
    flows = {
        "forecast, and its particles": Flow(refine(fields[0]), refine(displacement(forecaster, forecast, coords))),
        "truth, and its flow": Flow(refine(fields[1]), refine(velocity(fields[1]))),
    }  # fmt: skip
    times = np.linspace(0, num_steps, num_steps * SUBSTEPS + 1)
    paths = [follow(flow, times, np.random.default_rng(0)) for flow in flows.values()]
    quality = draw(flows, paths, times, out, 0.9 * float(np.abs(fields[1]).max()))
    print(f"vector correlation of displacement and velocity, {len(ways)} test frames: {mine:.3f}")
    print(f"control, the velocity of another trajectory at the same time: {control:.3f}")
    print(f"relative L2 after {num_steps} steps: {error:.3f}, persistence: {still:.3f}")
    print(f"picture: {out}, {out.stat().st_size / 1e6:.2f} MB at quality {quality}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--run", type=Path, default=Path("runs/moving"), help="trained here, or used as it is"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("runs/moving.webp"), help="where the animation goes"
    )
    parser.add_argument("--budget-cpu", type=float, default=120.0, help="CPU seconds of training")
    parser.add_argument("--num-steps", type=int, default=12, help="steps of the rollout")
    main(**vars(parser.parse_args()))
