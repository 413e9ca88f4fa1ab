"""Products of matrices with fields, and fields with some entries zero."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor


def add_product(
    base: Float[Tensor, "points batch out"],
    field: Float[Tensor, "points batch channels"],
    matrix: Float[Tensor, "channels out"],
) -> Float[Tensor, "points batch out"]:
    """Returns `base + field @ matrix` in one pass over memory."""
    return torch.addmm(base.flatten(0, 1), field.flatten(0, 1), matrix).view_as(base)


def without(tensor: Tensor, numbers: Sequence[int], dim: int) -> Tensor:
    """Returns a tensor with some entries along an axis zero."""
    if not numbers:
        return tensor
    return tensor.index_fill(dim, torch.tensor(list(numbers), device=tensor.device), 0.0)
