"""What training keeps for the backward pass, and what is computed again.

Where all that a pass over the sites would keep takes too much memory, each step on each chunk is a
checkpoint: only its input stays, and the backward pass computes the rest again.
"""

from collections.abc import Callable, Iterator, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import IntEnum
from functools import partial
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from gpo.numerics.trees import tensors_of, with_tensors

Result = TypeVar("Result")

SAVED = torch.empty(0)
"""Stands for a tensor that autograd has saved."""


class Keeps(IntEnum):
    """What stays for the backward pass, from little to everything; the rest is computed again."""

    STATES = 0
    """The state of every point before every layer."""
    WINDOWS = 1
    """Also test functions that depend on the field."""
    ALL = 2


@dataclass(frozen=True)
class Deferred(Generic[Result]):
    """A value that is computed wherever it is used."""

    function: Callable[..., Result]
    arguments: tuple[object, ...]


def evaluate(value: Any) -> Any:
    """Returns a value with all that was deferred in it, or in a field of it, computed now."""
    if isinstance(value, Deferred):
        return value.function(*map(evaluate, value.arguments))
    deferred = {name: evaluate(part) for name, part in _fields(value) if isinstance(part, Deferred)}
    return replace(value, **deferred) if deferred else value


def _fields(value: Any) -> list[tuple[str, Any]]:
    if not is_dataclass(value) or isinstance(value, type):
        return []
    return [(part.name, getattr(value, part.name)) for part in fields(value)]


def _functions(value: Any) -> Iterator[Callable[..., Any]]:
    """Yields the functions of all that is deferred in a value."""
    if isinstance(value, Deferred):
        yield value.function
        for argument in value.arguments:
            yield from _functions(argument)
    else:
        for _, part in _fields(value):
            if isinstance(part, Deferred):
                yield from _functions(part)


@dataclass(frozen=True)
class Rows:
    """Arrays of all points, into which the results for chunks of them are written.

    By themselves, the results of chunks would lie between arrays that pass, and leave holes in the
    heap that take as much memory again.
    """

    counts: Sequence[int]
    """Points of every chunk."""
    arrays: dict[int, Tensor] = field(default_factory=dict)
    """By the number of the result."""

    def keep(self, chunk: int, number: int, result: Tensor) -> Tensor:
        """Returns a result of a chunk, in the array of all if it has a row for every point."""
        count, first = self.counts[chunk], sum(self.counts[:chunk])
        if result.ndim == 0 or len(result) != count or torch.compiler.is_compiling():
            return result
        if number not in self.arrays:
            self.arrays[number] = result.new_empty(sum(self.counts), *result.shape[1:])
        array = self.arrays[number]
        if array.shape[1:] != result.shape[1:] or array.dtype != result.dtype:
            return result
        rows = array[first : first + count].copy_(result)
        # Not a view for autograd: chunks are different results.
        storage, place = rows.untyped_storage(), rows.storage_offset()
        return result.new_empty(0).set_(storage, place, rows.shape, rows.stride())


def joined(parts: Sequence[Tensor]) -> Tensor:
    """Returns the rows of all chunks; without a copy where they lie in one array already."""
    if len(parts) == 1 or torch.compiler.is_compiling():
        return torch.cat(list(parts))
    starts = [part.data_ptr() for part in parts]
    ends = [start + part.nbytes for start, part in zip(starts, parts, strict=True)]
    is_one = all(part.is_contiguous() for part in parts) and starts[1:] == ends[:-1]
    storages = {part.untyped_storage().data_ptr() for part in parts}
    return _Joined.apply(*parts) if is_one and len(storages) == 1 else torch.cat(list(parts))  # pyright: ignore[reportReturnType]


class _Joined(torch.autograd.Function):
    """Rows that follow each other in one array, as one tensor."""

    @staticmethod
    def forward(ctx: Any, *parts: Tensor) -> Tensor:
        """Returns all rows."""
        first, ctx.counts = parts[0], [len(part) for part in parts]
        shape = sum(ctx.counts), *first.shape[1:]
        return first.new_empty(0).set_(
            first.untyped_storage(), first.storage_offset(), shape, first.stride()
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Returns the rows of every part."""
        return grads[0].split(ctx.counts)


def recomputed(
    function: Callable[..., Result],
    *arguments: object,
    keep: Callable[[int, Tensor], Tensor] = lambda number, result: result,
) -> Result:
    """Returns `function(*arguments)`, with nothing but the arguments kept for the backward pass.

    The function is a method of a module, or has no parameters; it depends on nothing else that is
    differentiated. Its arguments may be deferred, and its results are stored by `keep`. Like `torch.utils.checkpoint`, but no graph is made in the forward pass: the nodes of one, small
    and lasting, would lie between large and passing arrays and leave the heap full of holes.
    """
    functions = [function, *(used for argument in arguments for used in _functions(argument))]
    owners = {id(owner): owner for owner in (getattr(used, "__self__", None) for used in functions)}
    modules = [owner for owner in owners.values() if isinstance(owner, nn.Module)]
    parameters = list(
        {
            id(parameter): parameter for module in modules for parameter in module.parameters()
        }.values()
    )
    inputs, results = [tensor for tensor in tensors_of(arguments) if tensor.requires_grad], []
    if not inputs and not parameters:
        return function(*(evaluate(argument) for argument in arguments))
    # Autograd releases what it saves after the backward pass; what a closure holds would stay.
    template = with_tensors(arguments, lambda tensor: SAVED if tensor.requires_grad else tensor)

    def compute(receive: Callable[[Result], object], *inputs: Tensor) -> tuple[Tensor, ...]:
        saved = iter(inputs)
        parts = with_tensors(template, lambda tensor: next(saved) if tensor is SAVED else tensor)
        result = function(*(evaluate(part) for part in parts))
        passed_on = {id(tensor) for tensor in tensors_of(parts)}
        receive(result)
        return tuple(tensor for tensor in tensors_of(result) if id(tensor) not in passed_on)

    outputs = iter(
        _Recomputed.apply(compute, results.append, keep, len(inputs), *inputs, *parameters)
    )
    passed_on = {id(tensor) for tensor in tensors_of(arguments)}
    return with_tensors(
        results.pop(), lambda tensor: tensor if id(tensor) in passed_on else next(outputs)
    )


class _Recomputed(torch.autograd.Function):
    """A function whose inner graph is made in the backward pass, and only there."""

    @staticmethod
    def forward(
        ctx: Any,
        compute: Callable[..., tuple[Tensor, ...]],
        receive: Callable[..., object],
        keep: Callable[[int, Tensor], Tensor],
        num_inputs: int,
        *inputs: Tensor,
    ) -> tuple[Tensor, ...]:
        """Computes the function without a graph."""
        ctx.compute, ctx.num_inputs, ctx.context = compute, num_inputs, copy_context()
        ctx.save_for_backward(*inputs)
        device = inputs[-1].device.type
        is_mixed = torch.is_autocast_enabled(device)
        ctx.precision = partial(torch.autocast, device, torch.get_autocast_dtype(device), is_mixed)
        results = compute(receive, *inputs[:num_inputs])
        return tuple(keep(number, result) for number, result in enumerate(results))

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *grads: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        """Computes the function again with a graph, and differentiates that."""
        saved, num_inputs = ctx.saved_tensors, ctx.num_inputs
        parameters = saved[num_inputs:]
        inputs = [
            tensor.detach().requires_grad_(tensor.requires_grad) for tensor in saved[:num_inputs]
        ]
        with torch.enable_grad(), ctx.precision():
            outputs = ctx.context.run(ctx.compute, lambda result: None, *inputs)
        pairs = [
            (output, grad)
            for output, grad in zip(outputs, grads, strict=True)
            if grad is not None and output.requires_grad
        ]
        sources = [tensor for tensor in (*inputs, *parameters) if tensor.requires_grad]
        targets, by_targets = [output for output, _ in pairs], [grad for _, grad in pairs]
        gradients = iter(torch.autograd.grad(targets, sources, by_targets, allow_unused=True))
        by_inputs = (
            next(gradients) if tensor.requires_grad else None for tensor in (*inputs, *parameters)
        )
        return None, None, None, None, *by_inputs
