r"""Transolver of Wu et al. (2024): attention among learned slices of the domain.

Points are assigned softly to $S$ slices, $w=\mathrm{softmax}_s(\cdot/\tau)$; the mean of every
slice is a token, tokens attend to each other, and every point reads its slices back.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from gpo.model.problem import Problem, UnsupportedGeometryError
from gpo_bench.baselines.base import from_grid, to_grid
from gpo_bench.baselines.transformer import (
    AbstractTransformer,
    AbstractTransformerConfig,
    FeedForward,
)

CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
INITIAL_TEMPERATURE = 0.5
GRID_TEMPERATURES = (0.1, 5.0)
"""On grids the temperature is kept within these; on scattered points it is free."""
MASS_FLOOR = 1e-5
"""Added to the mass of a slice: no point need be assigned to it."""


@dataclass(frozen=True, kw_only=True)
class TransolverConfig(AbstractTransformerConfig):
    """Sizes of a `Transolver`.

    The defaults have the 3,069,889 parameters of the paper's table on a 2-D grid, and
    972,737 on scattered points.
    """

    num_slices: int = 32
    """Slices per head."""


class Transolver(AbstractTransformer):
    """Maps fields on grids, with convolutions, or on any points, with linear projections.

    The authors give slices an orthogonal start, which their next line overwrites; it is left out.

    Args:
        problem: The data it is built for; `grid_shape` decides the projections.
        config: Its sizes.
    """

    def __init__(self, problem: Problem, config: TransolverConfig = TransolverConfig()) -> None:
        if len(problem.grid_shape) > max(CONVOLUTIONS):
            raise UnsupportedGeometryError("needs a grid of at most 3 axes")
        super().__init__(problem, config, lambda: TransolverBlock(config, problem.grid_shape))


class TransolverBlock(nn.Module):
    """Physics attention, then a perceptron, each on normalised tokens."""

    def __init__(self, config: TransolverConfig, grid_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.width)
        self.attention = PhysicsAttention(config.head_shape, config.num_slices, grid_shape)
        self.mlp = FeedForward(config.width, config.hidden)

    def forward(
        self, tokens: Float[Tensor, "batch points width"], is_counted: Bool[Tensor, "batch points"]
    ) -> Float[Tensor, "batch points width"]:
        """Returns the updated tokens."""
        tokens = tokens + self.attention(self.norm(tokens), is_counted)
        return tokens + self.mlp(tokens)


class PhysicsAttention(nn.Module):
    r"""Slices, lets slices attend, and de-slices.

    $t_s=\sum_n w_{ns}F_n/(\sum_n w_{ns}+\varepsilon)$, $t'=\mathrm{attention}(t)$,
    $O_n=\sum_s w_{ns}t'_s$, in every head.
    """

    def __init__(
        self, head_shape: tuple[int, int], num_slices: int, grid_shape: tuple[int, ...]
    ) -> None:
        super().__init__()
        num_heads, channels = head_shape
        width = num_heads * channels
        self.head_shape, self.grid_shape = head_shape, grid_shape
        # What slices are decided by, and what they hold: two projections, drawn as one.
        if grid_shape:
            convolution = CONVOLUTIONS[len(grid_shape)]
            self.project = convolution(width, 2 * width, kernel_size=3, padding=1)
        else:
            self.project = nn.Linear(width, 2 * width)
        self.temperature = nn.Parameter(torch.full((num_heads, 1), INITIAL_TEMPERATURE))
        # Shared by all heads, as are queries, keys and values.
        self.slices = nn.Linear(channels, num_slices)
        self.query_key_value = nn.Linear(channels, 3 * channels, bias=False)
        self.out = nn.Linear(width, width)

    def forward(
        self, tokens: Float[Tensor, "batch points width"], is_counted: Bool[Tensor, "batch points"]
    ) -> Float[Tensor, "batch points width"]:
        """Returns what every point reads from its slices."""
        projected = self._project(tokens, is_counted)
        deciding, held = projected.unflatten(-1, (2, *self.head_shape)).unbind(-3)
        slices = torch.softmax(self.slices(deciding) / self._temperature(), dim=-1)
        held = held * is_counted[..., None, None]
        mass = torch.einsum("bnhs,bn->bhs", slices, is_counted.to(slices.dtype))
        means = torch.einsum("bnhs,bnhd->bhsd", slices, held) / (mass.unsqueeze(-1) + MASS_FLOOR)
        query, key, value = self.query_key_value(means).chunk(3, dim=-1)
        coupled = scaled_dot_product_attention(query, key, value)
        return self.out(torch.einsum("bnhs,bhsd->bnhd", slices, coupled).flatten(-2))

    def _project(self, tokens: Tensor, is_counted: Tensor) -> Tensor:
        if not self.grid_shape:
            return self.project(tokens)
        # A masked site of the grid looks to its neighbours like the padding around the grid.
        tokens = tokens * is_counted.unsqueeze(-1)
        return from_grid(self.project(to_grid(tokens, self.grid_shape)))

    def _temperature(self) -> Tensor:
        return self.temperature.clamp(*GRID_TEMPERATURES) if self.grid_shape else self.temperature
