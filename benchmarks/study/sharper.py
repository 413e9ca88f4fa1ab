"""Sharper looks than through the hat of the lattice, on grids whose axes close on themselves.

    python benchmarks/study/sharper.py KIND train ns2d --preset quick --coarsen 2 --noise 0 \
        --learning-rate 6e-3 --budget-cpu 60 --epochs 100000 --patience 100000 --out runs/KIND
    python benchmarks/study/sharper.py KIND rollouts RUN

KIND `cubic` blends four nodes along every axis in place of two; `finer-4`, `finer-6` and
`finer-all` interpolate content to the middle of every cell first, between four nodes, six or all of
them (by Fourier series), and look through the hat of the finer lattice. Scores are those on
validation data.
"""

import math
import runpy
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from gpo.cli import main
from gpo.transforms.lattice import Lattice, LatticePoints, Tap

MIDWAY = {"finer-4": (9, -1), "finer-6": (150, -25, 3)}
"""Weights of the nodes on one side of the middle of a cell, nearest first; their sum is a half."""


@cache
def finer(kind: str, count: int) -> Tensor:
    """Returns the matrix from the content of nodes to that of nodes and middles, in turn."""
    matrix, node = torch.zeros(2 * count, count, dtype=torch.double), torch.arange(count)
    matrix[2 * node, node] = 1
    if kind == "finer-all":
        distance = (node[:, None] - node.double() + 0.5) * math.pi / count
        # The periodic sinc: what is one at its node and zero at all others.
        beside = distance.sin() if count % 2 else distance.tan()
        matrix[1::2] = torch.sin(count * distance) / beside / count
        return matrix
    weights = MIDWAY[kind]
    for step, weight in enumerate(weights):
        for side in (node - step, node + 1 + step):
            matrix[2 * node + 1, side % count] += weight / (2 * sum(weights))
    return matrix


def lay_finer(self: Lattice, content: Tensor) -> Tensor:
    """Returns the content of all nodes of the finer lattice."""
    shape = content.shape[1:]
    for number, axis in enumerate(self.axes):
        inner = math.prod(other.count for other in self.axes[number + 1 :])
        lines = content.reshape(-1, axis.count, inner * math.prod(shape))
        content = finer(KIND, axis.count).to(lines) @ lines
    return content.reshape(-1, *shape)


def sharper_taps(
    self: LatticePoints, number: int, offsets: tuple[Tensor, ...], is_across: Tensor | None
) -> Iterator[Tap]:
    """Yields nodes and weights over the axes from one on."""
    if number == len(offsets):
        yield 0, None
        return
    axis, per_cell = self.lattice.axes[number], 1 if KIND == "cubic" else 2
    assert axis.is_closed
    assert axis.spacing is not None
    stride = math.prod(per_cell * other.count for other in self.lattice.axes[number + 1 :])
    moved = per_cell * (self.fractions[number] + offsets[number] / axis.spacing)
    steps = moved.detach().floor()
    lower, t = per_cell * self.cells[number] + steps.to(torch.int32), moved - steps
    shares = (1 - t, t)
    if KIND == "cubic":
        lower = lower - 1
        before, after, beyond = t + 1, t - 1, t - 2
        shares = (
            -t * after * beyond / 6, before * after * beyond / 2,
            -before * t * beyond / 2, before * t * after / 6,
        )  # fmt: skip
    others = list(self._taps(number + 1, offsets, None))
    for step, share in enumerate(shares):
        node = (lower + step).remainder(per_cell * axis.count)
        for other, weight in others:
            yield node * stride + other, share if weight is None else share * weight


if __name__ == "__main__":
    KIND = sys.argv[1]
    if KIND != "cubic":
        Lattice.lay = lay_finer
    LatticePoints._taps = sharper_taps
    torch.set_num_threads(1)
    if sys.argv[2] == "rollouts":
        sys.argv = sys.argv[2:]
        runpy.run_path(str(Path(__file__).with_name("rollouts.py")), run_name="__main__")
    else:
        main(sys.argv[2:])
