from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from gpo.data.dataset import FieldData, Variable
from gpo.data.geometry import Geometry
from gpo.data.splits import split_time_slices
from gpo.forecast.examples import TimeSliceExamples
from gpo.forecast.extrapolation import Extrapolation
from gpo.forecast.references import Persistence
from gpo.forecast.rollout import rollout
from gpo.forecast.task_files import load_references, save_references
from tests.core.evaluation.fitted import inputs_of

pytestmark = pytest.mark.thorough

SIZE, NUM_FRAMES = 24, 48
MASKED = slice(0, 5)
"""Rows that are masked in some tests."""


def moving(shift=(1.3, -0.4), *, growth=0.0, periodic=True, noise=0.0, is_masked=False):
    """A pattern that moves by some cells in a step and grows, beside values without memory."""
    generator, cells = np.random.default_rng(0), np.arange(SIZE)
    phases = generator.random((4, 4))
    frames = []
    for t in range(NUM_FRAMES):
        rows, columns = (cells - t * part for part in shift)
        field = sum(
            np.cos(2 * np.pi * (k * rows[:, None] / SIZE + m * columns / SIZE + phases[k, m])) / (k + m + 1)
            for k in range(4) for m in range(4) if k + m
        )  # fmt: skip
        frames.append((1 + growth * t) * field)
    values = np.stack(frames) + noise * generator.normal(size=(NUM_FRAMES, SIZE, SIZE))
    values = np.stack([values, generator.normal(size=values.shape)], -1).reshape(NUM_FRAMES, -1, 2)
    axes = [cells / SIZE] * 2
    bounds = [(0.0, 1.0)] * 2 if periodic else None
    geometry = Geometry.rectilinear(axes, periodic=periodic, bounds=bounds)
    if is_masked:
        missing = np.zeros((SIZE, SIZE), dtype=bool)
        missing[MASKED] = True
        geometry = geometry.masked(missing.ravel())
    return FieldData(
        "moving", Path("moving"), (Variable("rain"), Variable("noise")), (geometry,),
        np.arange(NUM_FRAMES, dtype=float), "h", 1, lambda number, times: values[times],
    )  # fmt: skip


def fitted(data, history=2):
    return Extrapolation.fit(inputs_of(data, split_time_slices(data, history=history).training, history=history))  # fmt: skip


def batch_of(data, history=2, num_steps=1):
    return TimeSliceExamples(data, split_time_slices(data, history=history).test, num_steps=num_steps)[0]  # fmt: skip


@pytest.mark.parametrize("history", [2, 3])
def test_a_moving_pattern_is_carried_and_what_has_no_memory_stays(history):
    data = moving()
    reference, example = fitted(data, history), batch_of(data, history)
    assert reference.moves.tolist() == [1, 0]
    assert reference.blur[0] == 0
    predicted = reference(example.frames, example.coords)
    errors = [(part - example.target)[..., 0].norm() for part in (predicted, example.fields[:, -1])]
    assert errors[0] < 0.01 * errors[1]
    assert torch.equal(predicted[..., 1], example.frames[:, -1, :, 1])


def test_it_neither_drifts_nor_blurs_in_a_rollout():
    """The motion is estimated again from frames of the forecast itself."""
    data = moving()
    example = batch_of(data, num_steps=2)
    values = torch.from_numpy(data.fetch(0, slice(None)))
    steps = rollout(fitted(data), values[None, :2], example.coords, NUM_FRAMES - 2)[0]
    error = (steps - values[2:])[..., 0].norm(dim=-1) / values[2:, :, 0].norm(dim=-1)
    assert error[0] < 0.005
    # Each step interpolates once more.
    assert (error < 0.005 * torch.arange(1, NUM_FRAMES - 1)).all()


def test_growth_along_the_motion_goes_on():
    data = moving(growth=0.05)
    reference, example = fitted(data), batch_of(data)
    assert reference.growth[0] > 0.4
    predicted, carried_only = (
        one(example.frames, example.coords)[..., 0]
        for one in (reference, replace(reference, growth=torch.zeros(2, dtype=torch.double)))
    )
    target = example.target[..., 0]
    assert (predicted - target).norm() < 0.8 * (carried_only - target).norm()


def test_values_at_masked_sites_make_no_difference():
    data = moving(is_masked=True)
    reference, example = fitted(data), batch_of(data)
    is_masked = torch.from_numpy(data.geometry().is_masked)
    other = example.frames.clone()
    other[:, :, is_masked] = 1e6
    first, second = (reference(frames, example.coords) for frames in (example.frames, other))
    assert torch.equal(first[:, ~is_masked], second[:, ~is_masked])
    errors = [
        (example.weights * (part - example.target)[..., 0].square()).sum()
        for part in (first, example.fields[:, -1])
    ]
    assert errors[0] < 0.1 * errors[1]


def test_units_make_no_difference():
    data = moving()
    reference, example = fitted(data), batch_of(data)
    scale, offset = torch.tensor([40.0, 1.0]), torch.tensor([1e4, 0.0])
    expected = reference(example.frames, example.coords) * scale + offset
    predicted = reference(example.frames * scale + offset, example.coords)
    torch.testing.assert_close(predicted, expected, rtol=1e-6, atol=1e-3)


def test_there_is_none_where_it_cannot_help():
    data, still = moving(), moving((0.0, 0.0))
    values = data.fetch(0, slice(None))
    noise = replace(
        data, variables=data.variables[1:], fetch=lambda number, times: values[times, :, 1:]
    )
    assert fitted(data, history=1) is None
    assert fitted(noise) is None
    geometry = still.geometry()
    points = Geometry.unstructured(geometry.coords, domain=geometry.domain)
    assert fitted(replace(data, geometries=(points,))) is None


def test_it_is_the_same_after_saving(tmp_path):
    data = moving(is_masked=True)
    reference, example = fitted(data), batch_of(data)
    checksum = save_references(tmp_path, {"extrapolation": reference})
    loaded = load_references(tmp_path, reference.task, ["extrapolation"], checksum)["extrapolation"]
    predicted = [one(example.frames, example.coords) for one in (reference, loaded)]
    assert torch.equal(*predicted)


def test_it_beats_persistence_on_an_open_grid_with_noise():
    data = moving((0.6, 0.3), periodic=False, noise=0.05)
    reference, example = fitted(data), batch_of(data)
    forecasts = reference, Persistence(reference.task)
    errors = [
        (one(example.frames, example.coords) - example.target)[..., 0].norm() for one in forecasts
    ]
    assert errors[0] < 0.5 * errors[1]
