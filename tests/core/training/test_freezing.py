"""The paper's two phases: a field, then an operator between its frozen encoder and decoder."""

import pytest
import torch

from gpo import CheckpointError
from gpo.training import checkpoints
from gpo.training.config import RunConfig
from gpo.training.fit import train
from gpo.training.run_folder import Run
from gpo.training.setup import new_forecaster, split_of
from tests.core.training.series import decaying_waves
from tests.core.training.test_checkpoints import KilledError, killed_after, stored

PAPER = {
    "data": "waves", "model": "gpo-paper", "predict": "state", "hidden_dim": 8, "num_layers": 2,
    "num_heads": 2, "num_gaussians": 4, "loss_basis": 1.0, "batch_size": 4, "epochs": 3,
}  # fmt: skip
FIELD = {**PAPER, "phase": "field", "loss_basis": 0.0}


def train_quietly(folder, settings):
    return train(decaying_waves(), RunConfig.of(**settings), folder, is_quiet=True)


@pytest.fixture(scope="module")
def field(tmp_path_factory):
    folder = tmp_path_factory.mktemp("field") / "field"
    return folder, train_quietly(folder, FIELD).model.state_dict()


def frozen(folder, **changes):
    return {**PAPER, "init": str(folder), "freeze": "field", **changes}


@pytest.mark.thorough
@pytest.mark.parametrize("changes", [{}, {"ema": 0.9}, {"optimizer": "muon"}], ids=str)
def test_frozen_parts_do_not_change_by_a_bit_and_all_others_learn(tmp_path, field, changes):
    folder, learned = field
    settings = frozen(folder, **changes)
    operator = train_quietly(tmp_path, settings).model.state_dict()
    data = decaying_waves()
    config = RunConfig.of(**settings)
    torch.manual_seed(config.optimizer.seed)
    start = new_forecaster(data, split_of(data, config), config).model.state_dict()
    assert learned.keys() == {name for name in operator if not name.startswith("layers.")}
    for name, value in operator.items():
        assert torch.equal(value, learned.get(name, value))
        assert name in learned or not torch.equal(value, start[name])


@pytest.mark.thorough
def test_all_parts_learn_where_nothing_is_frozen(tmp_path, field):
    folder, learned = field
    tuned = train_quietly(tmp_path, frozen(folder, freeze=None)).model.state_dict()
    changed = {name for name, value in learned.items() if not torch.equal(value, tuned[name])}
    assert changed == learned.keys() - {"lift.encoder.features.frequencies"}


def test_a_field_that_does_not_fit_is_refused(tmp_path, field):
    with pytest.raises(CheckpointError, match=r"must have the frozen parameters .*same shape and meaning"):  # fmt: skip
        train_quietly(tmp_path / "run", frozen(field[0], num_gaussians=6))


@pytest.mark.thorough
@pytest.mark.parametrize("phase", ["field", "operator"])
def test_both_phases_go_on_after_a_kill_to_the_last_bit(tmp_path, monkeypatch, field, phase):
    settings = FIELD if phase == "field" else frozen(field[0])
    whole = train_quietly(tmp_path / "whole", settings).state_dict()
    per_epoch = stored(Run(tmp_path / "whole"))["global_step"] // 3
    monkeypatch.setattr(checkpoints, "INTERVAL", -1.0)
    with pytest.MonkeyPatch.context() as patch:
        killed_after(per_epoch + 2, patch)
        with pytest.raises(KilledError):
            train_quietly(tmp_path / "killed", settings)
    assert stored(Run(tmp_path / "killed"))["global_step"] == per_epoch + 2
    again = train_quietly(tmp_path / "killed", settings).state_dict()
    assert all(torch.equal(whole[name], again[name]) for name in whole)
