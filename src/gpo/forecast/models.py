"""From a folder to the model that is stored in it, whichever kind that is."""

from pathlib import Path

from torch import nn

from gpo.model import checkpoint
from gpo.model.config import FieldConfig
from gpo.model.field import GaussianField
from gpo.model.operator import GaussianParticleOperator
from gpo.model.registered import RegisteredModel

Model = GaussianParticleOperator | GaussianField | RegisteredModel


def load_model(folder: Path) -> Model:
    """Returns the model in a folder: operator, Gaussian field or registered baseline."""
    name = checkpoint.model_type(folder)
    if name not in checkpoint.MODEL_TYPES:
        return RegisteredModel.from_pretrained(folder)
    is_field = checkpoint.MODEL_TYPES[name] is FieldConfig
    return (GaussianField if is_field else GaussianParticleOperator).from_pretrained(folder)


def particle_operator(model: nn.Module) -> GaussianParticleOperator | None:
    """Returns the operator in a model: itself, the one in a Gaussian field, none in a baseline."""
    if isinstance(model, GaussianField):
        return model.operator
    return model if isinstance(model, GaussianParticleOperator) else None


def variant_name(model: nn.Module) -> str:
    """Returns which variant of our operator a model is; empty for a baseline."""
    operator = particle_operator(model)
    if operator is None:
        return ""
    return "paper" if operator.waves is None else "geometric"


def mesh_shape(model: nn.Module) -> tuple[int, ...]:
    """Returns the nodes along every axis of the mesh that a model is bound to; empty for none."""
    operator = particle_operator(model)
    return operator.waves.mesh_shape if operator is not None and operator.waves else ()


def count_weights(model: nn.Module) -> int:
    """Returns the number of parameters; a complex one counts once."""
    return sum(parameter.numel() for parameter in model.parameters())
