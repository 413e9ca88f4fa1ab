r"""Attribution of the prediction at one point: gradient times input, from one backward pass.

The contribution of site $j$ is $\sum_c\partial u(x)/\partial a_{jc}\cdot a_{jc}$, with normalised
inputs $a$; that of mode $k$ is $\sum_c\partial u(x)/\partial T_{kc}\cdot T_{kc}$, over the channels of
its token, and over real and imaginary parts. Both are in the units of the output: first-order
estimates of the change without the site or the mode.

For a model that predicts increments, the increment is attributed: the last frame, to which it is
added, would dominate all other contributions.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gpo.forecast.examples import Example
from gpo.forecast.forecaster import Forecaster
from gpo.model.ablation import Ablation


@dataclass(frozen=True)
class Attribution:
    """Contributions of sites and modes to one output value."""

    attributed: float
    """The value: the predicted increment, or the deviation of the prediction from the mean."""
    regions: Float[Tensor, " points"]
    modes: Float[Tensor, "layers modes"] | None
    """None for a model without modes; in the paper's variant modes are numbered across heads."""


def attribute(
    forecaster: Forecaster,
    example: Example,
    site: int,
    output: int,
    ablation: Ablation = Ablation(),
) -> Attribution:
    """Attributes one output at one site to sites and modes.

    Args:
        forecaster: The trained model.
        example: The input; only its first sample is used.
        site: Index of the site.
        output: Index of the output variable.
        ablation: Parts of the model that are switched off.
    """
    model = forecaster.model
    values = forecaster.normalised_input(example.frames).detach().requires_grad_()
    places = {"coords": example.coords, "weights": example.site_weights}
    tokens: tuple[Tensor, ...] = ()
    other_axes = (0, 3)
    if model.operator is not None:
        with ablation.applied(model.operator):
            trace = model.operator.trace(values, **places)
        answer, tokens = trace.output, trace.tokens
        if trace.waves is not None:
            other_axes = (0, 2, 3)
    else:
        answer = model(values, **places)
    scale = forecaster.output_scale.expand(answer.shape[1], -1)[site, output]
    if forecaster.task.predict == "increment":
        scale = scale * forecaster.increment_scale[output]
    value = answer[0, site, output]
    sources = (values, *tokens)
    gradients = torch.autograd.grad(value, sources, allow_unused=True)
    by_site, *by_token = (
        torch.zeros_like(source) if gradient is None else (gradient * source).detach() * scale
        for gradient, source in zip(gradients, sources, strict=True)
    )
    modes = [token.sum(other_axes).flatten() for token in by_token]
    # Forcings are not part of the field.
    by_frame = by_site[0].unflatten(-1, (forecaster.task.history, -1))
    regions = by_frame[..., forecaster.task.num_forcings :].sum((-2, -1))
    return Attribution((value * scale).item(), regions, torch.stack(modes) if modes else None)
