"""Lines of sites that share one coordinate."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

RESOLUTION = 1e-5
"""Neighbouring positions that differ less than this lie on the same line of a grid."""


def ascending_lines(
    along: Float[Tensor, " points"],
) -> tuple[Int[Tensor, " points"], Float[Tensor, " lines"]]:
    """Returns the line number of every position along an axis, and the positions of the lines."""
    ordered, order = along.sort()
    starts = torch.cat([ordered.new_zeros(1), ordered.diff() > RESOLUTION])
    lines = torch.empty_like(order).index_copy(0, order, starts.cumsum(0).long())
    sums = along.new_zeros(int(lines.max()) + 1).index_add(0, lines, along)
    return lines, sums / torch.bincount(lines)


def lines_in_order(along: Float[Tensor, " points"]) -> Int[Tensor, " points"]:
    """Returns the line number of every position along an axis, in the order of first appearance.

    Latitudes from north to south and longitudes from 0 to 360 degrees are in order then too.
    """
    lines, coords = ascending_lines(along)
    first = torch.full_like(lines[: len(coords)], len(lines))
    first.scatter_reduce_(0, lines, torch.arange(len(lines), device=lines.device), "amin")
    return first.argsort().argsort()[lines]
