r"""Transolver of Wu et al. (2024): attention among learned slices of the domain.

Points are softly assigned to $S$ slices, $w=\mathrm{softmax}_s(\cdot/\tau)$. The mean of each slice
is a token; tokens attend to each other, and each point receives the tokens of its slices.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from gpo.model.problem import Problem
from gpo_bench.baselines.base import from_grid, to_grid
from gpo_bench.baselines.convolutions import CONVOLUTIONS
from gpo_bench.baselines.transformer import (
    AbstractTransformer,
    AbstractTransformerConfig,
    FeedForward,
)

INITIAL_TEMPERATURE = 0.5
GRID_TEMPERATURES = (0.1, 5.0)
"""Bounds of the temperature on grids; on unstructured points it is unbounded."""
MASS_FLOOR = 1e-5
"""Added to the mass of a slice to avoid division by zero."""


@dataclass(frozen=True, kw_only=True)
class TransolverConfig(AbstractTransformerConfig):
    """Architecture of a `Transolver`.

    With the defaults it has 3,069,889 parameters on a 2-D grid, as in the paper's table, and
    972,737 on unstructured points.
    """

    num_slices: int = 32
    """Number of slices per head."""


class Transolver(AbstractTransformer):
    """Maps fields on grids by convolutions, or on any points by linear projections.

    The orthogonal initialisation of slices in the authors' code is omitted, because their next line
    overwrites it.

    Args:
        problem: Channels and geometry; with a `grid_shape` the projections are convolutions.
        config: The architecture.
    """

    def __init__(self, problem: Problem, config: TransolverConfig = TransolverConfig()) -> None:
        super().__init__(problem, config, lambda: TransolverBlock(config, problem.grid_shape))


class TransolverBlock(nn.Module):
    """Pre-norm physics attention and perceptron."""

    def __init__(self, config: TransolverConfig, grid_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.width)
        self.attention = PhysicsAttention(config.head_shape, config.num_slices, grid_shape)
        self.mlp = FeedForward(config.width, config.hidden)

    def forward(
        self, tokens: Float[Tensor, "batch points width"], is_active: Bool[Tensor, "batch points"]
    ) -> Float[Tensor, "batch points width"]:
        """Returns the updated tokens."""
        tokens = tokens + self.attention(self.norm(tokens), is_active)
        return tokens + self.mlp(tokens)


class PhysicsAttention(nn.Module):
    r"""Attention among slices.

    In each head $t_s=\sum_n w_{ns}F_n/(\sum_n w_{ns}+\varepsilon)$, $t'=\mathrm{attention}(t)$ and
    $O_n=\sum_s w_{ns}t'_s$.
    """

    def __init__(
        self, head_shape: tuple[int, int], num_slices: int, grid_shape: tuple[int, ...]
    ) -> None:
        super().__init__()
        num_heads, channels = head_shape
        width = num_heads * channels
        self.head_shape, self.grid_shape = head_shape, grid_shape
        # One layer computes both projections: the slice assignment and the slice contents.
        if grid_shape:
            convolution = CONVOLUTIONS[len(grid_shape)]
            self.project = convolution(width, 2 * width, kernel_size=3, padding=1)
        else:
            self.project = nn.Linear(width, 2 * width)
        self.temperature = nn.Parameter(torch.full((num_heads, 1), INITIAL_TEMPERATURE))
        # All heads share the assignment to slices, and queries, keys and values.
        self.slices = nn.Linear(channels, num_slices)
        self.query_key_value = nn.Linear(channels, 3 * channels, bias=False)
        self.out = nn.Linear(width, width)

    def forward(
        self, tokens: Float[Tensor, "batch points width"], is_active: Bool[Tensor, "batch points"]
    ) -> Float[Tensor, "batch points width"]:
        """Returns the attention output at each point."""
        projected = self._project(tokens, is_active)
        assignment, content = projected.unflatten(-1, (2, *self.head_shape)).unbind(-3)
        slices = torch.softmax(self.slices(assignment) / self._temperature(), dim=-1)
        content = content * is_active[..., None, None]
        mass = torch.einsum("bnhs,bn->bhs", slices, is_active.to(slices.dtype))
        means = torch.einsum("bnhs,bnhd->bhsd", slices, content) / (mass.unsqueeze(-1) + MASS_FLOOR)
        query, key, value = self.query_key_value(means).chunk(3, dim=-1)
        coupled = scaled_dot_product_attention(query, key, value)
        return self.out(torch.einsum("bnhs,bhsd->bnhd", slices, coupled).flatten(-2))

    def _project(self, tokens: Tensor, is_active: Tensor) -> Tensor:
        if not self.grid_shape:
            return self.project(tokens)
        # Neighbours see a masked site as zero padding.
        tokens = tokens * is_active.unsqueeze(-1)
        return from_grid(self.project(to_grid(tokens, self.grid_shape)))

    def _temperature(self) -> Tensor:
        return self.temperature.clamp(*GRID_TEMPERATURES) if self.grid_shape else self.temperature
