"""Ablated parts: what is left, and where the output changes."""

import pytest
import torch

from gpo import Ablation
from tests.conftest import DOMAINS, make_model

VARIANTS = ("waves", "paper")
TORUS = DOMAINS["torus"]


def field_on_grid(model, batch=1):
    coords, weights = TORUS.grid(12, 12)
    values = torch.randn(batch, 144, model.problem.in_channels, dtype=torch.double)
    return values, coords.double(), weights.double()


def predict(model, values, coords, weights, ablation=Ablation(), queries=None):
    with torch.no_grad(), ablation.applied(model):
        return model(values, coords, weights=weights, queries=queries)


def trace(model, values, coords, weights, ablation=Ablation()):
    with torch.no_grad(), ablation.applied(model):
        return model.trace(values, coords, weights=weights)


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_ablation_is_the_model_itself(variant):
    model = make_model(TORUS, variant=variant)
    inputs = field_on_grid(model)
    with torch.no_grad():
        intact = model(*inputs[:2], weights=inputs[2])
    torch.testing.assert_close(predict(model, *inputs, Ablation()), intact)


def test_without_a_mode_the_output_changes_where_its_window_is():
    """With windows that hardly overlap, a mode matters in its own window only."""
    model = make_model(TORUS, variant="paper", num_layers=1, num_heads=1, nearest_images=True)
    inputs = field_on_grid(model)
    values, coords, _ = inputs
    windows = model.layers[0].windows
    with torch.no_grad():
        latent = model.lift.encoder(values, coords[None])
        described = torch.cat([latent.basis(coords[None], TORUS), latent.descriptor(TORUS)], -1)
        windows.describe.bias.sub_(windows.describe(described).mean((0, 1)))
        windows.logits.mul_(1e4)
    intact = trace(model, *inputs)
    window = intact.windows[0][0, 0]
    mode = int(window.std(0).argmax())
    change = predict(model, *inputs, Ablation(frozenset({(0, mode)})))
    change = (change - intact.output)[0].norm(dim=-1)
    outside, inside = change[window[:, mode] < 1e-6], change[window[:, mode] > 0.5]
    assert len(outside) > 0
    assert len(inside) > 0
    assert outside.max() < 1e-4 * inside.max()


def test_without_a_wave_the_fields_of_a_layer_lose_that_wave_and_no_other():
    model = make_model(TORUS, variant="waves", num_layers=1, num_waves=3)
    inputs = field_on_grid(model)
    values, coords, weights = inputs
    ablation = Ablation(frozenset({(0, 9)}))
    full, ablated = (trace(model, *inputs, how).modes[0].fields for how in (Ablation(), ablation))
    geometry = model.execution.cache.at_sites(coords[None], weights.expand(len(values), -1))
    transform = geometry.transform
    lost = transform.analyse(transform.synthesise(full) - transform.synthesise(ablated))
    energy = lost.square().sum((0, 2, 3))
    assert energy[9] > 1e-6
    assert energy.sum() == pytest.approx(energy[9].item(), rel=1e-6)
    assert (predict(model, *inputs, ablation) - predict(model, *inputs)).norm() > 0


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_ablated_layer_leaves_the_state_as_it_is(variant):
    model = make_model(TORUS, variant=variant, num_layers=2)
    states = trace(model, *field_on_grid(model), Ablation(layers=frozenset({0}))).states
    torch.testing.assert_close(states[1], states[0])
    assert (states[2] - states[1]).norm() > 0


@pytest.mark.parametrize("variant", VARIANTS)
def test_nothing_depends_on_the_value_of_an_ablated_site(variant):
    model = make_model(TORUS, variant=variant)
    values, coords, weights = field_on_grid(model)
    other = values.clone()
    other[:, 40] += 3.0
    ablation = Ablation(sites=frozenset({40}))
    intact = [predict(model, field, coords, weights) for field in (values, other)]
    assert (intact[1] - intact[0]).norm() > 0
    for queries in (None, torch.tensor([[0.3, 0.7]], dtype=torch.double)):
        first, second = (
            predict(model, field, coords, weights, ablation, queries) for field in (values, other)
        )
        torch.testing.assert_close(first, second, rtol=0, atol=0)


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_ablated_gaussian_leaves_the_others_of_its_site(variant):
    model = make_model(TORUS, variant=variant)
    inputs = field_on_grid(model)
    ablation = Ablation(gaussians=frozenset({1}))
    full, ablated = (
        trace(model, *inputs, how).particles[0].weights for how in (Ablation(), ablation)
    )
    others = [0, 2, 3, 4]
    if variant == "waves":
        # They are fractions of the contribution, which is smaller without one particle.
        full = full / full[..., others].sum(-1, keepdim=True)
    torch.testing.assert_close(ablated[..., others], full[..., others])
    assert ablated[..., 1].abs().max() == 0
    assert (predict(model, *inputs, ablation) - predict(model, *inputs)).norm() > 0


@pytest.mark.parametrize("variant", VARIANTS)
def test_queries_at_sites_have_the_same_ablation(variant):
    model = make_model(TORUS, variant=variant, num_layers=2)
    inputs = field_on_grid(model)
    ablation = Ablation(frozenset({(1, 2)}), frozenset({0}))
    at_sites = predict(model, *inputs, ablation)
    at_queries = predict(model, *inputs, ablation, queries=inputs[1])
    torch.testing.assert_close(at_queries, at_sites, rtol=1e-6, atol=1e-8)


def test_an_output_stays_ablated_after_the_block():
    model = make_model(TORUS, variant="waves", num_layers=2)
    values, coords, weights = inputs = field_on_grid(model)
    ablation = Ablation(gates=frozenset({0}), gaussians=frozenset({1}))
    expected = predict(model, *inputs, ablation, queries=coords)
    with torch.no_grad():
        with ablation.applied(model):
            output = model.run(model.sites(values, coords, weights))
        torch.testing.assert_close(output.at(coords), expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("ablation", "message"),
    [
        (Ablation(frozenset({(9, 0)})), "`ablation.layers` must be from 0 to 1, got 9"),
        (Ablation(frozenset({(0, 10**6)})), "`ablation.modes` must be from 0 to"),
        (Ablation(sites=frozenset({144})), "`ablation.sites` must be from 0 to 143, got 144"),
        (Ablation(gaussians=frozenset({5})), "`ablation.gaussians` must be from 0 to 4, got 5"),
    ],
)
def test_parts_that_a_model_does_not_have_are_refused(ablation, message):
    model = make_model(TORUS, num_layers=2)
    with pytest.raises(ValueError, match=message):
        predict(model, *field_on_grid(model), ablation)


def test_a_baseline_has_no_parts_to_ablate():
    with (
        pytest.raises(ValueError, match="A baseline has no parts to switch off"),
        Ablation(layers=frozenset({0})).applied(None),
    ):
        pass
