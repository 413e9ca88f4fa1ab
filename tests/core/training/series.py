"""A time series whose next frame is known exactly: every wave decays at its own rate."""

from pathlib import Path

import numpy as np

from gpo import Domain
from gpo.data.dataset import FieldData, Variable
from gpo.data.geometry import Geometry

MODELS = {"geometric": "gpo", "paper": "gpo-paper"}
"""What a run calls the variants of our operator."""


def small_run(variant, **settings):
    """Settings of a small run of a variant; the published one has two heads."""
    return {
        "model": MODELS[variant],
        **({"num_heads": 2} if variant == "paper" else {}),
        **settings,
    }


def decaying_waves(num_trajectories=8, num_times=10, num_points=24, missing=None, values=None):
    x = np.arange(num_points) / num_points
    generator = np.random.default_rng(0)
    first, second, phase = generator.normal(size=(3, num_trajectories, 1, 1))
    t = np.arange(num_times)[None, :, None]
    waves = first * 0.9**t * np.sin(2 * np.pi * x + phase) + second * 0.7**t * np.cos(4 * np.pi * x)
    if values is None:
        values = np.stack([10 + 3 * waves, 0.1 * waves], -1)
    if missing is not None:
        values[:, :, missing] = np.nan
    geometry = Geometry.rectilinear([x], periodic=True, bounds=[(0.0, 1.0)])
    return FieldData(
        "waves", Path("waves"), (Variable("a", "K"), Variable("b")), (geometry,),
        np.arange(num_times, dtype=float), "h", num_trajectories, lambda n, times: values[n, times],
    )  # fmt: skip


def squares(num_samples=60):
    """Static maps from a field to its square and its mean, on differently many points."""
    generator = np.random.default_rng(1)
    samples, sites = [], []
    for number in range(num_samples):
        x = np.sort(generator.random(15 + number % 7))
        values = generator.normal() * np.sin(6 * x) + generator.normal()
        outputs = np.stack([values**2, np.full_like(values, values.mean())], -1)
        samples.append((values[:, None], outputs))
        sites.append(Geometry.unstructured(x[:, None], domain=Domain.unit_box(1)))
    return FieldData.of_maps(
        layout="squares", source=Path("squares"), inputs=(Variable("a"),),
        outputs=(Variable("square"), Variable("mean")), geometries=tuple(sites),
        num_samples=num_samples, fetch=lambda number: samples[number],
    )  # fmt: skip


def equal_squares(num_samples=12):
    """Static maps from a field to its square, all on the same points."""
    x = np.arange(16) / 16
    fields = np.random.default_rng(2).normal(size=(num_samples, 1)) + np.sin(6 * x)
    geometry = Geometry.unstructured(x[:, None], domain=Domain.unit_box(1))
    return FieldData.of_maps(
        layout="squares", source=Path("squares"), inputs=(Variable("a"),), outputs=(Variable("s"),),
        geometries=(geometry,), num_samples=num_samples,
        fetch=lambda number: (fields[number][:, None], fields[number][:, None] ** 2),
    )  # fmt: skip
