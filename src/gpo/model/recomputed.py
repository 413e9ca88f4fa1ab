r"""A layer of which training keeps its input, and its windows if it may, a chunk of sites at a time.

The backward pass visits every chunk twice. First it asks what modes did to the sites, which the
coupling needs before it can tell how moments matter; then it computes the chunk again and asks
for everything else at once, so that windows are differentiated once for both of their uses.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gpo.model.abstract_layers import AbstractLayers, Chunk, Visit
from gpo.model.passage import Passage

Held = tuple[Tensor, ...]
"""What remains of a chunk between two layers."""


class RecomputedPassage(Passage):
    """A layer that keeps what it is given and little more."""

    def __init__(
        self, layers: AbstractLayers, number: int, chunks: list[Chunk], keeps_windows: bool
    ) -> None:
        super().__init__(layers, number, chunks)
        self.keeps_windows = keeps_windows
        self.parameters = layers.parameters_of(number)
        device = self.parameters[0].device.type
        is_mixed = torch.is_autocast_enabled(device)
        self.precision = partial(torch.autocast, device, torch.get_autocast_dtype(device), is_mixed)
        """The precision of the forward pass, for what is computed again."""
        self.returning: tuple[Tensor | None, ...] = ()
        """Gradients by the states that leave, from their arrival until chunks are computed again."""
        self.scattered = torch.empty(0)
        """The modes that were scattered, for as long."""
        self.known: list[Visit] = []
        """Chunks with their windows, where these are kept, for as long."""

    def measure(self, visits: list[Visit]) -> Tensor:
        """Returns the moments of all chunks."""
        held = [tensor for visit in visits for tensor in self.layers.held(visit)]
        return _Measured.apply(self, *held, *self.parameters)

    def update(self, visits: list[Visit], scattered: Tensor) -> list[Visit]:
        """Returns all chunks after modes were scattered to them."""
        portions = [self.layers.held(visit) for visit in visits]
        held = [tensor.detach() for portion in portions for tensor in portion]
        states = _Updated.apply(self, scattered, *held)
        pairs = zip(states, portions, strict=True)
        return [self.layers.recall((state, *portion[1:])) for state, portion in pairs]

    def portions(self, tensors: Held) -> list[Held]:
        """Returns what is held of every chunk."""
        size = len(tensors) // len(self.chunks)
        return [tensors[start : start + size] for start in range(0, len(tensors), size)]

    def look(self, held: Held, known: Visit | None = None) -> Visit:
        """Returns a chunk with its windows."""
        return self.layers.look(self.number, self.layers.recall(held), known)

    def moments(self, visit: Visit, chunk: Chunk) -> Tensor:
        """Returns what the windows of a chunk measure."""
        return self.layers.measure(self.number, visit, chunk)

    def state(self, visit: Visit, scattered: Tensor, chunk: Chunk) -> Tensor:
        """Returns the state of a chunk after modes were scattered to it."""
        return self.layers.update(self.number, visit, scattered, chunk).state


class _Measured(torch.autograd.Function):
    """What is held of all chunks, and parameters, to the moments of a layer."""

    @staticmethod
    def forward(ctx: Any, passage: RecomputedPassage, *given: Tensor) -> Tensor:
        ctx.passage, ctx.num_held = passage, len(given) - len(passage.parameters)
        ctx.save_for_backward(*given)
        # With what came before them, a later look at the chunks would walk through all of it.
        held = tuple(tensor.detach() for tensor in given[: ctx.num_held])
        total: Tensor | None = None
        for portion, chunk in zip(passage.portions(held), passage.chunks, strict=True):
            passage.seen.append(passage.look(portion))
            total = _sum(total, passage.moments(passage.seen[-1], chunk))
        assert total is not None
        return total

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *grads: Tensor
    ) -> tuple[Tensor | None, ...]:
        """Computes every chunk again, and returns all gradients, those that came later too."""
        passage: RecomputedPassage = ctx.passage
        held, parameters = ctx.saved_tensors[: ctx.num_held], ctx.saved_tensors[ctx.num_held :]
        returning = list(passage.returning) or [None] * len(passage.chunks)
        passage.returning = ()
        known, passage.known = passage.known[::-1], []
        wanted = [place for place, one in enumerate(parameters) if one.requires_grad]
        by_parameter: list[Tensor | None] = [None] * len(parameters)
        by_held: list[Tensor | None] = []
        portions = zip(passage.portions(held), passage.chunks, strict=True)
        for number, (portion, chunk) in enumerate(portions):
            with torch.enable_grad(), passage.precision():
                portion = tuple(tensor.detach().requires_grad_() for tensor in portion)
                visit = passage.look(portion, known.pop() if known else None)
                outcomes, by_outcomes = [passage.moments(visit, chunk)], [grads[0]]
                # What is no longer needed makes room for what is found.
                gradient, returning[number] = returning[number], None
                if gradient is not None:
                    outcomes += [passage.state(visit, passage.scattered, chunk)]
                    by_outcomes += [gradient]
            inputs = (*portion, *(parameters[place] for place in wanted))
            found = torch.autograd.grad(outcomes, inputs, by_outcomes, allow_unused=True)
            by_held += found[: len(portion)]
            for place, part in zip(wanted, found[len(portion) :], strict=True):
                by_parameter[place] = _sum(by_parameter[place], part)
        return None, *by_held, *by_parameter


class _Updated(torch.autograd.Function):
    """Scattered modes to the states of all chunks; by what is held, `_Measured` differentiates."""

    @staticmethod
    def forward(ctx: Any, passage: RecomputedPassage, scattered: Tensor, *held: Tensor) -> Held:
        ctx.passage = passage
        ctx.save_for_backward(scattered, *held)
        ctx.seen = passage.seen if passage.keeps_windows else []
        seen, passage.seen = passage.seen[::-1], []
        return tuple(passage.state(seen.pop(), scattered, chunk) for chunk in passage.chunks)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *grads: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        """Returns the gradient by the modes, and leaves those by states to `_Measured`."""
        passage: RecomputedPassage = ctx.passage
        scattered, *held = ctx.saved_tensors
        passage.returning, passage.scattered = grads, scattered.detach()
        total, leaf = torch.zeros_like(scattered), scattered.detach().requires_grad_()
        portions = passage.portions(tuple(held))
        passage.known, ctx.seen = ctx.seen, []
        known = passage.known or [None] * len(portions)
        chunks = zip(portions, passage.chunks, grads, known, strict=True)
        for portion, chunk, gradient, seen in chunks:
            if gradient is None:
                continue
            with passage.precision():
                visit = seen or passage.look(portion)
                with torch.enable_grad():
                    state = passage.state(visit, leaf, chunk)
            total += torch.autograd.grad(state, leaf, gradient)[0]
        return None, total, *[None] * len(held)


def _sum(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    return other if one is None else one if other is None else one + other
