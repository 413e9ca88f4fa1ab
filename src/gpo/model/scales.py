"""What a lattice of particles starts with: its number of nodes, and the scales of the Gaussians.

Scales start at half the distance of neighbouring sites, near the resolution of the data. Wider ones
blur the field so much that motion is not found: on radar images, a start at three cells never learns.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from gpo.model.config import OperatorConfig
from gpo.model.problem import Problem
from gpo.transforms.waves import Region

NODES_PER_SITE = 2
"""Nodes of the lattice for every unstructured point."""

START = 0.5
"""Scales at the start, in distances of neighbouring sites."""

MULTILINEAR = -20.0
"""Logarithm of a scale below that of any lattice: the kernel is the multilinear one."""


def num_lattice_nodes(problem: Problem, config: OperatorConfig, limits: tuple[int, ...]) -> int:
    """Returns the nodes of the lattice of unstructured points: two per point, or six per shortest wave."""
    if config.num_nodes is not None:
        return config.num_nodes
    if problem.num_points is not None and not problem.grid_shape:
        return NODES_PER_SITE * problem.num_points
    return math.prod(6 * limit for limit in limits)


def initial_scales(
    problem: Problem, config: OperatorConfig, limits: tuple[int, ...]
) -> Float[Tensor, " axes"]:
    """Returns the scales at the start along every axis, in its length; on a sphere one, in radii."""
    shape = problem.grid_shape
    if not shape:
        num_nodes = num_lattice_nodes(problem, config, limits)
        shape = (num_nodes ** (1 / problem.num_axes),) * problem.num_axes
    if problem.domain.is_sphere and not problem.is_fitted:
        region = Region.of(problem.domain)
        return torch.tensor([START * math.radians(region.north - region.south) / shape[0]])
    return START / torch.tensor(shape, dtype=torch.float32)
