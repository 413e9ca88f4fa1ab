"""Everything at once, wherever a field may live."""

import json
from dataclasses import replace

import numpy as np
import pytest
from matplotlib import pyplot as plt

from gpo.data.geometry import Geometry
from gpo.data.splits import split_time_slices
from gpo.interpretation.interpretation import interpret
from gpo.interpretation.results import Interpretation
from gpo.report.interpretation import TITLES, captions, draw_interpretation
from gpo.training.config import RunConfig
from gpo.training.fit import new_forecaster
from tests.core.interpretation.readings import SIZES, series, untrained
from tests.core.training.series import equal_squares, squares

AXIS = np.arange(8) / 8
random = np.random.default_rng(0)
PLACES = {
    "torus": (Geometry.rectilinear([AXIS, AXIS], periodic=True), ()),
    "channel": (Geometry.rectilinear([AXIS, AXIS], periodic=[True, False]), ()),
    "masked": (Geometry.rectilinear([AXIS, AXIS]), (3, 4, 11, 12)),
    "points": (Geometry.unstructured(random.random((50, 2))), ()),
    "line": (Geometry.rectilinear([np.linspace(0, 2, 20)]), ()),
    "space": (Geometry.rectilinear([AXIS[:4], AXIS[:5], AXIS[:4]], periodic=True), ()),
    "patch": (Geometry.latitude_longitude(np.linspace(50, 58, 6), np.linspace(-10, 2, 8)), ()),
    "sphere": (Geometry.latitude_longitude(np.linspace(-80, 80, 9), np.arange(0, 360, 30.0)), (5,)),
    "fitted": (Geometry.curvilinear(*np.meshgrid(AXIS**2, AXIS, indexing="ij")), ()),
}


def finished(result, geometry, folder):
    """Saves, loads, draws and describes; returns what was loaded."""
    path = result.save(folder)
    json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    loaded = Interpretation.load(path)
    figures, texts = draw_interpretation(loaded, geometry), captions(loaded)
    for name, figure in figures.items():
        figure.savefig(folder / f"{name}.png", dpi=40)
        plt.close(figure)
        assert texts[name].endswith(".")
        assert name in TITLES
    assert all(isinstance(cell, str) for row in loaded.summary() for cell in row)
    return loaded, figures


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("place", "variant"),
    [*((place, ("geometric", "paper")[number % 2]) for number, place in enumerate(PLACES)), ("torus", "paper")],
)  # fmt: skip
def test_every_place_is_read_saved_and_drawn(place, variant, tmp_path):
    geometry, missing = PLACES[place]
    data = series(geometry, missing, num_trajectories=10)
    changes = {"variant": variant, "num_layers": 1}
    if variant == "geometric":
        changes["num_waves"] = 2
    forecaster, samples = untrained(data, **changes)
    result, figures = finished(interpret(forecaster, data, samples, num_examples=2), geometry, tmp_path)  # fmt: skip
    assert set(figures) == set(TITLES)
    assert result.num_examples == 2
    assert result.variant == variant
    assert result.ablations["error"] > 0


@pytest.mark.thorough
@pytest.mark.parametrize("make", [squares, equal_squares])
def test_static_maps_are_read_too(make, tmp_path):
    data = make()
    split = split_time_slices(data)
    config = RunConfig.of(data="x", **{**SIZES, "num_layers": 1}, num_waves=2)
    forecaster = new_forecaster(data, split, config).eval()
    geometry = data.geometry(split.test[0].sample)
    result, _ = finished(
        interpret(forecaster, data, split.test, num_examples=2), geometry, tmp_path
    )
    assert result.ablations["regions"]["num_examples"] == 1


def test_a_field_alone_is_read_as_far_as_it_goes(tmp_path):
    data = series()
    forecaster, samples = untrained_field(data)
    result = interpret(forecaster, data, samples, num_examples=2, same={"itself": forecaster})
    result, figures = finished(result, data.geometry(), tmp_path)
    assert result.stability["other_seeds"]["itself"]["density"]["value"] == pytest.approx(1)
    assert "no layers" in result.windows["reason"]
    assert "no layers" in result.ablations["reason"]
    assert set(figures) == {"structures"}


def untrained_field(data):
    split = split_time_slices(data)
    config = RunConfig.of(data="x", **SIZES, phase="field")
    return new_forecaster(data, split, config).eval(), split.test


@pytest.mark.thorough
def test_the_same_seed_gives_the_same_numbers():
    data = series(PLACES["torus"][0])
    forecaster, samples = untrained(data, num_layers=1, num_waves=2)
    first, again = (interpret(forecaster, data, samples, num_examples=1) for _ in range(2))
    assert first == again
    other = interpret(forecaster, data, samples, num_examples=1, seed=1)
    assert other.structures != first.structures


@pytest.mark.thorough
def test_other_data_and_other_seeds_are_reported_by_name(tmp_path):
    data = series(PLACES["torus"][0])
    forecaster, samples = untrained(data, num_layers=1, num_waves=2)
    twin, _ = untrained(data, num_layers=1, num_waves=2)
    larger = replace(data, fetch=lambda number, times: 3 * data.frames(number, times))
    result = interpret(
        forecaster, data, samples, num_examples=1, other=(larger, samples), same={"twin": twin}
    )
    loaded, _ = finished(result, data.geometry(), tmp_path)
    assert loaded.stability["other_seeds"]["twin"]["effects"]["shells"] == pytest.approx(1)
    assert loaded.stability["other_data"]["drift"]["displacement"]["distance"] > 0
    assert any("twin" in row[0] for row in loaded.summary())


def test_no_examples_are_refused():
    data = series()
    forecaster, samples = untrained(data)
    with pytest.raises(ValueError, match="`num_examples` must be at least 1, got 0"):
        interpret(forecaster, data, samples, num_examples=0)


def test_a_file_that_is_something_else_says_how_to_make_it_again(tmp_path):
    (tmp_path / "interpret.json").write_text('{"colour": 1}')
    with pytest.raises(ValueError, match="Write it again: gpo interpret"):
        Interpretation.load(tmp_path / "interpret.json")
