"""Fits Gaussians to a field, or to the frames of a series.

Gaussians are added in rounds at the peaks of the residual, each round followed by steps of
`projection.improve`. Then the Gaussians with least removal costs are relocated to peaks of the
residual; a relocation that does not reduce the loss is undone.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from gpo.numerics.domain import Domain
from gpo_mixture.mixture import GaussianMixture
from gpo_mixture.projection import Solution, StopCondition, improve, never_stop, solve
from gpo_mixture.series import MixtureSeries
from gpo_mixture.shapes import AbstractShapes, Covariance, make_shapes
from gpo_mixture.target import Target

ROUNDS = (0.25, 0.5, 0.75, 1.0)
"""Fraction of the Gaussians present at the end of every round of the initial fit."""
NUM_RELOCATIONS, RELOCATED_FRACTION = 3, 0.1
"""Relocations after the initial fit, and the fraction of the Gaussians in each."""
INITIAL_WIDTH = 0.6
"""Standard deviation of new Gaussians, in spacings of evenly distributed ones."""


def fit(
    values: Float[Tensor, "points channels"] | Float[Tensor, " points"],
    coords: Float[Tensor, "points dim"],
    weights: Float[Tensor, " points"] | None = None,
    num_particles: int = 100,
    *,
    domain: Domain | None = None,
    covariance: Covariance = "full",
    num_steps: int = 20,
    start: GaussianMixture | None = None,
    progress: Callable[[int, int], None] | None = None,
    should_stop: StopCondition = never_stop,
) -> GaussianMixture:
    """Fits Gaussians to a field by weighted least squares.

    Args:
        values: The field at its sites.
        coords: Coordinates of the sites; unit vectors on the sphere.
        weights: Quadrature weights; 0 masks a site. Equal weights if None.
        num_particles: Number of Gaussians; ignored if `start` is given.
        domain: Domain of the field; the bounding box of the sites if None.
        covariance: "full", or "diagonal" for axis-aligned ellipses.
        num_steps: Steps in every round; more are slower and more accurate.
        start: Initial mixture, such as that of the previous frame; its Gaussians keep their labels.
        progress: Called with the number of finished rounds and of all rounds.
        should_stop: Called before every step. Once it returns True, the fit ends with all
            Gaussians present but less accurately fitted; its exceptions end the fit.
    """
    if start is not None:
        domain, num_particles = domain or start.domain, len(start)
    target = Target.of(values, coords, weights, domain)
    _check_arguments(num_particles, num_steps, covariance, start, target)
    sites = target.subsampled()
    num_rounds = (0 if start else len(ROUNDS)) + NUM_RELOCATIONS

    def report(done: int) -> None:
        if progress is not None:
            progress(done, num_rounds)

    if start is None:
        solution = _initial_fit(sites, num_particles, num_steps, covariance, report, should_stop)
        labels = torch.arange(len(solution.shapes))
        count = max(1, round(RELOCATED_FRACTION * len(labels)))
    else:
        solution = solve(mixture_shapes(start, sites, covariance), sites)
        solution = improve(solution, sites, num_steps, should_stop=should_stop)
        labels = start.labels.clone()
        # Relocated Gaussians get new labels, so few are relocated between frames.
        count = round(RELOCATED_FRACTION / 4 * len(labels))
    next_label = int(labels.max()) + 1
    for number in range(NUM_RELOCATIONS):
        if should_stop():
            break
        solution, labels, next_label = _relocate(
            solution, labels, next_label, sites, num_steps // 3 + 1, count, should_stop
        )
        report(num_rounds - NUM_RELOCATIONS + number + 1)
    return to_mixture(solution, target, labels, () if start is None else start.variables)


def fit_series(
    frames: Iterable[Float[Tensor, "points channels"]],
    coords: Float[Tensor, "points dim"],
    weights: Float[Tensor, " points"] | None = None,
    num_particles: int = 100,
    *,
    domain: Domain | None = None,
    covariance: Covariance = "full",
    num_steps: int = 20,
    variables: Sequence[str] = (),
    times: Sequence[float] = (),
    progress: Callable[[int], None] | None = None,
) -> MixtureSeries:
    """Fits Gaussians to every frame of a series, starting from those of the previous frame.

    Gaussians keep their labels from frame to frame, except the few that are relocated.

    Args:
        frames: Fields at the same sites, in order of time.
        coords: Coordinates of the sites; unit vectors on the sphere.
        weights: Quadrature weights; 0 masks a site. Equal weights if None.
        num_particles: Number of Gaussians in every frame.
        domain: Domain of the field; the bounding box of the sites if None.
        covariance: "full", or "diagonal" for axis-aligned ellipses.
        num_steps: Steps in every round; more are slower and more accurate.
        variables: Names of the variables.
        times: Times of the frames.
        progress: Called with the number of finished frames.
    """
    mixtures: list[GaussianMixture] = []
    next_label = 0
    for number, values in enumerate(frames):
        previous = mixtures[-1] if mixtures else None
        mixture = fit(
            values, coords, weights, num_particles,
            domain=domain, covariance=covariance, num_steps=num_steps, start=previous,
        )  # fmt: skip
        labels = mixture.labels.clone()
        if previous is not None:
            # New labels must differ from those of all frames, not only of the previous one.
            is_new = ~torch.isin(labels, previous.labels)
            labels[is_new] = torch.arange(next_label, next_label + int(is_new.sum()))
        next_label = max(next_label, int(labels.max()) + 1)
        mixtures.append(replace(mixture, labels=labels, variables=tuple(variables)))
        if progress is not None:
            progress(number + 1)
    return MixtureSeries(tuple(mixtures), tuple(times))


def to_mixture(
    solution: Solution, target: Target, labels: Tensor, variables: tuple[str, ...] = ()
) -> GaussianMixture:
    """Returns the mixture in the units of the data, with amplitudes fitted to all sites."""
    solution = solve(solution.shapes, target)
    centers, factors = solution.shapes.centers, solution.shapes.factors()
    if not target.domain.is_sphere:
        centers, factors = centers * target.units, target.units[:, None] * factors
    return GaussianMixture(
        target.data_domain.wrap(centers),
        factors,
        solution.amplitudes * target.spread,
        solution.offset * target.spread + target.mean,
        labels,
        target.data_domain,
        variables,
    )


def mixture_shapes(
    mixture: GaussianMixture, target: Target, covariance: Covariance = "full"
) -> AbstractShapes:
    """Returns the Gaussians of a mixture in the units of the target."""
    factors = mixture.factors.double() / target.units[:, None]
    centers = target.domain.wrap(mixture.centers.double() / target.units)
    return target.clamp(make_shapes(centers, factors @ factors.mT, target.domain, covariance))


def shapes_at_peaks(
    target: Target, residual: Tensor, count: int, total: int, covariance: Covariance
) -> AbstractShapes:
    """Returns isotropic Gaussians at peaks of the residual, at distinct sites.

    Args:
        target: The field to fit.
        residual: The field minus the present mixture.
        count: Number of new Gaussians.
        total: Number of all Gaussians, which determines the initial width.
        covariance: Covariances that later steps may reach.
    """
    widths = INITIAL_WIDTH * target.spacing * (target.num_distinct / total) ** (1 / target.num_axes)
    score = residual.square().sum(-1)
    peaks: list[int] = []
    for _ in range(count):
        peak = int(score.argmax())
        peaks.append(peak)
        offset = target.domain.offset(target.points, target.points[peak])
        nearness = torch.exp(-0.5 * offset.square().sum(-1) / widths[peak].square())
        score = score * (1 - nearness).clamp_min(0)
        # No site is chosen twice, even where the residual is zero.
        score[peak] = -1
    sites = torch.tensor(peaks, dtype=torch.long)
    eye = torch.eye(target.domain.dim, dtype=torch.float64)
    covariances = widths[sites].square()[:, None, None] * eye
    return make_shapes(target.points[sites], covariances, target.domain, covariance)


def _check_arguments(
    num_particles: int,
    num_steps: int,
    covariance: str,
    start: GaussianMixture | None,
    target: Target,
) -> None:
    if not 1 <= num_particles <= target.num_distinct:
        raise ValueError(
            f"`num_particles` must be at least 1 and at most the number of active sites "
            f"({target.num_distinct}), got {num_particles}."
        )
    if num_steps < 1:
        raise ValueError(f"`num_steps` must be at least 1, got {num_steps}.")
    if covariance not in ("full", "diagonal"):
        raise ValueError(f"`covariance` must be 'full' or 'diagonal', got {covariance!r}.")
    if covariance == "diagonal" and target.domain.is_sphere:
        raise ValueError("`covariance` must be 'full' on the sphere, which has no axes.")
    if start is not None and start.domain != target.data_domain:
        raise ValueError(
            f"`start` must have the domain of the field, {target.data_domain}, got {start.domain}."
        )


def _initial_fit(
    target: Target,
    num_particles: int,
    num_steps: int,
    covariance: Covariance,
    report: Callable[[int], None] = lambda done: None,
    should_stop: StopCondition = never_stop,
) -> Solution:
    """Returns a first fit, in which every round adds Gaussians at peaks of the residual."""
    solution = solve(shapes_at_peaks(target, target.values, 0, num_particles, covariance), target)
    for number, fraction in enumerate(ROUNDS):
        total = max(1, round(fraction * num_particles))
        count, residual = total - len(solution.shapes), solution.residual(target)
        new = shapes_at_peaks(target, residual, count, total, covariance)
        solution = solve(solution.shapes.joined(new), target)
        steps = num_steps if fraction == 1 else num_steps // 3 + 1
        solution = improve(solution, target, steps, should_stop=should_stop)
        report(number + 1)
    return solution


def _relocate(
    solution: Solution,
    labels: Tensor,
    next_label: int,
    target: Target,
    num_steps: int,
    count: int,
    should_stop: StopCondition = never_stop,
) -> tuple[Solution, Tensor, int]:
    """Moves the `count` Gaussians with least removal costs to peaks, if that reduces the loss.

    Returns:
        The improved solution, its labels and the next unused label.
    """
    count = min(count, len(labels) - 1)
    if count > 0:
        kept = solution.without_cheapest(count)
        rest = solve(solution.shapes.rows(kept), target)
        covariance = solution.shapes.covariance
        new = shapes_at_peaks(target, rest.residual(target), count, len(labels), covariance)
        trial = solve(rest.shapes.joined(new), target)
        trial = improve(trial, target, num_steps, should_stop=should_stop)
        if trial.loss < solution.loss:
            new_labels = torch.arange(next_label, next_label + count)
            return trial, torch.cat([labels[kept], new_labels]), next_label + count
    return improve(solution, target, num_steps, should_stop=should_stop), labels, next_label
