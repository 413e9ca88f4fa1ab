from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt

from gpo.data.dataset import Trajectories, Variable
from gpo.data.geometry import Geometry
from gpo.data.splits import split_windows
from gpo.evaluation import carried as module
from gpo.forecast.examples import make_examples
from gpo.interpretation.reconstruction import carried_field
from gpo.report.particles import draw_particle_panels
from gpo.training.config import RunConfig
from gpo.training.fit import new_forecaster

SMALL = {"hidden_dim": 8, "num_layers": 1, "num_gaussians": 3}


def waves(is_flat=False):
    """Two variables on an open box; the second is missing at one site."""
    x, y = np.linspace(0, 1, 9), np.linspace(0, 2, 11)
    field = np.sin(3 * x[:, None] + y).ravel()
    times = np.arange(6.0)
    values = np.stack([np.full((6, 99), 7.0) + times[:, None] if is_flat else 5 + field * 0.9 ** times[:, None]] * 2, -1)  # fmt: skip
    values[:, 40] = np.nan
    geometry = Geometry.rectilinear([x, y]).masked(np.arange(99) == 40)
    return Trajectories(
        "waves", Path("waves"), (Variable("a", "K"), Variable("b")), (geometry,), times, "h", 4,
        lambda number, when: values[when] + number,
    )  # fmt: skip


def forecaster_of(data, **settings):
    config = RunConfig.of(data="x", **SMALL, **settings)
    split = split_windows(data)
    example = make_examples(data, split.test[:1], reconstructs=config.task.phase == "field")[0]
    return new_forecaster(data, split, config).eval(), example


def test_a_field_that_is_the_same_everywhere_is_carried_exactly():
    forecaster, example = forecaster_of(waves(is_flat=True))
    carried = carried_field(forecaster, example)
    is_known = example.weights[0] > 0
    torch.testing.assert_close(carried.rebuilt[is_known], carried.field[is_known])


def test_narrow_particles_carry_the_field_and_a_masked_site_carries_nothing(monkeypatch):
    forecaster, example = forecaster_of(waves())
    with torch.no_grad():
        forecaster.model.field.encoder.scales.out.bias.fill_(-5)
    carried = carried_field(forecaster, example)
    is_known = example.weights[0] > 0
    torch.testing.assert_close(carried.rebuilt[is_known], carried.field[is_known], rtol=0.05, atol=0.05)  # fmt: skip
    assert carried.rebuilt.isfinite().all()
    # Of very many particles some are looked at.
    monkeypatch.setattr(module, "MOST_PAIRS", 99 * 98 * 3 - 1)
    fewer = carried_field(forecaster, example)
    assert (fewer.rebuilt - carried.rebuilt).abs().max() > 0


def test_a_gaussian_field_shows_what_its_decoder_makes():
    forecaster, example = forecaster_of(waves(), phase="field")
    expected = forecaster(example.frames, example.coords, weights=example.weights)[0]
    torch.testing.assert_close(carried_field(forecaster, example).rebuilt, expected)


@pytest.mark.parametrize("settings", [{"model": "fno"}, {"operator": ("has_gaussian_field=false",)}])  # fmt: skip
def test_a_model_without_particles_has_no_such_picture(settings):
    data = waves()
    forecaster, example = forecaster_of(data, **settings)
    assert carried_field(forecaster, example) is None
    assert draw_particle_panels(forecaster, {"test split": (example, data.geometry())}) is None


def test_the_picture_has_a_row_for_every_kind_of_data():
    data = waves()
    forecaster, example = forecaster_of(data)
    rows = {"like training": (example, data.geometry()), "other data": (example, data.geometry())}
    figure = draw_particle_panels(forecaster, rows)
    titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
    assert len(titles) == 8
    assert titles[0] == "like training: a"
    assert titles[4] == "other data: a"
    figure.canvas.draw()
    plt.close(figure)
