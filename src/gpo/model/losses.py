r"""What training minimises: the prediction error and the terms of sections 2.1 and 2.3."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gpo.model.config import OperatorConfig
from gpo.model.field import GaussianField
from gpo.model.operator import GaussianParticleOperator
from gpo.model.particles import Particles
from gpo.model.sites import MASK_ADVICE, check_finite
from gpo.model.sweep import Regularizer, Sweep
from gpo.numerics.domain import Domain
from gpo.numerics.norms import relative_l2


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
    complete: Callable[[Tensor], Tensor] = lambda output: output,
    loss_weights: LossWeights = LossWeights(),
) -> dict[str, Float[Tensor, ""]]:
    """Returns every term by name, unweighted, and their weighted sum as `total`.

    Args:
        model: The operator in training.
        values: The input field at the sites.
        coords: The sites.
        target: The field to be predicted, at the same sites.
        weights: Quadrature weights of the sites; 0 masks a site here too.
        complete: Makes the predicted field of the operator's output, which may be an increment.
        loss_weights: How the terms add up.
    """
    sites = model.field.check(values, coords, weights, None)
    swept = model.sweep(sites, judge=particle_regularizer(model.config, loss_weights))
    return sweep_losses(model, swept, complete(swept.output), target, loss_weights)


def sweep_losses(
    model: GaussianParticleOperator,
    swept: Sweep,
    prediction: Float[Tensor, "batch points out_channels"],
    target: Float[Tensor, "batch points out_channels"],
    loss_weights: LossWeights,
    origin: Float[Tensor, "batch points out_channels"] | None = None,
) -> dict[str, Float[Tensor, ""]]:
    """Returns the same for a sweep that was made already, and judged by `particle_regularizer`.

    Args:
        model: The operator in training.
        swept: What came out.
        prediction: The field that was made of its output.
        target: The field to be predicted.
        loss_weights: How the terms add up.
        origin: What the size of the target is counted from; zero when not given.
    """
    _check_reconstruction(model, loss_weights)
    sites = swept.sites
    check_finite("target", target, sites.is_counted, MASK_ADVICE)
    q, shard = sites.weights, sites.shard
    terms = {"prediction": relative_l2(prediction, target, q, shard, origin)}
    terms |= particle_losses(swept, model.config, loss_weights)
    if loss_weights.input_reconstruction:
        reconstruction = swept.decoded(0)
        terms["input_reconstruction"] = relative_l2(reconstruction, sites.values, q, shard)
    if loss_weights.target_reconstruction or loss_weights.basis:
        wanted = model.field.sweep(model.field.check(target, sites.coords, q, None))
        if loss_weights.target_reconstruction:
            error = relative_l2(wanted.output, wanted.sites.values, q, shard)
            terms["target_reconstruction"] = error
        if loss_weights.basis:
            difference = (swept.bases(-1) - wanted.bases(-1)).square()
            terms["basis"] = shard.sum((q.unsqueeze(-1) * difference).sum((1, 2)).mean())
    return with_total(terms, loss_weights)


def field_losses(
    model: GaussianField,
    values: Float[Tensor, "batch points in_channels"],
    coords: Float[Tensor, "*#batch points dim"],
    target: Float[Tensor, "batch points out_channels"],
    *,
    weights: Float[Tensor, "*#batch points"] | None = None,
    loss_weights: LossWeights = LossWeights(),
) -> dict[str, Float[Tensor, ""]]:
    """Returns the losses of the Gaussian field alone (section 2.1), which reconstructs `target`."""
    sites = model.check(values, coords, weights, None)
    swept = model.sweep(sites, judge=particle_regularizer(model.config, loss_weights))
    check_finite("target", target, sites.is_counted, MASK_ADVICE)
    terms = {"prediction": relative_l2(swept.output, target, sites.weights, sites.shard)}
    terms |= particle_losses(swept, model.config, loss_weights)
    return with_total(terms, loss_weights)


def particle_regularizer(config: OperatorConfig, loss_weights: LossWeights) -> Regularizer | None:
    """Returns what tells how far particles are from their sites, and from a bounded size.

    None where nothing of this counts.
    """
    bounds, domain = (config.sigma_min, config.sigma_max), config.space
    names = _judged(config, loss_weights)
    if not names:
        return None

    def judge(particles: Particles, coords: Tensor, weights: Tensor) -> Tensor:
        losses = {
            "center": lambda: center_loss(particles, coords, domain, weights),
            "scale": lambda: scale_loss(particles, bounds, domain, weights),
        }
        return torch.stack([losses[name]() for name in names])

    return judge


def _judged(config: OperatorConfig, loss_weights: LossWeights) -> list[str]:
    if not config.has_gaussian_field:
        return []
    return [name for name in ("center", "scale") if getattr(loss_weights, name)]


def particle_losses(
    swept: Sweep, config: OperatorConfig, loss_weights: LossWeights
) -> dict[str, Float[Tensor, ""]]:
    """Returns what was judged in a sweep, by name."""
    if swept.judged is None:
        return {}
    together = swept.sites.shard.sum(swept.judged)
    return dict(zip(_judged(config, loss_weights), together, strict=True))


def with_total(terms: dict[str, Tensor], loss_weights: LossWeights) -> dict[str, Tensor]:
    """Returns all terms and their weighted sum."""
    total = torch.stack([getattr(loss_weights, name) * term for name, term in terms.items()]).sum()
    return {**terms, "total": total}


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


def _check_reconstruction(model: GaussianParticleOperator, loss_weights: LossWeights) -> None:
    config = model.config
    for name in ("input_reconstruction", "target_reconstruction", "basis"):
        if getattr(loss_weights, name) and config.variant == "geometric":
            raise ValueError(
                f"`loss_weights.{name}` must be 0 in the geometric variant, got "
                f"{getattr(loss_weights, name)}: its decoder reads the state of a site, not the "
                "basis. Choose variant='paper', or learn the field first with --stage field."
            )
        if getattr(loss_weights, name) and config.in_channels != config.out_channels:
            raise ValueError(
                f"`loss_weights.{name}` must be 0 where input and target differ in channels, got "
                f"{getattr(loss_weights, name)} with in_channels={config.in_channels}, "
                f"out_channels={config.out_channels}: one encoder and decoder serve both."
            )
