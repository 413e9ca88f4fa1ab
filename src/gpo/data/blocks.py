"""A grid cut into blocks of equal shape: what is answered, written and remembered at a time."""

import itertools
from collections.abc import Sequence

Block = tuple[slice, ...]
"""A range along every axis."""


def block_shape(shape: Sequence[int], most: int) -> tuple[int, ...]:
    """Returns the shape of blocks of neighbours in grid order, at most so many sites each.

    Args:
        shape: Sites along every axis of the grid.
        most: Sites of a block, at most.
    """
    if most < 1:
        raise ValueError(f"`most` must be at least 1, got {most}.")
    block: list[int] = []
    for length in reversed(shape):
        block.insert(0, max(1, min(length, most)))
        most //= length
    return tuple(block)


def blocks(shape: Sequence[int], block: Sequence[int]) -> list[Block]:
    """Returns the blocks of a grid in its order; those at the ends may be smaller."""
    ranges = [
        [slice(start, min(start + size, length)) for start in range(0, length, size)]
        for length, size in zip(shape, block, strict=True)
    ]
    return list(itertools.product(*ranges))
