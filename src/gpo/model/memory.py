"""How a pass over all sites fits into memory: chunks of sites, and what is computed again.

What layers do to a point needs nothing of other points but the modes, so sites go through every
step in chunks small enough for the cache. Where all that training would keep is too much, each
step on each chunk is a checkpoint: only its input stays, and the backward pass computes the rest
again. Numbers do not depend on chunks but for the order of sums.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from gpo.limits import MAX_BYTES, max_bytes, spell_bytes
from gpo.model.config import GeometricConfig, ModelConfig, PaperConfig
from gpo.numerics.trees import tensors_of, with_tensors
from gpo.transforms.fit import KEPT_NUMBERS
from gpo.transforms.transform import AbstractGridTransform, AbstractWaveTransform

KEPT_BYTES = 3 * 2**30
"""What training keeps for the backward pass at most, where it can be computed again."""

CACHED_NUMBERS = 2**21
"""What one chunk should write at a time, so that the cache holds it."""

MATRIX_BYTES = 32
"""Of every entry of a matrix sites x modes, while it is made: three times double, twice single."""

LATTICE_BYTES = {1: 500, 2: 1500, 3: 6000}
"""Of every scattered site, by the number of axes, while a lattice is laid between them, roughly."""

Result = TypeVar("Result")

SAVED = torch.empty(0)
"""Stands for a tensor that autograd has saved."""


class Keeps(Enum):
    """What training keeps for the backward pass; the rest is computed again."""

    ALL = "everything"
    WINDOWS = "states and test functions"
    STATES = "states"


@dataclass(frozen=True)
class Deferred(Generic[Result]):
    """Something that is computed where it is needed, every time anew."""

    function: Callable[..., Result]
    given: tuple[object, ...]

    def __call__(self) -> Result:
        """Computes it."""
        return self.function(*self.given)


@dataclass(frozen=True)
class Memory:
    """Runs what is done at sites chunk by chunk, and decides what stays for the backward pass."""

    keeps: Keeps = Keeps.ALL

    def map(
        self, module: nn.Module, function: Callable[..., Result], *given: Sequence[object]
    ) -> list[Result]:
        """Returns what a function makes of every chunk.

        Args:
            module: Whose parameters the function uses.
            function: Depends on nothing else that is differentiated but what it is given.
            given: For every argument of the function, what it is of every chunk.
        """
        if self.keeps != Keeps.ALL:
            function = partial(_recomputed, list(module.parameters()), function)
        return list(map(function, *given))

    def defer(
        self, module: nn.Module, function: Callable[..., Result], *given: Sequence[object]
    ) -> list[Result] | list[Deferred[Result]]:
        """Returns the same, to be computed again by whatever is mapped over it where memory is short."""
        if self.keeps == Keeps.STATES:
            return [Deferred(function, parts) for parts in zip(*given, strict=True)]
        return self.map(module, function, *given)


def _run(function: Callable[..., Result], *given: object) -> Result:
    return function(*(one() if isinstance(one, Deferred) else one for one in given))


def _recomputed(
    parameters: list[nn.Parameter], function: Callable[..., Result], *given: object
) -> Result:
    """Returns the same, of which nothing but what is given stays for the backward pass.

    Like `torch.utils.checkpoint`, but no graph is made in the forward pass: the nodes of one, small
    and lasting, would lie between large and passing arrays and leave the heap full of holes.
    """
    inputs, made = [one for one in tensors_of(given) if one.requires_grad], []
    # Autograd lets go of what it saves after the backward pass; of what a function holds it cannot.
    template = with_tensors(given, lambda one: SAVED if one.requires_grad else one)

    def compute(keep: Callable[[Result], object], *inputs: Tensor) -> tuple[Tensor, ...]:
        saved = iter(inputs)
        parts = with_tensors(template, lambda one: next(saved) if one is SAVED else one)
        result, passed_on = _run(function, *parts), {id(one) for one in tensors_of(parts)}
        keep(result)
        return tuple(one for one in tensors_of(result) if id(one) not in passed_on)

    outputs = iter(_Recomputed.apply(compute, made.append, len(inputs), *inputs, *parameters))
    passed_on = {id(one) for one in tensors_of(given)}
    return with_tensors(made.pop(), lambda one: one if id(one) in passed_on else next(outputs))


class _Recomputed(torch.autograd.Function):
    """A function whose inner graph is made in the backward pass, and only there."""

    @staticmethod
    def forward(
        ctx: Any,
        compute: Callable[..., tuple[Tensor, ...]],
        keep: Callable[..., object],
        num_inputs: int,
        *given: Tensor,
    ) -> tuple[Tensor, ...]:
        """Computes the function without a graph."""
        ctx.compute, ctx.num_inputs = compute, num_inputs
        ctx.save_for_backward(*given)
        device = given[-1].device.type
        is_mixed = torch.is_autocast_enabled(device)
        ctx.precision = partial(torch.autocast, device, torch.get_autocast_dtype(device), is_mixed)
        return compute(keep, *given[:num_inputs])

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *grads: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        """Computes the function again with a graph, and differentiates that."""
        saved, num_inputs = ctx.saved_tensors, ctx.num_inputs
        parameters = saved[num_inputs:]
        inputs = [one.detach().requires_grad_(one.requires_grad) for one in saved[:num_inputs]]
        with torch.enable_grad(), ctx.precision():
            outputs = ctx.compute(lambda result: None, *inputs)
        pairs = [
            (output, grad)
            for output, grad in zip(outputs, grads, strict=True)
            if grad is not None and output.requires_grad
        ]
        wanted = [one for one in (*inputs, *parameters) if one.requires_grad]
        made, by_made = [output for output, _ in pairs], [grad for _, grad in pairs]
        found = iter(torch.autograd.grad(made, wanted, by_made, allow_unused=True))
        by_given = (next(found) if one.requires_grad else None for one in (*inputs, *parameters))
        return None, None, None, *by_given


def choose_memory(config: ModelConfig, values: Tensor) -> Memory:
    """Returns the memory that a pass over sites has: what is kept as long as there is room.

    Args:
        config: The architecture.
        values: The input field at the sites.
    """
    if torch.compiler.is_compiling() or not torch.is_grad_enabled():
        return Memory()
    sizes, num_layers = activation_sizes(config), getattr(config, "num_layers", 0)
    room = KEPT_BYTES / values.element_size() / values[..., 0].numel()
    # Gradients take as much as what they belong to.
    room -= (num_layers + 1) * sizes.state + 2 * sizes.descriptor
    needed = {
        Keeps.ALL: num_layers * (sizes.windows + sizes.layer) + sizes.particles,
        Keeps.WINDOWS: num_layers * sizes.windows,
    }
    return Memory(next((keeps for keeps, count in needed.items() if count <= room), Keeps.STATES))


def chunk_points(
    config: ModelConfig,
    num_samples: int,
    chunk_size: int | None,
    transform: AbstractWaveTransform | None,
) -> int:
    """Returns how many points of every sample make a chunk that the cache holds.

    Args:
        config: The architecture.
        num_samples: In a batch.
        chunk_size: Points of all samples together; chosen where None.
        transform: Waves at the sites, if any; on a grid they take next to nothing.
    """
    sizes = activation_sizes(config)
    written = 4 * sizes.state if isinstance(transform, AbstractGridTransform) else sizes.modes
    return max(1, (chunk_size or CACHED_NUMBERS // written) // num_samples)


@dataclass(frozen=True)
class ActivationSizes:
    """How many numbers there are of a site, roughly."""

    state: int
    """In its state."""
    descriptor: int
    """That layers need of the encoder beside the state."""
    windows: int
    """In the test functions of a layer, where these depend on what is at the site."""
    layer: int
    """That training keeps within a layer beside test functions."""
    particles: int
    """That training keeps to make particles and to look through them, in all layers together."""
    modes: int
    """In all test functions there."""


def activation_sizes(config: ModelConfig) -> ActivationSizes:
    """Returns how much a model of this configuration computes at a site."""
    channels = config.hidden_dim
    if isinstance(config, GeometricConfig):
        modes = 1
        for axis, limit in enumerate(config.wave_limits):
            modes *= limit + 1 if axis == config.num_axes - 1 else 2 * limit + 1
        # Corners, their weights and what these were made of, forwards and backwards.
        taps = 8 * 2**config.num_axes * config.num_gaussians
        looks = config.num_transports * (4 * channels + taps)
        return ActivationSizes(channels, 0, 0, 2 * channels, 4 * channels + looks, modes)
    gaussians = config.encoder.num_gaussians
    modes = config.num_heads * gaussians if isinstance(config, PaperConfig) else gaussians
    return ActivationSizes(
        state=gaussians,
        descriptor=gaussians * (1 + 2 * config.domain.dim),
        windows=modes,
        layer=2 * channels + 8 * gaussians,
        particles=8 * channels + 20 * gaussians,
        modes=modes,
    )


def needed_bytes(
    config: ModelConfig, num_sites: int, num_samples: int, *, is_grid: bool, trains: bool
) -> int:
    """Returns about how much memory a pass over sites takes at its peak, beside the fields.

    Args:
        config: The architecture.
        num_sites: Sites of a sample.
        num_samples: In a batch.
        is_grid: Whether they form a grid, whose transforms and lattice take next to nothing.
        trains: Whether there is a backward pass.
    """
    sizes, num_layers = activation_sizes(config), getattr(config, "num_layers", 0)
    each = num_samples * num_sites * 4
    least = (2 * (num_layers + 1) * sizes.state + 2 * sizes.descriptor) * each
    most = least + (num_layers * (sizes.windows + sizes.layer) + sizes.particles) * each
    needed = (most if most <= KEPT_BYTES else least) if trains else 4 * sizes.state * each
    if is_grid or not isinstance(config, GeometricConfig):
        return needed
    entries = 2 * sizes.modes * num_sites
    if entries <= KEPT_NUMBERS:
        needed += MATRIX_BYTES * entries
    if config.num_transports:
        needed += LATTICE_BYTES[config.num_axes] * num_sites
    return needed


def memory_problem(needed: int, num_sites: int, advice: str) -> str | None:
    """Returns why a pass over sites takes too much memory, and what helps; None where it does not.

    Args:
        needed: What `needed_bytes` returned.
        num_sites: Sites of a sample.
        advice: What takes less.
    """
    if needed <= max_bytes():
        return None
    return (
        f"{num_sites:,} sites would take about {spell_bytes(needed)} of memory at once, more than "
        f"{spell_bytes(max_bytes())}. {advice}, or allow it: {MAX_BYTES}={needed}."
    )
