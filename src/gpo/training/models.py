"""From a configuration and the kind of data to an untrained model: what is unset is chosen here."""

from dataclasses import fields, replace
from pathlib import Path

from gpo.baselines import Problem, RegisteredModel
from gpo.forecast.models import Model
from gpo.model.checkpoint import ArtifactError
from gpo.model.config import OperatorConfig
from gpo.model.field import GaussianField
from gpo.model.losses import LossWeights
from gpo.model.operator import GaussianParticleOperator
from gpo.model.presets import paper_ablation
from gpo.numerics.domain import Domain
from gpo.training.config import RunConfig
from gpo.training.settings import GeometricSettings, OperatorSettings, PaperSettings
from gpo.transforms.waves import resolved_waves


def build_model(
    config: RunConfig,
    *,
    in_channels: int,
    out_channels: int,
    domain: Domain,
    grid_shape: tuple[int, ...] = (),
    is_fitted: bool = False,
) -> Model:
    """Returns a new model that maps normalised values to normalised values.

    Args:
        config: Which model, and its settings.
        in_channels: Values per site in the input field.
        out_channels: Values per site in the output field.
        domain: Where the field lives.
        grid_shape: Sites along every axis of a structured grid; empty for scattered sites.
        is_fitted: Whether the grid is a mesh that follows a body.
    """
    settings = config.model.settings
    if not isinstance(settings, OperatorSettings):
        problem = Problem(in_channels, out_channels, domain, grid_shape, is_fitted)
        return RegisteredModel(config.model.name, problem, settings)
    operator = operator_config(
        settings,
        in_channels=in_channels,
        out_channels=out_channels,
        domain=domain,
        grid_shape=grid_shape,
        is_fitted=is_fitted,
        seed=config.optimizer.seed,
    )
    if config.task.phase == "field":
        return GaussianField(operator)
    model = GaussianParticleOperator(operator)
    if settings.init is not None:
        _begin_with_field(model, Path(settings.init) / "model")
    return model


def operator_config(
    settings: OperatorSettings,
    *,
    in_channels: int,
    out_channels: int,
    domain: Domain,
    grid_shape: tuple[int, ...] = (),
    is_fitted: bool = False,
    seed: int = 0,
) -> OperatorConfig:
    """Returns the architecture of our operator for some data.

    Args:
        settings: What the run sets, of either variant.
        in_channels: Values per site in the input field.
        out_channels: Values per site in the output field.
        domain: Where the field lives.
        grid_shape: Sites along every axis of a structured grid; empty for scattered sites.
        is_fitted: Whether the grid is a mesh that follows a body.
        seed: Of the Fourier features.
    """
    known = {one.name for one in fields(OperatorConfig)}
    given = {name: value for name, value in vars(settings).items() if name in known}
    if isinstance(settings, GeometricSettings):
        given["mesh_shape"] = grid_shape if is_fitted else ()
        if settings.num_waves is None and grid_shape and not is_fitted:
            given["num_waves"] = resolved_waves(domain, grid_shape)
    operator = OperatorConfig(
        variant="paper" if isinstance(settings, PaperSettings) else "geometric",
        in_channels=in_channels,
        out_channels=out_channels,
        dim=domain.dim,
        domain=domain,
        fourier_seed=seed,
        **given,
    )
    if isinstance(settings, PaperSettings) and settings.ablation is not None:
        return paper_ablation(settings.ablation, operator)
    return operator


def loss_weights(config: RunConfig) -> LossWeights:
    """Returns how the losses add up; those of a baseline are the prediction error alone."""
    settings = config.model.settings
    weights = LossWeights()
    if isinstance(settings, OperatorSettings):
        weights = replace(weights, center=settings.loss_center, scale=settings.loss_scale)
    if isinstance(settings, PaperSettings):
        weights = replace(
            weights,
            input_reconstruction=settings.loss_input,
            target_reconstruction=settings.loss_target,
            basis=settings.loss_basis,
        )
    return weights


def _begin_with_field(model: GaussianParticleOperator, folder: Path) -> None:
    field = GaussianField.from_pretrained(folder)
    if field.config != model.config:
        names = [
            name for name, value in vars(model.config).items()
            if getattr(field.config, name) != value
        ]  # fmt: skip
        raise ArtifactError(
            f"{folder}: the field was learned with other settings of {', '.join(names)}; "
            "both phases need the same."
        )
    learned = field.state_dict()
    if model.config.variant == "geometric":
        # Its decoder reads the state of a site, not the basis alone.
        learned = {name: part for name, part in learned.items() if name.startswith("encoder.")}
    model.field.load_state_dict(learned, strict=model.config.variant == "paper")
