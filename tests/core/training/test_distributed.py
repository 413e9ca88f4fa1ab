"""Two processes that share every batch learn what one process learns from the whole batch."""

import os
import sys

import numpy as np
import pytest

from gpo.cli import main
from gpo.training.run_folder import Run, read_log
from tests.contracts.samples import ns2d
from tests.processes import finish

SIZES = ["--hidden-dim", "16", "--num-layers", "1", "--num-gaussians", "4",
         "--epochs", "2", "--batch-size", "4", "--quiet"]  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("launcher", ["torchrun", "devices"])
def test_two_processes_have_the_losses_of_one(tmp_path, launcher):
    path = ns2d(tmp_path)
    main(["train", "--data", str(path), *SIZES, "--out", str(tmp_path / "one")])
    # Of the two, one talks, scores and reports: seen once, with the quicker launcher.
    command = "run" if launcher == "torchrun" else "train"
    shared = ["-m", "gpo", command, "--data", str(path), *SIZES, "--out", str(tmp_path / "two")]
    start = [sys.executable]
    if launcher == "torchrun":
        start += ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    else:
        shared += ["--devices", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    printed = finish([*start, *shared], env=environment)
    one, two = (read_log(Run(tmp_path / name)) for name in ("one", "two"))
    assert len(one) == len(two) == 2
    for first, second in zip(one, two, strict=True):
        for name in ("train/prediction", "train/total", "validation/rmse_over_std"):
            np.testing.assert_allclose(first[name], second[name], rtol=2e-5)
    assert printed.count("model: ") == 1
    assert printed.count("report: ") == (launcher == "torchrun")
