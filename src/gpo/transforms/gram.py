r"""The products of all test functions with each other over the sites, and their inverse.

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
"""Mean square over the sites, below which a function of mean square one counts as hardly seen."""

EIGENVALUE_FLOOR_FEW = 1e-3
"""The same where sites are few and rough functions are held back: what is left lies outside all sites."""

FEW_SITES_PER_MODE = 1.5
"""Sites per function; fewer are too few everywhere, not only behind a mask."""

ROUGHNESS_PENALTY = 0.1
"""How much the shortest wave of an axis is held back where such sites miss some function."""


def inverse_gram(
    gram: Float[Tensor, "*sets functions functions"],
    roughness: Float[Tensor, " functions"],
    num_sites: Float[Tensor, "*sets"],
) -> Float[Tensor, "*sets functions functions"]:
    """Returns the inverse of the products of all functions with each other.

    Functions are orthonormal where sites are spread evenly. A combination of them that sites
    hardly see, as behind a mask, is faded out: its coefficient would be mostly error. Where
    sites are too few for all functions, those combinations have long waves in them too. There
    rough functions are held back instead, the more so the less is seen: of all fields that agree
    at the sites, tokens are those of a smooth one.
    """
    are_few = (num_sites < FEW_SITES_PER_MODE * len(roughness)).unsqueeze(-1)
    if bool(are_few.any()):
        blindness = (1 - torch.linalg.eigvalsh(gram)[..., :1] / EIGENVALUE_FLOOR).clamp(0, 1)
        gram = gram + torch.diag_embed(are_few * blindness * ROUGHNESS_PENALTY * roughness**3)
    seen, directions = torch.linalg.eigh(gram)
    least = torch.where(are_few, EIGENVALUE_FLOOR_FEW, EIGENVALUE_FLOOR)
    inverse = torch.where(seen > least, 1 / seen.clamp_min(least), seen / least**2)
    return directions @ (inverse.unsqueeze(-1) * directions.mT)


def grid_gram(
    functions: Sequence[Tensor], weights: Float[Tensor, "*nodes"]
) -> Float[Tensor, "functions functions"]:
    """Returns the products of all functions with each other over the nodes of a tensor grid.

    Args:
        functions: Along every axis, one row per node and one column per function.
        weights: Of all nodes, an axis for each.
    """
    part = weights.unsqueeze(-1)
    for along in reversed(functions):
        pairs = (along.unsqueeze(-1) * along.unsqueeze(-2)).flatten(1)
        # Sums over the last axis that is left; the pairs of those before it stay behind.
        part = (pairs.mT @ part).flatten(-2)
    counts = [along.shape[1] for along in functions]
    part = part.unflatten(-1, [count for count in counts for _ in range(2)])
    axes = range(0, 2 * len(counts), 2)
    return part.permute(*axes, *(axis + 1 for axis in axes)).reshape(math.prod(counts), -1)
