"""Chunks, and what is computed again in the backward pass, change nothing but the order of sums."""

import copy

import pytest
import torch

from gpo import Ablation, LossWeights, operator_losses
from gpo.model import memory, operator
from gpo.model.memory import Keeps, Memory, activation_sizes
from gpo.transforms import fit
from tests.conftest import DOMAINS, make_model, random_points

VARIANTS = ["paper", "geometric"]
CLOSE = {"rtol": 1e-9, "atol": 1e-11}


@pytest.fixture(params=Keeps, ids=lambda keeps: keeps.name)
def _keeps(request, monkeypatch):
    """Training keeps everything, states and windows, or states alone."""
    monkeypatch.setattr(operator, "choose_memory", lambda config, sites: Memory(request.param))


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
    """The answer and the gradient of some function of it by all parameters and by the values."""
    values = values.clone().requires_grad_()
    answer = model(values, coords, weights=weights, queries=queries)
    wanted = [*model.parameters(), values]
    return answer, *torch.autograd.grad(answer.sin().sum(), wanted, allow_unused=True)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("asks", [False, True], ids=["sites", "queries"])
@pytest.mark.usefixtures("_keeps")
def test_chunks_give_the_same_answers_and_gradients(domain, variant, asks):
    model = make_model(domain, variant=variant, num_heads=4, num_waves=2)
    values, coords, weights, queries = problem(domain)
    given = (values, coords, weights, queries if asks else None)
    expected = gradients(model, *given)
    model.chunk_size = 14
    for actual, reference in zip(gradients(model, *given), expected, strict=True):
        torch.testing.assert_close(actual, reference, **CLOSE)


@pytest.mark.parametrize("chunk_size", [1, 2, 79, 80, 10_000])
@pytest.mark.parametrize("variant", VARIANTS)
def test_any_chunk_size_will_do(variant, chunk_size):
    domain = DOMAINS["channel"]
    model = make_model(domain, variant=variant, num_waves=2)
    values, coords, weights, _ = problem(domain)
    expected = model(values, coords, weights=weights)
    model.chunk_size = chunk_size
    torch.testing.assert_close(model(values, coords, weights=weights), expected, **CLOSE)


@pytest.mark.parametrize("is_masked", [False, True], ids=["whole", "masked"])
def test_a_grid_is_cut_along_whole_lines_and_gives_the_same(is_masked):
    domain = DOMAINS["cube"]
    model = make_model(domain, variant="geometric", num_waves=2)
    axes = [torch.arange(count, dtype=torch.double) / count for count in (5, 6, 7)]
    coords = domain.from_unit(torch.cartesian_prod(*axes))
    values = torch.randn(2, len(coords), 2, dtype=torch.double)
    weights = None
    if is_masked:
        weights = torch.ones(len(coords), dtype=torch.double)
        weights[torch.randperm(len(coords))[:30]] = 0
    expected = gradients(model, values, coords, weights)
    model.chunk_size = 2 * 2 * 42
    output = model.run(model.check(values, coords, weights, None))
    assert [chunk.points.stop - chunk.points.start for chunk in output.chunks] == [42, 84, 84]
    for actual, reference in zip(gradients(model, values, coords, weights), expected, strict=True):
        torch.testing.assert_close(actual, reference, **CLOSE)


@pytest.mark.thorough
@pytest.mark.usefixtures("_keeps")
@pytest.mark.parametrize("has_sets", [False, True], ids=["shared", "each"])
def test_windows_that_are_computed_when_needed_are_the_same(domain, has_sets, monkeypatch):
    model = make_model(domain, variant="geometric", num_waves=2)
    values, coords, weights, _ = problem(domain)
    if not has_sets:
        coords, weights = coords[0], weights[0]
    expected = gradients(model, values, coords, weights)
    monkeypatch.setattr(fit, "KEPT_NUMBERS", 0)
    model.chunker.geometry._last = None
    for chunk_size in (None, 14):
        model.chunk_size = chunk_size
        actual = gradients(model, values, coords, weights)
        for one, reference in zip(actual, expected, strict=True):
            torch.testing.assert_close(one, reference, **CLOSE)


@pytest.mark.usefixtures("_keeps")
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_loss_is_the_same_in_chunks(variant):
    domain = DOMAINS["torus"]
    model = make_model(domain, variant=variant, num_waves=2, out_channels=2)
    values, coords, weights, _ = problem(domain)
    target = torch.randn_like(values)
    more = {"input_reconstruction": 0.3, "target_reconstruction": 0.2, "basis": 0.1}
    wanted = LossWeights(**(more if variant == "paper" else {}))

    def losses():
        return operator_losses(model, values, coords, target, weights=weights, loss_weights=wanted)

    expected = losses()
    model.chunk_size = 14
    for name, loss in losses().items():
        torch.testing.assert_close(loss, expected[name], **CLOSE)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.usefixtures("_keeps")
def test_what_is_ablated_is_ablated_in_every_chunk(variant):
    domain = DOMAINS["square"]
    model = make_model(domain, variant=variant, num_waves=2)
    values, coords, weights, queries = problem(domain)
    ablation = Ablation(
        modes=frozenset({(0, 1)}),
        sites=frozenset({1, 20, 39}),
        gaussians=frozenset({2}),
        layers=frozenset({1}),
    )
    for asked in (None, queries):
        model.chunk_size = None
        expected = model(values, coords, weights=weights, queries=asked, ablation=ablation)
        model.chunk_size = 14
        actual = model(values, coords, weights=weights, queries=asked, ablation=ablation)
        torch.testing.assert_close(actual, expected, **CLOSE)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.usefixtures("_keeps")
def test_a_graph_that_is_retained_gives_the_same_gradients_again(variant):
    domain = DOMAINS["torus"]
    model = make_model(domain, variant=variant, num_waves=2)
    model.chunk_size = 14
    values, coords, weights, _ = problem(domain)
    loss = model(values, coords, weights=weights).sin().sum()
    wanted = list(model.parameters())
    once = torch.autograd.grad(loss, wanted, retain_graph=True, allow_unused=True)
    again = torch.autograd.grad(loss, wanted, allow_unused=True)
    for one, other in zip(once, again, strict=True):
        torch.testing.assert_close(one, other, **CLOSE)


@pytest.mark.thorough
@pytest.mark.parametrize("keeps", [Keeps.WINDOWS, Keeps.STATES])
@pytest.mark.parametrize("variant", VARIANTS)
def test_what_is_computed_again_has_the_precision_it_had(variant, keeps, monkeypatch):
    """Errors of rounding are chance: those of several models together are compared."""
    domain = DOMAINS["torus"]
    values, coords, weights, _ = (part.float() for part in problem(domain))

    def gradient(model, keeps, precision):
        monkeypatch.setattr(operator, "choose_memory", lambda config, sites: Memory(keeps))
        with torch.autocast("cpu", enabled=precision == "mixed"):
            answer = model(values, coords, weights=weights)
        parts = torch.autograd.grad(answer.float().sin().sum(), list(model.parameters()))
        return torch.cat([part.flatten() for part in parts])

    expected, actual = torch.zeros(()), torch.zeros(())
    for _ in range(8):
        model = make_model(domain, variant=variant, num_waves=2).float()
        model.chunk_size = 14
        exact = gradient(model, Keeps.ALL, "full")
        for kept, total in ((Keeps.ALL, expected), (keeps, actual)):
            total += (gradient(model, kept, "mixed") - exact).norm() / exact.norm()
    # Chunk by chunk, gradients by weights are summed in full precision: they may be better.
    assert 0.1 * expected < actual < 2 * expected


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.usefixtures("_keeps")
def test_parameters_that_do_not_learn_are_left_out(variant):
    domain = DOMAINS["torus"]
    model = make_model(domain, variant=variant, num_waves=2)
    model.chunk_size = 14
    frozen = [parameter.requires_grad_(False) for parameter in model.layers[0].parameters()]
    values, coords, weights, _ = problem(domain)
    model(values, coords, weights=weights).sin().sum().backward()
    assert all(parameter.grad is None for parameter in frozen)
    assert all(parameter.grad is not None for parameter in model.layers[1].parameters())


@pytest.mark.parametrize("variant", VARIANTS)
def test_training_keeps_the_less_the_less_memory_there_is(variant, monkeypatch):
    """Counts the bytes that the graph of one step holds on to."""
    domain = DOMAINS["torus"]
    sizes = {"num_waves": 2, "num_gaussians": 8, "num_heads": 4, "num_layers": 4}
    model = make_model(domain, variant=variant, **sizes)
    values, coords, weights, _ = problem(domain, num_sites=400)
    numbers = activation_sizes(model.config)
    held = 5 * numbers.state + 2 * numbers.descriptor
    needed = 8 * 800 * torch.tensor([
        held + 4 * (numbers.windows + numbers.layer) + numbers.particles,
        held + 4 * numbers.windows,
        0,
    ])  # fmt: skip

    def kept(num_bytes):
        storages: dict[int, int] = {}

        def hold(tensor):
            storage = tensor.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
            return tensor

        monkeypatch.setattr(memory, "KEPT_BYTES", num_bytes)
        model.chunk_size = 80
        with torch.autograd.graph.saved_tensors_hooks(hold, lambda tensor: tensor):
            answer = model(values, coords, weights=weights)
        assert answer.isfinite().all()
        return sum(storages.values())

    everything, windows, states = (kept(num_bytes) for num_bytes in needed.tolist())
    assert states <= windows < everything
    assert states < 0.5 * everything


def test_a_copy_of_a_model_gives_the_same_to_the_last_bit():
    domain = DOMAINS["square"]
    model = make_model(domain, variant="geometric", num_waves=2)
    values, coords, weights, _ = problem(domain)
    expected = model(values, coords, weights=weights)
    assert torch.equal(copy.deepcopy(model)(values, coords, weights=weights), expected)
