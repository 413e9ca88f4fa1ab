r"""Gaussian smoothing on a sphere, isotropic in its tangent planes: $c\leftarrow e^{v\Delta/2}c$.

$\Delta=\cos^{-1}\varphi\,\partial_\varphi\cos\varphi\,\partial_\varphi+\cos^{-2}\varphi\,\partial_\lambda^2$,
so that a scale is the same in kilometres at every latitude. In Fourier modes along circles of latitude
this is a matrix for every wave number. Around the poles these matrices are used as they are, and a pole
is an ordinary point. Elsewhere both parts act one after the other, which differs by a factor of
$(\sigma/R)^2\tan^2\varphi$: a product per row, then one matrix along meridians for all wave numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gpo.transforms.diffusion import (
    MAX_MATRIX,
    AxisDiffusion,
    Diffusion,
    Flux,
    Windows,
    growth,
    growth_slope,
    portion_size,
)
from gpo.transforms.smoothing import AbstractSmoothing, Field

MAX_COUPLED = 96
"""Rows of a globe up to which all of them are smoothed by a matrix for every wave number."""

CAP_ROWS = 48
"""Rows around a pole that are smoothed so on larger globes."""

Layer = Float[Tensor, "rows columns fields"]


@dataclass(frozen=True)
class Circles:
    """Diffusion along circles of latitude, by its eigenvectors."""

    rates: Float[Tensor, " modes"]
    """Eigenvalues of the second derivative by longitude."""
    left: Float[Tensor, "columns modes"] | None
    """Eigenvectors; None where they are those of a fast Fourier transform."""
    right: Float[Tensor, "modes columns"] | None
    group: Int[Tensor, " modes"]
    """Which of `wave_rates` every mode has."""
    wave_rates: Float[Tensor, " waves"]
    """The different rates."""
    count: int
    """Number of columns."""

    @classmethod
    def of(cls, nodes: Float[Tensor, " columns"], width: float, *, is_round: bool) -> "Circles":
        """Returns those through nodes along an axis of length one.

        Args:
            nodes: Ascending.
            width: Of the axis, in radians.
            is_round: Whether it is a whole circle.
        """
        count, spacing = len(nodes), 1 / len(nodes)
        is_even = float((nodes.diff() - spacing).abs().max()) < 1e-4 * spacing
        if is_round and is_even and count > MAX_MATRIX:
            waves = torch.arange(count // 2 + 1).to(nodes)
            rates = -(((2 * count / width) * torch.sin(torch.pi * waves / count)) ** 2)
            group = torch.arange(len(waves), device=nodes.device)
            return cls(rates, None, None, group, rates, count)
        found = Diffusion.of(Flux.along(nodes, is_periodic=is_round))
        rates = found.rates / width**2
        # A constant has no rate at all: near a pole rounding would be multiplied.
        rates = torch.where(rates < -1e-9 * rates.abs().max(), rates, 0.0)
        # Eigenvalues come in ascending order, and in pairs.
        is_new = rates.diff().abs() > 1e-9 * rates.abs().max()
        group = torch.cat([rates.new_zeros(1), is_new]).cumsum(0).long()
        wave_rates = rates.new_zeros(int(group[-1]) + 1).index_copy(0, group, rates)
        return cls(rates, found.left, found.right, group, wave_rates, count)

    def modes(self, layer: Layer) -> Float[Tensor, "rows modes *fields"]:
        """Returns the coefficients of all modes."""
        if self.right is None:
            return torch.view_as_real(torch.fft.rfft(layer, dim=1))
        return self.right.to(layer.dtype) @ layer

    def field(self, modes: Float[Tensor, "rows modes *fields"]) -> Layer:
        """Returns the field of modes."""
        if self.left is None:
            return torch.fft.irfft(torch.view_as_complex(modes), n=self.count, dim=1)
        return self.left.to(modes.dtype) @ modes

    def modes_of_gradient(self, grad: Layer) -> Float[Tensor, "rows modes *fields"]:
        """Returns the gradient of the modes that `field` takes."""
        if self.left is None:
            return self.modes(grad) * (self._shares(grad) / self.count)
        return self.left.mT.to(grad.dtype) @ grad

    def gradient_of_field(self, grad: Float[Tensor, "rows modes *fields"]) -> Layer:
        """Returns the gradient of the field that `modes` takes."""
        if self.right is None:
            return self.field(grad / self._shares(grad) * self.count)
        return self.right.mT.to(grad.dtype) @ grad

    def _shares(self, like: Tensor) -> Float[Tensor, "modes 1 1"]:
        """Returns how often every mode of a Fourier transform counts: two for a pair of waves."""
        shares = torch.full((len(self.group), 1, 1), 2.0).to(like)
        shares[0] = 1
        if self.count % 2 == 0:
            shares[-1] = 1
        return shares


@dataclass(frozen=True)
class Cap:
    """Rows around a pole, where every wave number has a matrix of its own."""

    rows: slice
    """Those that are computed."""
    inputs: slice
    """Those that they take."""
    halo: float
    left: Float[Tensor, "waves rows eigenvectors"]
    rates: Float[Tensor, "waves eigenvectors"]
    right: Float[Tensor, "waves eigenvectors inputs"]

    def change(
        self, variance: Float[Tensor, ""], layer: Layer, circles: Circles
    ) -> Float[Tensor, "own columns fields"]:
        """Returns how the rows of a field change by smoothing."""
        modes = circles.modes(layer[self.inputs])
        matrices = self._matrices(growth(variance, self.rates), modes, circles)
        changed = (matrices @ _by_wave(modes)).transpose(0, 1).unflatten(2, modes.shape[2:])
        return circles.field(changed)

    def backward(
        self,
        variance: Float[Tensor, ""],
        grad: Float[Tensor, "own columns fields"],
        layer: Layer,
        circles: Circles,
    ) -> tuple[Float[Tensor, "inputs columns fields"], Float[Tensor, ""]]:
        """Returns the gradients of the field and the variance, from that of the change."""
        modes, by_change = circles.modes(layer[self.inputs]), circles.modes_of_gradient(grad)
        lines = _by_wave(by_change)
        slopes = self._matrices(growth_slope(variance, self.rates), modes, circles)
        by_variance = (lines * (slopes @ _by_wave(modes))).sum()
        matrices = self._matrices(growth(variance, self.rates), modes, circles)
        by_modes = (matrices.mT @ lines).transpose(0, 1).unflatten(2, modes.shape[2:])
        return circles.gradient_of_field(by_modes), by_variance

    def _matrices(
        self, values: Float[Tensor, "waves eigenvectors"], like: Tensor, circles: Circles
    ) -> Float[Tensor, "modes rows inputs"]:
        matrices = (self.left * values.unsqueeze(-2)) @ self.right
        return matrices.to(like.dtype)[circles.group]


def _by_wave(modes: Float[Tensor, "rows modes *fields"]) -> Float[Tensor, "modes rows fields"]:
    return modes.transpose(0, 1).flatten(2)


@dataclass(frozen=True)
class GlobeSmoothing(AbstractSmoothing):
    """Smooths on a grid of latitudes and longitudes, a globe or a region of it."""

    keeps_result: ClassVar[bool] = False

    meridian: AxisDiffusion
    circles: Circles
    cosines: Float[Tensor, " rows"]
    """Squared cosines of latitude."""
    poles: tuple[bool, bool]
    """Whether the first and the last row are next to a pole."""
    caps: list[Cap] = field(default_factory=list, repr=False, compare=False)
    """Those that were used last."""

    @classmethod
    def of(
        cls,
        latitude: Float[Tensor, " rows"],
        columns: Float[Tensor, " columns"],
        width: float,
        *,
        is_round: bool,
        poles: tuple[bool, bool],
    ) -> "GlobeSmoothing":
        """Returns that of a grid.

        Args:
            latitude: Of all rows, from the north, in radians.
            columns: Longitudes, as fractions of `width`.
            width: In radians.
            is_round: Whether the columns go all the way round.
            poles: Whether the domain ends at the north and at the south pole.
        """
        gaps = -latitude.diff()
        gap = float(gaps.mean()) if len(gaps) else 1.0
        edges = latitude.new_tensor([gap, gap]) / 2
        faces = torch.cat(
            [latitude[:1] + edges[:1], latitude[:-1] - gaps / 2, latitude[-1:] - edges[1:]]
        )
        conductance = torch.cat([1 / (2 * edges[:1]), 1 / gaps, 1 / (2 * edges[1:])])
        for end, sign in ((0, 1), (-1, -1)):
            if poles[end]:
                faces[end] = sign * torch.pi / 2
                conductance[end] = 0
        conductance = conductance * faces.cos().clamp_min(0)
        ends = (not poles[0], not poles[1])
        flux = Flux(conductance, -faces.sin().diff(), False, ends)
        # A row on a pole is a tiny circle, along which fields are constant once they are smoothed.
        cosines = latitude.cos().square().clamp_min((1e-2 * gap) ** 2)
        circles = Circles.of(columns, width, is_round=is_round)
        return cls(AxisDiffusion(flux, gap), circles, cosines, poles)

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""
        return self.meridian.count, self.circles.count

    @property
    def gaps(self) -> tuple[float, ...]:
        """The distance $h$ of rows in radians: particles have one scale."""
        return (self.meridian.gap,)

    def smooth(self, field: Field, variance: Float[Tensor, "gaussians axes"]) -> Field:
        """Returns the smoothed field, particle by particle."""
        caps, windows = self._parts(variance)
        layers = [
            self._smooth(layer, one, caps, windows)
            for layer, one in zip(field, variance.flatten(), strict=True)
        ]
        return layers[0].unsqueeze(0) if len(layers) == 1 else torch.stack(layers)

    def _smooth(
        self,
        layer: Layer,
        variance: Float[Tensor, ""],
        caps: list[Cap],
        windows: Windows | None,
    ) -> Layer:
        ends = [layer[cap.rows] + cap.change(variance, layer, self.circles) for cap in caps]
        if windows is None:
            return ends[0]
        matrices = windows.matrices(variance.unsqueeze(0)).to(layer.dtype)
        around = self._along_circles(layer, variance)
        result = windows.apply(matrices, around[None, None].flatten(3)).view(layer.shape)
        return _with_ends(result, caps, ends)

    def _along_circles(self, layer: Layer, variance: Float[Tensor, ""]) -> Layer:
        """Returns a field smoothed along circles of latitude."""
        parts = [
            layer[rows]
            + self.circles.field(
                self._decay(growth, variance, layer, rows) * self.circles.modes(layer[rows])
            )
            for rows in _row_portions(layer)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _decay(
        self,
        function: Callable[[Tensor, Tensor], Tensor],
        variance: Float[Tensor, ""],
        layer: Layer,
        rows: slice,
    ) -> Float[Tensor, "own modes *ones"]:
        """Returns what a function makes of the eigenvalues of diffusion along circles of latitude."""
        rates = self.circles.rates / self.cosines[rows].unsqueeze(-1)
        decay = function(variance, rates).to(layer.dtype)
        return decay.view(*decay.shape, *(1,) * (1 if self.circles.left is not None else 2))

    def backward(
        self, grad: Field, kept: Field, variance: Float[Tensor, "gaussians axes"]
    ) -> tuple[Field, Float[Tensor, "gaussians axes"]]:
        """Returns the gradients of the field and of the variances, particle by particle."""
        caps, windows = self._parts(variance)
        found = [
            self._backward(*parts, caps, windows)
            for parts in zip(grad, kept, variance.flatten(), strict=True)
        ]
        by_field, by_variance = zip(*found, strict=True)
        whole = by_field[0].unsqueeze(0) if len(found) == 1 else torch.stack(by_field)
        return whole, torch.stack(by_variance).view_as(variance)

    def _backward(
        self,
        grad: Layer,
        layer: Layer,
        variance: Float[Tensor, ""],
        caps: list[Cap],
        windows: Windows | None,
    ) -> tuple[Layer, Float[Tensor, ""]]:
        ends = [grad[cap.rows] for cap in caps]
        by_layer, by_variance = torch.zeros_like(grad), grad.new_zeros(())
        if windows is not None:
            inner = _with_ends(grad, caps, [torch.zeros_like(end) for end in ends])
            by_layer, by_variance = self._backward_along_axes(inner, layer, variance, windows)
        for cap, end in zip(caps, ends, strict=True):
            by_inputs, by_own = cap.backward(variance, end, layer, self.circles)
            by_layer[cap.inputs] += by_inputs
            by_layer[cap.rows] += end
            by_variance = by_variance + by_own
        return by_layer, by_variance

    def _backward_along_axes(
        self, grad: Layer, layer: Layer, variance: Float[Tensor, ""], windows: Windows
    ) -> tuple[Layer, Float[Tensor, ""]]:
        around, one = self._along_circles(layer, variance), variance.unsqueeze(0)
        matrices, slopes = (
            part.to(layer.dtype) for part in (windows.matrices(one), windows.diffusion.slope(one))
        )
        lines = grad[None, None].flatten(3)
        by_variance = (lines * windows.apply(slopes, around[None, None].flatten(3))).sum()
        by_layer = windows.apply_transposed(matrices, lines).view(grad.shape)
        for rows in _row_portions(grad):
            modes = self.circles.modes_of_gradient(by_layer[rows])
            slope = self._decay(growth_slope, variance, layer, rows) * self.circles.modes(
                layer[rows]
            )
            by_variance = by_variance + (modes * slope).sum()
            decay = self._decay(growth, variance, layer, rows)
            by_layer[rows] += self.circles.gradient_of_field(decay * modes)
        return by_layer, by_variance

    def lines(self, variance: Float[Tensor, "gaussians axes"]) -> int:
        """Returns how many rows kernels reach."""
        return int(self.meridian.halo(variance)) + 1

    def _parts(self, variance: Tensor) -> tuple[list[Cap], Windows | None]:
        """Returns the rows around poles, and the windows of meridians if there are other rows."""
        caps = self._caps(variance)
        if sum(cap.rows.stop - cap.rows.start for cap in caps) == self.meridian.count:
            return caps, None
        return caps, self.meridian.windows(variance.flatten())

    def _caps(self, variance: Tensor) -> list[Cap]:
        """Returns the rows around poles, which take enough others for some variances."""
        if not any(self.poles):
            return []
        count = self.meridian.count
        is_whole = all(self.poles) and count <= MAX_COUPLED
        is_known = bool(self.caps)
        if not torch.compiler.is_compiling() and not is_whole:
            is_known = is_known and self.caps[0].halo >= self.meridian.halo(variance)
        if not is_known:
            if is_whole:
                self.caps[:] = [self._cap(slice(0, count), slice(0, count), torch.inf)]
                return self.caps
            halo = (
                1.5 * self.meridian.halo(variance) if not torch.compiler.is_compiling() else count
            )
            rows, inputs = min(CAP_ROWS, count // 2), min(CAP_ROWS + int(halo) + 1, count)
            slices = (
                (slice(0, rows), slice(0, inputs)),
                (slice(count - rows, count), slice(count - inputs, count)),
            )
            self.caps[:] = [
                self._cap(*ends, halo)
                for ends, is_pole in zip(slices, self.poles, strict=True)
                if is_pole
            ]
        return self.caps

    def _cap(self, rows: slice, inputs: slice, halo: float) -> Cap:
        """Returns the matrices of some rows, which take some others."""
        flux, waves = self.meridian.flux, self.circles.wave_rates
        conductance = flux.conductance[inputs.start : inputs.stop + 1].clone()
        # Nothing flows across the last of the rows that are taken.
        conductance[0] = conductance[-1] = 0
        part = Flux(conductance, flux.volume[inputs], False, (False, False))
        decay = -waves.unsqueeze(-1) / self.cosines[inputs]
        part = replace(
            part,
            conductance=conductance.expand(len(waves), -1),
            volume=part.volume.expand(len(waves), -1),
        )
        found = Diffusion.of(part, decay)
        own = slice(rows.start - inputs.start, rows.stop - inputs.start)
        return Cap(rows, inputs, halo, found.left[:, own].contiguous(), found.rates, found.right)


def _row_portions(layer: Layer) -> list[slice]:
    """Returns rows that are worked on together; a graph has one portion."""
    rows, columns, fields = layer.shape
    count = max(1, portion_size(layer.device) // (columns * fields))
    if torch.compiler.is_compiling() or count >= rows:
        return [slice(0, rows)]
    return [slice(first, min(first + count, rows)) for first in range(0, rows, count)]


def _with_ends(layer: Layer, caps: list[Cap], ends: list[Tensor]) -> Layer:
    """Returns a field with other values in the rows around poles."""
    parts, first = [], 0
    for cap, end in zip(caps, ends, strict=True):
        parts += [layer[first : cap.rows.start], end]
        first = cap.rows.stop
    return torch.cat([*parts, layer[first:]])
