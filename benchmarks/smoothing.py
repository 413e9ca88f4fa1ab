"""Smoothing along an axis of a lattice: from which length on windows are cheaper than one matrix.

    OMP_NUM_THREADS=1 python benchmarks/smoothing.py

CPU milliseconds of a forward and a backward pass over 32 channels of a square grid, for scales of half
a cell and of two cells, both ways in one run; the shortest of several. `MAX_MATRIX` in
`transforms/diffusion.py` is chosen by it.
"""

import time

import torch
import tyro

from gpo.transforms import diffusion
from gpo.transforms.diffusion import AxisDiffusion, Flux
from gpo.transforms.smoothing import BoxSmoothing, smoothed


def milliseconds(count: int, cells: float, longest: int, repeats: int) -> float:
    """Returns the CPU time of a pass where axes up to `longest` are one matrix."""
    diffusion.MAX_MATRIX = longest
    nodes = torch.arange(count, dtype=torch.double) / count
    axes = [AxisDiffusion(Flux.along(nodes, is_periodic=True), 1 / count) for _ in range(2)]
    smoothing = BoxSmoothing(tuple(axes))
    content = torch.randn(count**2, 1, 32, requires_grad=True)
    scales = torch.full((4, 2), cells / count, requires_grad=True)
    grad, seconds = torch.randn(count**2, 1, 32), []
    for _ in range(repeats):
        started = time.process_time()
        torch.autograd.grad(smoothed(content, smoothing, scales), (content, scales), grad)
        seconds.append(time.process_time() - started)
    return 1e3 * min(seconds[1:])


def main(counts: tuple[int, ...] = (96, 128, 192, 256, 384, 512, 768), repeats: int = 6) -> None:
    """Prints a table."""
    print("| nodes along an axis | scale, cells | one matrix, ms | windows, ms |")
    print("|---|---|---|---|")
    for count in counts:
        for cells in (0.5, 2.0):
            whole = milliseconds(count, cells, count, repeats)
            parts = milliseconds(count, cells, 0, repeats)
            print(f"| {count} | {cells} | {whole:.1f} | {parts:.1f} |")


if __name__ == "__main__":
    torch.set_num_threads(1)
    tyro.cli(main)
