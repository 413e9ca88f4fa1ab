"""Muon's step is its formula, whichever matrices it takes together; AdamW takes the rest."""

import io
from dataclasses import replace

import pytest
import torch
from torch import nn

from gpo import Domain, OperatorConfig, Problem, RunConfig
from gpo.model.model import build_model
from gpo.model.registry import listed_models
from gpo.training.muon import Muon, make_optimizer, muon_matrices, orthogonalised
from gpo.training.rates import find_rate

GRID = Problem(2, 1, Domain.box([0, -1], [2, 1], periodic=[True, False]), (16, 16))
RATE, DECAY, STEPS = 0.02, 0.1, 4
CLOSE = {"rtol": 1e-10, "atol": 1e-12}


def config(optimizer="muon", **settings):
    how = {"learning_rate": RATE, "weight_decay": DECAY, **settings}
    return RunConfig.of(data="x", optimizer=optimizer, **how)


def operator(**sizes):
    torch.manual_seed(0)
    return build_model("gpo", GRID, OperatorConfig(num_waves=2, **sizes)).double()


def take_steps(optimizers, models, *, num_steps=STEPS, seed=1):
    """Gives all models the same gradients, step by step."""
    torch.manual_seed(seed)
    for _ in range(num_steps):
        for parameters in zip(*(model.parameters() for model in models), strict=True):
            gradient = torch.randn_like(parameters[0])
            for parameter in parameters:
                parameter.grad = gradient.clone()
        for optimizer in optimizers:
            optimizer.step()


def names(model, matrices):
    chosen = {id(matrix) for matrix in matrices}
    return {name for name, part in model.named_parameters() if id(part) in chosen}


def parted(model):
    """The parameters of Muon, and those of AdamW."""
    matrices = muon_matrices(model)
    chosen = {id(matrix) for matrix in matrices}
    return matrices, [part for part in model.parameters() if id(part) not in chosen]


def plain_step(matrix, momentum, rate):
    """The formula, for one matrix as it stands."""
    momentum += 0.05 * (matrix.grad - momentum)
    update = matrix.grad + 0.95 * (momentum - matrix.grad)
    update = update / update.square().sum().sqrt()
    for _ in range(5):
        square = update @ update.T
        update = 3.4445 * update + (-4.775 * square + 2.0315 * square @ square) @ update
    size = 0.2 * max(matrix.shape) ** 0.5
    return matrix - rate * DECAY * matrix - rate * size * update


def test_a_step_is_the_formula_for_matrices_and_adamw_for_the_rest():
    model, other = operator(), operator()
    matrices, rest = parted(other)
    momenta = [torch.zeros_like(matrix) for matrix in matrices]
    ours = make_optimizer(model, config())
    adamw = torch.optim.AdamW(rest, lr=RATE, weight_decay=DECAY, fused=True)

    class Plain:
        @torch.no_grad()
        def step(self):
            for matrix, momentum in zip(matrices, momenta, strict=True):
                matrix.copy_(plain_step(matrix, momentum, RATE))
            adamw.step()

    take_steps([ours, Plain()], [model, other])
    assert {tuple(matrix.shape) for matrix in matrices} >= {(32, 64), (32, 32), (32, 8)}
    for one, expected in zip(*map(parted, (model, other)), strict=True):
        torch.testing.assert_close(one, expected, **CLOSE)


def test_a_step_is_that_of_torch_up_to_the_rounding_of_its_bfloat16():
    model, other = operator().float(), operator().float()
    start = [part.detach().clone() for part in model.parameters()]
    matrices, rest = parted(other)
    how = {"lr": RATE, "weight_decay": DECAY}
    theirs = [
        torch.optim.Muon(matrices, **how, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(rest, **how),
    ]
    take_steps([make_optimizer(model, config()), *theirs], [model, other])
    for one, two, before in zip(model.parameters(), other.parameters(), start, strict=True):
        # Five iterations, each rounded to 8 bits.
        assert (one - two).norm() < 0.03 * (two - before).norm()


def test_matrices_taken_together_are_those_taken_one_by_one():
    torch.manual_seed(0)
    matrices = torch.randn(9, 32, 64)
    alone = torch.cat([orthogonalised(matrix[None]) for matrix in matrices])
    torch.testing.assert_close(orthogonalised(matrices), alone, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("shape", [(8, 8), (8, 32), (32, 64)])
def test_orthogonalised_matrices_keep_their_singular_vectors_and_have_singular_values_near_one(
    shape,
):
    torch.manual_seed(0)
    matrices = torch.randn(3, *shape, dtype=torch.double)
    left, values, right = torch.linalg.svd(matrices, full_matrices=False)
    found = left.mT @ orthogonalised(1e5 * matrices) @ right.mT
    diagonal = found.diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(found, torch.diag_embed(diagonal), **CLOSE)
    seen = values / values.norm(dim=-1, keepdim=True) > 3e-3
    assert diagonal[seen].min() > 0.68
    assert diagonal.max() < 1.21


def test_a_matrix_without_gradient_and_one_of_zeros_give_finite_steps():
    model = operator()
    optimizer = make_optimizer(model, config(weight_decay=0.0))
    first, *others = muon_matrices(model)
    before = [matrix.detach().clone() for matrix in (first, *others)]
    first.grad = None
    for matrix in others:
        matrix.grad = torch.zeros_like(matrix)
    optimizer.step()
    assert all(map(torch.equal, before, (first, *others)))
    assert first not in optimizer.state


def test_muon_takes_every_matrix_of_gpo_but_thin_ones_and_those_of_what_particles_sample():
    model = operator(num_layers=2, num_transports=1)
    layers = {"local", "out", "filter.mix"}
    assert names(model, muon_matrices(model)) == {
        "lift.linear.weight",
        "decoder.layers.0.weight",
        *(f"layers.0.{name}" for name in layers),
        *(f"layers.1.waves.{name}" for name in layers),
        "layers.1.local",
        "layers.1.filter.mix",
    }
    thin = operator(num_layers=2, num_transports=1, num_gaussians=2)
    assert "layers.1.local" not in names(thin, muon_matrices(thin))


class Network(nn.Module):
    """Has parameters of every kind."""

    adamw_parameters = ("kept",)

    def __init__(self, real=True):
        super().__init__()
        self.kept = nn.Parameter(torch.randn(8, 8))
        self.thin = nn.Parameter(torch.randn(7, 64))
        self.stack = nn.Parameter(torch.randn(3, 8, 8))
        self.waves = nn.Parameter(torch.randn(8, 8, dtype=torch.float if real else torch.cfloat))


def test_a_module_says_which_of_its_matrices_are_left_to_adamw():
    whole = nn.Sequential(nn.Linear(8, 8), Network())
    assert names(whole, muon_matrices(whole)) == {"0.weight", "1.waves"}


def test_complex_matrices_are_left_to_adamw_and_without_matrices_it_is_adamw_alone():
    model = Network(real=False)
    assert muon_matrices(model) == []
    assert type(make_optimizer(model, config())) is torch.optim.AdamW
    assert type(make_optimizer(operator(), config("adamw"))) is torch.optim.AdamW
    mixed = nn.Sequential(nn.Linear(8, 8), model)
    optimizer = make_optimizer(mixed, config())
    assert isinstance(optimizer, Muon)
    before = model.waves.detach().clone()
    take_steps([optimizer], [mixed])
    assert not torch.isclose(model.waves, before).any()


def test_a_stored_state_goes_on_to_the_last_bit_and_a_cleared_one_begins_anew():
    whole, model, new = operator(), operator(), operator()
    optimizers = [make_optimizer(one, config()) for one in (whole, model)]
    take_steps(optimizers, [whole, model])
    file = io.BytesIO()
    torch.save(optimizers[1].state_dict(), file)
    file.seek(0)
    again = make_optimizer(model, config(learning_rate=1.0))
    again.load_state_dict(torch.load(file, weights_only=True))
    take_steps([optimizers[0], again], [whole, model], seed=2)
    assert all(map(torch.equal, whole.parameters(), model.parameters()))
    new.load_state_dict(model.state_dict())
    again.state.clear()
    take_steps([again, make_optimizer(new, config())], [model, new], seed=3)
    assert all(map(torch.equal, model.parameters(), new.parameters()))


@pytest.mark.thorough
@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
@pytest.mark.parametrize("name", listed_models())
def test_every_model_takes_a_step_with_every_optimizer(name, optimizer):
    torch.manual_seed(0)
    model = build_model(name, GRID)
    coords, weights = GRID.domain.grid(*GRID.grid_shape)
    values = torch.randn(2, len(coords), 2)
    model(values, coords, weights=weights).square().mean().backward()
    before = [part.detach().clone() for part in model.parameters()]
    made = make_optimizer(model, config(optimizer))
    assert isinstance(made, Muon) == (optimizer == "muon" and bool(muon_matrices(model)))
    made.step()
    for part, old in zip(model.parameters(), before, strict=True):
        assert part.isfinite().all()
        assert part.grad is None or not torch.equal(part, old)


def test_a_gradient_scaler_skips_infinite_steps_of_both_parts_and_unscales_others():
    model, other = operator().float(), operator().float()
    half = replace(config(), optimizer=replace(config().optimizer, precision="16-mixed"))
    scaled, plain = make_optimizer(model, half), make_optimizer(other, half)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    start = [part.detach().clone() for part in model.parameters()]
    for factor in (float("inf"), 1.0):
        for part, same in zip(model.parameters(), other.parameters(), strict=True):
            part.grad = factor * scaler.scale(torch.ones_like(part))
            same.grad = torch.ones_like(part)
        scaler.step(scaled)
        scaler.update()
        if factor > 1:
            assert all(map(torch.equal, start, model.parameters()))
    plain.step()
    assert all(map(torch.equal, model.parameters(), other.parameters()))


def test_a_range_test_steps_with_the_optimizer_of_the_run():
    model, made = nn.Linear(8, 8, bias=False), []

    def optimizer_of(copy):
        made.append(make_optimizer(copy, config()))
        return made[0]

    def loss_of(copy, batch):
        return 1 + 1e4 * copy.weight.square().sum()

    rate, message = find_rate(
        model, [None], loss_of, optimizer_of, usual=1.0, clip=1e9, seconds=1e9
    )
    assert isinstance(made[0], Muon)
    assert made[0].state
    assert rate < 1.0
    assert "the loss diverges at" in message
