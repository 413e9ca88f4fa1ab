"""The baselines, each in one file, written from its specification."""

from gpo.baselines.base import AbstractBaseline, Problem, UnsupportedGeometryError
from gpo.baselines.registry import (
    BASELINES,
    Baseline,
    RegisteredModel,
    baseline_config,
    register_baseline,
)

__all__ = [
    "BASELINES",
    "AbstractBaseline",
    "Baseline",
    "Problem",
    "RegisteredModel",
    "UnsupportedGeometryError",
    "baseline_config",
    "register_baseline",
]
