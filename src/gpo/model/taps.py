"""Taps: functions on named intermediates of a forward pass, registered from outside.

A layer names its intermediates, `tap("gate", fields)`. Nothing happens there unless a tap of that
name is active: it may read the value, or return another one in its place. Ablations (`ablation.py`)
and traces (`trace.py`) are taps. Exported and compiled programs have none.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import torch

Value = TypeVar("Value")


class Tap(NamedTuple):
    """A function that is called with the number of the layer and the value of an intermediate."""

    name: str
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
        return replace(self, taps=tuple(one for one in self.taps if one.at_queries))

    def __call__(self, name: str, value: Any, layer: int) -> Any:
        """Returns a value after all taps of its name."""
        for one in self.taps:
            if one.name == name:
                value = one.function(layer, value)
        return value


NO_TAPS = Taps()
_ACTIVE: ContextVar[Taps] = ContextVar("taps", default=NO_TAPS)
_LAYER: ContextVar[int] = ContextVar("layer", default=-1)


def tap(name: str, value: Value, *, layer: int | None = None) -> Value:
    """Returns an intermediate as active taps leave it: unchanged where there are none.

    Args:
        name: Of the intermediate.
        value: The intermediate.
        layer: The number of its layer; that which is being applied when not given.
    """
    if torch.compiler.is_compiling():
        return value
    return _ACTIVE.get()(name, value, _LAYER.get() if layer is None else layer)


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


def numbered(layers: Sequence[Value]) -> Iterable[Value]:
    """Returns layers, the lift first; where taps are active, these know the number of the layer."""
    return _numbered(layers) if active_taps().taps else layers


def _numbered(layers: Sequence[Value]) -> Iterator[Value]:
    for number, layer in enumerate(layers, start=-1):
        _LAYER.set(number)
        yield tap("layer", layer)
