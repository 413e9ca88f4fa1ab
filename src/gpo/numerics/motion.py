r"""Motion between frames on a grid by optical flow, and frames carried along it.

The motion $v$, in cells per step, minimises in a Gaussian window $w$ around each cell

$\sum_y w(x-y)\,\big(u_{t+1}(y)-u_t(y-v)\big)^2+\lambda\,|v-v_0|^2$

by Gauss-Newton steps (Lucas and Kanade 1981), from coarse to fine: first one motion of the whole grid,
then windows that get smaller, where $v_0$ is the motion of the larger window. It is that motion where
nothing is seen to move. A frame is carried to $u(x_d)$ with $x_d=x-v\big(\tfrac12(x+x_d)\big)$, the
midpoint rule, by cubic interpolation (Keys 1981), which carries linear fields exactly inside the grid.
"""

from collections.abc import Sequence
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

NUM_ITERATIONS = 3
"""Gauss-Newton steps with each window, and iterations of the midpoint rule."""
WHOLE = (4.0, 2.0)
"""Standard deviations in cells of the blur of images that the motion of the whole grid is found in."""
PASSES = ((2.0, 4.0), (1.0, 2.0), (0.0, 1.0))
"""Blur of images in cells, and size of windows as a multiple of the smallest one."""
PRIOR = 0.03
"""$\\lambda$, as a fraction of the mean squared gradient."""
RIDGE = 1e-3
"""The same for the motion of the whole grid, where it stabilises steps."""

Fields = Float[Tensor, "batch rows columns"]
Vectors = Float[Tensor, "batch 2 rows columns"]
"""Along rows and along columns, in cells."""


def estimate_motion(
    frames: Float[Tensor, "batch time rows columns"],
    weights: Float[Tensor, "rows columns"],
    wraps: Sequence[bool],
    window: float,
) -> Vectors:
    """Returns the motion over consecutive frames, in cells per step.

    Args:
        frames: At least two frames, oldest first.
        weights: Weights of cells; 0 where a change does not count.
        wraps: Which axes are periodic.
        window: Standard deviation of the smallest window in cells.
    """
    motion = frames.new_zeros(len(frames), 2, *frames.shape[2:])
    for blur in WHOLE:
        images = blurred(frames.flatten(0, 1), blur, wraps).view_as(frames)
        for _ in range(NUM_ITERATIONS):
            products = _products(images, motion, weights, wraps).mean((-1, -2), keepdim=True)
            motion = motion + _step(products, torch.zeros_like(motion), RIDGE)
    for blur, multiple in PASSES:
        images = blurred(frames.flatten(0, 1), blur, wraps).view_as(frames)
        prior = motion
        for _ in range(NUM_ITERATIONS):
            products = _products(images, motion, weights, wraps)
            local = blurred(products.flatten(0, 1), multiple * window, wraps).view_as(products)
            motion = motion + _step(local, prior - motion, PRIOR)
    return motion


def carried(fields: Fields, motion: Vectors, wraps: Sequence[bool]) -> Fields:
    """Returns fields one step later; what comes from outside is the value at the edge."""
    axes = [
        torch.arange(size, dtype=fields.dtype, device=fields.device) for size in fields.shape[1:]
    ]
    points = torch.stack(torch.meshgrid(*axes, indexing="ij"))
    moved = motion
    for _ in range(NUM_ITERATIONS):
        moved = sampled_vectors(motion, points - moved / 2, wraps)
    return sampled(fields, points - moved, wraps)


def blurred(fields: Fields, width: float, wraps: Sequence[bool]) -> Fields:
    """Returns Gaussian means over the cells of the grid."""
    if width == 0:
        return fields
    rows, columns = (
        _gaussian(size, width, is_periodic).to(fields)
        for size, is_periodic in zip(fields.shape[1:], wraps, strict=True)
    )
    return rows @ fields @ columns.mT


@lru_cache(maxsize=32)
def _gaussian(size: int, width: float, is_periodic: bool) -> Float[Tensor, "size size"]:
    """Returns the matrix of Gaussian means along an axis."""
    cells = torch.arange(size, dtype=torch.double)
    distance = cells - cells[:, None]
    if is_periodic:
        distance = torch.remainder(distance + size / 2, size) - size / 2
    weights = torch.exp(-0.5 * (distance / width).square())
    return weights / weights.sum(1, keepdim=True)


def sampled(fields: Fields, points: Vectors, wraps: Sequence[bool]) -> Fields:
    """Returns fields at points by cubic convolution; at points outside, the value at the edge.

    Args:
        fields: The fields.
        points: The points in cells; a single one may stand for all fields.
        wraps: Which axes are periodic.
    """
    rows, columns = (
        _stencil(points[:, axis], fields.shape[1 + axis], wraps[axis]) for axis in range(2)
    )
    lines, total = fields.flatten(1), torch.zeros_like(fields)
    for row, by_row in rows:
        for column, by_column in columns:
            index = (row * fields.shape[2] + column).flatten(1)
            values = lines.gather(1, index.expand(len(lines), -1)).view_as(fields)
            total = total + by_row * by_column * values
    return total


def sampled_vectors(vectors: Vectors, points: Vectors, wraps: Sequence[bool]) -> Vectors:
    """Returns vectors at points."""
    return torch.stack([sampled(part, points, wraps) for part in vectors.unbind(1)], 1)


def _stencil(positions: Fields, size: int, is_periodic: bool) -> list[tuple[Tensor, Tensor]]:
    """Returns four cells around each position along an axis, and their weights."""
    if not is_periodic:
        positions = positions.clamp(0, size - 1)
    first = positions.floor()
    s = positions - first
    weights = (
        s * (s * (2 - s) - 1) / 2,
        (s * s * (3 * s - 5) + 2) / 2,
        s * (s * (4 - 3 * s) + 1) / 2,
        s * s * (s - 1) / 2,
    )
    cells = [first.long() + offset for offset in (-1, 0, 1, 2)]
    cells = [c.remainder(size) if is_periodic else c.clamp(0, size - 1) for c in cells]
    return list(zip(cells, weights, strict=True))


def _products(
    images: Float[Tensor, "batch time rows columns"],
    motion: Vectors,
    weights: Float[Tensor, "rows columns"],
    wraps: Sequence[bool],
) -> Float[Tensor, "batch 5 rows columns"]:
    """Returns products of gradients and of what the motion leaves, averaged over pairs of frames."""
    axes = [torch.arange(n, dtype=images.dtype, device=images.device) for n in images.shape[2:]]
    departures = torch.stack(torch.meshgrid(*axes, indexing="ij")) - motion
    total = images.new_zeros(len(images), 5, *images.shape[2:])
    for before, after in zip(images[:, :-1].unbind(1), images[:, 1:].unbind(1), strict=True):
        arrived = sampled(before, departures, wraps)
        r, c = (_difference((arrived + after) / 2, 1 + n, wraps[n]) for n in range(2))
        left = after - arrived
        total = total + weights * torch.stack([r * r, r * c, c * c, r * left, c * left], 1)
    return total / (images.shape[1] - 1)


def _difference(fields: Fields, axis: int, is_periodic: bool) -> Fields:
    """Returns central differences, one-sided at open ends."""
    if is_periodic:
        return (fields.roll(-1, axis) - fields.roll(1, axis)) / 2
    return torch.gradient(fields, dim=axis)[0]


def _step(
    products: Float[Tensor, "batch 5 #rows #columns"], towards: Vectors, strength: float
) -> Vectors:
    """Returns the Gauss-Newton step, with a penalty on its distance from another one."""
    rr, rc, cc, r, c = products.unbind(1)
    penalty = strength * (rr + cc).mean((-1, -2), keepdim=True) / 2
    # Without any gradient nothing moves.
    penalty = penalty + torch.finfo(rr.dtype).tiny ** 0.5
    r, c = (penalty * towards[:, n] - part for n, part in enumerate((r, c)))
    rr, cc = rr + penalty, cc + penalty
    scale = 1 / (rr * cc - rc * rc)
    return torch.stack([(cc * r - rc * c) * scale, (rr * c - rc * r) * scale], 1)
