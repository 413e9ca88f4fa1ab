"""Parts that are switched off: what is left, and where the answer changes."""

import pytest
import torch

from gpo import Ablation
from tests.conftest import DOMAINS, make_model

VARIANTS = ("geometric", "paper")
TORUS = DOMAINS["torus"]


def field_on_grid(model, batch=1):
    coords, weights = TORUS.grid(12, 12)
    values = torch.randn(batch, 144, model.config.in_channels, dtype=torch.double)
    return values, coords.double(), weights.double()


def answer(model, values, coords, weights, **settings):
    with torch.no_grad():
        return model(values, coords, weights=weights, **settings)


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_ablation_is_the_model_itself(variant):
    model = make_model(TORUS, variant=variant)
    given = field_on_grid(model)
    torch.testing.assert_close(answer(model, *given, ablation=Ablation()), answer(model, *given))


def test_without_a_mode_the_answer_changes_where_its_window_is():
    """With windows that hardly overlap, a mode is heard in its own window only."""
    model = make_model(TORUS, variant="paper", num_layers=1, num_heads=1)
    values, coords, weights = field_on_grid(model)
    windows = model.layers[0].windows
    with torch.no_grad():
        latent = model.lift.encoder(values, coords[None])
        described = torch.cat([latent.basis(coords[None], TORUS), latent.descriptor(TORUS)], -1)
        windows.describe.bias.sub_(windows.describe(described).mean((0, 1)))
        windows.logits.mul_(1e4)
        trace = model.trace(values, coords, weights=weights)
    window = trace.windows[0][0, 0]
    mode = int(window.std(0).argmax())
    change = answer(model, values, coords, weights, ablation=Ablation(frozenset({(0, mode)})))
    change = (change - trace.output)[0].norm(dim=-1)
    outside, inside = change[window[:, mode] < 1e-6], change[window[:, mode] > 0.5]
    assert len(outside) > 0
    assert len(inside) > 0
    assert outside.max() < 1e-4 * inside.max()


def test_without_a_wave_the_fields_of_a_layer_lose_that_wave_and_no_other():
    model = make_model(TORUS, variant="geometric", num_layers=1, num_waves=3)
    values, coords, weights = field_on_grid(model)
    ablation = Ablation(frozenset({(0, 9)}))
    full, less = (
        model.trace(values, coords, weights=weights, ablation=how).modes[0].scattered
        for how in (Ablation(), ablation)
    )
    geometry = model.chunker.geometry.at(
        coords[None].expand(len(values), -1, -1), weights.expand(len(values), -1)
    )
    windows = geometry.transform
    lost = windows.analyse(windows.synthesise(full) - windows.synthesise(less))
    energy = lost.detach().square().sum((0, 2, 3))
    assert energy[9] > 1e-6
    assert energy.sum() == pytest.approx(energy[9].item(), rel=1e-6)
    assert (answer(model, values, coords, weights, ablation=ablation) - answer(model, values, coords, weights)).norm() > 0  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_ablated_layer_leaves_the_state_as_it_is(variant):
    model = make_model(TORUS, variant=variant, num_layers=2)
    values, coords, weights = field_on_grid(model)
    bases = model.trace(values, coords, weights=weights, ablation=Ablation(layers=frozenset({0}))).states  # fmt: skip
    torch.testing.assert_close(bases[1], bases[0])
    assert (bases[2] - bases[1]).norm() > 0


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_silent_site_tells_nothing(variant):
    model = make_model(TORUS, variant=variant)
    values, coords, weights = field_on_grid(model)
    other = values.clone()
    other[:, 40] += 3.0
    ablation = Ablation(sites=frozenset({40}))
    first, second = (answer(model, given, coords, weights, ablation=ablation) for given in (values, other))  # fmt: skip
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    assert (answer(model, other, coords, weights) - answer(model, values, coords, weights)).norm() > 0  # fmt: skip
    queries = torch.tensor([[0.3, 0.7]], dtype=torch.double)
    first, second = (answer(model, given, coords, weights, queries=queries, ablation=ablation) for given in (values, other))  # fmt: skip
    torch.testing.assert_close(first, second, rtol=0, atol=0)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_silent_gaussian_leaves_the_others_of_its_site(variant):
    model = make_model(TORUS, variant=variant)
    values, coords, weights = field_on_grid(model)
    ablation = Ablation(gaussians=frozenset({1}))
    full, less = (model.trace(values, coords, weights=weights, ablation=how).particles[0].weights for how in (Ablation(), ablation))  # fmt: skip
    others = [0, 2, 3, 4]
    if variant == "geometric":
        # Fractions of what arrives: less arrives without one of them.
        full = full / full[..., others].sum(-1, keepdim=True)
    torch.testing.assert_close(less[..., others], full[..., others])
    assert less[..., 1].abs().max() == 0
    assert (answer(model, values, coords, weights, ablation=ablation) - answer(model, values, coords, weights)).norm() > 0  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS)
def test_queries_at_sites_hear_the_same_silence(variant):
    model = make_model(TORUS, variant=variant, num_layers=2)
    values, coords, weights = field_on_grid(model)
    ablation = Ablation(frozenset({(1, 2)}), frozenset({0}))
    at_sites = answer(model, values, coords, weights, ablation=ablation)
    asked = answer(model, values, coords, weights, queries=coords, ablation=ablation)
    torch.testing.assert_close(asked, at_sites, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("ablation", "message"),
    [
        (Ablation(frozenset({(9, 0)})), "`ablation.layers` must be from 0 to 1, got 9"),
        (Ablation(frozenset({(0, 10**6)})), "`ablation.modes` must be from 0 to"),
        (Ablation(sites=frozenset({144})), "`ablation.sites` must be from 0 to 143, got 144"),
        (Ablation(gaussians=frozenset({5})), "`ablation.gaussians` must be from 0 to 4, got 5"),
    ],
)
def test_what_is_not_there_cannot_be_silent(ablation, message):
    model = make_model(TORUS, num_layers=2)
    with pytest.raises(ValueError, match=message):
        answer(model, *field_on_grid(model), ablation=ablation)
