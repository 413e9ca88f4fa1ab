"""From the name in a configuration to a model, and from a folder back to it."""

import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from torch import nn

from gpo.assignments import assignments
from gpo.baselines import Problem, RegisteredModel
from gpo.model import checkpoint as artifact
from gpo.model.checkpoint import CheckpointError
from gpo.model.config import OperatorConfig
from gpo.model.field import GaussianField
from gpo.model.losses import LossWeights
from gpo.model.operator import GaussianParticleOperator
from gpo.model.presets import paper_ablation
from gpo.training.config import RunConfig
from gpo.transforms.waves import resolved_waves

Model = GaussianParticleOperator | GaussianField | RegisteredModel


WIDTHS = {"geometric": (32, 4), "paper": (64, 16)}
"""Width and Gaussians per site of the variants of gpo, where a run does not set them."""


def build_model(config: RunConfig, problem: Problem) -> Model:
    """Returns a new model that maps normalised values to normalised values."""
    if config.model != "gpo":
        return RegisteredModel(config.model, problem)
    settings: dict[str, Any] = {
        "in_channels": problem.in_channels,
        "out_channels": problem.out_channels,
        "dim": problem.domain.dim,
        "domain": problem.domain,
        "variant": config.variant,
        "mesh_shape": problem.grid_shape if problem.is_fitted else (),
        "num_waves": _num_waves(problem),
        "hidden_dim": config.hidden_dim or WIDTHS[config.variant][0],
        "num_layers": config.num_layers,
        "num_heads": config.num_heads,
        "num_gaussians": config.num_gaussians or WIDTHS[config.variant][1],
        "centers": config.centers,
        "fourier_seed": config.seed,
        **named_values("operator", config.operator, OperatorConfig),
    }
    operator = OperatorConfig(**settings)
    if config.ablation is not None:
        operator = paper_ablation(config.ablation, operator)
    if config.stage == "field":
        return GaussianField(operator)
    model = GaussianParticleOperator(operator)
    if config.init is not None:
        _begin_with_field(model, Path(config.init) / "model")
    return model


def _num_waves(problem: Problem) -> tuple[int, ...] | None:
    """Returns as many waves as a grid can tell apart; None leaves it to the model."""
    if problem.is_fitted or not problem.grid_shape:
        return None
    return resolved_waves(problem.domain, problem.grid_shape)


def loss_weights(config: RunConfig) -> LossWeights:
    """Returns how the losses of gpo add up."""
    return LossWeights(**named_values("loss", config.loss, LossWeights))


def named_values(flag: str, texts: Sequence[str], cls: type) -> dict[str, Any]:
    """Returns what `name=value` texts say, each of the type that the field of a data class has."""
    values = {name: yaml.safe_load(value) for name, value in assignments(flag, texts).items()}
    artifact.check_fields(cls, values, f"--{flag}")
    kinds = typing.get_type_hints(cls)
    return {name: float(v) if kinds[name] is float else v for name, v in values.items()}


def load_model(folder: Path) -> Model:
    """Returns the model in a folder, ours or a registered one."""
    name = artifact.model_type(folder)
    for ours in (GaussianParticleOperator, GaussianField):
        if name == ours.__name__:
            return ours.from_pretrained(folder)
    return RegisteredModel.from_pretrained(folder)


def count_weights(model: nn.Module) -> int:
    """Returns the number of parameters; a complex one counts once."""
    return sum(parameter.numel() for parameter in model.parameters())


def _begin_with_field(model: GaussianParticleOperator, folder: Path) -> None:
    field = GaussianField.from_pretrained(folder)
    if field.config != model.config:
        names = [
            name for name, value in vars(model.config).items()
            if getattr(field.config, name) != value
        ]  # fmt: skip
        raise CheckpointError(
            f"{folder}: the field was learned with other settings of {', '.join(names)}; "
            "both stages need the same."
        )
    learned = field.state_dict()
    if model.config.variant == "geometric":
        # Its decoder reads the state of a site, not the basis alone.
        learned = {name: part for name, part in learned.items() if name.startswith("encoder.")}
    model.field.load_state_dict(learned, strict=model.config.variant == "paper")
