"""Shares in a prediction are what finite differences say."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from gpo import Ablation
from gpo_explore.attribution import attribute
from tests.explore.sessions import make_session

STEP = 1e-4


def prepared(kind, variant, **changes):
    session = make_session(kind, variant, **changes)
    forecaster, example = session.forecaster.double(), session.example(0)
    names = ("frames", "targets", "coords", "weights")
    return forecaster, replace(example, **{name: getattr(example, name).double() for name in names})


def added(forecaster, example, site, output):
    """What the model adds to the last frame and its trend at a site."""
    before, last = example.frames[:, -2], example.frames[:, -1]
    with torch.no_grad():
        answer = forecaster(example.frames, example.coords, weights=example.weights)
        known = last + torch.tensor(forecaster.task.trend) * (last - before)
        return (answer - known)[0, site, output].item()


@pytest.mark.parametrize("variant", ["geometric", "paper"])
@pytest.mark.parametrize("kind", ["grid", "sites on the globe"])
def test_the_share_of_a_site_is_how_much_it_matters_when_it_grows(kind, variant):
    forecaster, example = prepared(kind, variant)
    found = attribute(forecaster, example, 7, 1)
    assert found.attributed == pytest.approx(added(forecaster, example, 7, 1), rel=1e-6)
    mean = forecaster.input_mean
    for site in (7, 20):
        grown = []
        for sign in (1, -1):
            frames = example.frames.clone()
            frames[:, :, site] += sign * STEP * (frames[:, :, site] - mean)
            with torch.no_grad():
                output = forecaster.model(
                    forecaster.normalised_input(frames), example.coords, weights=example.weights
                )
            grown.append(output[0, 7, 1] * forecaster.increment_scale[1] * forecaster.output_std[1])
        slope = ((grown[0] - grown[1]) / (2 * STEP)).item()
        assert found.regions[site].item() == pytest.approx(slope, rel=1e-4, abs=1e-9)


@pytest.mark.parametrize("variant", ["geometric", "paper"])
def test_the_share_of_a_mode_is_how_much_its_token_matters_when_it_grows(variant, monkeypatch):
    forecaster, example = prepared("grid", variant)
    found = attribute(forecaster, example, 7, 0)
    assert found.modes is not None
    model = forecaster.model
    layer = model.layers[1]
    # A token is filtered twice where a layer transports: for the gate, and for its particles.
    couplings = [layer.coupling] if variant == "paper" else [layer.filter, layer.waves.filter]
    originals = [coupling.forward for coupling in couplings]
    mode = int(found.modes[1].abs().argmax())
    changes = []
    for sign in (1, -1):

        def grown(original, tokens, *others, sign=sign):
            tokens = tokens.clone()
            place = tokens[:, mode // 4, mode % 4] if variant == "paper" else tokens[:, mode]
            place *= 1 + sign * STEP
            return original(tokens, *others)

        for coupling, original in zip(couplings, originals, strict=True):
            monkeypatch.setattr(coupling, "forward", partial(grown, original))
        changes.append(added(forecaster, example, 7, 0))
    slope = (changes[0] - changes[1]) / (2 * STEP)
    assert abs(slope) > 0
    assert found.modes[1, mode].item() == pytest.approx(slope, rel=1e-3)


def test_what_is_off_has_no_share():
    forecaster, example = prepared("grid", "geometric")
    ablation = Ablation(frozenset({(0, 5)}), frozenset({1}), frozenset({9}))
    found = attribute(forecaster, example, 9, 0, ablation)
    assert found.modes is not None
    assert found.regions[9] == 0
    assert found.modes[0, 5] == 0
    assert found.modes[1].abs().max() == 0
    assert found.modes[0].abs().max() > 0


def test_a_predicted_state_is_attributed_as_it_is():
    forecaster, example = prepared("grid", "geometric", predict="state")
    found = attribute(forecaster, example, 3, 0)
    with torch.no_grad():
        answer = forecaster(example.frames, example.coords, weights=example.weights)[0, 3, 0]
    deviation = answer - forecaster.output_mean[0]
    assert found.attributed == pytest.approx(deviation.item(), rel=1e-6)


def test_the_given_field_is_left_as_it_is():
    forecaster, example = prepared("grid", "geometric")
    before = replace(example, frames=example.frames.clone())
    attribute(forecaster, example, 3, 0)
    assert torch.equal(before.frames, example.frames)
    assert all(parameter.grad is None for parameter in forecaster.parameters())
