r"""On what a prediction at one point depends: gradient times input, by one backward pass.

For a region that is $\sum_c\partial u(x)/\partial a_{jc}\cdot a_{jc}$ at every site $j$, with
inputs counted from their mean; for a mode $\sum_c\partial u(x)/\partial T_{kc}\cdot T_{kc}$, over the
channels of its token and, where it is complex, over both parts. Both are in the units of the
output, and tell to first order what would be missing without the site or the mode.

A model of increments adds its output to the last frame. What it adds is attributed there: that
the frame itself is passed on at the point would hide everything else.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gpo.model.operator import GaussianParticleOperator
from gpo.model.silence import Silence
from gpo.train.examples import Example
from gpo.train.forecaster import Forecaster


@dataclass(frozen=True)
class Dependence:
    """Shares of sites and modes in one number."""

    attributed: float
    """The number: what the model adds to the last frame, or its deviation from the mean."""
    regions: Float[Tensor, " points"]
    modes: Float[Tensor, "layers modes"] | None
    """None where a model has no modes; in the paper's variant modes count through all heads."""


def depends_on(
    forecaster: Forecaster, example: Example, site: int, output: int, silence: Silence = Silence()
) -> Dependence:
    """Returns on what one output at one site depends.

    Args:
        forecaster: The trained model.
        example: The field that is given; its first sample counts.
        site: Number of the site.
        output: Number of the output.
        silence: Parts that are switched off.
    """
    model = forecaster.model
    values = forecaster.normalised_input(example.frames).detach().requires_grad_()
    places = {"coords": example.coords, "weights": example.weights}
    tokens: tuple[Tensor, ...] = ()
    other_axes = (0, 3)
    if isinstance(model, GaussianParticleOperator):
        trace = model.trace(values, **places, silence=silence)
        answer, tokens = trace.output, trace.tokens
        if trace.waves is not None:
            other_axes = (0, 2, 3)
    else:
        answer = model(values, **places)
    scale = forecaster.output_std[output]
    if forecaster.task.predict == "increment":
        scale = scale * forecaster.increment_std[output]
    asked = answer[0, site, output] * scale
    sources = (values, *tokens)
    slopes = torch.autograd.grad(asked, sources, allow_unused=True)
    by_site, *by_token = (
        torch.zeros_like(source) if slope is None else (slope * source).detach()
        for slope, source in zip(slopes, sources, strict=True)
    )
    shares = [part.sum(other_axes).flatten() for part in by_token]
    # What is known of any time is no matter of regions.
    by_frame = by_site[0].unflatten(-1, (forecaster.task.history, -1))
    regions = by_frame[..., forecaster.task.num_known :].sum((-2, -1))
    return Dependence(asked.item(), regions, torch.stack(shares) if shares else None)
