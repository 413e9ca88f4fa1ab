"""Nothing is lost on a kill, and nothing depends on where a run folder lies."""

import shutil

import pytest
import torch
import yaml
from filelock import FileLock

from gpo.forecast.forecaster import Forecaster
from gpo.training import checkpoints, run_folder
from gpo.training.config import RunConfig
from gpo.training.fit import train
from gpo.training.module import TrainingModule
from gpo.training.run_folder import SCORE, Run, read_log
from tests.core.training.series import decaying_waves

TINY = {"data": "waves", "hidden_dim": 8, "num_layers": 1, "num_gaussians": 2}


class KilledError(Exception):
    """Stands for the end of a process."""


def killed_after(step, patch):
    """Ends training before a step, as a kill would: nothing more is written."""
    original = TrainingModule.training_step

    def spoiled(self, *arguments):
        if self.global_step == step:
            raise KilledError
        return original(self, *arguments)

    patch.setattr(TrainingModule, "training_step", spoiled)


def stored(run, name="last.ckpt"):
    return torch.load(run.checkpoints / name, weights_only=True)


def train_quietly(folder, **settings):
    return train(decaying_waves(), RunConfig.of(**{**TINY, **settings}), folder, is_quiet=True)


def worsening(monkeypatch, best=1):
    """Makes validation scores grow after the epoch `best`."""
    original = TrainingModule.on_validation_epoch_end

    def spoiled(self):
        self._scores._sums = self._scores._sums * torch.tensor(
            [1 + 10.0 * abs(self.current_epoch - best), 1.0]
        )
        original(self)

    monkeypatch.setattr(TrainingModule, "on_validation_epoch_end", spoiled)


def test_the_last_checkpoint_is_the_last_epoch_on_a_plateau(tmp_path, monkeypatch):
    worsening(monkeypatch)
    train_quietly(tmp_path, epochs=5, learning_rate=1e-6)
    assert stored(Run(tmp_path))["epoch"] == 4
    assert stored(Run(tmp_path), "best.ckpt")["epoch"] < 4


@pytest.mark.thorough
@pytest.mark.parametrize(
    "settings",
    [
        {"optimizer": "muon"},
        {"optimizer": "adamw"},
        {"ema": 0.9, "noise": 0.05},
        {"accumulate": 2},
    ],
    ids=["muon", "adamw", "averaged", "accumulated"],
)
def test_a_run_killed_within_an_epoch_goes_on_at_its_batch(tmp_path, monkeypatch, settings):
    settings = {"epochs": 3, "batch_size": 4, **settings}
    whole = train_quietly(tmp_path / "whole", **settings).state_dict()
    per_epoch = stored(Run(tmp_path / "whole"))["global_step"] // 3
    seen = []
    monkeypatch.setattr(checkpoints, "INTERVAL", -1.0)
    with pytest.MonkeyPatch.context() as patch:
        killed_after(per_epoch + 3, patch)
        with pytest.raises(KilledError):
            train_quietly(tmp_path / "killed", **settings)
    last = stored(Run(tmp_path / "killed"))
    assert (last["epoch"], last["global_step"]) == (1, per_epoch + 3)
    original = TrainingModule.training_step

    def counted(self, batch, index):
        seen.append((self.current_epoch, self.global_step))
        return original(self, batch, index)

    monkeypatch.setattr(TrainingModule, "training_step", counted)
    again = train_quietly(tmp_path / "killed", **settings).state_dict()
    assert seen[0] == (1, per_epoch + 3)
    assert all(torch.equal(whole[name], again[name]) for name in whole)
    first, second = (read_log(Run(tmp_path / name)) for name in ("whole", "killed"))
    for one, other in zip(first, second, strict=True):
        assert one["train/total"] == pytest.approx(other["train/total"], rel=1e-6)
        assert one[SCORE] == other[SCORE]


@pytest.mark.thorough
def test_a_run_of_gpo_0_7_goes_on_with_adamw(tmp_path):
    whole = train_quietly(tmp_path / "whole", epochs=4, optimizer="adamw").state_dict()
    num_steps = stored(Run(tmp_path / "whole"))["global_step"]
    run = Run(tmp_path / "old")
    with pytest.MonkeyPatch.context() as patch:
        killed_after(num_steps // 2, patch)
        with pytest.raises(KilledError):
            train_quietly(run.folder, epochs=4, optimizer="adamw")
    settings = yaml.safe_load(run.config_file.read_text())
    del settings["optimizer"]["optimizer"]
    run.config_file.write_text(yaml.safe_dump(settings))
    assert run.config().optimizer_name == "adamw"
    with pytest.raises(ValueError, match="`optimizer` is adamw there and muon here"):
        train_quietly(run.folder, epochs=4, optimizer="muon")
    again = train_quietly(run.folder, epochs=4).state_dict()
    assert all(torch.equal(whole[name], again[name]) for name in whole)
    assert run.config().optimizer_name == "adamw"


@pytest.mark.thorough
def test_a_run_folder_that_was_moved_keeps_its_best_score_and_its_names(tmp_path, monkeypatch):
    worsening(monkeypatch)
    whole = train_quietly(tmp_path / "whole", epochs=6).state_dict()
    with pytest.MonkeyPatch.context() as patch:
        killed_after(stored(Run(tmp_path / "whole"))["global_step"] // 6 * 4, patch)
        with pytest.raises(KilledError):
            train_quietly(tmp_path / "here", epochs=6)
    shutil.move(tmp_path / "here", tmp_path / "there")
    moved = train_quietly(tmp_path / "there", epochs=6).state_dict()
    assert all(torch.equal(whole[name], moved[name]) for name in whole)
    names = {path.name for path in (tmp_path / "there" / "checkpoints").iterdir()}
    assert names == {"best.ckpt", "last.ckpt"}
    assert str(tmp_path) not in str(stored(Run(tmp_path / "there")))


def test_a_finished_run_makes_no_step_when_it_is_typed_again(tmp_path, monkeypatch):
    worsening(monkeypatch)
    first = train_quietly(tmp_path, epochs=5, patience=1).state_dict()
    record = Run(tmp_path).record()
    assert record.is_finished
    assert record.reason == "no better validation score for 1 epochs"
    assert "stopped after epoch" in record.events[-1]
    killed_after(stored(Run(tmp_path))["global_step"], monkeypatch)
    second = train_quietly(tmp_path, epochs=5, patience=1).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    # Without its checkpoints the finished model stays what it is, too.
    shutil.rmtree(Run(tmp_path).checkpoints)
    third = train_quietly(tmp_path, epochs=5, patience=1).state_dict()
    assert all(torch.equal(first[name], third[name]) for name in first)


def test_a_run_killed_between_its_last_checkpoint_and_its_model_only_writes_the_model(
    tmp_path, monkeypatch
):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Forecaster, "save", lambda *_: (_ for _ in ()).throw(KilledError))
        with pytest.raises(KilledError):
            train_quietly(tmp_path, epochs=2)
    killed_after(stored(Run(tmp_path))["global_step"], monkeypatch)
    train_quietly(tmp_path, epochs=2)
    assert Run(tmp_path).record().reason == "2 epochs are done"


def test_a_finished_run_goes_on_with_more_epochs_and_says_so(tmp_path, capsys):
    train_quietly(tmp_path, epochs=2)
    train_quietly(tmp_path, epochs=4)
    assert "continues after epoch 2 from the last weights" in capsys.readouterr().out
    record = Run(tmp_path).record()
    assert (record.epochs, record.limits["epochs"]) == (4, 4)
    assert [row["epoch"] for row in read_log(Run(tmp_path))] == [0, 1, 2, 3]
    assert RunConfig.load(Run(tmp_path).config_file).budget.epochs == 4


def test_a_finished_run_goes_on_with_more_seconds(tmp_path, monkeypatch):
    steps = []
    original = TrainingModule.training_step

    def counted(self, *arguments):
        steps.append(1)
        return original(self, *arguments)

    monkeypatch.setattr(TrainingModule, "training_step", counted)
    monkeypatch.setattr("gpo.training.budget.process_time", lambda: 0.25 * len(steps))
    train_quietly(tmp_path, budget_cpu=2.0)
    assert len(steps) == 8
    train_quietly(tmp_path, budget_cpu=6.0)
    assert len(steps) == 24


def test_what_differs_is_named_with_both_values(tmp_path):
    train_quietly(tmp_path, epochs=2)
    with pytest.raises(ValueError, match="`seed` is 0 there and 1 here; `epochs` is 2 there and 1"):
        train_quietly(tmp_path, epochs=1, seed=1)


def test_a_run_that_fails_before_its_first_checkpoint_blocks_no_other(tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        killed_after(1, patch)
        with pytest.raises(KilledError):
            train_quietly(tmp_path / "run", epochs=1)
    assert not (tmp_path / "run").exists()
    # A process that was killed cleans nothing up.
    Run(tmp_path / "run").claim(RunConfig.of(**TINY))
    train_quietly(tmp_path / "run", epochs=1, seed=1)
    assert Run(tmp_path / "run").config().optimizer.seed == 1


def test_a_second_process_in_the_same_folder_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(run_folder, "LOCK_WAIT", 0.0)
    with (
        FileLock(tmp_path / "training.lock"),
        pytest.raises(ValueError, match="another process trains in this folder"),
    ):
        train_quietly(tmp_path, epochs=1)


def test_a_flipped_bit_in_a_checkpoint_is_noticed(tmp_path, caplog):
    train_quietly(tmp_path, epochs=1)
    path = Run(tmp_path).checkpoints / "last.ckpt"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert checkpoints.newest_checkpoint(Run(tmp_path)).name == "best.ckpt"
    assert "last.ckpt is damaged and ignored" in caplog.text


@pytest.mark.thorough
@pytest.mark.parametrize("foreign", [{"a": 1}, [1, 2], {"state_dict": {}, "callbacks": {}}])
def test_a_foreign_file_in_place_of_a_checkpoint_is_left_out(tmp_path, caplog, foreign):
    train_quietly(tmp_path / "run", epochs=2)
    folder = tmp_path / "run" / "checkpoints"
    torch.save(foreign, folder / "last.ckpt")
    assert checkpoints.newest_checkpoint(Run(tmp_path / "run")) == folder / "best.ckpt"
    assert "it is not a checkpoint of a run: `" in caplog.text
    torch.save(foreign, folder / "best.ckpt")
    assert train_quietly(tmp_path / "run", epochs=3) is not None
    assert stored(Run(tmp_path / "run"))["epoch"] == 2
