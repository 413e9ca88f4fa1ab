"""Sites that several processes share: the same losses, few bytes, and an end that can be mended."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from gpo.cli import main
from gpo.evaluation.results import Results
from gpo.training.run_folder import Run, read_log
from tests.contracts.samples import ns2d
from tests.core.training.series import MODELS
from tests.processes import PROJECT, Running, finish_together

SIZES = ["--hidden-dim", "16", "--num-layers", "2", "--num-gaussians", "4",
         "--batch-size", "4", "--quiet"]  # fmt: skip
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def torchrun(count, *arguments):
    """The command that starts so many processes."""
    start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    return [sys.executable, *start, *arguments]


@pytest.mark.thorough
@pytest.mark.parametrize("count", [2, 3])
def test_shared_sites_give_the_answers_and_gradients_of_all_sites(count):
    finish_together(count, "tests.core.training.shards")


# Four: of each pair that shares the sites, one has the first half of the batch. Which processes share
# what does not depend on the variant.
GROUPS = {"geometric": ((2, 2), (4, 4), (4, 2)), "paper": ((4, 2),)}


@pytest.mark.thorough
@pytest.mark.parametrize("variant", GROUPS)
def test_two_and_four_processes_have_the_losses_of_one(tmp_path, variant):
    command = [
        "train",
        "--data",
        str(ns2d(tmp_path)),
        *SIZES,
        "--epochs",
        "2",
        "--model",
        MODELS[variant],
    ]
    main([*command, "--out", str(tmp_path / "one")])
    for count, shards in GROUPS[variant]:
        name = f"{count}-{shards}"
        more = ["--space-shards", str(shards), "--out", str(tmp_path / name)]
        finish_together(count, "gpo", *command, *more)
        one, other = (read_log(Run(tmp_path / folder)) for folder in ("one", name))
        assert len(one) == len(other) == 2
        for first, second in zip(one, other, strict=True):
            for loss in ("train/prediction", "train/total", "validation/rmse_over_std"):
                np.testing.assert_allclose(first[loss], second[loss], rtol=2e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("variant", ["geometric", "paper"])
def test_processes_that_share_sites_give_the_scores_of_one(tmp_path, variant):
    folder = tmp_path / "run"
    training = ["train", "--data", str(ns2d(tmp_path)), *SIZES, "--epochs", "1"]
    main([*training, "--model", MODELS[variant], "--out", str(folder)])
    main(["evaluate", str(folder)])
    one = Results.load(folder / "results.json")
    (folder / "results.json").unlink()
    said = finish_together(3, "gpo", "evaluate", str(folder))
    assert said.count("results:") == 1
    three = Results.load(folder / "results.json")
    for part in ("one_step", "rollout", "resolution", "between_sites"):
        assert numbers(getattr(three, part)) == pytest.approx(numbers(getattr(one, part)), rel=1e-4)


def numbers(found):
    """All numbers in nested results, in order."""
    if isinstance(found, dict):
        return [number for name in sorted(found) for number in numbers(found[name])]
    if isinstance(found, list):
        return [number for part in found for number in numbers(part)]
    return [found] if isinstance(found, float) else []


@pytest.mark.thorough
def test_a_run_whose_process_is_killed_says_so_and_goes_on_after_a_restart(tmp_path):
    data, folder = ns2d(tmp_path), tmp_path / "run"
    training = ["train", "--data", str(data), *SIZES, "--epochs", "10"]
    shared = [*training, "--space-shards", "2", "--out", str(folder)]
    held = ["last.ckpt", "2", str(tmp_path / "gate"), "gpo"]
    command = torchrun(2, "--max-restarts", "1", "-m", "tests.held", *held, *shared)
    environment = {**ENVIRONMENT, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    with Running(command, env=environment, cwd=PROJECT) as running:
        running.wait_until((folder / "checkpoints" / "last.ckpt").exists)
        os.kill(workers(running.pid)[-1], signal.SIGKILL)
        (tmp_path / "gate").touch()
        assert running.end() == 0, running.said[-3000:]
        assert "ended unexpectedly" in running.said
        assert "the same command resumes from" in running.said
    main([*training, "--out", str(tmp_path / "whole")])
    mended, whole = (read_log(Run(path))[-1] for path in (folder, tmp_path / "whole"))
    assert mended["step"] == whole["step"]
    for loss in ("train/total", "validation/rmse_over_std"):
        np.testing.assert_allclose(mended[loss], whole[loss], rtol=1e-3)


def test_restarts_that_would_wait_forever_are_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "2")
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    with pytest.raises(SystemExit):
        main(["train", "--data", str(ns2d(tmp_path)), "--out", str(tmp_path / "run")])
    assert "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 torchrun" in capsys.readouterr().err


def workers(launcher):
    """Numbers of the processes that a launcher started."""
    text = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(launcher)], capture_output=True, text=True, check=True
    )
    return [int(number) for number in text.stdout.split()]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--model", "fno", "--space-shards", "2"], "only gpo and gpo-paper"),
        (["--devices", "3", "--space-shards", "2"], "must divide"),
        (["--space-shards", "9"], "at most the 8 lines"),
    ],
)
def test_sites_that_cannot_be_shared_are_refused(tmp_path, capsys, flags, message):
    with pytest.raises(SystemExit):
        main(["train", "--data", str(ns2d(tmp_path)), "--out", str(tmp_path / "run"), *flags])
    said = capsys.readouterr()
    assert message in said.err
    assert "tuning settings" not in said.out
