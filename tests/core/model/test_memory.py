"""Chunks and recomputation in the backward pass change nothing but the order of sums."""

import copy

import pytest
import torch

from gpo import Ablation, LossWeights, operator_losses
from gpo.execution import execution, memory
from gpo.execution.recompute import Keeps, Rows, joined
from gpo.transforms import fit
from tests.conftest import DOMAINS, make_model, random_points

VARIANTS = ["paper", "waves"]
CLOSE = {"rtol": 1e-9, "atol": 1e-11}


@pytest.fixture(params=Keeps, ids=lambda keeps: keeps.name)
def _keeps(request, monkeypatch):
    """Training keeps everything, states and windows, or states alone."""
    monkeypatch.setattr(execution, "choose_kept", lambda sizes, values: request.param)


def problem(domain, num_sites=40, dtype=torch.float64):
    """Values, sites, weights of which some are zero, and queries."""
    weights = torch.rand(2, num_sites, dtype=dtype) + 0.1
    weights[:, ::7] = 0
    return (
        torch.randn(2, num_sites, 2, dtype=dtype),
        random_points(domain, 2, num_sites),
        weights,
        random_points(domain, 2, 23),
    )


def gradients(model, values, coords, weights, queries=None):
    """The output and the gradient of some function of it by all parameters and by the values."""
    values = values.clone().requires_grad_()
    output = model(values, coords, weights=weights, queries=queries)
    inputs = [*model.parameters(), values]
    return output, *torch.autograd.grad(output.sin().sum(), inputs, allow_unused=True)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("has_queries", [False, True], ids=["sites", "queries"])
@pytest.mark.usefixtures("_keeps")
def test_chunks_give_the_same_output_and_gradients(domain, variant, has_queries):
    model = make_model(domain, variant=variant, num_heads=4, num_waves=2)
    values, coords, weights, queries = problem(domain)
    inputs = (values, coords, weights, queries if has_queries else None)
    expected = gradients(model, *inputs)
    model.execution.chunk_size = 14
    for actual, reference in zip(gradients(model, *inputs), expected, strict=True):
        torch.testing.assert_close(actual, reference, **CLOSE)


@pytest.mark.parametrize("chunk_size", [1, 2, 79, 80, 10_000])
@pytest.mark.parametrize("variant", VARIANTS)
def test_any_chunk_size_will_do(variant, chunk_size):
    domain = DOMAINS["channel"]
    model = make_model(domain, variant=variant, num_waves=2)
    values, coords, weights, _ = problem(domain)
    expected = model(values, coords, weights=weights)
    model.execution.chunk_size = chunk_size
    torch.testing.assert_close(model(values, coords, weights=weights), expected, **CLOSE)


@pytest.mark.parametrize("is_masked", [False, True], ids=["whole", "masked"])
def test_a_grid_is_cut_along_whole_lines_and_gives_the_same(is_masked):
    domain = DOMAINS["cube"]
    model = make_model(domain, variant="waves", num_waves=2)
    axes = [torch.arange(count, dtype=torch.double) / count for count in (5, 6, 7)]
    coords = domain.from_unit(torch.cartesian_prod(*axes))
    values = torch.randn(2, len(coords), 2, dtype=torch.double)
    weights = None
    if is_masked:
        weights = torch.ones(len(coords), dtype=torch.double)
        weights[torch.randperm(len(coords))[:30]] = 0
    expected = gradients(model, values, coords, weights)
    model.execution.chunk_size = 2 * 2 * 42
    sites = model.sites(values, coords, weights)
    assert [chunk.values.shape[1] for chunk in sites.chunks] == [42, 84, 84]
    for actual, reference in zip(gradients(model, values, coords, weights), expected, strict=True):
        torch.testing.assert_close(actual, reference, **CLOSE)


@pytest.mark.thorough
@pytest.mark.usefixtures("_keeps")
@pytest.mark.parametrize("has_sets", [False, True], ids=["shared", "each"])
def test_waves_that_are_computed_when_needed_are_the_same(domain, has_sets, monkeypatch):
    model = make_model(domain, variant="waves", num_waves=2)
    values, coords, weights, _ = problem(domain)
    if not has_sets:
        coords, weights = coords[0], weights[0]
    expected = gradients(model, values, coords, weights)
    monkeypatch.setattr(fit, "MAX_KEPT_NUMBERS", 0)
    model.execution.cache._last = None
    for chunk_size in (None, 14):
        model.execution.chunk_size = chunk_size
        results = gradients(model, values, coords, weights)
        for actual, reference in zip(results, expected, strict=True):
            torch.testing.assert_close(actual, reference, **CLOSE)


@pytest.mark.usefixtures("_keeps")
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_loss_is_the_same_in_chunks(variant):
    domain = DOMAINS["torus"]
    model = make_model(domain, variant=variant, num_waves=2, out_channels=2)
    values, coords, weights, _ = problem(domain)
    target = torch.randn_like(values)
    more = {"input_reconstruction": 0.3, "target_reconstruction": 0.2, "basis": 0.1}
    loss_weights = LossWeights(**(more if variant == "paper" else {}))

    def losses():
        return operator_losses(
            model, values, coords, target, weights=weights, loss_weights=loss_weights
        )

    expected = losses()
    model.execution.chunk_size = 14
    for name, loss in losses().items():
        torch.testing.assert_close(loss, expected[name], **CLOSE)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.usefixtures("_keeps")
def test_an_ablation_holds_in_every_chunk(variant):
    domain = DOMAINS["square"]
    model = make_model(domain, variant=variant, num_waves=2)
    values, coords, weights, queries = problem(domain)
    parts = {"modes": {(0, 1)}, "gaussians": {2}, "layers": {1}}
    # Ablated sites need all sites in one chunk.
    for ablation in (
        Ablation(**{name: frozenset(numbers) for name, numbers in parts.items()}),
        Ablation(sites=frozenset({1, 20, 39})),
    ):
        for points in (None, queries):
            with ablation.applied(model):
                model.execution.chunk_size = None
                expected = model(values, coords, weights=weights, queries=points)
                model.execution.chunk_size = 14
                actual = model(values, coords, weights=weights, queries=points)
            torch.testing.assert_close(actual, expected, **CLOSE)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.usefixtures("_keeps")
def test_a_graph_that_is_retained_gives_the_same_gradients_again(variant):
    domain = DOMAINS["torus"]
    model = make_model(domain, variant=variant, num_waves=2)
    model.execution.chunk_size = 14
    values, coords, weights, _ = problem(domain)
    loss = model(values, coords, weights=weights).sin().sum()
    inputs = list(model.parameters())
    first = torch.autograd.grad(loss, inputs, retain_graph=True, allow_unused=True)
    second = torch.autograd.grad(loss, inputs, allow_unused=True)
    for actual, reference in zip(second, first, strict=True):
        torch.testing.assert_close(actual, reference, **CLOSE)


@pytest.mark.thorough
@pytest.mark.parametrize("keeps", [Keeps.WINDOWS, Keeps.STATES])
@pytest.mark.parametrize("variant", VARIANTS)
def test_recomputation_has_the_same_precision(variant, keeps, monkeypatch):
    """Errors of rounding are chance: those of several models together are compared."""
    domain = DOMAINS["torus"]
    values, coords, weights, _ = (part.float() for part in problem(domain))

    def gradient(model, keeps, precision):
        monkeypatch.setattr(execution, "choose_kept", lambda sizes, values: keeps)
        with torch.autocast("cpu", enabled=precision == "mixed"):
            output = model(values, coords, weights=weights)
        parts = torch.autograd.grad(output.float().sin().sum(), list(model.parameters()))
        return torch.cat([part.flatten() for part in parts])

    expected, actual = torch.zeros(()), torch.zeros(())
    for _ in range(8):
        model = make_model(domain, variant=variant, num_waves=2).float()
        model.execution.chunk_size = 14
        exact = gradient(model, Keeps.ALL, "full")
        for kept, total in ((Keeps.ALL, expected), (keeps, actual)):
            total += (gradient(model, kept, "mixed") - exact).norm() / exact.norm()
    # Chunk by chunk, gradients by weights are summed in full precision: they may be better.
    assert 0.1 * expected < actual < 2 * expected


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.usefixtures("_keeps")
def test_frozen_parameters_get_no_gradient(variant):
    domain = DOMAINS["torus"]
    model = make_model(domain, variant=variant, num_waves=2)
    model.execution.chunk_size = 14
    frozen = [parameter.requires_grad_(False) for parameter in model.layers[0].parameters()]
    values, coords, weights, _ = problem(domain)
    model(values, coords, weights=weights).sin().sum().backward()
    assert all(parameter.grad is None for parameter in frozen)
    assert all(parameter.grad is not None for parameter in model.layers[1].parameters())


@pytest.mark.parametrize("variant", VARIANTS)
def test_training_keeps_the_less_the_less_memory_there_is(variant, monkeypatch):
    """Counts the bytes that the graph of one step keeps."""
    domain = DOMAINS["torus"]
    sizes = {"num_waves": 2, "num_gaussians": 8, "num_heads": 4, "num_layers": 4}
    model = make_model(domain, variant=variant, **sizes)
    values, coords, weights, _ = problem(domain, num_sites=400)
    layers = model.execution.sizes
    states = sum(sizes.state + 2 * sizes.descriptor for sizes in layers)
    windows = states + sum(sizes.windows for sizes in layers)
    everything = windows + sum(sizes.kept for sizes in layers)
    needed = 8 * 800 * torch.tensor([everything, windows, 0])

    def kept(num_bytes):
        storages: dict[int, int] = {}

        def keep(tensor):
            storage = tensor.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
            return tensor

        monkeypatch.setattr(memory, "KEPT_BYTES", num_bytes)
        model.execution.chunk_size = 80
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            output = model(values, coords, weights=weights)
        assert output.isfinite().all()
        return sum(storages.values())

    everything, windows, states = (kept(num_bytes) for num_bytes in needed.tolist())
    assert states <= windows < everything
    assert states < 0.5 * everything


def test_a_copy_of_a_model_gives_the_same_to_the_last_bit():
    domain = DOMAINS["square"]
    model = make_model(domain, variant="waves", num_waves=2)
    values, coords, weights, _ = problem(domain)
    expected = model(values, coords, weights=weights)
    assert torch.equal(copy.deepcopy(model)(values, coords, weights=weights), expected)


def test_results_of_chunks_lie_in_one_array_and_are_joined_without_a_copy():
    rows = Rows([3, 2])
    made = [torch.randn(count, 2, 4, requires_grad=True) for count in (3, 2)]
    parts = [rows.keep(number, 0, one.detach()) for number, one in enumerate(made)]
    assert all(torch.equal(part, one) for part, one in zip(parts, made, strict=True))
    parts = [part.requires_grad_() for part in parts]
    whole = joined(parts)
    assert whole.data_ptr() == parts[0].data_ptr()
    target = torch.randn_like(whole)
    fast = torch.autograd.grad((whole * target).sum(), parts)
    plain = torch.cat(made)
    assert torch.equal(whole, plain)
    for first, second in zip(fast, torch.autograd.grad((plain * target).sum(), made), strict=True):
        assert torch.equal(first, second)
    # What has no row for every point stays as it is.
    total = torch.randn(7, 4)
    assert rows.keep(0, 1, total) is total
