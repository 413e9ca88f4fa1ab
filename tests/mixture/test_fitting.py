"""The fit: identities of its parts, symmetries, recovery of known mixtures, and invalid input."""

import math

import pytest
import torch

from gpo import Domain
from gpo_mixture import GaussianMixture, fit, prune
from gpo_mixture.fitting import _initial_fit, _relocate
from gpo_mixture.lattice import fit_lattice
from gpo_mixture.projection import improve, solve
from gpo_mixture.shapes import make_shapes
from gpo_mixture.target import MAX_SITES, Target
from tests.mixture.fields import BOXES, grid, random_mixture

TORUS = Domain.unit_box(2, True)
KNOWN = GaussianMixture(
    torch.tensor([[0.3, 0.3], [0.75, 0.95], [0.7, 0.45]], dtype=torch.float64),
    torch.tensor([[[0.08, 0], [0.05, 0.04]], [[0.05, 0], [0, 0.1]], [[0.07, 0], [-0.06, 0.05]]], dtype=torch.float64),
    torch.tensor([[1.0, 0.5], [-2.0, 1.0], [1.5, -1.0]], dtype=torch.float64),
    torch.tensor([0.3, 4.0], dtype=torch.float64), torch.arange(3), TORUS,
)  # fmt: skip


def wavy(coords):
    """Returns a smooth field that a few Gaussians cannot represent exactly."""
    x, y = (2 * math.pi * (coords + torch.tensor([0.013, 0.029]))).unbind(-1)
    first = torch.sin(x + torch.cos(y)) + 0.3 * torch.cos(2 * x - y + 0.4)
    return torch.stack([first, torch.cos(2 * y) * torch.sin(x) + 0.2 * torch.sin(y + 0.7)], -1)


def fibonacci(count):
    """Returns nearly uniform points on the sphere."""
    number = torch.arange(count, dtype=torch.float64)
    height, angle = 1 - (2 * number + 1) / count, number * math.pi * (3 - math.sqrt(5))
    radius = (1 - height**2).sqrt()
    return torch.stack([radius * angle.cos(), radius * angle.sin(), height], -1)


def shapes_in(domain, count=4, size=0.2):
    mixture = random_mixture(domain, count=count, size=size)
    return make_shapes(mixture.centers, mixture.covariances, domain)


@pytest.mark.parametrize("name", ["line", "torus", "space", "sphere"])
def test_tangents_are_finite_differences_of_the_basis_along_a_step(name):
    domain = BOXES[name]
    shapes = shapes_in(domain)
    points = fibonacci(50) if domain.is_sphere else domain.from_unit(torch.rand(50, domain.dim, generator=torch.Generator().manual_seed(1)).double())  # fmt: skip
    basis, tangents = shapes.tangents(points)
    torch.testing.assert_close(basis, shapes.basis(points), rtol=0, atol=1e-12)
    for number in range(shapes.num_free):
        step = torch.zeros(len(shapes), shapes.num_free, dtype=torch.float64)
        step[:, number] = 1e-4
        ahead, behind = shapes.stepped(step).basis(points), shapes.stepped(-step).basis(points)
        # Central differences are of second order, and distant images are cut off.
        torch.testing.assert_close(tangents[:, number], (ahead - behind) / 2e-4, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["torus", "sphere"])
def test_shapes_and_their_mixture_are_the_same_functions(name):
    domain = BOXES[name]
    shapes = shapes_in(domain).stepped(torch.full((4, 5), 0.1, dtype=torch.float64))
    points = fibonacci(40) if domain.is_sphere else domain.grid(6, 6)[0].double()
    for number, basis in enumerate(shapes.basis(points)):
        alone = GaussianMixture(
            shapes.centers[number : number + 1], shapes.factors()[number : number + 1],
            torch.ones(1, 1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64),
            torch.arange(1), domain,
        )  # fmt: skip
        torch.testing.assert_close(alone(points)[:, 0], basis, rtol=0, atol=1e-6)


def test_the_removal_cost_is_the_increase_of_the_loss_without_a_gaussian():
    coords, weights = grid(TORUS, 16, 16)
    target = Target.of(wavy(coords), coords, weights, TORUS)
    solution = solve(_initial_fit(target, 6, 2, "full").shapes, target)
    for number, cost in enumerate(solution.removal_costs()):
        others = torch.tensor([other for other in range(6) if other != number])
        increase = solve(solution.shapes.rows(others), target).loss - solution.loss
        assert increase == pytest.approx(float(cost), rel=1e-6)


def test_the_loss_is_the_squared_residual_plus_the_ridge():
    coords, weights = grid(TORUS, 16, 16)
    target = Target.of(wavy(coords), coords, weights, TORUS)
    solution = _initial_fit(target, 6, 2, "full")
    squared = (target.weights @ solution.residual(target).square()).sum()
    ridge = 1e-7 * solution.amplitudes.square().sum()
    assert solution.loss == pytest.approx(float(squared + ridge), rel=1e-8)


def test_a_known_mixture_is_recovered():
    coords, weights = grid(TORUS, 32, 32)
    values = KNOWN(coords)
    mixture = fit(values, coords, weights, 3, domain=TORUS, num_steps=40)
    assert mixture.error(values, coords, weights) < 1e-4
    nearest = TORUS.offset(mixture.centers[:, None], KNOWN.centers).norm(dim=-1).argmin(0)
    torch.testing.assert_close(mixture.centers[nearest], KNOWN.centers, rtol=0, atol=1e-3)
    torch.testing.assert_close(mixture.covariances[nearest], KNOWN.covariances, rtol=0, atol=1e-4)
    torch.testing.assert_close(mixture.amplitudes[nearest], KNOWN.amplitudes, rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(mixture.integral(), KNOWN.integral(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["line", "plane", "tube", "space", "sphere"])
def test_the_error_decreases_with_more_gaussians_on_every_domain(name):
    domain = BOXES[name]
    truth = random_mixture(domain, count=8, size=0.15, seed=4)
    shape = {1: (80,), 2: (20, 20), 3: (9, 9, 9)}
    coords, weights = grid(domain, *((16, 32) if domain.is_sphere else shape[domain.dim]))
    values = truth(coords)
    few, many = (
        fit(values, coords, weights, count, domain=domain, num_steps=8) for count in (2, 10)
    )
    assert many.error(values, coords, weights) < 0.5 * few.error(values, coords, weights)
    assert len(many) == 10


def test_values_and_coordinates_of_masked_sites_are_ignored():
    coords, weights = grid(TORUS, 16, 16)
    values = wavy(coords)
    weights[coords[:, 0] > 0.6] = 0
    is_active = weights > 0
    holes = torch.where(is_active[:, None], values, torch.nan)
    points = torch.where(is_active[:, None], coords, torch.nan)
    masked = fit(holes, points, weights, 6, domain=TORUS, num_steps=3)
    alone = fit(values[is_active], coords[is_active], weights[is_active], 6, domain=TORUS, num_steps=3)  # fmt: skip
    assert torch.equal(masked.centers, alone.centers)
    assert torch.equal(masked.amplitudes, alone.amplitudes)
    assert masked.error(holes, points, weights) == alone.error(values[is_active], coords[is_active], weights[is_active])  # fmt: skip


def agree(first, second):
    # Rounding errors grow from step to step of a fit.
    torch.testing.assert_close(first, second, rtol=0, atol=1e-6)


def test_a_site_doubled_at_half_its_weight_changes_nothing():
    coords, weights = grid(TORUS, 16, 16)
    values = wavy(coords)
    mixture = fit(values, coords, weights, 6, domain=TORUS, num_steps=6)
    numbers = torch.cat([torch.arange(256), torch.arange(0, 256, 3)])
    halved = weights[numbers].clone()
    halved[:256:3] /= 2
    halved[256:] /= 2
    doubled = fit(values[numbers], coords[numbers], halved, 6, domain=TORUS, num_steps=6)  # fmt: skip
    agree(doubled(coords), mixture(coords))


def test_the_order_of_sites_does_not_matter():
    coords, weights = grid(TORUS, 16, 16)
    values = wavy(coords)
    order = torch.randperm(256, generator=torch.Generator().manual_seed(0))
    mixture = fit(values, coords, weights, 6, domain=TORUS, num_steps=6)
    shuffled = fit(values[order], coords[order], weights[order], 6, domain=TORUS, num_steps=6)  # fmt: skip
    agree(shuffled(coords), mixture(coords))


def test_moving_a_field_on_a_torus_moves_its_gaussians():
    coords, weights = grid(TORUS, 32, 32)
    shift = torch.tensor([0.3, 0.7], dtype=torch.float64)
    moved = TORUS.wrap(coords + shift)
    mixture = fit(KNOWN(coords), moved, weights, 3, domain=TORUS, num_steps=40)
    nearest = TORUS.offset(mixture.centers[:, None], KNOWN.centers + shift).norm(dim=-1).argmin(0)
    offset = TORUS.offset(mixture.centers[nearest], KNOWN.centers + shift)
    torch.testing.assert_close(offset, torch.zeros_like(offset), rtol=0, atol=1e-3)
    torch.testing.assert_close(mixture(moved), KNOWN(coords), rtol=0, atol=1e-3)


def test_rotating_a_field_on_the_sphere_rotates_its_gaussians():
    coords = fibonacci(400)
    values = (
        torch.sin(3 * coords[:, :1] + coords[:, 1:2]) + coords[:, 2:] ** 2 + 0.4 * coords[:, 2:]
    )
    rotation = torch.linalg.qr(
        torch.randn(3, 3, generator=torch.Generator().manual_seed(0)).double()
    ).Q
    mixture = fit(values, coords, None, 5, domain=Domain.sphere(), num_steps=6)
    rotated = fit(values, coords @ rotation.mT, None, 5, domain=Domain.sphere(), num_steps=6)  # fmt: skip
    agree(rotated(coords @ rotation.mT), mixture(coords))
    agree(rotated.centers, mixture.centers @ rotation.mT)


@pytest.mark.parametrize("periodic", [True, False])
def test_where_the_corner_of_a_domain_lies_does_not_matter(periodic):
    corner = torch.tensor([-10.0, 49.75], dtype=torch.float64)
    here = Domain.unit_box(2, periodic)
    there = Domain.box(corner.tolist(), (corner + 1).tolist(), periodic)
    coords, weights = grid(here, 16, 16)
    values = wavy(coords)
    mixture = fit(values, coords, weights, 6, domain=here, num_steps=6)
    moved = fit(values, coords + corner, weights, 6, domain=there, num_steps=6)
    agree(moved(coords + corner), mixture(coords))
    agree(moved.centers - corner, mixture.centers)


def test_units_of_length_do_not_matter():
    coords, weights = grid(TORUS, 16, 16)
    values = wavy(coords)
    units = torch.tensor([1000.0, 0.01], dtype=torch.float64)
    domain = Domain.box([0, 0], units.tolist(), True)
    mixture = fit(values, coords, weights, 6, domain=TORUS, num_steps=6)
    scaled = fit(values, coords * units, weights, 6, domain=domain, num_steps=6)
    agree(scaled(coords * units), mixture(coords))


def test_neither_a_step_nor_a_relocation_increases_the_loss():
    coords, weights = grid(TORUS, 16, 16)
    target = Target.of(wavy(coords), coords, weights, TORUS)
    solution = _initial_fit(target, 10, 1, "full")
    labels, next_label = torch.arange(10), 10
    for _ in range(4):
        improved = improve(solution, target, 1)
        assert improved.loss <= solution.loss
        solution, new_labels, next_label = _relocate(improved, labels, next_label, target, 1, 1)
        assert solution.loss <= improved.loss
        assert len(new_labels.unique()) == len(solution.shapes) == 10


@pytest.mark.parametrize("allowed", [0.0, 0.2, 1.0])
def test_pruning_keeps_the_error_below_the_allowed_one(allowed):
    coords, weights = grid(TORUS, 24, 24)
    values = wavy(coords)[:, :1]
    mixture = fit(values, coords, weights, 20, domain=TORUS, num_steps=3)
    fewer = prune(mixture, values, coords, weights, allowed=allowed)
    error = fewer.error(values, coords, weights)
    assert error <= (1 + allowed) * mixture.error(values, coords, weights) * (1 + 1e-6)
    assert torch.isin(fewer.labels, mixture.labels).all()
    assert len(fewer) <= len(mixture)


def test_a_redundant_gaussian_is_pruned():
    coords, weights = grid(TORUS, 24, 24)
    noise = torch.randn(24**2, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values = KNOWN(coords) + 0.01 * noise
    twice = GaussianMixture(**{name: torch.cat([part, part[:1]]) if name not in ("offset", "domain", "variables") else part for name, part in vars(KNOWN).items()})  # fmt: skip
    assert len(twice) == 4
    fewer = prune(twice, values, coords, weights, allowed=0.01)
    assert len(fewer) == 3
    assert fewer.error(values, coords, weights) < 0.01


def test_axis_aligned_gaussians_have_diagonal_factors():
    coords, weights = grid(TORUS, 16, 16)
    mixture = fit(wavy(coords), coords, weights, 6, domain=TORUS, covariance="diagonal", num_steps=2)  # fmt: skip
    assert torch.equal(mixture.factors[:, 1, 0], torch.zeros(6).double())


def test_a_constant_field_and_a_constant_variable_are_exact():
    coords, weights = grid(TORUS, 8, 8)
    values = torch.full((64, 1), 281.3, dtype=torch.float64)
    mixture = fit(values, coords, weights, 4, domain=TORUS)
    torch.testing.assert_close(mixture(coords), values)
    both = torch.cat([values, wavy(coords)[:, :1]], -1)
    mixture = fit(both, coords, weights, 4, domain=TORUS, num_steps=2)
    torch.testing.assert_close(mixture(coords)[:, :1], values)


def test_amplitudes_of_a_large_field_are_fitted_to_all_of_its_sites():
    domain = Domain.unit_box(1, True)
    coords, weights = grid(domain, 3 * MAX_SITES)
    values = torch.sin(2 * math.pi * coords)
    target = Target.of(values, coords, weights, domain)
    subset = target.subsampled()
    assert len(subset.points) == MAX_SITES
    assert float(subset.weights.sum()) == pytest.approx(1)
    # The mean over the subset is that over all sites.
    assert float(subset.weights @ subset.points[:, 0]) == pytest.approx(float(target.weights @ target.points[:, 0]), rel=1e-3)  # fmt: skip
    mixture = fit(values, coords, weights, 4, domain=domain, num_steps=2)
    assert mixture.error(values, coords, weights) < 0.05


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_particles": 65}, r"at most the number of active sites \(64\), got 65"),
        ({"num_particles": 0}, "`num_particles` must be at least 1"),
        ({"num_steps": 0}, "`num_steps` must be at least 1"),
        ({"values": torch.full((64, 1), torch.nan)}, "`values` must be finite, got 64 NaN"),
        ({"weights": torch.zeros(64)}, "all sites masked"),
        ({"weights": -torch.ones(64)}, "must not be negative"),
        ({"coords": torch.full((64, 2), torch.nan)}, "`coords` must be finite"),
    ],
)
def test_bad_input_is_refused(changes, message):
    coords, weights = grid(TORUS, 8, 8)
    arguments = {"values": wavy(coords), "coords": coords, "weights": weights, "num_particles": 4}
    with pytest.raises(ValueError, match=message):
        fit(**arguments | changes, domain=TORUS)


def test_an_empty_field_is_refused():
    with pytest.raises(ValueError, match="not empty"):
        fit(torch.zeros(0, 1), torch.zeros(0, 2), None, 1, domain=TORUS)


def test_diagonal_covariances_are_refused_on_the_sphere():
    with pytest.raises(ValueError, match="must be 'full' on the sphere"):
        fit(fibonacci(20), fibonacci(20), None, 3, domain=Domain.sphere(), covariance="diagonal")  # fmt: skip


def test_a_stopped_fit_has_all_gaussians_and_is_no_better_than_a_complete_one():
    domain = TORUS
    coords, weights = grid(domain, 12, 10)
    values, calls = wavy(coords), []

    def fit_with_steps(number):
        def should_stop():
            calls.append(1)
            return len(calls) > number

        calls.clear()
        return fit(values, coords, weights, 6, domain=domain, should_stop=should_stop)

    fits = [fit_with_steps(number) for number in (0, 3, 10_000)]
    errors = [mixture.error(values, coords, weights) for mixture in fits]
    assert [len(mixture) for mixture in fits] == [6, 6, 6]
    assert errors == sorted(errors, reverse=True)
    complete = fit(values, coords, weights, 6, domain=domain)
    assert torch.equal(fits[-1].centers, complete.centers)


@pytest.mark.parametrize("name", BOXES)
def test_a_lattice_lies_in_the_domain_and_represents_a_constant_exactly(name):
    domain = BOXES[name]
    if domain.is_sphere:
        coords = random_mixture(domain, count=200).centers
        weights = torch.full((200,), 1 / 200, dtype=torch.float64)
    else:
        coords, weights = grid(domain, *[9] * domain.dim)
    flat = fit_lattice(torch.full((len(coords), 2), 3.0), coords, weights, 12, domain)
    assert 0.9 * 12 <= len(flat) <= 12
    torch.testing.assert_close(domain.wrap(flat.centers), flat.centers)
    torch.testing.assert_close(flat(coords), torch.full((len(coords), 2), 3.0).double())
    # Nodes are regular: nearest-neighbour distances differ by less than a factor of two.
    distances = domain.offset(flat.centers[:, None], flat.centers).norm(dim=-1)
    nearest = distances.fill_diagonal_(torch.inf).min(1).values
    assert nearest.min() > 0.5 * nearest.max()
