"""Baselines, solvers, and the paper's tables and figures as commands."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpo_bench.baselines.base import AbstractBaseline

__all__ = ["AbstractBaseline"]

_MODULES = {
    "AbstractBaseline": "gpo_bench.baselines.base",
}


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first asked for: commands need none of them."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
