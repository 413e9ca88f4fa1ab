r"""What training minimises: the prediction error and the terms of sections 2.1 and 2.3.

Every model has its losses computed here, by `losses_of`: an operator, a Gaussian field or a
baseline, one step ahead.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gpo.model.chunks import Chunk
from gpo.model.config import OperatorConfig, PaperConfig
from gpo.model.field import GaussianField
from gpo.model.layer import Regularizer
from gpo.model.operator import GaussianParticleOperator, OperatorOutput
from gpo.model.particles import AbstractLatent, Particles
from gpo.model.sites import MASK_ADVICE, check_finite, check_weights
from gpo.numerics.domain import Domain
from gpo.numerics.norms import relative_l2

RECONSTRUCTIONS = ("input_reconstruction", "target_reconstruction", "basis")
"""Terms in which one encoder and decoder serve the input and the target."""


@dataclass(frozen=True, kw_only=True)
class LossWeights:
    """How much each term counts; a term of weight zero is not computed."""

    prediction: float = 1.0
    """Relative L2 error of the predicted field."""
    center: float = 0.1
    """L_mu: a site's weighted mean center should be the site."""
    scale: float = 0.1
    """L_sigma: scales should stay between sigma_min and sigma_max."""
    input_reconstruction: float = 0.0
    """Relative L2 error of the input field, encoded and decoded."""
    target_reconstruction: float = 0.0
    """Relative L2 error of the target field, encoded and decoded."""
    basis: float = 0.0
    """Auxiliary supervision: the last basis should be that of the encoded target."""


def operator_losses(
    model: GaussianParticleOperator,
    values: Float[Tensor, "batch points in_channels"],
    coords: Float[Tensor, "*#batch points dim"],
    target: Float[Tensor, "batch points out_channels"],
    *,
    weights: Float[Tensor, "*#batch points"] | None = None,
    loss_weights: LossWeights = LossWeights(),
) -> dict[str, Float[Tensor, ""]]:
    """Returns every term by name, unweighted, and their weighted sum as `total`.

    Args:
        model: The operator in training.
        values: The input field at the sites.
        coords: The sites.
        target: The field to be predicted, at the same sites.
        weights: Quadrature weights of the sites; 0 masks a site here too.
        loss_weights: How the terms add up.
    """
    return losses_of(model, values, coords, target, weights=weights, loss_weights=loss_weights)[0]


def losses_of(
    model: nn.Module,
    values: Float[Tensor, "batch points in_channels"],
    coords: Float[Tensor, "*#batch points dim"],
    target: Float[Tensor, "batch points out_channels"],
    *,
    weights: Float[Tensor, "*#batch points"] | None = None,
    target_weights: Float[Tensor, "batch points"] | None = None,
    apply_increment: Callable[[Tensor], Tensor] = lambda output: output,
    loss_weights: LossWeights = LossWeights(),
    origin: Float[Tensor, "batch points out_channels"] | None = None,
) -> tuple[dict[str, Float[Tensor, ""]], Float[Tensor, "batch points out_channels"]]:
    """Returns every loss of any model by name, their weighted sum as `total`, and the prediction.

    Args:
        model: An operator, a Gaussian field or a baseline.
        values: The input field at the sites.
        coords: The sites.
        target: The field to be predicted, at the same sites.
        weights: Quadrature weights of the sites; 0 masks a site here too.
        target_weights: Those of the target, where they are others: 0 where it is missing.
        apply_increment: Makes the predicted field of the model's output, which may be an increment.
        loss_weights: How the terms add up.
        origin: What the size of the target is counted from; zero when not given.
    """
    operator = model.operator if isinstance(model, GaussianField) else model
    if not isinstance(operator, GaussianParticleOperator):
        prediction = apply_increment(operator(values, coords, weights=weights))
        scored = weights if target_weights is None else target_weights
        terms = {"prediction": relative_l2(prediction, target, scored, origin=origin)}
        return with_total(terms, loss_weights), prediction
    _check_reconstruction(operator.config, loss_weights)
    sites = operator.check(values, coords, weights, None)
    scored = sites.weights
    if target_weights is not None:
        check_weights("target_weights", target_weights, sites.shard)
        scored = target_weights
    check_finite("target", target, scored > 0, MASK_ADVICE)
    output = operator.run(sites, regularizer=particle_regularizer(operator.config, loss_weights))
    prediction = output.decoded(-1)
    if operator is model:
        prediction = apply_increment(prediction)
    error = relative_l2(prediction, target, scored, sites.shard, origin)
    terms = {"prediction": error, **particle_losses(output, loss_weights)}
    terms |= reconstruction_losses(output, target, loss_weights, scored)
    return with_total(terms, loss_weights), prediction


def with_total(terms: dict[str, Tensor], loss_weights: LossWeights) -> dict[str, Tensor]:
    """Returns all terms and their weighted sum."""
    total = torch.stack([getattr(loss_weights, name) * term for name, term in terms.items()]).sum()
    return {**terms, "total": total}


def particle_regularizer(config: OperatorConfig, loss_weights: LossWeights) -> Regularizer | None:
    """Returns what measures how far particles are from their sites, and from a bounded size.

    None where nothing of this counts.
    """
    names = _regularized(config, loss_weights)
    if not names:
        return None
    assert isinstance(config, PaperConfig)
    bounds, domain = (config.encoder.sigma_min, config.encoder.sigma_max), config.domain

    def regularizer(particles: AbstractLatent, chunk: Chunk) -> Tensor:
        assert isinstance(particles, Particles)
        assert chunk.weights is not None
        found: list[Tensor] = []
        if "center" in names:
            found.append(center_loss(particles, chunk.coords, domain, chunk.weights))
        if "scale" in names:
            found.append(scale_loss(particles, bounds, domain, chunk.weights))
        return torch.stack(found)

    return regularizer


def particle_losses(output: OperatorOutput, loss_weights: LossWeights) -> dict[str, Tensor]:
    """Returns what `particle_regularizer` said of all sites, by name."""
    if output.regularization is None:
        return {}
    together = output.sites.shard.sum(output.regularization)
    return dict(zip(_regularized(output.model.config, loss_weights), together, strict=True))


def _regularized(config: OperatorConfig, loss_weights: LossWeights) -> list[str]:
    if not isinstance(config, PaperConfig) or not config.encoder.has_gaussian_field:
        return []
    return [name for name in ("center", "scale") if getattr(loss_weights, name)]


def reconstruction_losses(
    output: OperatorOutput,
    target: Float[Tensor, "batch points out_channels"],
    loss_weights: LossWeights,
    target_weights: Float[Tensor, "batch points"],
) -> dict[str, Tensor]:
    """Returns how well encoder and decoder alone carry the input and the target."""
    model, sites = output.model, output.sites
    q, shard, terms = sites.weights, sites.shard, {}
    if loss_weights.input_reconstruction:
        error = relative_l2(output.decoded(0), sites.values, q, shard)
        terms["input_reconstruction"] = error
    if loss_weights.target_reconstruction or loss_weights.basis:
        given = target, sites.coords, target_weights, None
        wanted = model.run(model.check(*given, is_local=True), num_layers=0)
        q = wanted.sites.weights
        if loss_weights.target_reconstruction:
            error = relative_l2(wanted.decoded(-1), wanted.sites.values, q, shard)
            terms["target_reconstruction"] = error
        if loss_weights.basis:
            difference = (output.state(-1) - wanted.state(-1)).square()
            terms["basis"] = shard.sum((q.unsqueeze(-1) * difference).sum((1, 2)).mean())
    return terms


def center_loss(
    particles: Particles,
    coords: Float[Tensor, "batch points dim"],
    domain: Domain,
    weights: Float[Tensor, "batch points"],
) -> Float[Tensor, ""]:
    r"""Returns $L_\mu=\sum_jq_j\|\sum_iw_{ji}\mu_{ji}-x_j\|^2$ in unit lengths.

    The mean is taken among nearest images on periodic axes and brought back to the sphere.
    """
    offset = domain.offset(particles.centers, coords.unsqueeze(-2))
    mean_offset = (particles.weights.unsqueeze(-1) * offset).sum(-2)
    if domain.is_sphere:
        mean_offset = domain.wrap(coords + mean_offset) - coords
    squared = (mean_offset / domain.unit_lengths(coords)).square().sum(-1)
    return (weights * squared).sum(-1).mean()


def scale_loss(
    particles: Particles,
    bounds: tuple[float, float],
    domain: Domain,
    weights: Float[Tensor, "batch points"],
) -> Float[Tensor, ""]:
    r"""Returns $L_\sigma$, the mean excess of scales over `bounds`, in unit lengths."""
    scales = particles.scales / domain.unit_lengths(particles.scales)
    excess = (scales - scales.clamp(*bounds)).abs()
    return (weights * excess.mean((-1, -2))).sum(-1).mean()


def _check_reconstruction(config: OperatorConfig, loss_weights: LossWeights) -> None:
    for name in RECONSTRUCTIONS:
        weight = getattr(loss_weights, name)
        if weight and not isinstance(config, PaperConfig):
            raise ValueError(
                f"`loss_weights.{name}` must be 0 in the geometric variant, got {weight}: its "
                "decoder reads the state of a site, not the basis. Build the model from a "
                "PaperConfig, or learn a GaussianField first."
            )
        if weight and config.in_channels != config.out_channels:
            raise ValueError(
                f"`loss_weights.{name}` must be 0 where input and target differ in channels, got "
                f"{weight} with in_channels={config.in_channels}, "
                f"out_channels={config.out_channels}: one encoder and decoder serve both."
            )
