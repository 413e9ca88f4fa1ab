"""From a folder to the model that is stored in it, whichever kind that is."""

from pathlib import Path

from torch import nn

from gpo.baselines import RegisteredModel
from gpo.model import checkpoint
from gpo.model.field import GaussianField
from gpo.model.operator import GaussianParticleOperator

Model = GaussianParticleOperator | GaussianField | RegisteredModel


def load_model(folder: Path) -> Model:
    """Returns the model in a folder: operator, Gaussian field or registered baseline."""
    name = checkpoint.model_type(folder)
    for ours in (GaussianParticleOperator, GaussianField):
        if name == ours.__name__:
            return ours.from_pretrained(folder)
    return RegisteredModel.from_pretrained(folder)


def count_weights(model: nn.Module) -> int:
    """Returns the number of parameters; a complex one counts once."""
    return sum(parameter.numel() for parameter in model.parameters())
