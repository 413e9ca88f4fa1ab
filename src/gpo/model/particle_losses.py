r"""The paper's further losses: $L_\mu$ and $L_\sigma$ of particles, reconstruction, supervision of the basis."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from gpo.execution.points import Points, total
from gpo.model.particles import AbstractLatent, Particles
from gpo.numerics.domain import Domain
from gpo.numerics.norms import relative_l2

RECONSTRUCTIONS = ("input_reconstruction", "target_reconstruction", "basis")
"""Terms in which one encoder and decoder serve the input and the target."""


def particle_penalties(
    latent: AbstractLatent, points: Points, domain: Domain, bounds: tuple[float, float]
) -> Float[Tensor, "2"] | None:
    r"""Returns $L_\mu$ and $L_\sigma$ of some sites, which add up; None where there are no particles."""
    if not isinstance(latent, Particles):
        return None
    centers = center_loss(latent, points.coords, domain, points.weights)
    return torch.stack([centers, scale_loss(latent, bounds, domain, points.weights)])


def center_loss(
    particles: Particles,
    coords: Float[Tensor, "#batch points dim"],
    domain: Domain,
    weights: Float[Tensor, "#batch points"],
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
    weights: Float[Tensor, "#batch points"],
) -> Float[Tensor, ""]:
    r"""Returns $L_\sigma$, the mean excess of scales over `bounds`, in unit lengths."""
    scales = particles.scales / domain.unit_lengths(particles.scales)
    excess = (scales - scales.clamp(*bounds)).abs()
    return (weights * excess.mean((-1, -2))).sum(-1).mean()


def paper_losses(
    output: Any,
    target: Float[Tensor, "batch points out_channels"],
    target_weights: Float[Tensor, "#batch points"],
    loss_weights: Any,
) -> dict[str, Tensor]:
    """Returns the further terms of the training loss that have a weight, by name.

    Args:
        output: The `OperatorOutput` of the input field.
        target: The field to be predicted.
        target_weights: Its quadrature weights; 0 where it is missing.
        loss_weights: How the terms add up.
    """
    model, sites, terms = output.model, output.sites, {}
    _check_channels(model.problem, loss_weights)
    penalties = [state.penalties for state in output.state]
    if penalties[0] is not None:
        sums = sites.shard.sum(total(penalties))
        named = zip(("center", "scale"), sums, strict=True)
        terms |= {name: term for name, term in named if getattr(loss_weights, name)}
    if loss_weights.input_reconstruction:
        decoded = model.run(sites, num_layers=0).at_sites()
        error = relative_l2(decoded, sites.values, sites.weights, sites.shard)
        terms["input_reconstruction"] = error
    if not (loss_weights.target_reconstruction or loss_weights.basis):
        return terms
    coords = sites.geometry.coords.expand(len(target), -1, -1)
    target_sites = model.sites(target, coords, target_weights, is_local=True)
    has_gradient = torch.is_grad_enabled() and bool(loss_weights.target_reconstruction)
    with torch.set_grad_enabled(has_gradient):
        encoded = model.run(target_sites, num_layers=0)
    weights = encoded.sites.weights
    if loss_weights.target_reconstruction:
        error = relative_l2(encoded.at_sites(), encoded.sites.values, weights, sites.shard)
        terms["target_reconstruction"] = error
    if loss_weights.basis:
        last, first = (
            torch.cat([state.values for state in part.state]).transpose(0, 1)
            for part in (output, encoded)
        )
        # With a gradient into the target, encodings that are all alike would be a minimum.
        terms["basis"] = relative_l2(last, first.detach(), weights, sites.shard)
    return terms


def _check_channels(problem: Any, loss_weights: Any) -> None:
    for name in RECONSTRUCTIONS:
        weight = getattr(loss_weights, name)
        if weight and problem.in_channels != problem.out_channels:
            raise ValueError(
                f"`loss_weights.{name}` must be 0 where input and target differ in channels, got "
                f"{weight} with in_channels={problem.in_channels}, "
                f"out_channels={problem.out_channels}: one encoder and decoder serve both."
            )
