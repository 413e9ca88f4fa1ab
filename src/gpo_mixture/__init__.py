"""A field as a sum of a few Gaussians with full covariance: fitting, comparison, files, tracking."""

from typing import TYPE_CHECKING, Any

from gpo.optional import require

if TYPE_CHECKING:
    from gpo_mixture.comparison import MixtureComparison, compare
    from gpo_mixture.exports import export
    from gpo_mixture.files import load, save
    from gpo_mixture.fitting import fit, fit_series
    from gpo_mixture.mixture import GaussianMixture
    from gpo_mixture.pruning import prune
    from gpo_mixture.series import MixtureSeries
    from gpo_mixture.tracks import Tracks

__all__ = [
    "GaussianMixture",
    "MixtureComparison",
    "MixtureSeries",
    "Tracks",
    "compare",
    "export",
    "fit",
    "fit_series",
    "load",
    "prune",
    "save",
]

_HOMES = {
    "comparison": ("MixtureComparison", "compare"),
    "exports": ("export",),
    "files": ("load", "save"),
    "fitting": ("fit", "fit_series"),
    "mixture": ("GaussianMixture",),
    "pruning": ("prune",),
    "series": ("MixtureSeries",),
    "tracks": ("Tracks",),
}
_MODULES = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Imports a public name on first use, so that the command line starts without torch."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = require(f"gpo_mixture.{_MODULES[name]}", "data", f"gpo_mixture.{name}")
    return getattr(module, name)
