r"""Attribution of a prediction at one point: gradient times input, by one backward pass.

The contribution of a site $j$ is $\sum_c\partial u(x)/\partial a_{jc}\cdot a_{jc}$, with inputs counted
from their mean; that of a mode $\sum_c\partial u(x)/\partial T_{kc}\cdot T_{kc}$, over the channels of
its token and, where it is complex, over both parts. Both are in the units of the output, and estimate
to first order what would be missing without the site or the mode.

A model of increments adds its output to the last frame. That increment is attributed: the frame
itself, passed on at the point, would hide everything else.
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
    """Contributions of sites and modes to one number."""

    attributed: float
    """The number: what the model adds to the last frame, or its deviation from the mean."""
    regions: Float[Tensor, " points"]
    modes: Float[Tensor, "layers modes"] | None
    """None where a model has no modes; in the paper's variant modes count through all heads."""


def attribute(
    forecaster: Forecaster,
    example: Example,
    site: int,
    output: int,
    ablation: Ablation = Ablation(),
) -> Attribution:
    """Attributes one output at one site.

    Args:
        forecaster: The trained model.
        example: The field that is given; its first sample counts.
        site: Number of the site.
        output: Number of the output.
        ablation: Components that are switched off.
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
    scale = forecaster.output_std[output]
    if forecaster.task.predict == "increment":
        scale = scale * forecaster.increment_scale[output]
    normal = answer[0, site, output]
    sources = (values, *tokens)
    slopes = torch.autograd.grad(normal, sources, allow_unused=True)
    by_site, *by_token = (
        torch.zeros_like(source) if slope is None else (slope * source).detach() * scale
        for slope, source in zip(slopes, sources, strict=True)
    )
    modes = [part.sum(other_axes).flatten() for part in by_token]
    # Forcings are no part of the field.
    by_frame = by_site[0].unflatten(-1, (forecaster.task.history, -1))
    regions = by_frame[..., forecaster.task.num_forcings :].sum((-2, -1))
    return Attribution((normal * scale).item(), regions, torch.stack(modes) if modes else None)
