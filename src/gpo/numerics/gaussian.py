"""The Gaussian kernel of the paper (eq. 1) and its exact derivatives."""

import torch
from jaxtyping import Float
from torch import Tensor


def gaussian(
    offset: Float[Tensor, "*#batch dim"], scales: Float[Tensor, "*#batch dim"]
) -> Float[Tensor, "*batch"]:
    r"""Evaluates $\exp(-\tfrac12\sum_d (x_d-\mu_d)^2/\sigma_d^2)$; the peak is one.

    Args:
        offset: $x - \mu$, in domain units (minimum image where periodic).
        scales: Standard deviations $\sigma > 0$.
    """
    return torch.exp(-0.5 * (offset / scales).square().sum(-1))


def gaussian_gradient(
    offset: Float[Tensor, "*#batch dim"], scales: Float[Tensor, "*#batch dim"]
) -> Float[Tensor, "*batch dim"]:
    r"""Evaluates the gradient with respect to $x$, $-\frac{x-\mu}{\sigma^2}\,G$."""
    return -offset / scales.square() * gaussian(offset, scales).unsqueeze(-1)


def gaussian_laplacian(
    offset: Float[Tensor, "*#batch dim"], scales: Float[Tensor, "*#batch dim"]
) -> Float[Tensor, "*batch"]:
    r"""Evaluates the Laplacian, $\sum_d\big(\frac{(x_d-\mu_d)^2}{\sigma_d^4}-\frac1{\sigma_d^2}\big)\,G$."""
    squared = scales.square()
    curvature = (offset.square() / squared.square() - 1 / squared).sum(-1)
    return curvature * gaussian(offset, scales)


def gaussian_curvature(
    offset: Float[Tensor, "*#batch dim"],
    scales: Float[Tensor, "*#batch dim"],
    direction: Float[Tensor, "*#batch dim"],
) -> Float[Tensor, "*batch"]:
    r"""Evaluates the second derivative along $n$, $\big((n\cdot\frac{x-\mu}{\sigma^2})^2-\sum_d\frac{n_d^2}{\sigma_d^2}\big)\,G$."""
    squared = scales.square()
    slope = (direction * offset / squared).sum(-1)
    return (slope.square() - (direction.square() / squared).sum(-1)) * gaussian(offset, scales)
