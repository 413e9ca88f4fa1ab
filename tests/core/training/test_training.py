import json

import numpy as np
import pytest
import torch

from gpo import CheckpointError, Domain, relative_l2
from gpo.data.splits import TimeSlice, split_time_slices
from gpo.evaluation.score import evaluate
from gpo.forecast.examples import EpochShuffle, Example, TimeSliceExamples, collate
from gpo.forecast.forecaster import Forecaster, Task
from gpo.forecast.statistics import training_statistics
from gpo.training.budget import Budget
from gpo.training.choice import reference_errors
from gpo.training.config import RunConfig
from gpo.training.fit import train
from gpo.training.module import TrainingModule
from gpo.training.run_folder import Run, read_log
from gpo.training.setup import split_of
from tests.conftest import PlainModel, make_model
from tests.contracts.samples import ns2d
from tests.core.training.series import decaying_waves, squares
from tests.processes import Forked, finish_forked

TINY = {"data": "waves", "hidden_dim": 16, "num_layers": 1, "num_gaussians": 4}


def task(**changes):
    values = {
        "inputs": ("a", "b"), "outputs": ("a", "b"), "units": ("K", ""), "history": 1, "lead": 1,
        "predict": "state", "input_mean": (10.0, 0.0), "input_std": (2.0, 0.5),
        "output_mean": (10.0, 0.0), "output_std": (2.0, 0.5), "increment_std": (0.1, 0.2), **changes,
    }  # fmt: skip
    return Task(**values)


class Doubling(PlainModel):
    """Returns twice the last two channels."""

    def forward(self, values, coords, *, weights=None):
        return 2 * values[..., -2:]


@pytest.mark.parametrize("predict", ["state", "increment"])
def test_a_forecast_is_made_in_normalised_units_and_returned_in_those_of_the_data(predict):
    forecaster = Forecaster(Doubling(), task(predict=predict))
    frames = torch.tensor([[[[14.0, 1.0]]]])
    normal = torch.tensor([2.0, 2.0])
    output = 2 * normal
    expected = output if predict == "state" else normal + torch.tensor([0.1, 0.2]) * output
    expected = expected * torch.tensor([2.0, 0.5]) + torch.tensor([10.0, 0.0])
    torch.testing.assert_close(forecaster(frames, torch.zeros(1, 1))[0, 0], expected)


def test_history_is_given_oldest_first():
    forecaster = Forecaster(
        Doubling(), task(history=2, input_mean=(0.0, 0.0), input_std=(1.0, 1.0))
    )
    frames = torch.tensor([[[[1.0, 2.0]], [[3.0, 4.0]]]])
    assert forecaster.normalised_input(frames).tolist() == [[[1, 2, 3, 4]]]


def test_a_forecaster_round_trips_and_names_what_is_wrong(tmp_path):
    model = make_model(Domain.unit_box(1), in_channels=2, out_channels=2).float()
    forecaster = Forecaster(model, task())
    forecaster.save(tmp_path)
    loaded = Forecaster.load(tmp_path)
    frames, coords = torch.randn(1, 1, 9, 2), torch.rand(9, 1)
    assert loaded.task == forecaster.task
    assert torch.equal(loaded(frames, coords), forecaster(frames, coords))
    stored = json.loads((tmp_path / "task.json").read_text())
    (tmp_path / "task.json").write_text(json.dumps({**stored, "lead": "soon"}))
    with pytest.raises(CheckpointError, match=r"task.json: field `lead` must be int, got 'soon'"):
        Forecaster.load(tmp_path)


def test_an_example_masks_what_is_missing():
    data = decaying_waves(missing=[3, 4])
    example = TimeSliceExamples(data, [TimeSlice(0, 0, 0, 1)])[0]
    assert (example.weights[0] == 0).nonzero().flatten().tolist() == [3, 4]
    assert example.frames.isfinite().all()
    np.testing.assert_allclose(example.target[0, 0], data.frames(0)[1, 0], rtol=1e-6)


def test_padding_changes_no_score():
    model = Forecaster(make_model(Domain.unit_box(1, periodic=True), in_channels=2, out_channels=2).float(), task())  # fmt: skip
    small = TimeSliceExamples(decaying_waves(num_points=10), [TimeSlice(0, 0, 0, 1)])[0]
    large = TimeSliceExamples(decaying_waves(num_points=24), [TimeSlice(1, 0, 0, 1)])[0]
    batch = collate([small, large])
    assert batch.frames.shape == (2, 1, 24, 2)
    both = relative_l2(model(batch.frames, batch.coords, weights=batch.weights), batch.target, batch.weights)  # fmt: skip
    alone = [relative_l2(model(e.frames, e.coords, weights=e.weights), e.target, e.weights) for e in (small, large)]  # fmt: skip
    torch.testing.assert_close(both, (alone[0] + alone[1]) / 2)


def test_statistics_of_a_run_ignore_validation_and_test_data():
    data = decaying_waves()
    split = split_time_slices(data)
    normalizer, _, changes = training_statistics(data, split.training)
    held_out = {window.sample for window in (*split.validation, *split.test)}

    def spoiled(number, times):
        frames = data.fetch(number, times)
        return frames + 1e6 if number in held_out else frames

    other = type(data)(**{**vars(data), "fetch": spoiled})
    again, _, changes_again = training_statistics(other, split.training)
    np.testing.assert_array_equal(normalizer.mean, again.mean)
    np.testing.assert_array_equal(normalizer.std, again.std)
    np.testing.assert_array_equal(changes, changes_again)


@pytest.mark.thorough
def test_training_beats_persistence_and_leaves_a_whole_run_folder(tmp_path):
    data, config = decaying_waves(), RunConfig.of(**TINY, epochs=40, learning_rate=5e-3)
    run = Run(tmp_path / "run")
    forecaster = train(data, config, run.folder, is_quiet=True)
    results = evaluate(forecaster, data, split_of(data, config))
    # Persistence is wrong by the decay; the mean of `a` makes both look small.
    assert results.per_variable["model"]["b"] < 0.7 * results.per_variable["persistence"]["b"]
    log = read_log(run)
    assert len(log) == 40
    assert {"train/prediction", "validation/rmse_over_std"} <= set(log[0])
    spent = [row["cpu_seconds"] for row in log]
    assert 0 < spent[0] < spent[-1]
    again = Forecaster.load(run.model_folder)
    assert evaluate(again, data, split_of(data, config)) == results


@pytest.mark.parametrize("history", [1, 2])
def test_frames_without_values_are_skipped_and_this_is_told(tmp_path, history):
    values = np.stack([decaying_waves().fetch(n, slice(None)) for n in range(8)])
    first, last = [getattr(split_of(decaying_waves(), RunConfig.of(**TINY)), name)[0].sample
                   for name in ("training", "validation")]  # fmt: skip
    values[first, 4], values[last, 0, :, 1] = np.nan, np.nan
    data, config = decaying_waves(values=values), RunConfig.of(**TINY, epochs=1, history=history)
    forecaster = train(data, config, tmp_path, is_quiet=True)
    assert all(bool(part.isfinite().all()) for part in forecaster.parameters())
    events = Run(tmp_path).record().events
    num_lost = history + 1
    assert any(f"{num_lost} of " in event and "training examples are left out" in event for event in events)  # fmt: skip
    assert any("1 of " in event and "validation examples are left out" in event for event in events)


@pytest.mark.thorough
@pytest.mark.parametrize("factor", [1e3, 1e-3])
def test_units_of_a_variable_do_not_decide_which_epoch_is_best(tmp_path, factor):
    values = np.stack([decaying_waves().fetch(n, slice(None)) for n in range(8)])
    config = RunConfig.of(**TINY, epochs=3)
    logs = []
    for name, scale in (("as it is", 1.0), ("other units", factor)):
        data = decaying_waves(values=values * np.array([scale, 1.0]))
        train(data, config, tmp_path / name, is_quiet=True)
        logs.append([row["validation/rmse_over_std"] for row in read_log(Run(tmp_path / name))])
        logs.append([np.mean(errors) for errors in reference_errors(data, config).values()])
    np.testing.assert_allclose(logs[2], logs[0], rtol=1e-4)
    # A linear map is exact on these waves, to rounding.
    np.testing.assert_allclose(logs[3], logs[1], rtol=1e-9, atol=1e-14)


@pytest.mark.thorough
def test_the_same_seed_gives_the_same_weights(tmp_path):
    weights = []
    for name, seed in (("one", 0), ("two", 0), ("three", 1)):
        config = RunConfig.of(**TINY, epochs=2, seed=seed)
        run = Run(tmp_path / name)
        forecaster = train(decaying_waves(), config, run.folder, is_quiet=True)
        weights.append(torch.cat([p.flatten() for p in forecaster.parameters()]))
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_a_finished_run_is_not_trained_again(tmp_path):
    config, run = RunConfig.of(**TINY, epochs=2), Run(tmp_path / "run")
    first = train(decaying_waves(), config, run.folder, is_quiet=True).state_dict()
    second = train(decaying_waves(), config, run.folder, is_quiet=True).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert len(read_log(run)) == 2


def test_a_folder_of_another_run_or_of_anything_else_is_refused(tmp_path):
    run = Run(tmp_path / "run")
    run.claim(RunConfig.of(**TINY))
    run.model_folder.mkdir()
    with pytest.raises(ValueError, match="another configuration: `seed` is 0 there and 1 here"):
        run.claim(RunConfig.of(**TINY, seed=1))
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "love.txt").write_text("dear")
    with pytest.raises(ValueError, match="is not empty and not a run folder"):
        Run(tmp_path / "letters").claim(RunConfig.of(**TINY))


@pytest.mark.thorough
def test_a_budget_of_cpu_seconds_ends_the_run(tmp_path, monkeypatch):
    """By a clock on which a step takes a quarter of a second, and nothing else any time."""
    steps = []

    def counted(*arguments):
        steps.append(1)
        return training_step(*arguments)

    training_step = TrainingModule.training_step
    monkeypatch.setattr(TrainingModule, "training_step", counted)
    monkeypatch.setattr("gpo.training.budget.process_time", lambda: 100 + 0.25 * len(steps))
    config = RunConfig.of(**TINY, budget_cpu=8.0, epochs=10_000, patience=10_000)
    run = Run(tmp_path / "run")
    train(decaying_waves(), config, run.folder, is_quiet=True)
    assert len(steps) == 32
    assert [row["cpu_seconds"] for row in read_log(run)] == [1.75, 3.5, 5.25, 7.0, 8.0]
    stored = torch.load(run.checkpoints / "last.ckpt", weights_only=True)
    assert stored["cpu_seconds"] == 8.0


def test_the_learning_rate_follows_the_budget():
    def rate(step, **settings):
        budget = Budget(RunConfig.of(data="x", model="fno", **settings), num_steps=1000)
        return budget.learning_rate(step, budget.progress(step, 0.0))

    assert rate(0) == pytest.approx(1e-3 / 50)
    assert rate(500) == pytest.approx(0.5e-3)
    assert rate(1000) == pytest.approx(0)
    assert [rate(step, schedule="step") for step in (0, 450)] == [1e-3, 0.25e-3]
    assert rate(900, schedule="constant") == pytest.approx(1e-3)
    cycle = [rate(step, schedule="one-cycle") for step in (0, 150, 300, 650, 1000)]
    assert cycle == pytest.approx([4e-5, 0.52e-3, 1e-3, 0.5e-3, 0])


def test_a_slow_model_has_warmed_up_after_a_tenth_of_its_budget():
    config = RunConfig.of(data="x", model="fno", budget_cpu=100.0, schedule="constant")
    budget = Budget(config, num_steps=1_000_000)
    rates = [budget.learning_rate(4, budget.progress(4, spent)) for spent in (1.0, 5.0, 10.0, 50.0)]
    assert rates == pytest.approx([1e-4, 0.5e-3, 1e-3, 1e-3])


def test_the_learning_rate_suits_the_model_where_none_is_given():
    assert RunConfig.of(data="x").learning_rate == 6e-3
    for settings in ({"model": "gpo-paper"}, {"phase": "field"}, {"model": "fno"}):
        assert RunConfig.of(data="x", **settings).learning_rate == 1e-3
    assert RunConfig.of(data="x", learning_rate=2e-3).learning_rate == 2e-3


def test_a_budget_ends_with_whatever_comes_first():
    budget = Budget(RunConfig.of(data="x", steps=100, budget_cpu=50.0), num_steps=1000)
    assert budget.progress(50, 0.0) == 0.5
    assert budget.progress(50, 40.0) == 0.8
    assert budget.progress(50, 60.0) == 1.0


def test_a_budget_that_was_exceeded_by_more_than_a_twentieth_is_said_to_be():
    budget = Budget(RunConfig.of(data="x", budget_cpu=60.0), num_steps=1000)
    assert budget.overshoot(2, 62.9) is None
    said = budget.overshoot(2, 105.0)
    assert said is not None
    assert "75% more than --budget-cpu 60" in said
    assert "2 steps took 52.5 s each" in said
    assert Budget(RunConfig.of(data="x"), num_steps=1000).overshoot(2, 1e6) is None


def test_a_rollout_grows_until_half_of_the_budget():
    budget = Budget(RunConfig.of(data="x", rollout=4), num_steps=1000)
    assert [budget.rollout(part) for part in (0.0, 0.2, 0.3, 0.5, 1.0)] == [1, 2, 3, 4, 4]


def test_an_example_moves_to_a_device():
    example = TimeSliceExamples(decaying_waves(), [TimeSlice(0, 0, 0, 1)])[0]
    assert isinstance(example.to("cpu"), Example)


def test_the_order_of_examples_changes_with_the_epoch_and_not_with_the_sitting():
    first, second = EpochShuffle(20, seed=3), EpochShuffle(20, seed=3)
    assert list(first) == list(second)
    second.set_epoch(1)
    assert list(first) != list(second)
    assert sorted(second) == list(range(20))


@pytest.mark.thorough
def test_a_killed_run_goes_on_and_ends_in_the_same_weights(tmp_path):
    """A real SIGKILL after the first checkpoints, then the same command again."""
    path = ns2d(tmp_path)

    def command(name):
        sizes = ["--hidden-dim", "16", "--num-layers", "1", "--epochs", "12"]
        sizes += ["--ema", "0.9", "--noise", "0.01", "--accumulate", "2", "--batch-size", "3"]
        return ["train", "--data", str(path), *sizes, "--quiet", "--out", str(tmp_path / name)]

    finish_forked("gpo", *command("whole"))
    held = ["last.ckpt", "2", str(tmp_path / "never"), "gpo"]
    with Forked("tests.held", [*held, *command("killed")]) as running:
        running.wait_until((tmp_path / "killed" / "checkpoints" / "last.ckpt").exists)
        running.kill()
    assert not (tmp_path / "killed" / "model").exists()
    finish_forked("gpo", *command("killed"))
    whole, killed = ((tmp_path / n / "model" / "model.safetensors").read_bytes() for n in ("whole", "killed"))  # fmt: skip
    assert whole == killed


def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path, caplog):
    config, run = RunConfig.of(**TINY, epochs=3), Run(tmp_path / "run")
    first = train(decaying_waves(), config, run.folder, is_quiet=True).state_dict()
    newest = run.checkpoints / "last.ckpt"
    newest.write_bytes(newest.read_bytes()[:1000])
    # As if the run had been killed.
    run.training_file.unlink()
    second = train(decaying_waves(), config, run.folder, is_quiet=True).state_dict()
    assert "last.ckpt is damaged and ignored" in caplog.text
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_loss_that_is_not_finite_ends_the_run_and_keeps_the_last_checkpoint(tmp_path):
    config, run = RunConfig.of(**TINY, epochs=4), Run(tmp_path / "run")
    data = decaying_waves()
    original, calls = Forecaster.apply_increment, []

    def spoiled(self, output, base):
        calls.append(1)
        return original(self, output, base) * (float("nan") if len(calls) > 12 else 1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Forecaster, "apply_increment", spoiled)
        with pytest.raises(ValueError, match=r"not finite at step \d+ .*lower --learning-rate"):
            train(data, config, run.folder, is_quiet=True)
    stored = torch.load(run.checkpoints / "best.ckpt", weights_only=True)
    assert stored["epoch"] == 0
    assert all(value.isfinite().all() for value in stored["state_dict"].values())


@pytest.mark.thorough
def test_static_maps_with_different_numbers_of_sites_are_learned(tmp_path):
    data, config = squares(), RunConfig.of(**TINY, epochs=100, learning_rate=1e-2)
    run = Run(tmp_path / "run")
    forecaster = train(data, config, run.folder, is_quiet=True)
    assert (forecaster.task.inputs, forecaster.task.outputs) == (("a",), ("square", "mean"))
    assert (forecaster.task.predict, forecaster.task.lead) == ("state", 0)
    results = evaluate(forecaster, data, split_of(data, config))
    assert results.rollout == {}
    assert set(results.one_step) == {"model", "training mean"}
    scores = {who: errors["square"] for who, errors in results.per_variable.items()}
    assert scores["model"] < 0.5 * scores["training mean"]
