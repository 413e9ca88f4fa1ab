r"""Analysis and synthesis: from fields at sites to modes, and back.

Sites come first in all arrays here, then samples, then channels: products with matrices that
all samples share then need no copies. Real and imaginary parts are an axis of length two.
`fit.py` makes the matrices.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gpo.transforms.waves import Waves


class AbstractTransform(ABC):
    """Analysis and synthesis with test functions at some points."""

    @abstractmethod
    def analyse(self, field: Tensor) -> Tensor:
        """Returns the moments of a field at the points; they add up over sites."""

    @abstractmethod
    def synthesise(self, modes: Tensor) -> Tensor:
        """Evaluates the field of modes at the points."""


class AbstractWaveTransform(AbstractTransform):
    """Analysis and synthesis with waves, which do not depend on the field."""

    @abstractmethod
    def analyse(
        self, field: Float[Tensor, "points batch channels"]
    ) -> Float[Tensor, "*moments batch channels"]:
        """Returns the moments of a field, which add up over sites."""

    def tokens(
        self, moments: Float[Tensor, "*moments batch channels"]
    ) -> Float[Tensor, "2 modes batch channels"]:
        """Returns the tokens of a field from its moments over all sites."""
        return moments

    @abstractmethod
    def synthesise(
        self, modes: Float[Tensor, "2 modes batch channels"]
    ) -> Float[Tensor, "points batch channels"]:
        """Returns the field of tokens."""

    @abstractmethod
    def split(self, size: int) -> Sequence[tuple[slice, "AbstractWaveTransform"]]:
        """Returns chunks of about `size` sites, whose moments add up."""


@dataclass(frozen=True)
class AbstractGridTransform(AbstractWaveTransform):
    """Waves on a tensor grid, which factor into waves along its axes."""

    shape: tuple[int, ...]
    order: Int[Tensor, " points"] | None
    """Site at every node of the grid; None where they are in the grid's order."""
    syntheses: tuple[Tensor, ...]
    """One matrix per axis: complex numbers in and, but for the last axis, complex numbers out."""

    def synthesise(
        self, modes: Float[Tensor, "2 modes batch channels"]
    ) -> Float[Tensor, "points batch channels"]:
        """Returns the field of tokens, first axis first."""
        part = modes
        for axis, synthesis in enumerate(self.syntheses):
            part = synthesis @ part.reshape(*self.shape[:axis], synthesis.shape[1], -1)
        field = part.reshape(-1, *modes.shape[2:])
        if self.order is None:
            return field
        return torch.empty_like(field).index_copy(0, self.order, field)

    def split(self, size: int) -> Sequence[tuple[slice, AbstractWaveTransform]]:
        """Returns chunks of whole lines across the first axis, where sites are in the grid's order."""
        count, per_line = self.shape[0], math.prod(self.shape[1:])
        num_lines = max(1, size // per_line)
        if self.order is not None or num_lines >= count:
            return [(slice(0, count * per_line), self)]
        return [
            (slice(start * per_line, stop * per_line), self.lines(start, stop))
            for start, stop in _steps(count, num_lines)
        ]

    @abstractmethod
    def lines(self, start: int, stop: int) -> "AbstractGridTransform":
        """Returns some of the lines across the first axis."""

    def _synthesis_of_lines(self, start: int, stop: int) -> tuple[Tensor, ...]:
        rows = 1 if len(self.shape) == 1 else 2
        return self.syntheses[0][rows * start : rows * stop], *self.syntheses[1:]


@dataclass(frozen=True)
class GridTransform(AbstractGridTransform):
    """Waves on a tensor grid whose weights factor too."""

    analyses: tuple[Tensor, ...]
    """One matrix per axis: complex numbers in, but for the last axis, and complex numbers out."""

    def analyse(
        self, field: Float[Tensor, "points batch channels"]
    ) -> Float[Tensor, "2 modes batch channels"]:
        """Returns the tokens of a field, last axis first."""
        if self.order is not None:
            field = field[self.order]
        part = self.analyses[-1] @ field.reshape(*self.shape, -1)
        for axis in range(len(self.shape) - 2, -1, -1):
            lines = part.reshape(*self.shape[:axis], 2 * self.shape[axis], -1)
            part = self.analyses[axis] @ lines
        return part.reshape(2, -1, *field.shape[1:])

    def lines(self, start: int, stop: int) -> "GridTransform":
        """Returns some of the lines across the first axis."""
        columns = 1 if len(self.shape) == 1 else 2
        chosen = slice(columns * start, columns * stop)
        return replace(
            self, shape=(stop - start, *self.shape[1:]),
            syntheses=self._synthesis_of_lines(start, stop),
            analyses=(self.analyses[0][:, chosen].contiguous(), *self.analyses[1:]),
        )  # fmt: skip


@dataclass(frozen=True)
class MaskedGridTransform(AbstractGridTransform):
    """Waves on a tensor grid whose weights do not factor, because some of its nodes are masked."""

    functions: tuple[Tensor, ...]
    """The orthonormal functions along every axis: one row per function, one column per node."""
    weights: Float[Tensor, " points"]
    """Of all sites, in the grid's order; zero where they are masked."""
    matrix: Float[Tensor, "rows functions"]
    """Maps moments to tokens."""
    nodes: Int[Tensor, " points"] | None = None
    """Node of every site, ascending, where only some nodes are sites; None where all are."""

    def analyse(
        self, field: Float[Tensor, "points batch channels"]
    ) -> Float[Tensor, "functions batch channels"]:
        """Returns the moments of a field, last axis first."""
        if self.order is not None:
            field = field[self.order]
        part = field * self.weights.view(-1, 1, 1)
        if self.nodes is not None:
            nothing = part.new_zeros(math.prod(self.shape), *part.shape[1:])
            part = nothing.index_copy(0, self.nodes, part)
        for axis in range(len(self.shape) - 1, -1, -1):
            lines = part.reshape(*self.shape[: axis + 1], -1)
            part = self.functions[axis] @ lines
        return part.reshape(-1, *field.shape[1:])

    def tokens(
        self, moments: Float[Tensor, "functions batch channels"]
    ) -> Float[Tensor, "2 modes batch channels"]:
        """Returns the least-squares tokens of a field over the active nodes."""
        found = self.matrix @ moments.flatten(1)
        return found.view(2, -1, *moments.shape[1:])

    def synthesise(
        self, modes: Float[Tensor, "2 modes batch channels"]
    ) -> Float[Tensor, "points batch channels"]:
        """Returns the field of tokens, first axis first."""
        field = super().synthesise(modes)
        return field if self.nodes is None else field.index_select(0, self.nodes)

    def at_nodes(self, nodes: Int[Tensor, " points"]) -> "MaskedGridTransform":
        """Returns the transform on a subset of the nodes, in the order of the grid."""
        return replace(self, weights=self.weights[nodes], nodes=nodes)

    def split(self, size: int) -> Sequence[tuple[slice, AbstractWaveTransform]]:
        """Returns chunks of whole grid lines, without those that hold no site."""
        if self.nodes is None:
            return super().split(size)
        count = self.shape[0]
        num_lines = max(1, int(size / len(self.nodes) * count))
        if num_lines >= count:
            return [(slice(0, len(self.nodes)), self)]
        parts = [
            (self._sites_of_lines(*step), self.lines(*step)) for step in _steps(count, num_lines)
        ]
        return [(points, part) for points, part in parts if points.stop > points.start]

    def lines(self, start: int, stop: int) -> "MaskedGridTransform":
        """Returns some of the lines across the first axis."""
        points, nodes = self._sites_of_lines(start, stop), self.nodes
        if nodes is not None:
            nodes = nodes[points] - start * math.prod(self.shape[1:])
        return replace(
            self, shape=(stop - start, *self.shape[1:]),
            syntheses=self._synthesis_of_lines(start, stop),
            functions=(self.functions[0][:, start:stop].contiguous(), *self.functions[1:]),
            weights=self.weights[points], nodes=nodes,
        )  # fmt: skip

    def _sites_of_lines(self, start: int, stop: int) -> slice:
        per_line = math.prod(self.shape[1:])
        ends = start * per_line, stop * per_line
        if self.nodes is None:
            return slice(*ends)
        found = torch.searchsorted(self.nodes, torch.tensor(ends, device=self.nodes.device))
        return slice(*found.tolist())


@dataclass(frozen=True)
class PointTransform(AbstractWaveTransform):
    """Waves on any points, shared by the batch or one set per sample."""

    analysis: Float[Tensor, "sets rows points"]
    synthesis: Float[Tensor, "sets points rows"]

    def analyse(
        self, field: Float[Tensor, "points batch channels"]
    ) -> Float[Tensor, "2 modes batch channels"]:
        """Returns the tokens of a field."""
        return _by_set(self.analysis, field).unflatten(0, (2, -1))

    def synthesise(
        self, modes: Float[Tensor, "2 modes batch channels"]
    ) -> Float[Tensor, "points batch channels"]:
        """Returns the field of tokens."""
        return _by_set(self.synthesis, modes.flatten(0, 1))

    def split(self, size: int) -> Sequence[tuple[slice, AbstractWaveTransform]]:
        """Returns chunks of sites."""
        count = self.synthesis.shape[1]
        if size >= count:
            return [(slice(0, count), self)]
        return [
            (points, PointTransform(self.analysis[..., points], self.synthesis[:, points]))
            for points in (slice(*step) for step in _steps(count, size))
        ]


@dataclass(frozen=True)
class StreamedTransform(AbstractWaveTransform):
    """Waves on so many points that they are computed whenever they are needed, not stored."""

    waves: Waves
    positions: Float[Tensor, "sets points axes"]
    weights: Float[Tensor, "sets points"]
    matrix: Float[Tensor, "sets rows functions"]
    """Maps moments to tokens."""

    def analyse(
        self, field: Float[Tensor, "points batch channels"]
    ) -> Float[Tensor, "functions batch channels"]:
        """Returns the moments of a field."""
        tested = functions_at(self.waves, self.positions) * self.weights.unsqueeze(-1)
        return _by_set(tested.mT, field)

    def tokens(
        self, moments: Float[Tensor, "functions batch channels"]
    ) -> Float[Tensor, "2 modes batch channels"]:
        """Returns the least-squares tokens of a field."""
        return _by_set(self.matrix, moments).unflatten(0, (2, -1))

    def synthesise(
        self, modes: Float[Tensor, "2 modes batch channels"]
    ) -> Float[Tensor, "points batch channels"]:
        """Returns the field of tokens."""
        return _by_set(waves_at(self.waves, self.positions), modes.flatten(0, 1))

    def split(self, size: int) -> Sequence[tuple[slice, AbstractWaveTransform]]:
        """Returns chunks of sites."""
        steps = (slice(*step) for step in _steps(self.positions.shape[1], size))
        return [
            (
                points,
                replace(self, positions=self.positions[:, points], weights=self.weights[:, points]),
            )
            for points in steps
        ]


def functions_at(
    waves: Waves, positions: Float[Tensor, "*sets points axes"]
) -> Float[Tensor, "*sets points functions"]:
    """Evaluates the orthonormal functions, products of those along the axes."""
    functions = torch.ones_like(positions[..., :1])
    for axis, basis in enumerate(waves.bases):
        along = basis.at(positions[..., axis])
        functions = (functions.unsqueeze(-1) * along.unsqueeze(-2)).flatten(-2)
    return functions


def waves_at(
    waves: Waves, positions: Float[Tensor, "*sets points axes"]
) -> Float[Tensor, "*sets points rows"]:
    """Evaluates the waves of the synthesis, real parts before imaginary ones."""
    real, imaginary = torch.ones_like(positions[..., :1]), torch.zeros_like(positions[..., :1])
    for axis, (numbers, period) in enumerate(zip(waves.numbers, waves.periods, strict=True)):
        phase = (2 * math.pi / period) * positions[..., axis, None] * numbers.to(positions)
        cosine, sine = phase.cos().unsqueeze(-2), phase.sin().unsqueeze(-2)
        real, imaginary = real.unsqueeze(-1), imaginary.unsqueeze(-1)
        real, imaginary = (
            (real * cosine - imaginary * sine).flatten(-2),
            (real * sine + imaginary * cosine).flatten(-2),
        )
    counts = waves.multiplicities.to(positions)
    return torch.cat([counts * real, -counts * imaginary], dim=-1)


def _steps(count: int, size: int) -> list[tuple[int, int]]:
    """Returns beginnings and ends of equal portions that are at most `size` long."""
    num_parts = -(-count // size)
    return [
        (count * part // num_parts, count * (part + 1) // num_parts) for part in range(num_parts)
    ]


def _by_set(matrix: Tensor, field: Tensor) -> Tensor:
    if len(matrix) == 1:
        return (matrix[0] @ field.flatten(1)).unflatten(1, field.shape[1:])
    return (matrix @ field.transpose(0, 1)).transpose(0, 1)
