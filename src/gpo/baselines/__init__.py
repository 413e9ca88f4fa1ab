"""The rivals, each in one file, written from its specification."""

from gpo.baselines.base import AbstractBaseline, Problem, UnsupportedGeometryError
from gpo.baselines.registry import REGISTRY, RegisteredModel

__all__ = [
    "REGISTRY",
    "AbstractBaseline",
    "Problem",
    "RegisteredModel",
    "UnsupportedGeometryError",
]
