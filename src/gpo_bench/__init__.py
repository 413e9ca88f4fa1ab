"""Baselines, solvers, and commands that reproduce the paper's tables and figures."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpo_bench.baselines.base import AbstractBaseline

__all__ = ["AbstractBaseline"]


def __getattr__(name: str) -> Any:
    """Imports `AbstractBaseline` on first use, because it needs torch and commands do not."""
    if name == "AbstractBaseline":
        from gpo_bench.baselines.base import AbstractBaseline

        return AbstractBaseline
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
