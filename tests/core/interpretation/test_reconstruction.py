"""Fields that are reconstructed from particles alone, and their picture."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt

from gpo.data.dataset import FieldData, Variable
from gpo.data.geometry import Geometry
from gpo.data.splits import split_time_slices
from gpo.forecast.examples import TimeSliceExamples
from gpo.interpretation import particle_fields as module
from gpo.interpretation.particle_fields import reconstruct, superposition
from gpo.report.particles import draw_particle_panels
from gpo.training.config import RunConfig
from gpo.training.fit import new_forecaster
from tests.conftest import random_points

SMALL = {"hidden_dim": 8, "num_layers": 1, "num_gaussians": 3}
PAPER = {"model": "gpo-paper", "centers": "displacement", "num_heads": 2, **SMALL}


def waves(is_flat=False):
    """Two variables on an open box; the second is missing at one site."""
    x, y = np.linspace(0, 1, 9), np.linspace(0, 2, 11)
    field = np.sin(3 * x[:, None] + y).ravel()
    times = np.arange(6.0)
    values = np.stack([np.full((6, 99), 7.0) + times[:, None] if is_flat else 5 + field * 0.9 ** times[:, None]] * 2, -1)  # fmt: skip
    values[:, 40] = np.nan
    geometry = Geometry.rectilinear([x, y]).masked(np.arange(99) == 40)
    return FieldData(
        "waves", Path("waves"), (Variable("a", "K"), Variable("b")), (geometry,), times, "h", 4,
        lambda number, when: values[when] + number,
    )  # fmt: skip


def forecaster_of(data, **settings):
    config = RunConfig.of(data="x", **settings)
    split = split_time_slices(data)
    example = TimeSliceExamples(data, split.test[:1], reconstructs=config.task.phase == "field")[0]
    return new_forecaster(data, split, config).eval(), example


def test_a_constant_field_is_reconstructed_exactly():
    forecaster, example = forecaster_of(waves(is_flat=True), **PAPER)
    result = reconstruct(forecaster, example)
    is_known = example.weights[0] > 0
    torch.testing.assert_close(result.reconstructed[is_known], result.field[is_known])


def test_narrow_particles_reconstruct_the_field_without_masked_sites(monkeypatch):
    forecaster, example = forecaster_of(waves(), **PAPER)
    with torch.no_grad():
        forecaster.model.lift.encoder.scales.out.bias.fill_(-5)
    result = reconstruct(forecaster, example)
    is_known = example.weights[0] > 0
    torch.testing.assert_close(result.reconstructed[is_known], result.field[is_known], rtol=0.05, atol=0.05)  # fmt: skip
    assert result.reconstructed.isfinite().all()
    # Of very many particles some are evaluated.
    monkeypatch.setattr(module, "MAX_RECONSTRUCTED", 99 * 98 * 3 - 1)
    fewer = reconstruct(forecaster, example)
    assert (fewer.reconstructed - result.reconstructed).abs().max() > 0


def test_a_gaussian_field_shows_what_its_decoder_makes():
    forecaster, example = forecaster_of(waves(), **PAPER, phase="field")
    expected = forecaster(example.frames, example.coords, weights=example.weights)[0]
    torch.testing.assert_close(reconstruct(forecaster, example).reconstructed, expected)


@pytest.mark.parametrize(
    "settings",
    [{"model": "fno"}, {**PAPER, "has_gaussian_field": False}, SMALL, {**SMALL, "num_transports": 0}],
    ids=["baseline", "no Gaussians", "moving", "no transport"],
)  # fmt: skip
def test_a_model_without_particles_of_an_encoder_has_no_such_picture(settings):
    data = waves()
    forecaster, example = forecaster_of(data, **settings)
    assert reconstruct(forecaster, example) is None
    assert draw_particle_panels(forecaster, {"test split": (example, data.geometry())}) is None


def test_the_picture_has_a_row_for_every_kind_of_data():
    data = waves()
    forecaster, example = forecaster_of(data, **PAPER)
    rows = {"like training": (example, data.geometry()), "other data": (example, data.geometry())}
    figure = draw_particle_panels(forecaster, rows)
    titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
    assert len(titles) == 8
    assert titles[0] == "like training: a"
    assert titles[4] == "other data: a"
    figure.canvas.draw()
    plt.close(figure)


def test_amounts_that_are_all_the_same_give_a_constant(domain):
    centers = random_points(domain, 50)
    ones = torch.ones(50, dtype=torch.double)
    result = superposition(
        random_points(domain, 9), centers, 0.5 * torch.ones_like(centers), ones, 3 * ones[:, None], domain
    )  # fmt: skip
    torch.testing.assert_close(result, torch.full((9, 1), 3.0, dtype=torch.double))


def test_two_gaussians_share_a_point_by_their_heights(domain, monkeypatch):
    monkeypatch.setattr(module, "MAX_OFFSETS", 1)
    centers, points = random_points(domain, 2), random_points(domain, 3)
    scales, weights = torch.full_like(centers, 0.7), torch.tensor([0.2, 0.5]).double()
    result = superposition(points, centers, scales, weights, torch.tensor([[1.0], [5.0]]).double(), domain)  # fmt: skip
    for point, value in zip(points, result, strict=True):
        heights = [
            weight * math.exp(-0.5 * float((domain.offset(point, center) / 0.7).square().sum()))
            for weight, center in zip(weights.tolist(), centers, strict=True)
        ]
        assert float(value) == pytest.approx((heights[0] + 5 * heights[1]) / sum(heights))
