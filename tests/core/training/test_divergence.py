"""Training that goes wrong is noticed, goes back to its best weights and says so."""

import math

import pytest
import torch

from gpo.training.budget import Budget
from gpo.training.config import RunConfig
from gpo.training.divergence import (
    GRADIENT_RATIO,
    LOSS_RATIO,
    MIN_CONSECUTIVE,
    MIN_NORMS,
    DivergenceDetector,
)
from gpo.training.fit import train
from gpo.training.module import TrainingModule
from gpo.training.rates import NUM_STEPS, find_rate
from gpo.training.run_folder import Run
from tests.core.training.series import decaying_waves

TINY = {"data": "waves", "hidden_dim": 8, "num_layers": 1, "num_gaussians": 2}


def train_quietly(folder, **settings):
    return train(decaying_waves(), RunConfig.of(**{**TINY, **settings}), folder, is_quiet=True)


def test_one_odd_batch_is_no_divergence_and_ten_in_a_row_are():
    watch = DivergenceDetector()
    assert [watch.after_step(1.0, 1.0) for _ in range(20)] == [""] * 20
    high = 1.01 * LOSS_RATIO
    assert watch.after_step(high, 1.0) == ""
    assert watch.after_step(1.0, 1.0) == ""
    assert [watch.after_step(high, 1.0) for _ in range(MIN_CONSECUTIVE)][-1].startswith(
        "the loss rose"
    )


def test_gradients_far_above_their_usual_size_are_noticed_where_the_loss_is_not():
    watch = DivergenceDetector()
    assert [watch.after_step(1.0, 0.5) for _ in range(MIN_NORMS)] == [""] * MIN_NORMS
    steep = 1.01 * GRADIENT_RATIO * 0.5
    assert [watch.after_step(1.0, steep) for _ in range(MIN_CONSECUTIVE - 1)] == [""] * (
        MIN_CONSECUTIVE - 1
    )
    assert "the gradient norm rose to 5.05, from typically 0.5" in watch.after_step(1.0, steep)
    watch.returned()
    # Earlier norms say nothing about the restored weights.
    assert [watch.after_step(1.0, steep) for _ in range(MIN_NORMS)] == [""] * MIN_NORMS


def test_gradients_that_grow_while_the_loss_falls_are_no_divergence_until_it_rises():
    watch = DivergenceDetector()
    steep = 1.01 * GRADIENT_RATIO * 0.5
    steeper = 1.01 * GRADIENT_RATIO * steep
    assert not any(watch.after_step(1.0, 0.5) for _ in range(MIN_NORMS))
    assert not any(watch.after_step(1.0 - 0.01 * step, steep) for step in range(MIN_NORMS + 10))
    assert not any(watch.after_step(0.7, steep) for _ in range(100))
    events = [watch.after_step(0.8, steeper) for _ in range(MIN_CONSECUTIVE)]
    assert events[:-1] == [""] * (MIN_CONSECUTIVE - 1)
    assert "the gradient norm rose" in events[-1]


def test_gradients_that_grow_slowly_or_stay_below_the_clip_are_no_divergence():
    watch = DivergenceDetector()
    assert all(not watch.after_step(1.0, 0.5 * 1.03**step) for step in range(300))
    watch = DivergenceDetector()
    norms = [0.001] * 50 + [0.9] * 50
    assert all(not watch.after_step(1.0, norm) for norm in norms)
    assert all(not watch.after_step(1.0, norm * 50, clip=100.0) for norm in norms)


def test_numbers_that_are_not_finite_are_noticed_at_once():
    assert "loss is not finite" in DivergenceDetector().after_step(math.nan, 1.0)
    assert "gradients are not finite" in DivergenceDetector().after_step(1.0, math.inf)


def test_a_score_that_is_lost_is_noticed_only_where_training_is_worse_too():
    watch = DivergenceDetector()
    assert watch.after_epoch(0.1, None, 0.1) == ""
    assert watch.after_epoch(1.0, 0.1, 0.1) == ""
    assert "from 0.1 at best" in watch.after_epoch(1.0, 0.1, 0.5)


def test_a_first_epoch_that_is_lost_is_not_the_best_of_all():
    watch = DivergenceDetector()
    watch.after_step(1.0, 1.0)
    assert "the loss rose to 1e+04, from 1 at the start" in watch.after_epoch(1e4, None, 1e4)


def test_best_weights_whose_loss_had_risen_already_are_not_returned_to():
    watch = DivergenceDetector()
    watch.after_step(1.0, 1.0)
    assert watch.after_epoch(0.5, None, 1.9) == ""
    assert watch.is_best_usable
    # The score may be lowest in an epoch whose training loss is on its way up.
    assert watch.after_epoch(0.4, 0.5, 2.1) == ""
    assert not watch.is_best_usable


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("optimizer", "ema", "batch"), [("muon", 0.0, 1), ("muon", 0.9, 1), ("adamw", 0.0, -1)]
)
def test_training_returns_to_its_best_weights_at_a_third_of_the_rate(
    tmp_path, monkeypatch, capsys, optimizer, ema, batch
):
    """One gradient of NaN in the third epoch, at its last batch too, stands for what goes wrong."""
    original, before = TrainingModule.training_step, {}

    def spoiled(self, examples, index):
        loss = original(self, examples, index)
        is_it = index == batch % self.trainer.num_training_batches
        if self.current_epoch == 2 and is_it and not before:
            path = self.checkpoints.folder / "best.ckpt"
            before.update(torch.load(path, weights_only=True))
            return loss * math.nan
        if before and "after" not in before:
            before["after"] = {name: v.clone() for name, v in self.state_dict().items()}
            before["moments"] = dict(self.trainer.optimizers[0].state)
        return loss

    monkeypatch.setattr(TrainingModule, "training_step", spoiled)
    train_quietly(tmp_path, epochs=4, learning_rate=3e-3, ema=ema, optimizer=optimizer)
    best = before["current_model_state" if ema else "state_dict"]
    assert all(torch.equal(best[name], value) for name, value in before["after"].items())
    assert before["moments"] == {}
    record = Run(tmp_path).record()
    assert record.learning_rate == pytest.approx(1e-3)
    (event,) = record.events
    assert "gradients are not finite; back to the weights of epoch" in event
    assert "learning rate 0.003 -> 0.001" in event
    assert event in capsys.readouterr().out


@pytest.mark.thorough
def test_where_patience_ends_the_rate_falls_before_training_stops(tmp_path, monkeypatch):
    """Scores that grow from the first epoch on stand for a rate that improves nothing."""
    score, start, seen = TrainingModule.on_validation_epoch_end, TrainingModule.training_step, {}

    def worse(self):
        self._scores._sums = self._scores._sums * torch.tensor([1 + 10.0 * self.current_epoch, 1.0])
        score(self)

    def watched(self, batch, index):
        if index == 0:
            seen[self.current_epoch] = self.state_dict()[
                "forecaster.model.lift.linear.weight"
            ].clone()
        return start(self, batch, index)

    monkeypatch.setattr(TrainingModule, "on_validation_epoch_end", worse)
    monkeypatch.setattr(TrainingModule, "training_step", watched)
    train_quietly(tmp_path, epochs=100, patience=2, learning_rate=9e-3)
    record = Run(tmp_path).record()
    first, second, last = record.events
    assert "epoch 3: no better validation score for 2 epochs (--patience); back to" in first
    assert "the weights of epoch 1, learning rate 0.009 -> 0.003" in first
    assert "learning rate 0.003 -> 0.001" in second
    assert last == "stopped after epoch 7: no better validation score for 2 epochs (--patience)"
    assert (record.epochs, record.best_epoch) == (7, 1)
    # Epochs 4 and 6 begin with the weights that epoch 2 began with.
    assert torch.equal(seen[3], seen[1])
    assert torch.equal(seen[5], seen[1])
    assert not torch.equal(seen[2], seen[1])


def test_the_rate_has_come_down_by_its_schedule_or_by_returns():
    def comes_down(schedule, shrunk=1.0):
        config = RunConfig.of(data="x", schedule=schedule)
        budget = Budget(config, num_steps=100, shrunk=shrunk)
        found = [step / 100 for step in range(101) if budget.has_come_down(step / 100)]
        return found[0] if found else None

    assert comes_down("cosine") == pytest.approx(0.75, abs=0.01)
    # As published: training stops early at any rate.
    assert comes_down("step") == 0.0
    assert comes_down("constant") is None
    assert comes_down("constant", shrunk=1 / 9) == 0.0
    # The rate of one cycle is low at first, too, and yet to rise.
    assert comes_down("one-cycle") > 0.75


@pytest.mark.thorough
def test_a_rate_that_is_far_too_high_is_survived(tmp_path):
    """Without going back, such a rate ends far above the start."""
    train_quietly(tmp_path, epochs=8, learning_rate=3.0, clip=1e9)
    record = Run(tmp_path).record()
    assert any("back to the weights" in event for event in record.events)
    assert record.best_score < 1


def test_the_learning_rate_warms_up_again_after_a_return():
    budget = Budget(RunConfig.of(data="x", model="fno", schedule="constant"), num_steps=10_000)
    budget.warm_from = (1000, 0.1)
    rates = [budget.learning_rate(step, step / 10_000) for step in (1000, 1024, 1049)]
    assert rates == pytest.approx([1e-3 / 50, 0.5e-3, 1e-3])


SLOPE = {"usual": 1.0, "clip": 1e9, "seconds": 1e9}


def adamw(model):
    return torch.optim.AdamW(model.parameters())


class Slope(torch.nn.Module):
    """A loss that steps beyond a certain rate lead away from."""

    def __init__(self):
        super().__init__()
        self.x = torch.nn.Parameter(torch.tensor(1.0))


def test_a_range_test_chooses_a_rate_below_where_the_loss_is_left():
    def loss_of(curvature):
        return lambda model, batch: 1 + curvature * model.x.square()

    chosen, told = find_rate(Slope(), [None], loss_of(1e4), adamw, **SLOPE)
    assert chosen < 1.0
    assert "the loss diverges at" in told
    again, _ = find_rate(Slope(), [None], loss_of(1e4), adamw, **SLOPE)
    assert again == chosen
    calm, told = find_rate(Slope(), [None], loss_of(1e-6), adamw, **SLOPE)
    assert (calm, "(default)" in told) == (1.0, 1.0)


def test_a_range_test_needs_time_and_leaves_the_model_as_it_is():
    steps, model = [], Slope()

    def loss_of(model, batch):
        steps.append(1)
        return model.x.square()

    rate, told = find_rate(model, [None], loss_of, adamw, usual=0.1, clip=1.0, seconds=-1.0)
    assert (rate, len(steps)) == (0.1, 3)
    assert "no time for a range test" in told
    assert model.x.item() == 1.0
    assert NUM_STEPS > 3


@pytest.mark.thorough
def test_a_rate_is_found_once_for_a_budget_and_never_where_it_is_given(tmp_path, monkeypatch):
    found = []
    monkeypatch.setattr(
        "gpo.training.fit.find_rate",
        lambda *_, **__: found.append(1) or (1e-4, "learning rate 1e-4"),
    )
    monkeypatch.setattr("gpo.training.fit.MIN_BUDGET", 1.0)
    train_quietly(tmp_path / "a", budget_cpu=100.0, epochs=1)
    assert Run(tmp_path / "a").record().learning_rate == 1e-4
    train_quietly(tmp_path / "a", budget_cpu=100.0, epochs=2)
    assert Run(tmp_path / "a").record().learning_rate == 1e-4
    assert len(found) == 1
    train_quietly(tmp_path / "b", budget_cpu=100.0, epochs=1, learning_rate=1e-3)
    assert len(found) == 1
