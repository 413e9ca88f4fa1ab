"""What the options of a run do, each by a truth that would fail if it did something else."""

import pytest
import torch
from torch.utils.data import DataLoader

from gpo.data.splits import split_time_slices
from gpo.evaluation.score import evaluate
from gpo.forecast.examples import Batches, EpochShuffle, TimeSliceExamples, collate, followed
from gpo.forecast.forecaster import Forecaster, Task
from gpo.training.config import RunConfig
from gpo.training.fit import train
from gpo.training.initial import initialise_from
from gpo.training.objective import training_losses
from gpo.training.setup import new_forecaster, split_of
from tests.conftest import PlainModel
from tests.core.training.series import decaying_waves, squares

TINY = {"data": "waves", "hidden_dim": 16, "num_layers": 1, "num_gaussians": 4}


def trained(folder, data, **changes):
    return train(data, RunConfig.of(**{**TINY, **changes}), folder, is_quiet=True)


def weights_of(module):
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])


class Scaled(PlainModel):
    """Multiplies the field by a number that can be learned."""

    def __init__(self, factor):
        super().__init__()
        self.factor = torch.nn.Parameter(torch.tensor(factor))

    def forward(self, values, coords, *, weights=None):
        return self.factor * values


NONE, ONE = (0.0, 0.0), (1.0, 1.0)
TASK = Task(("a", "b"), ("a", "b"), ("", ""), 1, 1, "state", NONE, ONE, NONE, ONE, ONE)


def batch_of(num_steps):
    data = decaying_waves()
    examples = TimeSliceExamples(data, split_time_slices(data).training, num_steps=num_steps)
    return collate([examples[0], examples[9]])


def test_windows_of_a_rollout_stay_in_their_split():
    data = decaying_waves(num_trajectories=1, num_times=80)
    windows = split_time_slices(data, history=2, lead=2).training
    kept = followed(windows, 3)
    assert 0 < len(kept) < len(windows)
    last = max(window.target for window in windows)
    assert max(window.target + 2 * window.lead for window in kept) == last
    with pytest.raises(ValueError, match="`rollout` must fit into the training series"):
        followed(windows, 100)


def test_a_rollout_is_trained_on_its_own_forecasts():
    batch, forecaster = batch_of(3), Forecaster(Scaled(0.9), TASK)
    losses = training_losses(forecaster, batch, num_steps=3)
    expected = 0.0
    for step in range(3):
        guess, truth = 0.9 ** (step + 1) * batch.frames[:, 0], batch.targets[:, step]
        error = (guess - truth).square().sum((1, 2)) / truth.square().sum((1, 2))
        expected += error.sqrt().mean() / 3
    torch.testing.assert_close(losses["prediction"], expected, check_dtype=False)


def test_errors_may_be_relative_to_the_true_change_of_every_step():
    batch, forecaster = batch_of(3), Forecaster(Scaled(0.9), TASK)
    noise = torch.full_like(batch.frames[:, 0], 0.01)
    losses = training_losses(forecaster, batch, num_steps=3, noise=noise, relative_to="change")
    states, expected = [batch.frames[:, 0], *batch.targets.unbind(1)], 0.0
    for step in range(3):
        guess = 0.9 ** (step + 1) * (batch.frames[:, 0] + noise)
        error = (guess - states[step + 1]).square().sum((1, 2))
        change = (states[step + 1] - states[step]).square().sum((1, 2))
        expected += (error / change).sqrt().mean() / 3
    torch.testing.assert_close(losses["prediction"], expected, check_dtype=False)


def test_pushforward_learns_from_the_last_step_alone():
    batch, forecaster = batch_of(2), Forecaster(Scaled(0.9), TASK)
    training_losses(forecaster, batch, num_steps=2, pushforward=True)["total"].backward()
    factor = torch.tensor(0.9, requires_grad=True)
    truth = batch.targets[:, 1]
    error = factor * (0.9 * batch.frames[:, 0]) - truth
    loss = (error.square().sum((1, 2)) / truth.square().sum((1, 2))).sqrt().mean()
    loss.backward()
    torch.testing.assert_close(forecaster.model.factor.grad, factor.grad)


def test_noise_is_added_to_the_normalised_input():
    batch, forecaster = batch_of(1), Forecaster(Scaled(1.0), TASK)
    noise = torch.randn_like(batch.frames[:, 0])
    noisy = training_losses(forecaster, batch, noise=noise)["total"]
    values = batch.frames[:, 0] + noise
    error = (values - batch.target).square().sum((1, 2)) / batch.target.square().sum((1, 2))
    torch.testing.assert_close(noisy, error.sqrt().mean(), check_dtype=False)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "changes", [{"noise": 0.1}, {"rollout": 2}, {"rollout": 2, "pushforward": True},
                {"precision": "bf16-mixed"}, {"schedule": "one-cycle"}, {"accumulate": 3}],
    ids=str,
)  # fmt: skip
def test_every_option_changes_the_weights_and_nothing_breaks(tmp_path, changes):
    plain = trained(tmp_path / "plain", decaying_waves(), epochs=2)
    other = trained(tmp_path / "other", decaying_waves(), epochs=2, **changes)
    assert weights_of(other).isfinite().all()
    assert not torch.equal(weights_of(plain), weights_of(other))


def test_an_average_of_weights_is_what_is_kept(tmp_path):
    trained(tmp_path / "plain", decaying_waves(), epochs=1)
    averaged = trained(tmp_path / "averaged", decaying_waves(), epochs=1, ema=0.9)
    stored = torch.load(tmp_path / "averaged" / "checkpoints" / "last.ckpt", weights_only=True)
    plain = torch.load(tmp_path / "plain" / "checkpoints" / "last.ckpt", weights_only=True)
    name = "forecaster.model.decoder.layers.0.weight"
    name = name if name in plain["state_dict"] else next(iter(plain["state_dict"]))
    # The path of the weights is the same; what is kept lags behind it.
    assert torch.equal(stored["current_model_state"][name], plain["state_dict"][name])
    assert not torch.equal(stored["state_dict"][name], plain["state_dict"][name])
    kept = averaged.state_dict()[name.removeprefix("forecaster.")]
    assert torch.equal(kept, stored["state_dict"][name])


def test_accumulated_batches_are_one_large_batch(tmp_path):
    # Without clipping, the mean gradient of two halves is that of the whole.
    large = trained(tmp_path / "large", decaying_waves(), epochs=1, batch_size=8, clip=1e9)
    small = trained(tmp_path / "small", decaying_waves(), epochs=1, batch_size=4, accumulate=2, clip=1e9)  # fmt: skip
    difference = (weights_of(large) - weights_of(small)).abs().max()
    start = new_forecaster(
        decaying_waves(), split_time_slices(decaying_waves()), RunConfig.of(**TINY)
    )
    moved = (weights_of(large) - weights_of(start)).abs().max()
    assert difference < 0.05 * moved


def test_a_number_of_steps_ends_the_run(tmp_path):
    trained(tmp_path / "run", decaying_waves(), steps=5, batch_size=8)
    stored = torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=True)
    assert stored["global_step"] == 5


@pytest.mark.thorough
def test_the_field_phase_reconstructs_and_hands_its_weights_on(tmp_path):
    data = decaying_waves()
    paper = {"model": "gpo-paper", "centers": "displacement"}
    field = trained(tmp_path / "field", data, **paper, phase="field", epochs=30, learning_rate=5e-3)
    split = split_of(data, RunConfig.of(**TINY, **paper))
    results = evaluate(field, data, split)
    assert results.one_step["model"]["vrmse"] < 0.5 * results.one_step["climatology"]["vrmse"]
    assert "persistence" not in results.one_step
    assert results.rollout == {}
    new = new_forecaster(data, split, RunConfig.of(**TINY, **paper))
    assert "are new" in initialise_from(new, tmp_path / "field")
    for part in ("lift", "decoder"):
        learned = getattr(field.model.operator, part).state_dict()
        for name, value in learned.items():
            assert torch.equal(getattr(new.model, part).state_dict()[name], value)


def test_phases_and_rollouts_of_static_maps_are_refused(tmp_path):
    with pytest.raises(ValueError, match="`phase` must not be set: squares holds static maps"):
        trained(tmp_path / "a", squares(), phase="field")
    with pytest.raises(ValueError, match="`rollout` must not be set: squares holds static maps"):
        trained(tmp_path / "b", squares(), rollout=2)


@pytest.mark.parametrize("count", [16, 19])
def test_shares_of_a_batch_are_the_batch(count):
    order = EpochShuffle(count, seed=0)
    whole = list(Batches(order, 4))
    shares = [list(Batches(order, 4, rank=rank, world=2)) for rank in range(2)]
    for batch, first, second in zip(whole, *shares, strict=True):
        assert set(first) | set(second) == set(batch)
        assert len(first) == len(second)
    assert len(whole) == len(DataLoader(range(count), batch_sampler=Batches(order, 4)))
    with pytest.raises(
        ValueError, match="`batch_size` must be a multiple of the 2 processes, got 3"
    ):
        Batches(order, 3, world=2)
