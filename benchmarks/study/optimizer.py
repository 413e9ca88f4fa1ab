"""What a step of the optimizer costs: AdamW, Muon by matrices of one shape, Muon one by one.

    OMP_NUM_THREADS=1 python benchmarks/study/optimizer.py

CPU milliseconds of one step, without forward and backward, for gpo on a 32 x 32 periodic grid; then
CPU microseconds of the Newton-Schulz iterations, alone and together, in both precisions. The
shortest of several.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import tyro
from torch import nn

from gpo import Domain, OperatorConfig, Problem, RunConfig
from gpo.model.model import build_model
from gpo.training.muon import make_optimizer, muon_matrices, orthogonalised

SHAPES = ((32, 32), (32, 64), (64, 64), (64, 128), (128, 256))


def cpu_seconds(call: Callable[[], Any], *, num_calls: int = 50, num_repeats: int = 7) -> float:
    """Returns the CPU time of a call, the shortest mean of several."""
    for _ in range(num_calls):
        call()
    seconds = []
    for _ in range(num_repeats):
        started = time.process_time()
        for _ in range(num_calls):
            call()
        seconds.append((time.process_time() - started) / num_calls)
    return min(seconds)


def one_by_one(model: nn.Module) -> Callable[[], None]:
    """Returns a step of torch's Muon, which takes matrices one by one, and of AdamW."""
    matrices = muon_matrices(model)
    chosen = {id(matrix) for matrix in matrices}
    others = [part for part in model.parameters() if id(part) not in chosen]
    muon = torch.optim.Muon(matrices, lr=1e-3, adjust_lr_fn="match_rms_adamw")
    adamw = torch.optim.AdamW(others, lr=1e-3, fused=True)

    def step() -> None:
        muon.step()
        adamw.step()

    return step


def main(widths: tuple[int, ...] = (32, 64)) -> None:
    """Prints both tables.

    Args:
        widths: Channels of the model.
    """
    torch.manual_seed(0)
    problem = Problem(1, 1, Domain.unit_box(2, periodic=True), (32, 32))
    for width in widths:
        model = build_model("gpo", problem, OperatorConfig(hidden_dim=width))
        for part in model.parameters():
            part.grad = torch.randn_like(part)
        steps: dict[str, Callable[[], Any]] = {
            name: make_optimizer(model, RunConfig.of(data="x", optimizer=name)).step
            for name in ("adamw", "muon")
        }
        steps["torch.optim.Muon and AdamW"] = one_by_one(model)
        print(f"{width} channels, {len(muon_matrices(model))} matrices, milliseconds")
        for name, step in steps.items():
            print(f"  {name}: {1e3 * cpu_seconds(step):.2f}")
    print("iterations, microseconds: eight matrices alone, together")
    for shape in SHAPES:
        for dtype in (torch.float32, torch.bfloat16):
            matrices = torch.randn(8, *shape).to(dtype)
            alone = partial(
                lambda parts: [orthogonalised(part) for part in parts], matrices.split(1)
            )
            times = [1e6 * cpu_seconds(call, num_calls=20) for call in (alone, partial(orthogonalised, matrices))]  # fmt: skip
            print(f"  {shape[0]} x {shape[1]}, {dtype}: {times[0]:.0f}, {times[1]:.0f}")


if __name__ == "__main__":
    tyro.cli(main)
