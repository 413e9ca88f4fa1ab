"""Importance, attribution and controls of moving particles: what holds for any model."""

import json

import numpy as np
import pytest
import torch

from gpo import Ablation
from gpo.data.geometry import Geometry
from gpo.evaluation.flow import FlowVariables
from gpo.interpretation.attribution import attribute_change, describe_motion, shapley
from gpo.interpretation.batches import make_batches
from gpo.interpretation.controls import Controls
from gpo.interpretation.displacements import importance, layer_displacements, replaced_by
from gpo.interpretation.results import Interpretation, best_of
from gpo.model.scales import MULTILINEAR
from tests.core.interpretation.readings import TORUS, series, untrained

AXIS = np.arange(8) / 8
PLACES = {
    "torus": (TORUS, ()),
    "masked": (Geometry.rectilinear([AXIS, AXIS]), (3, 4, 11, 12)),
    "points": (Geometry.unstructured(np.random.default_rng(0).random((50, 2))), ()),
    "sphere": (Geometry.latitude_longitude(np.linspace(-80, 80, 9), np.arange(0, 360, 30.0)), ()),
    "fitted": (Geometry.curvilinear(*np.meshgrid(AXIS**2, AXIS, indexing="ij")), ()),
}
KEYS = {"layer", "particle", "weight", "rms_displacement", "share", "velocity_correlation", "low", "high", "p", "other_examples", "diffusion_length", "initial_diffusion_length", "is_at_floor", "implied_viscosity"}  # fmt: skip
CONTROLS = {
    "own",
    "still",
    "constant",
    "site_mean",
    "other_example",
    "permuted",
    "at_floor",
    "initial_scales",
    "one_scale",
    "no_change",
}


def opened(place="torus", **changes):
    """A model with examples of a velocity and a third variable, and its batches."""
    data = series(*PLACES[place], names=("u", "v", "a"), num_trajectories=20)
    forecaster, samples = untrained(data, num_waves=2, **changes)
    return forecaster, make_batches(data, samples[:5])


def described(forecaster, batches):
    variables = FlowVariables.named(forecaster.task.fields)
    data = series(*PLACES["torus"])
    return describe_motion(forecaster, data, batches, variables, np.random.default_rng(0))


def moves(forecaster, way):
    """Gives all particles one displacement, or what a function makes of the shape of the state."""
    for layer in forecaster.model.layers:
        if layer.has_particles:
            shape = (layer.num_gaussians, layer.num_axes)
            layer.displacement = lambda state, *_, shape=shape: way(state, shape)


@torch.no_grad()
def spreads(forecaster):
    """Gives every particle and axis a scale of its own, above those at the start."""
    for layer in forecaster.model.layers:
        if layer.has_particles:
            layer.log_scale.add_(torch.linspace(0.5, 1.5, layer.log_scale.numel()).view_as(layer.log_scale))  # fmt: skip


def flow_of(state, shape):
    return torch.zeros(*state.shape[:2], *shape)


@pytest.mark.parametrize("place", PLACES)
def test_motion_is_described_on_every_kind_of_sites(place, tmp_path):
    forecaster, batches = opened(place, num_transports=2)
    result = described(forecaster, batches)
    assert [(row["layer"], row["particle"]) for row in result["particles"]] == [
        (layer, particle) for layer in (0, 1) for particle in range(3)
    ]
    assert all(set(row) == KEYS for row in result["particles"])
    assert set(result["controls"]) == CONTROLS
    assert list(result["budget"]["parts"]) == ["transport 1", "transport 2", "gate", "decoder"]
    assert best_of(result)["share"] == max(row["share"] for row in result["particles"])
    parts = [row["shapley"] for row in result["budget"]["parts"].values()]
    assert sum(parts) == pytest.approx(1, abs=1e-5)
    kept = Interpretation("geometric", 5, {"reason": ""}, {"reason": ""}, {"reason": ""}, motion=result)  # fmt: skip
    loaded = json.loads(kept.save(tmp_path).read_text())["motion"]
    assert loaded["best"] == result["best"]
    assert any("zero displacement" in row[0] for row in kept.summary())


@pytest.mark.parametrize("place", PLACES)
def test_controls_equal_the_plain_prediction_where_particles_are_its_own(place):
    forecaster, batches = opened(place)
    spreads(forecaster)
    controls = Controls.of(forecaster, batches)
    plain = float(np.mean([e for one in batches for e in one.errors(one.predicted(forecaster))]))
    assert controls.error(controls.displacements) == pytest.approx(plain, rel=1e-5)
    errors = {name: row["error"] for name, row in controls.describe().items()}
    assert errors["own"] == pytest.approx(plain, rel=1e-5)
    for name in CONTROLS - {"own", "no_change"}:
        assert errors[name] != pytest.approx(plain, rel=1e-6)


def test_a_motion_that_is_the_same_everywhere_is_its_own_control():
    forecaster, batches = opened()
    moves(forecaster, lambda state, shape: torch.full((*state.shape[:2], *shape), 0.07))
    errors = {name: row["error"] for name, row in Controls.of(forecaster, batches).describe().items()}  # fmt: skip
    for name in ("constant", "site_mean", "other_example", "permuted"):
        assert errors[name] == pytest.approx(errors["own"], rel=1e-5)
    assert errors["still"] != pytest.approx(errors["own"], rel=1e-6)


def test_a_control_that_needs_other_examples_says_where_there_are_none():
    data = series(names=("a",))
    forecaster, samples = untrained(data, num_waves=2)
    result = Controls.of(forecaster, make_batches(data, samples[:1])).describe()
    assert result["site_mean"] == result["other_example"] == {"reason": "there is one example only"}


def test_displacements_of_other_sites_are_refused():
    forecaster, batches = opened()
    other = {0: torch.zeros(7, 5, 3, 2), 1: torch.zeros(7, 5, 3, 2)}
    with pytest.raises(ValueError, match="must have the shape of the model's own"):
        batches[0].predicted(forecaster, Ablation(displacing=replaced_by(other)))


def test_nothing_is_lost_where_nothing_moved():
    forecaster, batches = opened()
    moves(forecaster, flow_of)
    result = described(forecaster, batches)
    assert [row["share"] for row in result["particles"]] == pytest.approx([0, 0, 0], abs=1e-6)
    assert [row["rms_displacement"] for row in result["particles"]] == [0, 0, 0]
    parts = result["budget"]["parts"]
    assert parts["transport"]["share"] == pytest.approx(0, abs=1e-6)
    assert parts["transport"]["shapley"] == pytest.approx(0, abs=1e-6)
    assert parts["gate"]["shapley"] + parts["decoder"]["shapley"] == pytest.approx(1, abs=1e-5)


def test_everything_is_lost_that_a_part_alone_has_done():
    """Without gates, and with a decoder that makes nothing of the input, transport is the whole."""
    forecaster, batches = opened(num_layers=1)
    layer, decoder = forecaster.model.layers[0], forecaster.model.decoder
    with torch.no_grad():
        layer.waves.out.zero_()
    reads = [layer_displacements(forecaster, batch) for batch in batches]
    still = Ablation(displacing=lambda layer, read: torch.zeros_like(read))
    decoder = forecaster.model.decoder
    started = decoder.decode

    def without_start(state, points):
        # What is decoded counts from what the decoder makes of the state at rest.
        return started(state, points) - rest.transpose(0, 1)

    with torch.no_grad():
        batch = batches[0]
        values = forecaster.normalised_input(batch.example.frames)
        with still.applied(forecaster.model):
            rest = forecaster.model(
                values, batch.example.coords, weights=batch.example.site_weights
            )
    decoder.decode = without_start
    parts = attribute_change(forecaster, batches, reads)["parts"]
    assert {name: row["share"] for name, row in parts.items()} == pytest.approx(
        {"transport": 1, "gate": 0, "decoder": 0}, abs=1e-5
    )
    assert {name: row["shapley"] for name, row in parts.items()} == pytest.approx(
        {"transport": 1, "gate": 0, "decoder": 0}, abs=1e-5
    )
    assert decoder is forecaster.model.decoder


def test_the_mean_over_orders_adds_up_and_shares_what_two_do_together():
    """Two parts add 1 and 2 alone and 9 together: 6 more than the sum, half for each."""
    made = {frozenset(): 0.0, frozenset({0}): 1.0, frozenset({1}): 2.0, frozenset({0, 1}): 9.0}
    tensors = {some: torch.full((1, 1, 1), number) for some, number in made.items()}
    assert [shapley(tensors, part).item() for part in (0, 1)] == [4, 5]


def test_a_displacement_that_is_the_velocity_has_correlation_one():
    forecaster, batches = opened(num_layers=1)
    flows = batches[0].example.fields[:, -1, :, :2].transpose(0, 1)
    size = 0.1 / flows.abs().max()
    moves(forecaster, lambda state, shape: (size * flows)[:, :, None].expand(-1, -1, *shape))
    result = described(forecaster, batches)
    for row in result["particles"]:
        assert row["velocity_correlation"] == pytest.approx(1, abs=1e-5)
        assert row["high"] < row["velocity_correlation"]
    assert result["velocity"] == {"known_by": "u, v (name)"}
    expected = (size * flows).double().square().sum(-1).mean().sqrt().item()
    assert result["particles"][0]["rms_displacement"] == pytest.approx(expected, rel=1e-4)


def test_without_a_known_velocity_all_other_results_are_there():
    data = series(names=("a", "b"))
    forecaster, samples = untrained(data, num_waves=2)
    result = described(forecaster, make_batches(data, samples[:2]))
    assert "--velocity U V" in result["velocity"]["reason"]
    assert result["particles"][0]["velocity_correlation"] is None
    assert result["particles"][0]["share"] > 0


def test_particles_that_do_not_move_are_reported_in_a_word():
    data = series(names=("a",))
    forecaster, samples = untrained(data, variant="paper")
    assert described(forecaster, make_batches(data, samples[:1])) == {
        "reason": "particles of this model do not move"
    }


def test_holding_all_particles_still_loses_what_ablating_them_loses():
    forecaster, batches = opened(num_gaussians=1)
    # Without a scale a particle without displacement does nothing; with one it diffuses.
    forecaster.model.layers[-1].log_scale.data.fill_(MULTILINEAR)
    intact = [batch.predicted(forecaster) for batch in batches]
    gone = importance(forecaster, batches, intact, Ablation(gaussians=frozenset({0})))
    assert described(forecaster, batches)["particles"][-1]["share"] == pytest.approx(gone, rel=1e-4)
