"""Cells beyond the ends of a box: copies from the other end, or of the last cell inside."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor


def pad_ends(
    fields: Sequence[Float[Tensor, " batch *grid"]], axis: int, wraps: bool
) -> Float[Tensor, "channels cells *rest"]:
    """Returns fields with one axis of the grid moved to the front and two cells more at its ends.

    Args:
        fields: One or more fields.
        axis: Which axis of the grid.
        wraps: Whether the axis closes on itself; else the last cell is repeated.
    """
    moved = [field.movedim(1 + axis, 0) for field in fields]
    cells, *rest = moved[0].shape
    padded = moved[0].new_empty(len(moved), cells + 4, *rest)
    for row, field in enumerate(moved):
        padded[row, 2:-2] = field
    padded[:, :2] = padded[:, -4:-2] if wraps else padded[:, 2:3]
    padded[:, -2:] = padded[:, 2:4] if wraps else padded[:, -3:-2]
    return padded


def surround(
    fields: Float[Tensor, "channels batch *grid"], periodic: Sequence[bool]
) -> Float[Tensor, "channels batch *larger"]:
    """Returns fields with one cell more on every side, corners too."""
    for dim, wraps in enumerate(periodic, start=2):
        first, last = fields.narrow(dim, 0, 1), fields.narrow(dim, fields.shape[dim] - 1, 1)
        ends = (last, first) if wraps else (first, last)
        fields = torch.cat([ends[0], fields, ends[1]], dim)
    return fields
