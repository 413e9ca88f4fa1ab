"""From a field to its Gaussians: start where what is left is largest, improve, exchange.

Particles are added in rounds, each followed by steps of `projection.improve`. Then the least needed
are taken out, and as many are put where most is left unexplained; an exchange that does not lower the
loss is undone.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from gpo.numerics.domain import Domain
from gpo_mixture.mixture import GaussianMixture
from gpo_mixture.projection import Solved, Stop, improve, never, solve
from gpo_mixture.shapes import AbstractShapes, Covariance, shapes_of
from gpo_mixture.target import Target

ROUNDS = (0.25, 0.5, 0.75, 1.0)
"""Particles at the end of every round of the start, as a fraction of all."""
NUM_EXCHANGES, EXCHANGED = 3, 0.1
"""Exchanges after the start, and the fraction of particles in each."""
WIDTH = 0.6
"""Half axes of new particles, in distances between particles that are spread evenly."""


def fit_mixture(
    values: Tensor,
    coords: Tensor,
    weights: Tensor | None,
    num_particles: int,
    *,
    domain: Domain | None = None,
    covariance: Covariance = "full",
    num_steps: int = 20,
    start: GaussianMixture | None = None,
    progress: Callable[[int, int], None] | None = None,
    should_stop: Stop = never,
) -> GaussianMixture:
    """Returns the Gaussians that are closest to a field; see `GaussianMixture.fit`."""
    if start is not None and domain is None:
        domain = start.domain
    whole = Target.of(values, coords, weights, domain)
    domain = domain or Domain.around(coords if weights is None else coords[weights > 0])
    _check(num_particles, num_steps, covariance, start, whole, domain)
    target = whole.thinned()
    total = (0 if start else len(ROUNDS)) + NUM_EXCHANGES
    tell = progress or (lambda done, of: None)
    if start is None:
        solved = _begun(
            target, num_particles, num_steps, covariance, lambda n: tell(n, total), should_stop
        )
        labels = torch.arange(len(solved.shapes))
    else:
        solved = solve(scaled(start, target, covariance), target)
        labels = start.labels.clone()
        solved = improve(solved, target, num_steps, should_stop=should_stop)
    done, newest = total - NUM_EXCHANGES, int(labels.max()) + 1
    # Particles that are followed keep their names: few are exchanged.
    fraction = EXCHANGED if start is None else EXCHANGED / 4
    for number in range(NUM_EXCHANGES):
        if should_stop():
            break
        solved, labels, newest = _exchange(
            solved, labels, newest, target, num_steps // 3 + 1, fraction, should_stop
        )
        tell(done + number + 1, total)
    variables = () if start is None else start.variables
    return finished(solved, whole, labels, domain, variables)


def finished(
    solved: Solved, whole: Target, labels: Tensor, domain: Domain, variables: tuple[str, ...]
) -> GaussianMixture:
    """Returns Gaussians in the units of the data, with amplitudes fitted to all sites."""
    final = solve(solved.shapes, whole)
    factors, centers = final.shapes.factors(), final.shapes.centers
    if not domain.is_sphere:
        centers, factors = centers * whole.units, whole.units[:, None] * factors
    return GaussianMixture(
        domain.wrap(centers),
        factors,
        final.amplitudes * whole.spread,
        final.offset * whole.spread + whole.mean,
        labels,
        domain,
        variables,
    )


def _check(
    num_particles: int,
    num_steps: int,
    covariance: str,
    start: GaussianMixture | None,
    target: Target,
    domain: Domain,
) -> None:
    count = target.num_distinct
    if not 1 <= num_particles <= count:
        raise ValueError(
            f"`num_particles` must be at least 1 and at most the number of sites that count "
            f"({count}), got {num_particles}."
        )
    if num_steps < 1:
        raise ValueError(f"`num_steps` must be at least 1, got {num_steps}.")
    if covariance not in ("full", "diagonal"):
        raise ValueError(f"`covariance` must be 'full' or 'diagonal', got {covariance!r}.")
    if covariance == "diagonal" and target.domain.is_sphere:
        raise ValueError("`covariance` must be 'full' on the sphere, which has no axes.")
    if start is not None and start.domain != domain:
        raise ValueError(
            f"`start` must live on the domain of the field, {domain}, got {start.domain}."
        )


def _begun(
    target: Target,
    num_particles: int,
    num_steps: int,
    covariance: Covariance,
    tell: Callable[[int], None],
    should_stop: Stop = never,
) -> Solved:
    """Returns a first fit, its particles added where most is left unexplained."""
    solved = solve(new_particles(target, target.values, 0, num_particles, covariance), target)
    for number, part in enumerate(ROUNDS):
        wanted = max(1, round(part * num_particles))
        left = solved.left(target)
        new = new_particles(target, left, wanted - len(solved.shapes), wanted, covariance)
        solved = solve(solved.shapes.joined(new), target)
        steps = num_steps if part == 1 else num_steps // 3 + 1
        solved = improve(solved, target, steps, should_stop=should_stop)
        tell(number + 1)
    return solved


def new_particles(
    target: Target, left: Tensor, count: int, of: int, covariance: Covariance
) -> AbstractShapes:
    """Returns round particles at the peaks of what is left, no two at the same place.

    Args:
        target: What is fitted.
        left: What is left unexplained.
        count: New particles.
        of: All particles, which say how wide each is.
        covariance: What may become of their shapes.
    """
    widths = WIDTH * target.spacing * (target.num_distinct / of) ** (1 / target.num_axes)
    score = left.square().sum(-1)
    picked: list[int] = []
    for _ in range(count):
        peak = int(score.argmax())
        picked.append(peak)
        offset = target.domain.offset(target.points, target.points[peak])
        near = torch.exp(-0.5 * offset.square().sum(-1) / widths[peak].square())
        score = score * (1 - near).clamp_min(0)
        # The same site is never picked twice, whatever is left.
        score[peak] = -1
    chosen = torch.tensor(picked, dtype=torch.long)
    eye = torch.eye(target.domain.dim, dtype=torch.float64)
    covariances = widths[chosen].square()[:, None, None] * eye
    return shapes_of(target.points[chosen], covariances, target.domain, covariance)


def _exchange(
    solved: Solved,
    labels: Tensor,
    newest: int,
    target: Target,
    num_steps: int,
    fraction: float,
    should_stop: Stop = never,
) -> tuple[Solved, Tensor, int]:
    """Returns the fit after the least needed particles moved, or the same where that is worse."""
    fewest = 1 if fraction == EXCHANGED else 0
    count = min(max(fewest, round(fraction * len(labels))), len(labels) - 1)
    if count < 1:
        return improve(solved, target, num_steps, should_stop=should_stop), labels, newest
    kept = solved.needs().argsort(descending=True)[:-count].sort().values
    fewer = solve(solved.shapes.rows(kept), target)
    new = new_particles(target, fewer.left(target), count, len(labels), solved.shapes.covariance)
    tried = solve(fewer.shapes.joined(new), target)
    tried = improve(tried, target, num_steps, should_stop=should_stop)
    if tried.loss >= solved.loss:
        return improve(solved, target, num_steps, should_stop=should_stop), labels, newest
    named = torch.arange(newest, newest + count)
    return tried, torch.cat([labels[kept], named]), newest + count


def scaled(start: GaussianMixture, target: Target, covariance: Covariance) -> AbstractShapes:
    """Returns the particles of an earlier fit in the units of the target."""
    factors = start.factors.double() / target.units[:, None]
    centers = target.domain.wrap(start.centers.double() / target.units)
    return target.bounded(shapes_of(centers, factors @ factors.mT, target.domain, covariance))
