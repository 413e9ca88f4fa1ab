"""The animation of README: fields between two steps, and paths of points."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[3] / "examples" / "plot_moving_particles.py"


@pytest.fixture(scope="module")
def moving():
    spec = importlib.util.spec_from_file_location("plot_moving_particles", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def waves(size, shift=(0.0, 0.0)):
    x, y = np.meshgrid(*[np.arange(size) / size] * 2, indexing="ij")
    return np.sin(2 * np.pi * (x - shift[0])) * np.cos(4 * np.pi * (y - shift[1]))


def steady(moving, way=(0.1, -0.05), num_steps=3):
    fields = [waves(moving.FINE, (n * way[0], n * way[1])) for n in range(num_steps)]
    ways = np.broadcast_to(np.reshape(way, (1, 2, 1, 1)), (num_steps, 2, moving.FINE, moving.FINE))
    return moving.Flow(np.stack(fields), ways)


def test_a_refined_field_is_the_same_function(moving):
    np.testing.assert_allclose(moving.refine(waves(16)[None])[0], waves(moving.FINE), atol=1e-12)


def test_between_two_steps_a_field_is_where_it_is_advected(moving):
    shown = steady(moving).between(1.4)
    np.testing.assert_allclose(shown, waves(moving.FINE, (0.14, -0.07)), atol=1e-4)


def test_points_follow_displacements(moving):
    times = np.linspace(0, 2, 9)
    paths = moving.follow(steady(moving), times, np.random.default_rng(0))
    is_whole = np.isfinite(paths).all((0, 2)) & (np.abs(paths[-1] - paths[0]) < 0.5).all(-1)
    assert is_whole.sum() > 50
    np.testing.assert_allclose((paths[-1] - paths[0])[is_whole], np.full((is_whole.sum(), 2), (0.2, -0.1)), atol=1e-9)  # fmt: skip


def test_the_velocity_of_a_wave_of_vorticity_is_known(moving):
    flow = moving.velocity(np.sin(2 * np.pi * np.arange(16) / 16)[:, None] * np.ones(16))
    expected = -np.cos(2 * np.pi * np.arange(16) / 16) / (2 * np.pi)
    np.testing.assert_allclose(flow[1], expected[:, None] * np.ones(16), atol=1e-12)
    np.testing.assert_allclose(flow[0], 0, atol=1e-12)


def test_a_displacement_correlates_with_itself_and_not_with_its_normal(moving):
    first = np.random.default_rng(0).normal(size=(4, 2, 8, 8))
    assert moving.correlation(3 * first, first) == pytest.approx(1)
    normal = np.stack([-first[:, 1], first[:, 0]], 1)
    assert moving.correlation(first, normal) == pytest.approx(0)
