"""The Gaussian Particle Operator: PDE fields as Gaussian particles that can be drawn."""

from importlib.metadata import version

from gpo.files import CheckpointError
from gpo.inspect.cloud import ParticleCloud
from gpo.inspect.tracks import Tracks
from gpo.model.ablation import Ablation
from gpo.model.config import EncoderConfig, FieldConfig, GeometricConfig, PaperConfig
from gpo.model.field import GaussianField
from gpo.model.losses import LossWeights, operator_losses
from gpo.model.operator import GaussianParticleOperator, OperatorOutput, count_parameters
from gpo.model.particles import Particles
from gpo.model.presets import paper_ablation, preset
from gpo.model.trace import Trace
from gpo.numerics.derivatives import Derivatives
from gpo.numerics.domain import Domain, longitude_latitude, unit_vectors
from gpo.numerics.footprints import Footprints
from gpo.numerics.norms import linf, nrmse, relative_l2, rmse, vrmse

__version__ = version("gpo")

__all__ = [
    "Ablation",
    "CheckpointError",
    "Derivatives",
    "Domain",
    "EncoderConfig",
    "FieldConfig",
    "Footprints",
    "GaussianField",
    "GaussianParticleOperator",
    "GeometricConfig",
    "LossWeights",
    "OperatorOutput",
    "PaperConfig",
    "ParticleCloud",
    "Particles",
    "Trace",
    "Tracks",
    "count_parameters",
    "linf",
    "longitude_latitude",
    "nrmse",
    "operator_losses",
    "paper_ablation",
    "preset",
    "relative_l2",
    "rmse",
    "unit_vectors",
    "vrmse",
]
