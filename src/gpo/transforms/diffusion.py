r"""Diffusion along the axis of a lattice, $e^{vL/2}$: the Gaussian of variance $v$ on nodes.

$L$ is the second difference, as fluxes between cells:
$(Lc)_j=(\kappa_{j+1/2}(c_{j+1}-c_j)-\kappa_{j-1/2}(c_j-c_{j-1}))/V_j$. On evenly spaced nodes the
rows of $e^{vL/2}$ are the discrete Gaussian kernel, whose variance is $v$ exactly. They are
positive, and they keep constants and linear fields; at an open end a field is continued linearly,
so that $L=0$ there.

With the eigenvectors of $L$, found once per lattice, $e^{vL/2}=1+U(e^{v\Lambda/2}-1)W$ for every
variance, and exactly the identity at $v=0$. A long axis is divided into windows that overlap by a
few standard deviations, so that the cost is linear in the number of nodes.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

WINDOW = 64
"""Nodes of a long axis that one matrix computes."""

MAX_MATRIX = 128
"""Longest axis that is one window (`benchmarks/smoothing.py`)."""

PORTION = {"cpu": 2**19, "other": 2**22}
"""Numbers that are smoothed together: what the cache of a processor holds, and elsewhere."""

HALO_SCALES, HALO_NODES = 7.0, 8
"""Standard deviations, and nodes beyond them, that a window overlaps the next by: what is left out
of a Gaussian there is below 1e-11."""


@dataclass(frozen=True)
class Flux:
    """The fluxes between the nodes of an axis, which define $L$."""

    conductance: Float[Tensor, "*sets nodes_and_one"]
    r"""$\kappa$ of the face before every node, and of that after the last one."""
    volume: Float[Tensor, "*sets nodes"]
    """Of the cell around every node."""
    is_periodic: bool = False
    ends: tuple[bool, bool] = (True, True)
    """Whether fields are continued linearly beyond the first and the last node, where $L=0$."""

    @classmethod
    def along(cls, nodes: Float[Tensor, " nodes"], *, is_periodic: bool) -> "Flux":
        """Returns those of an axis of length one, evenly spaced or not."""
        line = torch.cat([nodes[:1] - 1, nodes, nodes[-1:] + 1])
        if is_periodic:
            line[0], line[-1] = nodes[-1] - 1, nodes[0] + 1
        gaps = line.diff()
        return cls(
            1 / gaps, (gaps[1:] + gaps[:-1]) / 2, is_periodic, (not is_periodic, not is_periodic)
        )

    def part(self, index: Int[Tensor, "windows inputs"]) -> "Flux":
        """Returns those of windows of consecutive nodes, at whose ends fields are continued linearly."""
        after = self.conductance[1:][index]
        before = self.conductance[index[:, :1]]
        return Flux(torch.cat([before, after], 1), self.volume[index])

    def matrix(self) -> Float[Tensor, "*sets nodes nodes"]:
        """Returns $VL$, with the fluxes across the ends where fields are continued linearly."""
        before, after = self.conductance[..., :-1], self.conductance[..., 1:]
        flux = -torch.diag_embed(before + after)
        flux = flux + torch.diag_embed(after[..., :-1], 1) + torch.diag_embed(after[..., :-1], -1)
        if self.is_periodic:
            corner = torch.zeros_like(flux)
            corner[..., 0, -1] = before[..., 0]
            flux = flux + corner + corner.mT
        return flux


@dataclass(frozen=True)
class Diffusion:
    r"""The matrices $e^{vL/2}$ for any variance, restricted to some rows."""

    identity: Float[Tensor, "*sets rows nodes"]
    left: Float[Tensor, "*sets rows modes"]
    """Eigenvectors of $L$."""
    rates: Float[Tensor, "*sets modes"]
    """Eigenvalues of $L$, none of them positive."""
    right: Float[Tensor, "*sets modes nodes"]
    """Coefficients of a field."""

    @classmethod
    def of(cls, flux: Flux, decay: Float[Tensor, "*sets nodes"] | None = None) -> "Diffusion":
        """Finds the eigenvectors.

        Args:
            flux: Between the nodes.
            decay: Subtracted from $L$ at every node.
        """
        matrix, volume = flux.matrix(), flux.volume
        if decay is not None:
            matrix = matrix - torch.diag_embed(decay * volume)
        count = matrix.shape[-1]
        first, last = int(flux.ends[0]), max(count - int(flux.ends[1]), int(flux.ends[0]))
        root = volume[..., first:last].sqrt()
        symmetric = matrix[..., first:last, first:last]
        symmetric = symmetric / (root.unsqueeze(-1) * root.unsqueeze(-2))
        rates, vectors = torch.linalg.eigh(symmetric)
        rates = rates.clamp_max(0)
        left = matrix.new_zeros(*matrix.shape[:-1], last - first)
        left[..., first:last, :] = vectors / root.unsqueeze(-1)
        right = matrix.new_zeros(*matrix.shape[:-2], last - first, count)
        right[..., first:last] = vectors.mT * root.unsqueeze(-2)
        # The ends are constant; e^{vA/2}(u+A^{-1}Bu_0)-A^{-1}Bu_0 solves u'=(Au+Bu_0)/2.
        for is_end, node in zip(flux.ends, (0, count - 1), strict=True):
            if is_end and last > first:
                source = vectors.mT @ (matrix[..., first:last, node] / root).unsqueeze(-1)
                right[..., node] = source.squeeze(-1) / rates
        identity = torch.eye(count).to(matrix).expand_as(matrix)
        return cls(identity, left, rates, right)

    def rows(self, index: Int[Tensor, "sets rows"]) -> "Diffusion":
        """Returns some rows of every set."""

        def of(matrix: Tensor) -> Tensor:
            return matrix.gather(-2, index.unsqueeze(-1).expand(-1, -1, matrix.shape[-1]))

        return Diffusion(of(self.identity), of(self.left), self.rates, self.right)

    def change(
        self, variance: Float[Tensor, "*gaussians"]
    ) -> Float[Tensor, "*gaussians_and_sets rows nodes"]:
        r"""Returns $e^{vL/2}-1$ for every variance."""
        return self._function(variance, growth)

    def slope(
        self, variance: Float[Tensor, "*gaussians"]
    ) -> Float[Tensor, "*gaussians_and_sets rows nodes"]:
        r"""Returns the derivative of $e^{vL/2}$ by every variance."""
        return self._function(variance, growth_slope)

    def _function(self, variance: Tensor, function: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        values = function(variance.reshape(*variance.shape, *(1,) * self.rates.ndim), self.rates)
        return (self.left * values.unsqueeze(-2)) @ self.right


def growth(
    variance: Float[Tensor, "*#modes"], rates: Float[Tensor, "*#modes"]
) -> Float[Tensor, "*modes"]:
    r"""Returns $e^{v\lambda/2}-1$, by which modes change."""
    return torch.expm1(variance.to(rates) / 2 * rates)


def growth_slope(
    variance: Float[Tensor, "*#modes"], rates: Float[Tensor, "*#modes"]
) -> Float[Tensor, "*modes"]:
    """Returns the derivative of the same by the variance."""
    return rates / 2 * torch.exp(variance.to(rates) / 2 * rates)


@dataclass(frozen=True)
class Windows:
    """The parts of an axis that one matrix each computes."""

    halo: float
    """Nodes by which they overlap on either side at least."""
    index: Int[Tensor, "windows inputs"]
    """The nodes that each takes."""
    diffusion: Diffusion
    """Of every window, its own rows."""

    def matrices(
        self, variance: Float[Tensor, " gaussians"]
    ) -> Float[Tensor, "gaussians windows rows inputs"]:
        """Returns the matrices of every variance."""
        return self.diffusion.identity + self.diffusion.change(variance)

    def apply(
        self,
        matrices: Float[Tensor, "gaussians windows rows inputs"],
        lines: Float[Tensor, "gaussians before nodes after"],
    ) -> Float[Tensor, "gaussians before nodes after"]:
        """Returns the products along the axis."""
        windows, _, inputs = matrices.shape[1:]
        if _is_short(windows, inputs, lines.shape[-1]):
            return matrices @ lines
        return _in_portions(partial(self._apply, matrices), lines)

    def _apply(self, matrices: Tensor, lines: Tensor) -> Tensor:
        gaussians, before, nodes, after = lines.shape
        windows, rows, inputs = matrices.shape[1:]
        moved = lines.transpose(1, 2).contiguous().view(gaussians, nodes, before * after)
        if windows > 1:
            moved = moved.index_select(1, self.index.flatten())
        moved = moved.view(gaussians * windows, inputs, before * after)
        moved = torch.bmm(matrices.flatten(0, 1), moved)
        if windows > 1:
            moved = moved.view(gaussians, windows * rows, before * after)[:, :nodes]
        return moved.reshape(gaussians, nodes, before, after).transpose(1, 2)

    def apply_transposed(
        self,
        matrices: Float[Tensor, "gaussians windows rows inputs"],
        lines: Float[Tensor, "gaussians before nodes after"],
    ) -> Float[Tensor, "gaussians before nodes after"]:
        """Returns the products with the transposed matrices."""
        windows, _, inputs = matrices.shape[1:]
        if _is_short(windows, inputs, lines.shape[-1]):
            return matrices.mT @ lines
        return _in_portions(partial(self._apply_transposed, matrices), lines)

    def _apply_transposed(self, matrices: Tensor, lines: Tensor) -> Tensor:
        gaussians, before, nodes, after = lines.shape
        windows, rows, inputs = matrices.shape[1:]
        moved = lines.transpose(1, 2).reshape(gaussians, nodes, -1)
        padded = moved.new_zeros(gaussians, windows * rows - nodes, moved.shape[-1])
        moved = torch.cat([moved, padded], 1).view(gaussians * windows, rows, -1)
        moved = torch.bmm(matrices.flatten(0, 1).mT, moved).view(gaussians, windows * inputs, -1)
        if windows > 1:
            whole = moved.new_zeros(gaussians, nodes, moved.shape[-1])
            moved = whole.index_add_(1, self.index.flatten(), moved)
        return moved.view(gaussians, nodes, before, after).transpose(1, 2)


def _is_short(windows: int, inputs: int, after: int) -> bool:
    """Returns whether lines are multiplied where they lie: one matrix, smaller than what it meets."""
    # A graph must hold for batches of any size.
    return not torch.compiler.is_compiling() and windows == 1 and inputs <= 2 * after


def portion_size(device: torch.device) -> int:
    """Returns how many numbers are smoothed together."""
    return PORTION.get(device.type, PORTION["other"])


def _portions(lines: Float[Tensor, "gaussians before nodes after"]) -> list[tuple[slice, ...]]:
    """Returns parts of a field that are worked on one after the other; a graph has one."""
    gaussians, before, nodes, after = lines.shape
    most = portion_size(lines.device)
    if torch.compiler.is_compiling() or lines.numel() <= most:
        return [()]
    all_of, count = slice(None), max(1, most // (gaussians * nodes))
    if before == 1:
        return [(all_of, all_of, all_of, slice(n, n + count)) for n in range(0, after, count)]
    count = max(1, count // after)
    return [(all_of, slice(n, n + count)) for n in range(0, before, count)]


def _in_portions(function: Callable[[Tensor], Tensor], lines: Tensor) -> Tensor:
    """Returns what a function makes of a field, computed portion by portion."""
    parts = _portions(lines)
    if len(parts) == 1:
        return function(lines)
    result = torch.empty_like(lines)
    for part in parts:
        result[part] = function(lines[part])
    return result


@dataclass(frozen=True)
class AxisDiffusion:
    """Diffusion along one axis of a lattice."""

    flux: Flux
    gap: float
    """Mean distance of neighbouring nodes."""
    found: list[Windows] = field(default_factory=list, repr=False, compare=False)
    """The windows that were used last."""

    @cached_property
    def count(self) -> int:
        """Number of nodes."""
        return self.flux.volume.shape[-1]

    def halo(self, variance: Tensor) -> float:
        """Returns how many nodes beyond its window a kernel reaches."""
        widest = float(variance.detach().max().clamp_min(0).sqrt())
        return HALO_SCALES * widest / self.gap + HALO_NODES

    def apply(
        self,
        variance: Float[Tensor, " gaussians"],
        lines: Float[Tensor, "gaussians before nodes after"],
    ) -> Float[Tensor, "gaussians before nodes after"]:
        r"""Returns $e^{vL/2}c$ of every line."""
        windows = self.windows(variance)
        return windows.apply(windows.matrices(variance).to(lines.dtype), lines)

    def apply_transposed(
        self,
        variance: Float[Tensor, " gaussians"],
        lines: Float[Tensor, "gaussians before nodes after"],
    ) -> Float[Tensor, "gaussians before nodes after"]:
        """Returns the same with the transposed matrices."""
        windows = self.windows(variance)
        return windows.apply_transposed(windows.matrices(variance).to(lines.dtype), lines)

    def inner(
        self,
        left: Float[Tensor, "gaussians before nodes after"],
        right: Float[Tensor, "gaussians before nodes after"],
    ) -> Float[Tensor, " gaussians"]:
        r"""Returns $\langle a,Lb\rangle$ of two fields."""
        flux, last = self.flux, self.count - 1
        weights = 1 / flux.volume
        if flux.ends[0]:
            weights = weights.index_fill(0, torch.tensor([0]).to(weights.device), 0.0)
        if flux.ends[1]:
            weights = weights.index_fill(0, torch.tensor([last]).to(weights.device), 0.0)
        before, after = flux.conductance[:-1] * weights, flux.conductance[1:] * weights

        parts = [(left[part], right[part]) for part in _portions(left)]

        def products(first: slice, second: slice) -> Tensor:
            sums = [(one[:, :, first] * other[:, :, second]).sum((1, 3)) for one, other in parts]
            return sums[0] if len(sums) == 1 else torch.stack(sums).sum(0)

        everywhere, lower, upper = slice(None), slice(0, last), slice(1, None)
        total = -products(everywhere, everywhere) @ (before + after).to(left.dtype)
        total = total + products(upper, lower) @ before[1:].to(left.dtype)
        total = total + products(lower, upper) @ after[:-1].to(left.dtype)
        if flux.is_periodic:
            first, end = slice(0, 1), slice(last, None)
            total = total + products(first, end)[:, 0] * before[0].to(left.dtype)
            total = total + products(end, first)[:, 0] * after[-1].to(left.dtype)
        return total

    def windows(self, variance: Float[Tensor, " gaussians"]) -> Windows:
        """Returns windows that overlap by enough for some variances."""
        if torch.compiler.is_compiling():
            # A graph cannot depend on how wide kernels are: the last windows, or one.
            return self.found[0] if self.found else self._divided(math.inf)
        is_long = self.count > MAX_MATRIX
        halo = self.halo(variance) if is_long else math.inf
        if not self.found or self.found[0].halo < halo:
            # Scales change little between steps: windows are found anew when they have doubled.
            self.found[:] = [self._divided(1.5 * halo)]
        return self.found[0]

    def _divided(self, halo: float) -> Windows:
        """Returns windows that overlap by some nodes."""
        flux, count = self.flux, self.count
        if 2 * halo + WINDOW >= count:
            index = torch.arange(count, device=flux.volume.device).unsqueeze(0)
            diffusion = Diffusion.of(flux)
            return Windows(math.inf, index, _batched(diffusion))
        inputs = WINDOW + 2 * math.ceil(halo)
        begin = torch.arange(0, count, WINDOW, device=flux.volume.device)
        first = begin - math.ceil(halo)
        if not flux.is_periodic:
            first = first.clamp(0, count - inputs)
        along = torch.arange(inputs, device=begin.device)
        index = (first.unsqueeze(1) + along).remainder(count)
        # Rows beyond the last node are computed for nothing.
        rows = (begin - first).unsqueeze(1) + along[:WINDOW]
        diffusion = Diffusion.of(flux.part(index)).rows(rows.clamp_max(inputs - 1))
        return Windows(halo, index, diffusion)


def _batched(diffusion: Diffusion) -> Diffusion:
    """Returns the same as one set."""
    parts = (getattr(diffusion, name).unsqueeze(0) for name in Diffusion.__dataclass_fields__)
    return Diffusion(*parts)
