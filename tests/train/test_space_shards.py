"""Sites that several processes share: the same losses, few bytes, and an end that can be mended."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from gpo.cli import main
from gpo.train.run_folder import Run, read_log
from tests.contracts.samples import ns2d

SIZES = ["--hidden-dim", "16", "--num-layers", "2", "--num-heads", "2", "--num-gaussians", "4",
         "--batch-size", "4", "--quiet"]  # fmt: skip
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def torchrun(count, *arguments, restarts=0):
    """The command that starts so many processes."""
    start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    return [sys.executable, *start, "--max-restarts", str(restarts), *arguments]


def finish(command):
    """What a command printed, after it came to a good end."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=280, env=ENVIRONMENT, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.thorough
@pytest.mark.parametrize("count", [2, 3])
def test_shared_sites_give_the_answers_and_gradients_of_all_sites(count):
    finish(torchrun(count, "-m", "tests.train.shards"))


@pytest.mark.thorough
@pytest.mark.parametrize("variant", ["geometric", "paper"])
def test_two_and_four_processes_have_the_losses_of_one(tmp_path, variant):
    command = [
        "train",
        "--data",
        str(ns2d(tmp_path)),
        *SIZES,
        "--epochs",
        "2",
        "--variant",
        variant,
    ]
    main([*command, "--out", str(tmp_path / "one")])
    # Four: of each pair that shares the sites, one has the first half of the batch.
    for count, shards in ((2, 2), (4, 4), (4, 2)):
        name = f"{count}-{shards}"
        more = ["--space-shards", str(shards), "--out", str(tmp_path / name)]
        finish(torchrun(count, "-m", "gpo", *command, *more))
        one, other = (read_log(Run(tmp_path / folder)) for folder in ("one", name))
        assert len(one) == len(other) == 2
        for first, second in zip(one, other, strict=True):
            for loss in ("train/prediction", "train/total", "validation/relative_l2"):
                np.testing.assert_allclose(first[loss], second[loss], rtol=2e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("restarts", [0, 1])
def test_a_run_whose_process_is_killed_ends_with_a_message_and_goes_on(tmp_path, restarts):
    data, folder = ns2d(tmp_path), tmp_path / "run"
    command = ["-m", "gpo", "train", "--data", str(data), *SIZES, "--epochs", "60",
               "--space-shards", "2", "--out", str(folder)]  # fmt: skip
    log = (tmp_path / "log").open("w+")
    process = subprocess.Popen(
        torchrun(2, *command, restarts=restarts), stdout=log, stderr=log, env=ENVIRONMENT
    )
    checkpoint = folder / "checkpoints" / "last.ckpt"
    while not checkpoint.exists():
        assert process.poll() is None
        time.sleep(0.1)
    os.kill(workers(process.pid)[-1], signal.SIGKILL)
    process.wait(timeout=240)
    log.seek(0)
    said = log.read()
    assert (process.returncode == 0) == (restarts == 1), said[-3000:]
    assert "ended unexpectedly" in said
    assert "the same command goes on from" in said
    if restarts == 0:
        finish(torchrun(2, *command))
    steps = [int(row["step"]) for row in read_log(Run(folder))]
    main(["train", "--data", str(data), *SIZES, "--epochs", "60", "--out", str(tmp_path / "whole")])
    whole = read_log(Run(tmp_path / "whole"))
    assert max(steps) == int(whole[-1]["step"])
    last = read_log(Run(folder))[-1]
    for loss in ("train/total", "validation/relative_l2"):
        np.testing.assert_allclose(last[loss], whole[-1][loss], rtol=1e-3)


def workers(launcher):
    """Numbers of the processes that a launcher started."""
    text = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(launcher)], capture_output=True, text=True, check=True
    )
    return [int(number) for number in text.stdout.split()]


def test_sites_are_shared_by_models_that_can(tmp_path):
    command = ["train", "--data", str(ns2d(tmp_path)), "--out", str(tmp_path / "run")]
    with pytest.raises(SystemExit, match="gpo alone"):
        main([*command, "--model", "fno", "--space-shards", "2"])
    with pytest.raises(SystemExit, match="must divide"):
        main([*command, "--devices", "3", "--space-shards", "2"])
    with pytest.raises(SystemExit, match="at most the 8 lines"):
        main([*command, "--space-shards", "9"])
