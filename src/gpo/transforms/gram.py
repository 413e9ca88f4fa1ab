r"""The Gram matrix of the test functions over the sites, and its regularised inverse.

$G=\sum_jq_jf(x_j)f(x_j)^\top$ is what least squares has to invert. On a tensor grid the functions
are products of functions along the axes, $f=f_1\otimes\dots\otimes f_d$, whatever the weights of its
nodes are: sums go axis by axis then, and no array is as large as sites times functions.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

EIGENVALUE_FLOOR = 0.1
"""Eigenvalue of the Gram matrix below which a combination of functions is faded out."""

EIGENVALUE_FLOOR_FEW = 1e-3
"""The same where sites are few and rough functions are penalised."""

FEW_SITES_PER_MODE = 1.5
"""Sites per mode below which rough functions are penalised."""

ROUGHNESS_PENALTY = 0.1
"""Penalty on the shortest wave of an axis, where such sites do not determine all functions."""


def inverse_gram(
    gram: Float[Tensor, "*sets functions functions"],
    roughness: Float[Tensor, " functions"],
    num_sites: Float[Tensor, "*sets"],
) -> Float[Tensor, "*sets functions functions"]:
    """Returns the regularised inverse of the Gram matrix.

    Functions are orthonormal where sites are spread evenly. A combination of them with a small
    eigenvalue, as behind a mask, is faded out: its coefficient would be mostly error. Where there
    are too few sites for all functions, such combinations contain long waves too. There rough
    functions are penalised instead: of all fields that agree at the sites, the tokens are those of
    a smooth one.
    """
    are_few = (num_sites < FEW_SITES_PER_MODE * len(roughness)).unsqueeze(-1)
    if bool(are_few.any()):
        deficit = (1 - torch.linalg.eigvalsh(gram)[..., :1] / EIGENVALUE_FLOOR).clamp(0, 1)
        gram = gram + torch.diag_embed(are_few * deficit * ROUGHNESS_PENALTY * roughness**3)
    eigenvalues, directions = torch.linalg.eigh(gram)
    least = torch.where(are_few, EIGENVALUE_FLOOR_FEW, EIGENVALUE_FLOOR)
    inverse = torch.where(
        eigenvalues > least, 1 / eigenvalues.clamp_min(least), eigenvalues / least**2
    )
    return directions @ (inverse.unsqueeze(-1) * directions.mT)


def grid_gram(
    functions: Sequence[Tensor], weights: Float[Tensor, "*nodes"]
) -> Float[Tensor, "functions functions"]:
    """Returns the Gram matrix over the nodes of a tensor grid.

    Args:
        functions: Along every axis, one row per node and one column per function.
        weights: Of all nodes, an axis for each.
    """
    part = weights.unsqueeze(-1)
    for along in reversed(functions):
        pairs = (along.unsqueeze(-1) * along.unsqueeze(-2)).flatten(1)
        # Sums over the last remaining axis; the pairs of the axes before it follow.
        part = (pairs.mT @ part).flatten(-2)
    counts = [along.shape[1] for along in functions]
    part = part.unflatten(-1, [count for count in counts for _ in range(2)])
    axes = range(0, 2 * len(counts), 2)
    return part.permute(*axes, *(axis + 1 for axis in axes)).reshape(math.prod(counts), -1)
