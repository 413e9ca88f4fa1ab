r"""Gaussian smoothing of a field on a lattice: it makes the kernel of a particle a Gaussian.

A particle of scale $\sigma$ samples through a kernel of variance $\sigma^2$ along every axis.
Multilinear sampling supplies $h^2/6$ of it on a lattice of spacing $h$, as a mean over positions in a
cell; the rest, $v=\max(\sigma^2-h^2/6,0)$, is diffused before: $c\leftarrow e^{vL/2}c$
(`diffusion.py`, on the globe `globe_smoothing.py`). Where nodes are masked, both the masked field
and the mask are smoothed, and their ratio is taken: nothing comes from masked nodes.
"""

import math
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from gpo.transforms.diffusion import AxisDiffusion, portion_size

Field = Float[Tensor, "gaussians *nodes fields"]
"""A field on a lattice, of every particle; samples and channels in one axis."""


class AbstractSmoothing(ABC):
    """Smooths fields on a lattice by Gaussians of any variance along its axes."""

    keeps_result: ClassVar[bool] = True
    """Whether the backward pass needs the result, or else the field."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Nodes along every axis."""

    @property
    @abstractmethod
    def gaps(self) -> tuple[float, ...]:
        """Distances $h$ of neighbouring nodes, for every scale of a particle."""

    def _floors(self, like: Tensor) -> Float[Tensor, " axes"]:
        return like.new_tensor([gap**2 / 6 for gap in self.gaps])

    def variance(self, scales: Float[Tensor, "gaussians axes"]) -> Float[Tensor, "gaussians axes"]:
        r"""Returns $\max(\sigma^2-h^2/6,0)$, what multilinear sampling lacks of a Gaussian."""
        return (scales.square() - self._floors(scales)).clamp_min(0)

    def effective(self, scales: Float[Tensor, "gaussians axes"]) -> Float[Tensor, "gaussians axes"]:
        r"""Returns $\max(\sigma,h/\sqrt6)$, the scales that particles have on this lattice."""
        return scales.square().maximum(self._floors(scales)).sqrt()

    @abstractmethod
    def smooth(self, field: Field, variance: Float[Tensor, "gaussians axes"]) -> Field:
        """Returns the smoothed field."""

    @abstractmethod
    def backward(
        self, grad: Field, kept: Field, variance: Float[Tensor, "gaussians axes"]
    ) -> tuple[Field, Float[Tensor, "gaussians axes"]]:
        """Returns the gradients of the field and of the variances.

        Args:
            grad: Of the result.
            kept: The result, or the field, as `keeps_result` says.
            variance: Of every particle.
        """

    @abstractmethod
    def lines(self, variance: Float[Tensor, "gaussians axes"]) -> int:
        """Returns how many lines across the first axis kernels reach."""


@dataclass(frozen=True)
class BoxSmoothing(AbstractSmoothing):
    """Smooths along one axis after the other."""

    axes: tuple[AxisDiffusion, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Nodes along every axis."""
        return tuple(axis.count for axis in self.axes)

    @property
    def gaps(self) -> tuple[float, ...]:
        """Distances $h$ of neighbouring nodes along every axis."""
        return tuple(axis.gap for axis in self.axes)

    def smooth(self, field: Field, variance: Float[Tensor, "gaussians axes"]) -> Field:
        """Returns the smoothed field."""
        shape = field.shape
        for number, axis in enumerate(self.axes):
            field = axis.apply(variance[:, number], _lines(field, shape, number))
        return field.reshape(shape)

    def backward(
        self, grad: Field, kept: Field, variance: Float[Tensor, "gaussians axes"]
    ) -> tuple[Field, Float[Tensor, "gaussians axes"]]:
        r"""Returns the gradients of the field and of the variances, since $\partial_vc=Lc/2$."""
        shape = grad.shape
        rates = [
            axis.inner(_lines(grad, shape, number), _lines(kept, shape, number)) / 2
            for number, axis in enumerate(self.axes)
        ]
        for number, axis in reversed([*enumerate(self.axes)]):
            grad = axis.apply_transposed(variance[:, number], _lines(grad, shape, number))
        return grad.reshape(shape), torch.stack(rates, -1)

    def lines(self, variance: Float[Tensor, "gaussians axes"]) -> int:
        """Returns how many lines across the first axis kernels reach."""
        return int(self.axes[0].halo(variance[:, 0])) + 1


def _lines(
    field: Tensor, shape: torch.Size, axis: int
) -> Float[Tensor, "gaussians before nodes after"]:
    """Returns a field as lines along an axis."""
    before = shape[1 : 1 + axis].numel()
    # `numel` would make a graph hold for one size of the batch only.
    after = math.prod(shape[2 + axis :])
    return field.contiguous().view(shape[0], before, shape[1 + axis], after)


def smoothed(
    features: Float[Tensor, "nodes batch channels"],
    smoothing: AbstractSmoothing,
    scales: Float[Tensor, "gaussians axes"],
    mask: Float[Tensor, "nodes sets 1"] | None = None,
) -> Float[Tensor, "nodes batch channels"]:
    """Returns a field whose channels are smoothed by the Gaussians of the particles they belong to.

    Args:
        features: The field on the nodes; its channels are divided among the particles.
        smoothing: Of the lattice.
        scales: Of all particles, in units of the axes; on a sphere in radii.
        mask: One at active nodes, zero at others, whose values are not used; None without any.
            The result is zero there.
    """
    variance = smoothing.variance(scales)
    if mask is None:
        return _apply(features, smoothing, variance)
    total = _apply(mask.expand(-1, -1, len(scales)).to(features), smoothing, variance)
    # The sum is positive at every active node.
    factor = mask / torch.where(mask > 0, total, 1.0)
    factor = factor.repeat_interleave(features.shape[-1] // len(scales), dim=-1)
    return _apply(features * mask, smoothing, variance) * factor


def _apply(features: Tensor, smoothing: AbstractSmoothing, variance: Tensor) -> Tensor:
    if torch.compiler.is_compiling():
        return _smoothed(features, smoothing, variance)
    return _Smoothed.apply(features, variance, smoothing)  # pyright: ignore[reportReturnType]


def _smoothed(features: Tensor, smoothing: AbstractSmoothing, variance: Tensor) -> Tensor:
    part = features.unflatten(-1, (len(variance), -1))
    field = smoothing.smooth(_by_gaussian(part, smoothing), variance)
    return _by_node(field, part.shape).flatten(-2)


@dataclass(frozen=True)
class Portion:
    """A part of a field that is smoothed at a time: some particles in some samples."""

    gaussians: slice
    samples: slice

    def of(
        self, features: Float[Tensor, "nodes batch channels"], count: int
    ) -> Float[Tensor, "nodes samples gaussians each"]:
        """Returns a view of this part of a field of `count` particles."""
        return features.unflatten(-1, (count, -1))[:, self.samples, self.gaussians]


def _portions(features: Float[Tensor, "nodes batch channels"], count: int) -> list[Portion]:
    """Divides a field of `count` particles into parts, all of a particle one after the other."""
    nodes, batch, channels = features.shape
    most = portion_size(features.device)
    if features.numel() <= most:
        return [Portion(slice(0, count), slice(0, batch))]
    samples = max(1, most // (nodes * (channels // count)))
    return [
        Portion(slice(number, number + 1), slice(first, first + samples))
        for number in range(count)
        for first in range(0, batch, samples)
    ]


def _by_gaussian(
    part: Float[Tensor, "nodes batch gaussians each"], smoothing: AbstractSmoothing
) -> Field:
    """Returns a field on nodes with the particles first."""
    field = part.permute(2, 0, 1, 3).contiguous()
    return field.view(len(field), *smoothing.shape, -1)


def _by_node(field: Field, shape: torch.Size) -> Float[Tensor, "nodes batch gaussians each"]:
    """Returns a view of a field with nodes first again."""
    nodes, batch, gaussians, each = shape
    return field.reshape(gaussians, nodes, batch, each).permute(1, 2, 0, 3)


def _full_precision(like: Tensor) -> AbstractContextManager[Any]:
    """Returns a context in which products are not rounded to half precision."""
    device = like.device.type
    if device == "meta" or not torch.is_autocast_enabled(device):
        return nullcontext()
    return torch.autocast(device, enabled=False)


class _Smoothed(torch.autograd.Function):
    """Smoothing that keeps one field for the backward pass, whatever the number of axes."""

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, variance: Tensor, smoothing: AbstractSmoothing
    ) -> Tensor:
        """Returns the smoothed field."""
        with _full_precision(features):
            result, count = torch.empty_like(features), len(variance)
            for portion in _portions(features, count):
                part = portion.of(features, count)
                field = smoothing.smooth(_by_gaussian(part, smoothing), variance[portion.gaussians])
                portion.of(result, count).copy_(_by_node(field, part.shape))
        ctx.smoothing = smoothing
        ctx.save_for_backward(result if smoothing.keeps_result else features, variance)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Returns the gradients of the field and of the variances."""
        (kept, variance), smoothing = ctx.saved_tensors, ctx.smoothing
        count = len(variance)
        by_features, by_variance = torch.empty_like(kept), torch.zeros_like(variance)
        with _full_precision(kept):
            for portion in _portions(kept, count):
                grad, field = (portion.of(whole, count) for whole in (grads[0], kept))
                by_field, rates = smoothing.backward(
                    _by_gaussian(grad, smoothing),
                    _by_gaussian(field, smoothing),
                    variance[portion.gaussians],
                )
                portion.of(by_features, count).copy_(_by_node(by_field, grad.shape))
                by_variance[portion.gaussians] += rates.to(variance)
        return by_features, by_variance, None
