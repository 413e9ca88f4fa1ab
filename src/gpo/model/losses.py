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
from gpo.model.sites import MASK_ADVICE, Sites, check_finite
from gpo.model.trace import Trace
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
    trace = model.trace_sites(sites)
    return trace_losses(model, sites, trace, complete(trace.output), target, loss_weights)


def trace_losses(
    model: GaussianParticleOperator,
    sites: Sites,
    trace: Trace,
    prediction: Float[Tensor, "batch points out_channels"],
    target: Float[Tensor, "batch points out_channels"],
    loss_weights: LossWeights,
) -> dict[str, Float[Tensor, ""]]:
    """Returns the same for a forward pass that was made already."""
    _check_reconstruction(model, loss_weights)
    check_finite("target", target, sites.is_counted, MASK_ADVICE)
    q, domain = sites.weights, model.config.space
    terms = {"prediction": relative_l2(prediction, target, q)}
    if isinstance(trace.particles, Particles):
        terms |= particle_losses(trace.particles, sites, model.config, loss_weights)
    if loss_weights.input_reconstruction:
        reconstruction = model.field.decoder(trace.bases[0])
        terms["input_reconstruction"] = relative_l2(reconstruction, sites.values, q)
    if loss_weights.target_reconstruction or loss_weights.basis:
        counted = model.field.check(target, sites.coords, q, None)
        target_basis = model.field.encoder(counted.values, counted.coords).basis(
            counted.coords, domain
        )
        if loss_weights.target_reconstruction:
            reconstruction = model.field.decoder(target_basis)
            terms["target_reconstruction"] = relative_l2(reconstruction, counted.values, q)
        if loss_weights.basis:
            terms["basis"] = (q.unsqueeze(-1) * (trace.bases[-1] - target_basis).square()).sum(
                (1, 2)
            ).mean()  # fmt: skip
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
    check_finite("target", target, sites.is_counted, MASK_ADVICE)
    latent = model.encoder(sites.values, sites.coords)
    prediction = model.decoder(latent.basis(sites.coords, model.config.space))
    terms = {"prediction": relative_l2(prediction, target, sites.weights)}
    if isinstance(latent, Particles):
        terms |= particle_losses(latent, sites, model.config, loss_weights)
    return with_total(terms, loss_weights)


def particle_losses(
    particles: Particles, sites: Sites, config: OperatorConfig, loss_weights: LossWeights
) -> dict[str, Float[Tensor, ""]]:
    """Returns what keeps particles near their sites and of bounded size."""
    terms, q, domain = {}, sites.weights, config.space
    if loss_weights.center:
        terms["center"] = center_loss(particles, sites.coords, domain, q)
    if loss_weights.scale:
        terms["scale"] = scale_loss(particles, (config.sigma_min, config.sigma_max), domain, q)
    return terms


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
