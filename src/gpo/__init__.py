"""The Gaussian Particle Operator: PDE fields as Gaussian particles that can be drawn.

Names are imported where they are first used: `import gpo` itself imports nothing heavy.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpo.data.coarsen import coarsen
    from gpo.data.dataset import DataError, FieldData, Variable
    from gpo.data.geometry import Geometry
    from gpo.data.readers.base import ReadOptions
    from gpo.data.readers.registry import open_data
    from gpo.evaluation.results import Results
    from gpo.evaluation.score import evaluate
    from gpo.exporting.export import export
    from gpo.forecast.forecaster import Forecaster, Task
    from gpo.forecast.rollout import rollout
    from gpo.inspect.cloud import ParticleCloud
    from gpo.inspect.tracers import Tracers
    from gpo.interpretation.interpretation import interpret
    from gpo.model.ablation import Ablation
    from gpo.model.config import OperatorConfig, PaperConfig
    from gpo.model.losses import LossWeights, operator_losses
    from gpo.model.operator import GaussianParticleOperator, OperatorOutput
    from gpo.model.particles import Particles
    from gpo.model.presets import count_parameters, gaussian_field, paper_ablation, preset
    from gpo.model.problem import Problem, UnsupportedGeometryError
    from gpo.model.registry import register_model
    from gpo.model.trace import Trace
    from gpo.numerics.derivatives import Derivatives
    from gpo.numerics.domain import Domain, longitude_latitude, unit_vectors
    from gpo.numerics.footprints import Footprints
    from gpo.numerics.norms import linf, mae, nrmse, relative_l2, rmse, vrmse
    from gpo.report.overview import draw_prediction
    from gpo.runs import open_run
    from gpo.settings_files import CheckpointError
    from gpo.training.config import RunConfig
    from gpo.training.fit import train

_HOMES = {
    "model.problem": ("Problem", "UnsupportedGeometryError"),
    "model.registry": ("register_model",),
    "data.coarsen": ("coarsen",),
    "data.dataset": ("DataError", "FieldData", "Variable"),
    "data.geometry": ("Geometry",),
    "data.readers.base": ("ReadOptions",),
    "data.readers.registry": ("open_data",),
    "evaluation.results": ("Results",),
    "evaluation.score": ("evaluate",),
    "exporting.export": ("export",),
    "settings_files": ("CheckpointError",),
    "forecast.forecaster": ("Forecaster", "Task"),
    "forecast.rollout": ("rollout",),
    "inspect.cloud": ("ParticleCloud",),
    "inspect.tracers": ("Tracers",),
    "interpretation.interpretation": ("interpret",),
    "model.ablation": ("Ablation",),
    "model.config": ("OperatorConfig", "PaperConfig"),
    "model.losses": ("LossWeights", "operator_losses"),
    "model.operator": ("GaussianParticleOperator", "OperatorOutput"),
    "model.particles": ("Particles",),
    "model.presets": ("count_parameters", "gaussian_field", "paper_ablation", "preset"),
    "model.trace": ("Trace",),
    "numerics.derivatives": ("Derivatives",),
    "numerics.domain": ("Domain", "longitude_latitude", "unit_vectors"),
    "numerics.footprints": ("Footprints",),
    "numerics.norms": ("linf", "mae", "nrmse", "relative_l2", "rmse", "vrmse"),
    "report.overview": ("draw_prediction",),
    "runs": ("open_run",),
    "training.config": ("RunConfig",),
    "training.fit": ("train",),
}
"""By module, the public names in it."""

__all__ = [
    "Ablation",
    "CheckpointError",
    "DataError",
    "Derivatives",
    "Domain",
    "FieldData",
    "Footprints",
    "Forecaster",
    "GaussianParticleOperator",
    "Geometry",
    "LossWeights",
    "OperatorConfig",
    "OperatorOutput",
    "PaperConfig",
    "ParticleCloud",
    "Particles",
    "Problem",
    "ReadOptions",
    "Results",
    "RunConfig",
    "Task",
    "Trace",
    "Tracers",
    "UnsupportedGeometryError",
    "Variable",
    "coarsen",
    "count_parameters",
    "draw_prediction",
    "evaluate",
    "export",
    "gaussian_field",
    "interpret",
    "linf",
    "longitude_latitude",
    "mae",
    "nrmse",
    "open_data",
    "open_run",
    "operator_losses",
    "paper_ablation",
    "preset",
    "register_model",
    "relative_l2",
    "rmse",
    "rollout",
    "train",
    "unit_vectors",
    "vrmse",
]

_MODULES = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Imports a public name, or the version, when it is first used."""
    if name == "__version__":
        from importlib.metadata import version

        found = version("gpo")
    elif name in _MODULES:
        found = getattr(importlib.import_module(f"gpo.{_MODULES[name]}"), name)
    else:
        raise AttributeError(f"module 'gpo' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Lists the public names, imported or not."""
    return sorted({*globals(), *__all__, "__version__"})
