"""From a configuration and the kind of data to an untrained model: what is unset is chosen here."""

from dataclasses import fields, replace
from typing import Any

from gpo.forecast.models import Model
from gpo.model.config import (
    EncoderConfig,
    FieldConfig,
    GeometricConfig,
    OperatorConfig,
    PaperConfig,
)
from gpo.model.field import GaussianField
from gpo.model.losses import LossWeights
from gpo.model.operator import GaussianParticleOperator
from gpo.model.presets import paper_ablation
from gpo.model.problem import Problem
from gpo.model.registered import RegisteredModel
from gpo.numerics.domain import Domain
from gpo.training.config import RunConfig
from gpo.training.settings import OperatorSettings, PaperSettings
from gpo.transforms.waves import resolved_waves

NODES_PER_SITE = 2
"""Nodes of the lattice that particles look at, for every scattered site."""


def build_model(
    config: RunConfig,
    *,
    in_channels: int,
    out_channels: int,
    domain: Domain,
    grid_shape: tuple[int, ...] = (),
    is_fitted: bool = False,
    num_points: int | None = None,
) -> Model:
    """Returns a new model that maps normalised values to normalised values.

    Args:
        config: Which model, and its settings.
        in_channels: Values per site in the input field.
        out_channels: Values per site in the output field.
        domain: Where the field lives.
        grid_shape: Sites along every axis of a structured grid; empty for scattered sites.
        is_fitted: Whether the grid is a mesh that follows a body.
        num_points: How many sites there are, where that is known.
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
        num_points=num_points,
        seed=config.optimizer.seed,
    )
    if config.task.phase == "field":
        known = {one.name for one in fields(FieldConfig)}
        return GaussianField(
            FieldConfig(**{name: value for name, value in vars(operator).items() if name in known})
        )
    return GaussianParticleOperator(operator)


def operator_config(
    settings: OperatorSettings,
    *,
    in_channels: int,
    out_channels: int,
    domain: Domain,
    grid_shape: tuple[int, ...] = (),
    is_fitted: bool = False,
    num_points: int | None = None,
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
        num_points: How many sites there are, where that is known.
        seed: Of the Fourier features.
    """
    given = {"in_channels": in_channels, "out_channels": out_channels, "domain": domain}
    if isinstance(settings, PaperSettings):
        encoder = EncoderConfig(
            fourier_seed=seed, **_named(settings, EncoderConfig, "fourier_seed")
        )
        operator = PaperConfig(encoder=encoder, **given, **_named(settings, PaperConfig, *given))
        if settings.ablation is None:
            return operator
        return paper_ablation(settings.ablation, operator)
    sizes = _named(settings, GeometricConfig, *given, "fourier_seed")
    if sizes["num_waves"] is None and grid_shape and not is_fitted:
        sizes["num_waves"] = resolved_waves(domain, grid_shape)
    if num_points is not None and not grid_shape:
        sizes["num_nodes"] = NODES_PER_SITE * num_points
    mesh_shape = grid_shape if is_fitted else ()
    return GeometricConfig(fourier_seed=seed, mesh_shape=mesh_shape, **given, **sizes)


def _named(settings: OperatorSettings, config: type, *others: str) -> dict[str, Any]:
    """Returns the settings that are fields of a configuration, but for those that others give."""
    known = {one.name for one in fields(config)} - {*others}
    return {name: value for name, value in vars(settings).items() if name in known}


def loss_weights(config: RunConfig) -> LossWeights:
    """Returns how the losses add up; those of most models are the prediction error alone."""
    settings = config.model.settings
    weights = LossWeights()
    if isinstance(settings, PaperSettings):
        weights = replace(
            weights,
            center=settings.loss_center,
            scale=settings.loss_scale,
            input_reconstruction=settings.loss_input,
            target_reconstruction=settings.loss_target,
            basis=settings.loss_basis,
        )
    return weights
