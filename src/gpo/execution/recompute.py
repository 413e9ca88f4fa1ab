"""What training keeps for the backward pass, and what is computed again.

Where all that a pass over the sites would keep takes too much memory, each step on each chunk is a
checkpoint: only its input stays, and the backward pass computes the rest again.
"""

from collections.abc import Callable, Iterator
from contextvars import copy_context
from dataclasses import dataclass, fields, is_dataclass, replace
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
    return [(field.name, getattr(value, field.name)) for field in fields(value)]


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


def recomputed(function: Callable[..., Result], *arguments: object) -> Result:
    """Returns `function(*arguments)`, with nothing but the arguments kept for the backward pass.

    The function is a method of a module, or has no parameters; it depends on nothing else that is
    differentiated. Its arguments may be deferred. Like `torch.utils.checkpoint`, but no graph is made in the forward pass: the nodes of one, small
    and lasting, would lie between large and passing arrays and leave the heap full of holes.
    """
    functions = [function, *(one for argument in arguments for one in _functions(argument))]
    owners = {id(one): one for one in (getattr(used, "__self__", None) for used in functions)}
    modules = [one for one in owners.values() if isinstance(one, nn.Module)]
    parameters = list({id(one): one for module in modules for one in module.parameters()}.values())
    inputs, results = [one for one in tensors_of(arguments) if one.requires_grad], []
    if not inputs and not parameters:
        return function(*(evaluate(argument) for argument in arguments))
    # Autograd releases what it saves after the backward pass; what a closure holds would stay.
    template = with_tensors(arguments, lambda one: SAVED if one.requires_grad else one)

    def compute(keep: Callable[[Result], object], *inputs: Tensor) -> tuple[Tensor, ...]:
        saved = iter(inputs)
        parts = with_tensors(template, lambda one: next(saved) if one is SAVED else one)
        result = function(*(evaluate(part) for part in parts))
        passed_on = {id(one) for one in tensors_of(parts)}
        keep(result)
        return tuple(one for one in tensors_of(result) if id(one) not in passed_on)

    outputs = iter(_Recomputed.apply(compute, results.append, len(inputs), *inputs, *parameters))
    passed_on = {id(one) for one in tensors_of(arguments)}
    return with_tensors(results.pop(), lambda one: one if id(one) in passed_on else next(outputs))


class _Recomputed(torch.autograd.Function):
    """A function whose inner graph is made in the backward pass, and only there."""

    @staticmethod
    def forward(
        ctx: Any,
        compute: Callable[..., tuple[Tensor, ...]],
        keep: Callable[..., object],
        num_inputs: int,
        *inputs: Tensor,
    ) -> tuple[Tensor, ...]:
        """Computes the function without a graph."""
        ctx.compute, ctx.num_inputs, ctx.context = compute, num_inputs, copy_context()
        ctx.save_for_backward(*inputs)
        device = inputs[-1].device.type
        is_mixed = torch.is_autocast_enabled(device)
        ctx.precision = partial(torch.autocast, device, torch.get_autocast_dtype(device), is_mixed)
        return compute(keep, *inputs[:num_inputs])

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
            outputs = ctx.context.run(ctx.compute, lambda result: None, *inputs)
        pairs = [
            (output, grad)
            for output, grad in zip(outputs, grads, strict=True)
            if grad is not None and output.requires_grad
        ]
        sources = [one for one in (*inputs, *parameters) if one.requires_grad]
        targets, by_targets = [output for output, _ in pairs], [grad for _, grad in pairs]
        gradients = iter(torch.autograd.grad(targets, sources, by_targets, allow_unused=True))
        by_inputs = (
            next(gradients) if one.requires_grad else None for one in (*inputs, *parameters)
        )
        return None, None, None, *by_inputs
