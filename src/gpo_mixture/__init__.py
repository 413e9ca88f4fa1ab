"""A field as few Gaussians with full covariance: the object, its fit, its files, its motion."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpo_mixture.mixture import GaussianMixture
    from gpo_mixture.series import MixtureSeries
    from gpo_mixture.tracks import Tracks

__all__ = ["GaussianMixture", "MixtureSeries", "Tracks"]

_MODULES = {
    "GaussianMixture": "gpo_mixture.mixture",
    "MixtureSeries": "gpo_mixture.series",
    "Tracks": "gpo_mixture.tracks",
}


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first asked for: commands need none of them."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
