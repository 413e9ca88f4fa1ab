"""The training loss: the prediction error, and the further terms that a model has.

Every model has its losses computed here, by `losses_of`, one step ahead.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gpo.execution.inputs import MASK_ADVICE, check_finite, check_weights
from gpo.model.model import AbstractModel
from gpo.model.operator import GaussianParticleOperator
from gpo.model.particle_losses import RECONSTRUCTIONS
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
    """Auxiliary supervision: relative L2 error of the last basis, against that of the target."""

    @classmethod
    def of(cls, config: Any) -> "LossWeights":
        """Returns the weights that a configuration sets: its fields `loss_center` and so on."""
        names = {"input": "input_reconstruction", "target": "target_reconstruction"}
        stated = {name: weight for name, weight in vars(config).items() if name.startswith("loss_")}
        pairs = ((name.removeprefix("loss_"), weight) for name, weight in stated.items())
        known = {setting.name for setting in fields(cls)}
        weights = {names.get(name, name): weight for name, weight in pairs}
        return cls(**{name: weight for name, weight in weights.items() if name in known})


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
        model: Any model.
        values: The input field at the sites.
        coords: The sites.
        target: The field to be predicted, at the same sites.
        weights: Quadrature weights of the sites; 0 masks a site here too.
        target_weights: Those of the target, where they differ: 0 where it is missing.
        apply_increment: Makes the predicted field of the model's output, which may be an increment.
        loss_weights: How the terms add up.
        origin: What the norm of the target is relative to; zero when not given.
    """
    operator = model.operator if isinstance(model, AbstractModel) else None
    if operator is None:
        prediction = apply_increment(model(values, coords, weights=weights))
        scored = weights if target_weights is None else target_weights
        terms = {"prediction": relative_l2(prediction, target, scored, origin=origin)}
        return with_total(terms, loss_weights), prediction
    _check_terms(operator, loss_weights)
    sites = operator.sites(values, coords, weights)
    scored = sites.weights
    if target_weights is not None:
        check_weights("target_weights", target_weights, sites.shard)
        scored = target_weights
    check_finite("target", target, scored > 0, MASK_ADVICE)
    output = operator.run(sites)
    prediction = apply_increment(output.at_sites())
    terms = {"prediction": relative_l2(prediction, target, scored, sites.shard, origin)}
    if operator.further_losses is not None:
        terms |= operator.further_losses(output, target, scored, loss_weights)
    return with_total(terms, loss_weights), prediction


def with_total(terms: dict[str, Tensor], loss_weights: LossWeights) -> dict[str, Tensor]:
    """Returns all terms and their weighted sum."""
    total = torch.stack([getattr(loss_weights, name) * term for name, term in terms.items()]).sum()
    return {**terms, "total": total}


def _check_terms(operator: GaussianParticleOperator, loss_weights: LossWeights) -> None:
    """Refuses weights of terms that a model does not have."""
    for name in RECONSTRUCTIONS:
        weight = getattr(loss_weights, name)
        if weight and operator.further_losses is None:
            raise ValueError(
                f"`loss_weights.{name}` must be 0 for {operator.name}, got {weight}: it has no "
                "encoder. Build the model from a PaperConfig."
            )
