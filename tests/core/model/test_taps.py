"""Taps on named intermediates: where they are called, what they change, and where they are not."""

import gc
import threading
import weakref
from dataclasses import replace

import pytest
import torch
from torch import nn

from gpo import Ablation
from gpo.execution import execution
from gpo.execution.recompute import Keeps
from gpo.exporting.program import export_program
from gpo.model.taps import NO_TAPS, Tap, active_taps, tapped, tapped_layers
from tests.conftest import DOMAINS, make_model
from tests.core.exporting.cases import make_case

TORUS = DOMAINS["torus"]
NAMES = (
    "values", "layer", "encode", "update", "test_functions", "modes", "displacement", "scales",
    "contribution", "factors",
)  # fmt: skip

LIFT = {
    "waves": [(-1, "layer"), (-1, "update")],
    "paper": [(-1, "layer"), (-1, "encode"), (-1, "update")],
}
AT_SITES = {
    "waves": [
        (-1, "values"), *LIFT["waves"],
        (0, "layer"), (0, "modes"), (0, "factors"), (0, "update"),
        (1, "layer"), (1, "modes"), (1, "scales"),
        (1, "displacement"), (1, "contribution"), (1, "factors"), (1, "update"),
    ],
    "paper": [
        (-1, "values"), *LIFT["paper"],
        (0, "layer"), (0, "test_functions"), (0, "modes"), (0, "update"),
        (1, "layer"), (1, "test_functions"), (1, "modes"), (1, "update"),
    ],
}  # fmt: skip
AT_QUERIES = {
    "waves": [
        *LIFT["waves"], (0, "layer"), (0, "factors"), (0, "update"),
        (1, "layer"), (1, "displacement"), (1, "contribution"), (1, "factors"), (1, "update"),
    ],
    "paper": [
        (-1, "layer"), (-1, "update"), (0, "layer"), (0, "test_functions"), (0, "update"),
        (1, "layer"), (1, "test_functions"), (1, "update"),
    ],
}  # fmt: skip


@pytest.fixture(params=AT_SITES)
def variant(request):
    return request.param


def field_on_grid():
    coords, weights = (part.double() for part in TORUS.grid(6, 6))
    queries = torch.rand(5, 2, dtype=torch.double)
    return torch.randn(2, 36, 2, dtype=torch.double), coords, weights, queries


def predict(model, values, coords, weights, queries=None):
    return model(values, coords, weights=weights, queries=queries)


def recording(calls):
    """Taps that note where they are called, and change nothing."""

    def note(name):
        return lambda layer, value: calls.append((layer, name)) or value

    return [Tap(name, note(name)) for name in NAMES]


def at_layer(number, change):
    """Changes a value in one layer."""
    return lambda layer, value: change(value) if layer == number else value


def tensor_of(state):
    return state if isinstance(state, torch.Tensor) else state.values


def doubled(state):
    """Twice the state, which is a tensor, or the values of a basis."""
    return 2 * state if isinstance(state, torch.Tensor) else replace(state, values=2 * state.values)


def test_taps_are_called_by_name_in_every_layer_at_sites_and_at_queries(variant):
    model = make_model(TORUS, variant=variant, num_waves=2)
    values, coords, weights, queries = field_on_grid()
    for _ in range(2):
        calls = []
        with tapped(recording(calls)):
            output = model.run(model.sites(values, coords, weights))
            output.at_sites()
            assert calls == AT_SITES[variant]
            calls.clear()
            output.at(queries)
            assert calls == AT_QUERIES[variant]


def test_taps_that_change_nothing_change_nothing(variant):
    model = make_model(TORUS, variant=variant, num_waves=2)
    *inputs, queries = field_on_grid()
    for points in (None, queries):
        intact = predict(model, *inputs, points)
        with tapped(recording([])):
            assert torch.equal(predict(model, *inputs, points), intact)


def test_a_tap_replaces_an_intermediate_in_its_layer_at_sites_and_at_queries(variant):
    """A doubled last state is decoded: the decoder sees twice what it saw."""
    model = make_model(TORUS, variant=variant, num_waves=2)
    values, coords, weights, queries = field_on_grid()
    decode, states = model.decoder.decode, []
    model.decoder.decode = lambda state, points: states.append(state) or decode(state, points)
    for points in (None, queries, coords):
        states.clear()
        intact = predict(model, values, coords, weights, points)
        with tapped([Tap("update", at_layer(1, doubled))]):
            changed = predict(model, values, coords, weights, points)
        first, second = (tensor_of(state) for state in states)
        assert torch.equal(second, 2 * first)
        assert not torch.allclose(changed, intact)
        with tapped([Tap("update", at_layer(7, doubled))]):
            assert torch.equal(predict(model, values, coords, weights, points), intact)


def test_an_earlier_layer_is_another_change(variant):
    model = make_model(TORUS, variant=variant, num_waves=2)
    *inputs, _ = field_on_grid()
    outputs = []
    for number in (-1, 0, 1):
        with tapped([Tap("update", at_layer(number, doubled))]):
            outputs.append(predict(model, *inputs))
    assert not torch.allclose(outputs[0], outputs[1])
    assert not torch.allclose(outputs[1], outputs[2])


def test_a_sited_query_has_the_same_tap_unless_the_tap_is_for_sites_alone():
    model = make_model(TORUS, variant="waves", num_waves=2)
    values, coords, weights, _ = field_on_grid()
    function = at_layer(1, torch.zeros_like)
    intact = predict(model, values, coords, weights)
    for at_queries in (True, False):
        with tapped([Tap("factors", function, at_queries)]):
            at_sites = predict(model, values, coords, weights)
            queried = predict(model, values, coords, weights, coords)
        assert not torch.allclose(at_sites, intact)
        # The last gate changes the points alone where it is applied.
        torch.testing.assert_close(queried, at_sites if at_queries else intact)


def test_taps_are_applied_in_their_order_and_outer_ones_first():
    with tapped([Tap("x", lambda layer, value: value + 1)]):
        twice = [Tap("x", lambda layer, value: 2 * value), Tap("y", lambda layer, value: 0)]
        with tapped(twice):
            assert active_taps()("x", 3, 0) == 8
        assert active_taps()("x", 3, 0) == 4
    assert active_taps()("x", 3, 0) == 3


def test_taps_are_restored_after_the_block_and_after_errors(variant):
    model = make_model(TORUS, variant=variant, num_waves=2)
    *inputs, queries = field_on_grid()
    intact = [predict(model, *inputs, points) for points in (None, queries)]

    def fail(layer, value):
        raise KeyError("tap")

    with tapped([Tap("update", at_layer(0, doubled))]):
        predict(model, *inputs)
    assert active_taps() is NO_TAPS
    for name in ("values", "layer", "modes", "update"):
        with pytest.raises(KeyError, match="tap"), tapped([Tap(name, fail)]):
            predict(model, *inputs, queries)
        assert active_taps() is NO_TAPS
    for points, expected in zip((None, queries), intact, strict=True):
        assert torch.equal(predict(model, *inputs, points), expected)


def test_an_error_at_queries_restores_the_taps_around_it():
    model = make_model(TORUS, variant="waves", num_waves=2)
    values, coords, weights, _ = field_on_grid()
    with tapped(recording([])):
        before = active_taps()
        output = model.run(model.sites(values, coords, weights))
        with pytest.raises(ValueError, match="`queries` must have dim=2"):
            output.at(coords[:, :1])
        assert active_taps() is before


@pytest.mark.parametrize("keeps", Keeps, ids=lambda keeps: keeps.name)
def test_taps_act_again_where_the_backward_pass_computes_again(variant, keeps, monkeypatch):
    """The taps of the forward pass count, not those that are active in the backward pass."""
    model = make_model(TORUS, variant=variant, num_waves=2)
    values, coords, weights, _ = field_on_grid()
    scale = torch.tensor(1.5, dtype=torch.double)
    modes = {"waves": "factors", "paper": "test_functions"}
    taps = [
        Tap("update", at_layer(0, doubled)),
        Tap(modes[variant], at_layer(1, lambda value: scale * value)),
    ]

    def gradients(keeps, taps, taps_of_backward=()):
        monkeypatch.setattr(execution, "choose_kept", lambda sizes, values: keeps)
        inputs = values.clone().requires_grad_()
        with tapped(taps):
            output = predict(model, inputs, coords, weights)
        with tapped(taps_of_backward):
            parts = torch.autograd.grad(output.sin().sum(), [inputs, *model.parameters()])
        return [output, *parts]

    model.execution.chunk_size = 14
    expected = gradients(Keeps.ALL, taps)
    intact = gradients(Keeps.ALL, [])
    assert not torch.allclose(expected[0], intact[0])
    for actual, reference in zip(gradients(keeps, taps), expected, strict=True):
        torch.testing.assert_close(actual, reference, rtol=1e-10, atol=1e-12)
    for actual, reference in zip(gradients(keeps, [], taps), intact, strict=True):
        torch.testing.assert_close(actual, reference, rtol=1e-10, atol=1e-12)


def test_taps_of_one_thread_do_not_reach_another():
    model = make_model(TORUS, variant="waves", num_waves=2)
    *inputs, _ = field_on_grid()
    intact = predict(model, *inputs)
    is_tapped, is_done, outputs = threading.Event(), threading.Event(), {}

    def tapping():
        with tapped([Tap("update", at_layer(0, doubled))]):
            is_tapped.set()
            assert is_done.wait(60)
            outputs["tapped"] = predict(model, *inputs)

    def plain():
        assert is_tapped.wait(60)
        outputs["active"] = active_taps()
        outputs["plain"] = predict(model, *inputs)
        is_done.set()

    threads = [threading.Thread(target=function) for function in (tapping, plain)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert outputs["active"] is NO_TAPS
    assert torch.equal(outputs["plain"], intact)
    assert not torch.allclose(outputs["tapped"], intact)


@pytest.mark.parametrize("needs_all_sites", [False, True])
def test_values_hold_all_sites_where_a_tap_needs_them(variant, needs_all_sites):
    model = make_model(TORUS, variant=variant, num_waves=2)
    values, coords, weights, _ = field_on_grid()
    model.execution.chunk_size = 24
    counts = []

    def note(layer, state):
        counts.append(len(tensor_of(state)))
        return state

    with tapped([Tap("update", note)], needs_all_sites=needs_all_sites):
        predict(model, values, coords, weights)
    assert counts == [36] * 3 if needs_all_sites else counts == [12] * 9


@pytest.mark.thorough
@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize("has_queries", [False, True], ids=["sites", "queries"])
def test_an_exported_program_has_no_trace_of_taps(variant, has_queries):
    case = make_case(variant, "torus", has_queries=has_queries)
    plain = export_program(case.fixed())
    calls = []
    with tapped([*recording(calls), Tap("update", lambda layer, value: doubled(value))]):
        program = export_program(case.fixed())
    # The geometry of fixed sites is found before the program is traced.
    assert {name for _, name in calls} <= {"values"}
    assert program.graph_module.code == plain.graph_module.code
    assert str(program.graph_signature) == str(plain.graph_signature)
    frames = case.frames(2)
    assert torch.equal(program.module()(frames), plain.module()(frames))


def test_layers_are_as_they_were_where_no_tap_is_active(variant):
    model = make_model(TORUS, variant=variant, num_waves=2)
    layers = [model.lift, *model.layers]
    before = [dict(vars(layer)) for layer in layers]
    assert tapped_layers(layers) is layers
    with tapped(recording([])):
        copies = list(tapped_layers(layers))
    for layer, copied, attributes in zip(layers, copies, before, strict=True):
        assert vars(layer) == attributes
        assert all(
            one is other for one, other in zip(layer.parameters(), copied.parameters(), strict=True)
        )


class Doubling(nn.Module):
    """A layer of another package, with a module in it."""

    def __init__(self):
        super().__init__()
        self.inner = Halving()

    def update(self, state):
        return self.twice(self.inner.halves(state))

    def twice(self, state):
        return 2 * state


class Halving(nn.Module):
    def halves(self, state):
        return state / 2

    def update(self, state):
        raise AssertionError(f"a layer's own method of this name was expected, got {state}")


def test_a_tap_is_on_any_method_of_a_layer_or_else_of_a_module_in_it():
    add = lambda layer, value: value + 1  # noqa: E731
    expected = {"halves": 10.0, "twice": 9.0, "update": 9.0, "missing": 8.0}
    for name, value in expected.items():
        with tapped([Tap(name, add)]):
            (layer,) = tapped_layers([Doubling()])
        assert layer.update(torch.tensor(8.0)).item() == value


@pytest.mark.usefixtures("untyped")
def test_a_graph_of_torch_has_no_trace_of_taps():
    class Layers(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([Doubling()])

        def forward(self, values):
            for layer in tapped_layers(list(self.layers)):
                values = layer.update(values)
            return values

    values = (torch.randn(3),)
    plain = torch.export.export(Layers(), values)
    with tapped([Tap("twice", lambda layer, value: 2 * value)]):
        active = torch.export.export(Layers(), values)
    assert str(active.graph) == str(plain.graph)


def test_a_trace_has_the_scales_that_were_used():
    model = make_model(TORUS, variant="waves", num_waves=2)
    values, coords, weights, _ = field_on_grid()
    ablation = Ablation(scaling=lambda layer, scales: torch.full_like(scales, layer + 1.0))
    with ablation.applied(model):
        particles = model.particles(values, coords, weights=weights)
    for number, layer in zip(model.transports, particles, strict=True):
        lengths = TORUS.unit_lengths(layer.scales)
        torch.testing.assert_close(
            layer.scales / lengths, torch.full_like(layer.scales, number + 1.0)
        )


def test_what_a_trace_has_recorded_is_released_with_it(variant):
    model = make_model(TORUS, variant=variant, num_waves=2)
    values, coords, weights, _ = field_on_grid()
    gc.disable()
    try:
        with torch.no_grad():
            trace = model.trace(values, coords, weights=weights)
        tokens = weakref.ref(trace.modes[0].tokens)
        assert tokens() is not None
        del trace
        assert tokens() is None
    finally:
        gc.enable()
