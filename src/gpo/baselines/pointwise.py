"""Maps that see one site at a time."""

from itertools import pairwise

from jaxtyping import Float
from torch import Tensor, nn


class PointwiseLinear(nn.Conv1d):
    """A linear map of channels that come first: a convolution of size one."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels, kernel_size=1)

    def forward(
        self, input: Float[Tensor, "batch in_channels *grid"]
    ) -> Float[Tensor, "batch out_channels *grid"]:
        """Returns the mapped field on the same grid."""
        return super().forward(input.flatten(2)).unflatten(2, input.shape[2:])


class Perceptron(nn.Sequential):
    """Linear maps of the last axis with GELU between them; `widths` goes from input to output."""

    def __init__(self, *widths: int) -> None:
        first, *rest = (nn.Linear(*pair) for pair in pairwise(widths))
        super().__init__(first, *(part for layer in rest for part in (nn.GELU(), layer)))
