"""Named errors. Each name is a definition, the same one in a loss and in a score.

Every sum over points carries the quadrature weights, normalised per sample; a point of
weight zero does not count, whatever it holds. The result is the mean over samples (and
channels, where an error is taken per channel).
"""

import torch
from jaxtyping import Float
from torch import Tensor

from gpo.parallel.shard import SINGLE_PROCESS, SpatialShard

NEAREST = 1e-3
"""Smallest norm of target minus origin that errors are divided by, relative to the norm of the target."""


def relative_l2(
    prediction: Float[Tensor, "batch points channels"],
    target: Float[Tensor, "batch points channels"],
    weights: Float[Tensor, "#batch points"] | None = None,
    shard: SpatialShard = SINGLE_PROCESS,
    origin: Float[Tensor, "batch points channels"] | None = None,
) -> Float[Tensor, ""]:
    r"""Returns $\|\hat u-u\|/\|u-o\|$ per sample over points and channels, then the mean.

    Args:
        prediction: What is judged.
        target: What is true.
        weights: Quadrature weights.
        shard: Adds the points of other processes.
        origin: $o$, what the size of the target is counted from; zero when not given. A target
            nearer to it than `NEAREST` of its own size counts as that far.
    """
    prediction, target, q = _masked(prediction, target, weights, shard)
    squares = [(prediction - target).square(), target.square()]
    if origin is not None:
        squares.append((torch.where(q > 0, origin, target) - target).square())
    error, size, *change = shard.sum(torch.stack([(q * part).sum((1, 2)) for part in squares]))
    if change:
        size = torch.maximum(change[0], NEAREST**2 * size)
    return _root(_ratio(error, size)).mean()


def rmse(
    prediction: Float[Tensor, "batch points channels"],
    target: Float[Tensor, "batch points channels"],
    weights: Float[Tensor, "#batch points"] | None = None,
) -> Float[Tensor, ""]:
    r"""Returns $\langle(\hat u-u)^2\rangle^{1/2}$ per sample and channel, then the mean."""
    prediction, target, q = _masked(prediction, target, weights)
    return _root((q * (prediction - target).square()).sum(1)).mean()


def scaled_rmse(
    prediction: Float[Tensor, "batch points channels"],
    target: Float[Tensor, "batch points channels"],
    scale: Float[Tensor, " channels"],
    weights: Float[Tensor, "#batch points"] | None = None,
    shard: SpatialShard = SINGLE_PROCESS,
) -> Float[Tensor, ""]:
    r"""Returns $\langle((\hat u-u)/\sigma)^2\rangle^{1/2}$ per sample over points and channels, then the mean.

    It does not depend on the units of the channels, each of which counts as much as another.

    Args:
        prediction: What is judged.
        target: What is true.
        scale: $\sigma$ of every channel, such as its standard deviation in the training data.
        weights: Quadrature weights.
        shard: Adds the points of other processes.
    """
    prediction, target, q = _masked(prediction, target, weights, shard)
    squares = ((prediction - target) / scale).square()
    return _root(shard.sum((q * squares).sum(1)).mean(1)).mean()


def mae(
    prediction: Float[Tensor, "batch points channels"],
    target: Float[Tensor, "batch points channels"],
    weights: Float[Tensor, "#batch points"] | None = None,
) -> Float[Tensor, ""]:
    r"""Returns $\langle|\hat u-u|\rangle$ per sample and channel, then the mean."""
    prediction, target, q = _masked(prediction, target, weights)
    return (q * (prediction - target).abs()).sum(1).mean()


def channel_errors(
    prediction: Float[Tensor, "batch points channels"],
    target: Float[Tensor, "batch points channels"],
    weights: Float[Tensor, "#batch points"] | None = None,
) -> Float[Tensor, "batch channels"]:
    r"""Returns $\langle(\hat u-u)^2\rangle^{1/2}$ of every sample and channel, in double precision."""
    pair = prediction.double(), target.double()
    prediction, target, q = _masked(*pair, weights)
    return (q * (prediction - target).square()).sum(1).sqrt()


def anomaly_scores(
    prediction: Float[Tensor, "batch points channels"],
    target: Float[Tensor, "batch points channels"],
    weights: Float[Tensor, "#batch points"] | None = None,
    usual: Float[Tensor, "..."] | None = None,
) -> tuple[Float[Tensor, "batch channels"], Float[Tensor, "batch channels"]]:
    r"""Returns bias and anomaly correlation of every sample and channel, in double precision.

    The bias is $\langle\hat u-u\rangle$; the correlation of the anomalies $\hat a=\hat u-c$ and
    $a=u-c$ is $\langle\hat a a\rangle/\sqrt{\langle\hat a^2\rangle\langle a^2\rangle}$, zero for a
    forecast without anomaly.

    Args:
        prediction: What is judged.
        target: What is true.
        weights: Quadrature weights.
        usual: $c$, such as the climatology; zero when not given.
    """
    origin = torch.zeros(()) if usual is None else usual
    pair = (prediction.double() - origin, target.double() - origin)
    forecast, truth, q = _masked(*pair, weights)
    product = (q * forecast * truth).sum(1)
    sizes = (q * forecast.square()).sum(1).sqrt() * (q * truth.square()).sum(1).sqrt()
    return (q * (forecast - truth)).sum(1), torch.where(sizes > 0, product / sizes, 0.0)


def nrmse(
    prediction: Float[Tensor, "batch points channels"],
    target: Float[Tensor, "batch points channels"],
    weights: Float[Tensor, "#batch points"] | None = None,
) -> Float[Tensor, ""]:
    r"""Returns $\langle(\hat u-u)^2\rangle^{1/2}/\langle u^2\rangle^{1/2}$ per sample and channel, then the mean."""
    prediction, target, q = _masked(prediction, target, weights)
    error = (q * (prediction - target).square()).sum(1)
    return _root(_ratio(error, (q * target.square()).sum(1))).mean()


def vrmse(
    prediction: Float[Tensor, "batch points channels"],
    target: Float[Tensor, "batch points channels"],
    weights: Float[Tensor, "#batch points"] | None = None,
) -> Float[Tensor, ""]:
    r"""Returns the root mean square error over the standard deviation of $u$ (The Well's score)."""
    prediction, target, q = _masked(prediction, target, weights)
    mean = (q * target).sum(1, keepdim=True)
    error = (q * (prediction - target).square()).sum(1)
    variance = (q * (target - mean).square()).sum(1)
    return _root(_ratio(error, variance)).mean()


def linf(
    prediction: Float[Tensor, "batch points channels"],
    target: Float[Tensor, "batch points channels"],
    weights: Float[Tensor, "#batch points"] | None = None,
) -> Float[Tensor, ""]:
    r"""Returns $\max|\hat u-u|$ over the active points of each sample, then the mean."""
    prediction, target, _ = _masked(prediction, target, weights)
    return (prediction - target).abs().amax((1, 2)).mean()


def normalised_weights(
    weights: Float[Tensor, "#batch points"] | None,
    like: Float[Tensor, "batch points channels"],
    shard: SpatialShard = SINGLE_PROCESS,
) -> Float[Tensor, "batch points"]:
    """Returns quadrature weights that sum to one over the points of every sample, of all processes."""
    if weights is None:
        return like.new_full(like.shape[:2], 1 / shard.starts(like.shape[1])[-1])
    weights = weights.to(like.dtype).expand(like.shape[:2])
    return weights / shard.sum(weights.sum(1, keepdim=True))


def _masked(
    prediction: Tensor, target: Tensor, weights: Tensor | None, shard: SpatialShard = SINGLE_PROCESS
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns both fields, zero where the weight is zero, and the weights."""
    q = normalised_weights(weights, target, shard).unsqueeze(-1)
    zero = torch.zeros((), dtype=target.dtype, device=target.device)
    return torch.where(q > 0, prediction, zero), torch.where(q > 0, target, zero), q


def _ratio(error: Tensor, size: Tensor) -> Tensor:
    """Returns error over size: infinite where only the size is zero, but finite for a gradient."""
    if error.requires_grad:
        return error / size.clamp_min(_tiny(size))
    return torch.where(error > 0, error / size, error)


def _root(squares: Tensor) -> Tensor:
    """Returns the square root, whose derivative at zero is finite."""
    return (squares.clamp_min(_tiny(squares)) if squares.requires_grad else squares).sqrt()


def _tiny(like: Tensor) -> float:
    # Its root is a normal number, and its square root has a finite derivative.
    return torch.finfo(like.dtype).tiny
