"""A time series whose next frame is known exactly: every wave decays at its own rate."""

from pathlib import Path

import numpy as np

from gpo.data.geometry import Geometry
from gpo.data.trajectories import Trajectories, Variable


def decaying_waves(num_trajectories=8, num_times=10, num_points=24, missing=None):
    x = np.arange(num_points) / num_points
    generator = np.random.default_rng(0)
    first, second, phase = generator.normal(size=(3, num_trajectories, 1, 1))
    t = np.arange(num_times)[None, :, None]
    waves = first * 0.9**t * np.sin(2 * np.pi * x + phase) + second * 0.7**t * np.cos(4 * np.pi * x)
    values = np.stack([10 + 3 * waves, 0.1 * waves], -1)
    if missing is not None:
        values[:, :, missing] = np.nan
    geometry = Geometry.rectilinear([x], periodic=True, bounds=[(0.0, 1.0)])
    return Trajectories(
        "waves", Path("waves"), (Variable("a", "K"), Variable("b")), (geometry,),
        np.arange(num_times, dtype=float), "h", num_trajectories, lambda n, times: values[n, times],
    )  # fmt: skip
