"""Taps: functions on named intermediates of a forward pass, registered from outside.

An intermediate is what a method of a layer returns, and has the name of the method, such as
`displacement`. A tap may read it, or return another one in its place. Layers know nothing of taps:
where any are active, a forward pass is made with copies of its layers, whose methods call them.
Ablations (`ablation.py`) and traces (`trace.py`) are taps. Exported and compiled programs have none.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass, replace
from types import MethodType
from typing import Any, NamedTuple, TypeVar

import torch
from torch import nn

Layer = TypeVar("Layer", bound=nn.Module)

NOT_METHODS = {"values", "layer"}
"""The intermediates that no method returns: the input field at the sites, and a layer itself."""


class Tap(NamedTuple):
    """A function that is called with the number of the layer and the value of an intermediate."""

    name: str
    """Of a method of the layer, or else of a module in it; `values` is the input field at the sites,
    `layer` the layer itself."""
    function: Callable[[int, Any], Any]
    """Returns what is used in place of the value; the lift is layer -1."""
    at_queries: bool = True
    """False where it is called at sites only."""


@dataclass(frozen=True)
class Taps:
    """Taps that are active together, applied in their order."""

    taps: tuple[Tap, ...] = ()
    needs_all_sites: bool = False
    """Whether values must hold all sites at once, so that these are not divided into chunks."""

    def at_queries(self) -> "Taps":
        """Returns those that are called at queries too."""
        return replace(self, taps=tuple(tap for tap in self.taps if tap.at_queries))

    def __call__(self, name: str, value: Any, layer: int) -> Any:
        """Returns a value after all taps of its name."""
        for tap in self.taps:
            if tap.name == name:
                value = tap.function(layer, value)
        return value


NO_TAPS = Taps()
_ACTIVE: ContextVar[Taps] = ContextVar("taps", default=NO_TAPS)


def active_taps() -> Taps:
    """Returns the taps of this context."""
    return NO_TAPS if torch.compiler.is_compiling() else _ACTIVE.get()


@contextmanager
def tapped(taps: Sequence[Tap] | Taps, *, needs_all_sites: bool = False) -> Iterator[None]:
    """Adds taps to those that are active, within a `with` block.

    Args:
        taps: Functions on named intermediates, or the taps that alone are to be active.
        needs_all_sites: Whether values must hold all sites at once.
    """
    if not isinstance(taps, Taps):
        before = _ACTIVE.get()
        needs_all_sites = needs_all_sites or before.needs_all_sites
        taps = Taps((*before.taps, *taps), needs_all_sites)
    token = _ACTIVE.set(taps)
    try:
        yield
    finally:
        _ACTIVE.reset(token)


def tapped_layers(layers: Sequence[Layer]) -> Iterable[Layer]:
    """Returns layers, the lift first, as active taps make them: the same where there are none."""
    taps = active_taps()
    return layers if taps == NO_TAPS else _tapped_layers(layers, taps)


def _tapped_layers(layers: Sequence[Layer], taps: Taps) -> Iterator[Layer]:
    names = {tap.name for tap in taps.taps} - NOT_METHODS
    for number, layer in enumerate(layers, start=-1):
        yield _with_taps(taps("layer", layer, number), names, number, taps)


def _with_taps(module: Layer, names: set[str], number: int, taps: Taps) -> Layer:
    """Returns a copy with the same parameters, whose methods of some names call the taps."""
    tapped_module = copy(module)
    own = {name for name in names if callable(getattr(type(module), name, None))}
    for name in own:
        method = _calling(taps, name, number, getattr(tapped_module, name))
        vars(tapped_module)[name] = MethodType(method, tapped_module)
    # What a layer returns is not what a layer in it returns.
    tapped_module._modules = {
        name: None if part is None else _with_taps(part, names - own, number, taps)
        for name, part in module._modules.items()
    }
    return tapped_module


def _calling(taps: Taps, name: str, number: int, method: Callable[..., Any]) -> Callable[..., Any]:
    def tapped_method(_: nn.Module, *arguments: Any) -> Any:
        return taps(name, method(*arguments), number)

    return tapped_method
