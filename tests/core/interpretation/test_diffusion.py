"""The lengths over which particles diffuse, and the viscosity that these imply."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from gpo.data.geometry import Geometry
from gpo.interpretation.attribution import attribute_spreading
from gpo.interpretation.batches import make_batches
from gpo.interpretation.controls import Controls
from gpo.interpretation.diffusion import (
    Viscosity,
    describe_diffusion,
    learned_scales,
    matched,
    one_scale,
    scales_at_start,
)
from gpo.interpretation.results import Interpretation
from gpo.report.captions import motion_caption
from tests.core.interpretation.readings import series, untrained

LENGTH, TIME_STEP = 4000.0, 30.0
AXIS = np.arange(16) / 16
GLOBE = Geometry.latitude_longitude(np.linspace(-84, 84, 15), np.arange(0, 360, 12.0))
BOX = Geometry.rectilinear([LENGTH * AXIS] * 2, periodic=True)
PLACES = {
    "torus": BOX,
    "points": Geometry.unstructured(LENGTH * np.random.default_rng(0).random((60, 2))),
    "sphere": GLOBE,
    "fitted": Geometry.curvilinear(
        *(LENGTH * c for c in np.meshgrid(AXIS**2, AXIS, indexing="ij"))
    ),
}


def opened(geometry=BOX, time_units="s", **changes):
    """A model on a box of known size, its data with frames of a known step, and examples."""
    units = "" if geometry.domain.is_sphere else "m"
    geometry = replace(geometry, axis_units=(units,) * len(geometry.axis_units))
    data = series(geometry, num_trajectories=20)
    data = replace(data, time=TIME_STEP * data.time, time_units=time_units)
    forecaster, members = untrained(data, num_waves=2, **changes)
    return forecaster, data, make_batches(data, members[:2])


@torch.no_grad()
def scaled(forecaster, *scales):
    """Sets the scales of all particles, in units of the axes; one or one per axis."""
    for layer in forecaster.model.layers:
        if layer.has_particles:
            layer.log_scale.copy_(torch.tensor(scales).log().expand_as(layer.log_scale))


def rows_of(forecaster, shares=None):
    """A row for every particle; the last is the most important where no shares are given."""
    layer = forecaster.operator.transports
    return [
        {"layer": n, "particle": i, "share": (shares or {}).get((n, i), 0.1 * n + 0.01 * i)}
        for n in layer for i in range(3)
    ]  # fmt: skip


def described(forecaster, data, batches, true=None, shares=None):
    return describe_diffusion(forecaster, data, batches, rows_of(forecaster, shares), true)


@pytest.mark.parametrize("place", PLACES)
def test_every_particle_has_a_length_and_a_viscosity_in_units(place):
    forecaster, data, batches = opened(PLACES[place])
    rows, summary = described(forecaster, data, batches)
    num_axes = 1 if place == "sphere" else 2
    for row in rows:
        assert len(row["diffusion_length"]) == len(row["initial_diffusion_length"]) == num_axes
        assert row["diffusion_length"] == pytest.approx(row["initial_diffusion_length"])
        assert not row["is_at_floor"]
        size = np.exp(np.log(row["diffusion_length"]).mean())
        assert row["implied_viscosity"] == pytest.approx(size**2 / (2 * TIME_STEP))
    assert summary["units"] == ("radii2 s-1" if place == "sphere" else "m2 s-1")
    assert summary["best"] == pytest.approx(summary["initial"])
    assert summary["floor"] < summary["initial"]


def test_a_scale_implies_its_square_over_twice_the_step_in_physical_units():
    forecaster, data, batches = opened()
    scaled(forecaster, 0.2, 0.1)
    rows, summary = described(forecaster, data, batches)
    assert rows[0]["diffusion_length"] == pytest.approx([0.2 * LENGTH, 0.1 * LENGTH])
    expected = 0.2 * LENGTH * 0.1 * LENGTH / (2 * TIME_STEP)
    assert rows[0]["implied_viscosity"] == pytest.approx(expected)
    assert summary["time_step"] == TIME_STEP
    assert [summary[name] for name in ("best", "sharpest", "total")] == pytest.approx(
        [expected] * 3
    )


def test_the_scale_on_a_globe_is_in_radii():
    forecaster, data, batches = opened(GLOBE)
    scaled(forecaster, 0.3)
    rows, _ = described(forecaster, data, batches)
    assert rows[0]["diffusion_length"] == pytest.approx([0.3])
    assert rows[0]["implied_viscosity"] == pytest.approx(0.3**2 / (2 * TIME_STEP))


def test_a_scale_below_the_floor_of_the_lattice_is_an_upper_bound():
    forecaster, data, batches = opened()
    scaled(forecaster, 0.1, 1e-3)
    rows, summary = described(forecaster, data, batches, Viscosity(1.0, "--viscosity"))
    floor = LENGTH / 16 / 6**0.5
    assert rows[0]["diffusion_length"] == pytest.approx([0.1 * LENGTH, floor])
    assert rows[0]["is_at_floor"]
    assert summary["is_at_floor"]
    assert summary["floor"] == pytest.approx(floor**2 / (2 * TIME_STEP))
    result = told(rows, summary)
    (value,) = [row[1] for row in result.summary() if row[0] == "implied viscosity, m2 s-1"]
    assert value.startswith("≤ ")


def test_estimates_stand_beside_the_true_viscosity():
    forecaster, data, batches = opened(num_transports=2)
    with torch.no_grad():
        for number, layer in enumerate(forecaster.model.layers):
            layer.log_scale.copy_(torch.tensor([0.1, 0.2, 0.3]).mul(number + 1).log()[:, None])
    shares = {(0, 1): 0.5, (1, 2): 0.9}
    _, summary = described(forecaster, data, batches, Viscosity(1000.0, "--viscosity"), shares)
    unit = LENGTH**2 / (2 * TIME_STEP)
    assert summary["best"] == pytest.approx(0.6**2 * unit)
    assert summary["sharpest"] == pytest.approx(0.1**2 * unit)
    assert summary["total"] == pytest.approx((0.2**2 + 0.6**2) * unit)
    assert summary["ratio"]["best"] == pytest.approx(summary["best"] / 1000)
    assert summary["ratio"]["initial"] == pytest.approx(summary["initial"] / 1000)
    rows, _ = described(forecaster, data, batches, shares=shares)
    result = told(rows, summary, {"layer": 1, "particle": 2})
    printed = {row[0]: row for row in result.summary()}
    assert printed["… over the true 1e+03"][1] == f"{summary['ratio']['best']:.2f}"
    assert "the true one is 1e+03" in motion_caption(result)


def told(rows, summary, best=None):
    """Results with these rows and nothing else of note."""
    bare = dict.fromkeys(("velocity_correlation", "other_examples"))
    rows = [{**row, **bare, "rms_displacement": 0.0} for row in rows]
    motion = {
        "displacement_units": "m", "particles": rows, "best": best or {"layer": 1, "particle": 2},
        "budget": {"parts": {}}, "controls": {"own": {"error": 0.0}}, "diffusion": summary,
    }  # fmt: skip
    empty = {"reason": ""}
    return Interpretation("geometric", 2, empty, empty, empty, motion=motion)


def test_units_that_are_not_known_are_not_invented():
    forecaster, data, batches = opened(time_units="")
    assert described(forecaster, data, batches)[1]["units"] == "length^2/time"


def test_controls_have_the_error_of_other_scales():
    forecaster, _, batches = opened()
    scaled(forecaster, 0.2)
    other = {layer: 2 * scales for layer, scales in learned_scales(forecaster).items()}
    controls = Controls.of(forecaster, batches, other)
    errors = {name: row.get("error") for name, row in controls.describe().items()}
    assert errors["one_scale"] == pytest.approx(errors["own"], rel=1e-5)
    assert len({round(errors[name], 7) for name in ("own", "at_floor", "initial_scales", "other_scales")}) == 4  # fmt: skip
    assert errors["initial_scales"] == controls.error_with(scales_at_start(forecaster))
    scaled(forecaster, 0.4)
    changed = Controls.of(forecaster, batches)
    assert errors["other_scales"] == pytest.approx(changed.describe()["own"]["error"], rel=1e-4)


def test_spreading_is_what_is_lost_with_the_scales_of_a_transport_at_their_floor():
    forecaster, _, batches = opened(num_transports=2)
    with torch.no_grad():
        forecaster.model.layers[0].log_scale.fill_(-20.0)
    result = attribute_spreading(forecaster, batches)
    assert result["transport 1"]["share"] == pytest.approx(0, abs=1e-12)
    assert result["transport 2"]["share"] > 0


def test_scales_of_another_model_are_matched_by_their_order():
    own = {3: torch.tensor([[0.3, 0.3], [0.1, 0.1], [0.2, 0.2]])}
    other = {2: torch.tensor([[5.0, 5.0], [7.0, 7.0], [6.0, 6.0]])}
    expected = torch.tensor([[7.0, 7.0], [5.0, 5.0], [6.0, 6.0]])
    torch.testing.assert_close(matched(own, other)[3], expected)
    with pytest.raises(ValueError, match="as many layers with transport, particles and axes"):
        matched(own, {2: torch.ones(2, 2)})


def test_one_scale_is_the_geometric_mean_along_every_axis():
    own = {0: torch.tensor([[0.1, 0.2], [0.4, 0.2]])}
    torch.testing.assert_close(one_scale(own)[0], torch.full((2, 2), 0.2))
