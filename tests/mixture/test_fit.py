"""The fit: identities of its parts, symmetries, known answers, and what it refuses."""

import math

import pytest
import torch

from gpo import Domain
from gpo_mixture import GaussianMixture
from gpo_mixture.fit import EXCHANGED, _begun, _exchange
from gpo_mixture.lattice import fit_lattice
from gpo_mixture.projection import improve, solve
from gpo_mixture.shapes import shapes_of
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
    """Returns a smooth field that no few Gaussians are."""
    x, y = (2 * math.pi * (coords + torch.tensor([0.013, 0.029]))).unbind(-1)
    first = torch.sin(x + torch.cos(y)) + 0.3 * torch.cos(2 * x - y + 0.4)
    return torch.stack([first, torch.cos(2 * y) * torch.sin(x) + 0.2 * torch.sin(y + 0.7)], -1)


def fibonacci(count):
    """Returns points that cover the sphere evenly."""
    number = torch.arange(count, dtype=torch.float64)
    height, angle = 1 - (2 * number + 1) / count, number * math.pi * (3 - math.sqrt(5))
    radius = (1 - height**2).sqrt()
    return torch.stack([radius * angle.cos(), radius * angle.sin(), height], -1)


def shapes_in(domain, count=4, size=0.2):
    mixture = random_mixture(domain, count=count, size=size)
    return shapes_of(mixture.centers, mixture.covariances, domain)


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
        ahead, behind = shapes.moved(step).basis(points), shapes.moved(-step).basis(points)
        # Central differences are good to the square of the step; images end where they are small.
        torch.testing.assert_close(tangents[:, number], (ahead - behind) / 2e-4, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["torus", "sphere"])
def test_shapes_and_the_mixture_made_of_them_are_the_same_functions(name):
    domain = BOXES[name]
    shapes = shapes_in(domain).moved(torch.full((4, 5), 0.1, dtype=torch.float64))
    points = fibonacci(40) if domain.is_sphere else domain.grid(6, 6)[0].double()
    for number, basis in enumerate(shapes.basis(points)):
        alone = GaussianMixture(
            shapes.centers[number : number + 1], shapes.factors()[number : number + 1],
            torch.ones(1, 1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64),
            torch.arange(1), domain,
        )  # fmt: skip
        torch.testing.assert_close(alone(points)[:, 0], basis, rtol=0, atol=1e-6)


def test_need_is_how_much_the_loss_grows_without_a_particle():
    coords, weights = grid(TORUS, 16, 16)
    target = Target.of(wavy(coords), coords, weights, TORUS)
    solved = solve(_begun(target, 6, 2, "full", lambda number: None).shapes, target)
    for number, need in enumerate(solved.needs()):
        others = torch.tensor([one for one in range(6) if one != number])
        grown = solve(solved.shapes.rows(others), target).loss - solved.loss
        assert grown == pytest.approx(float(need), rel=1e-6)


def test_the_loss_is_what_is_left_and_what_amplitudes_cost():
    coords, weights = grid(TORUS, 16, 16)
    target = Target.of(wavy(coords), coords, weights, TORUS)
    solved = _begun(target, 6, 2, "full", lambda number: None)
    left = (target.weights @ solved.left(target).square()).sum()
    cost = 1e-7 * solved.amplitudes.square().sum()
    assert solved.loss == pytest.approx(float(left + cost), rel=1e-8)


def test_a_known_mixture_is_recovered():
    coords, weights = grid(TORUS, 32, 32)
    values = KNOWN(coords)
    found = GaussianMixture.fit(values, coords, weights, 3, domain=TORUS, num_steps=40)
    assert found.error(values, coords, weights) < 1e-4
    nearest = TORUS.offset(found.centers[:, None], KNOWN.centers).norm(dim=-1).argmin(0)
    torch.testing.assert_close(found.centers[nearest], KNOWN.centers, rtol=0, atol=1e-3)
    torch.testing.assert_close(found.covariances[nearest], KNOWN.covariances, rtol=0, atol=1e-4)
    torch.testing.assert_close(found.amplitudes[nearest], KNOWN.amplitudes, rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(found.integral(), KNOWN.integral(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["line", "plane", "tube", "space", "sphere"])
def test_every_domain_is_fitted_better_with_more_particles(name):
    domain = BOXES[name]
    truth = random_mixture(domain, count=8, size=0.15, seed=4)
    shape = {1: (80,), 2: (20, 20), 3: (9, 9, 9)}
    coords, weights = grid(domain, *((16, 32) if domain.is_sphere else shape[domain.dim]))
    values = truth(coords)
    few, many = (
        GaussianMixture.fit(values, coords, weights, count, domain=domain, num_steps=8)
        for count in (2, 10)
    )
    assert many.error(values, coords, weights) < 0.5 * few.error(values, coords, weights)
    assert len(many) == 10


def test_masked_sites_do_not_matter_whatever_they_hold():
    coords, weights = grid(TORUS, 16, 16)
    values = wavy(coords)
    weights[coords[:, 0] > 0.6] = 0
    is_counted = weights > 0
    holes = torch.where(is_counted[:, None], values, torch.nan)
    points = torch.where(is_counted[:, None], coords, torch.nan)
    masked = GaussianMixture.fit(holes, points, weights, 6, domain=TORUS, num_steps=3)
    alone = GaussianMixture.fit(values[is_counted], coords[is_counted], weights[is_counted], 6, domain=TORUS, num_steps=3)  # fmt: skip
    assert torch.equal(masked.centers, alone.centers)
    assert torch.equal(masked.amplitudes, alone.amplitudes)
    assert masked.error(holes, points, weights) == alone.error(values[is_counted], coords[is_counted], weights[is_counted])  # fmt: skip


def agree(first, second):
    # Rounding grows from step to step of a fit.
    torch.testing.assert_close(first, second, rtol=0, atol=1e-6)


def test_a_site_doubled_at_half_its_weight_changes_nothing():
    coords, weights = grid(TORUS, 16, 16)
    values = wavy(coords)
    found = GaussianMixture.fit(values, coords, weights, 6, domain=TORUS, num_steps=6)
    numbers = torch.cat([torch.arange(256), torch.arange(0, 256, 3)])
    halves = weights[numbers].clone()
    halves[:256:3] /= 2
    halves[256:] /= 2
    doubled = GaussianMixture.fit(values[numbers], coords[numbers], halves, 6, domain=TORUS, num_steps=6)  # fmt: skip
    agree(doubled(coords), found(coords))


def test_the_order_of_sites_does_not_matter():
    coords, weights = grid(TORUS, 16, 16)
    values = wavy(coords)
    order = torch.randperm(256, generator=torch.Generator().manual_seed(0))
    found = GaussianMixture.fit(values, coords, weights, 6, domain=TORUS, num_steps=6)
    shuffled = GaussianMixture.fit(values[order], coords[order], weights[order], 6, domain=TORUS, num_steps=6)  # fmt: skip
    agree(shuffled(coords), found(coords))


def test_moving_a_field_on_a_torus_moves_its_gaussians():
    coords, weights = grid(TORUS, 32, 32)
    way = torch.tensor([0.3, 0.7], dtype=torch.float64)
    places = TORUS.wrap(coords + way)
    found = GaussianMixture.fit(KNOWN(coords), places, weights, 3, domain=TORUS, num_steps=40)
    nearest = TORUS.offset(found.centers[:, None], KNOWN.centers + way).norm(dim=-1).argmin(0)
    left = TORUS.offset(found.centers[nearest], KNOWN.centers + way)
    torch.testing.assert_close(left, torch.zeros_like(left), rtol=0, atol=1e-3)
    torch.testing.assert_close(found(places), KNOWN(coords), rtol=0, atol=1e-3)


def test_turning_a_field_on_the_sphere_turns_its_gaussians():
    coords = fibonacci(400)
    values = (
        torch.sin(3 * coords[:, :1] + coords[:, 1:2]) + coords[:, 2:] ** 2 + 0.4 * coords[:, 2:]
    )
    turn = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(0)).double()).Q
    found = GaussianMixture.fit(values, coords, None, 5, domain=Domain.sphere(), num_steps=6)
    turned = GaussianMixture.fit(values, coords @ turn.mT, None, 5, domain=Domain.sphere(), num_steps=6)  # fmt: skip
    agree(turned(coords @ turn.mT), found(coords))
    agree(turned.centers, found.centers @ turn.mT)


@pytest.mark.parametrize("periodic", [True, False])
def test_where_the_corner_of_a_domain_lies_does_not_matter(periodic):
    corner = torch.tensor([-10.0, 49.75], dtype=torch.float64)
    here = Domain.unit_box(2, periodic)
    there = Domain.box(corner.tolist(), (corner + 1).tolist(), periodic)
    coords, weights = grid(here, 16, 16)
    values = wavy(coords)
    found = GaussianMixture.fit(values, coords, weights, 6, domain=here, num_steps=6)
    moved = GaussianMixture.fit(values, coords + corner, weights, 6, domain=there, num_steps=6)
    agree(moved(coords + corner), found(coords))
    agree(moved.centers - corner, found.centers)


def test_units_of_length_do_not_matter():
    coords, weights = grid(TORUS, 16, 16)
    values = wavy(coords)
    units = torch.tensor([1000.0, 0.01], dtype=torch.float64)
    domain = Domain.box([0, 0], units.tolist(), True)
    found = GaussianMixture.fit(values, coords, weights, 6, domain=TORUS, num_steps=6)
    scaled = GaussianMixture.fit(values, coords * units, weights, 6, domain=domain, num_steps=6)
    agree(scaled(coords * units), found(coords))


def test_no_step_and_no_exchange_makes_the_loss_larger():
    coords, weights = grid(TORUS, 16, 16)
    target = Target.of(wavy(coords), coords, weights, TORUS)
    solved = _begun(target, 10, 1, "full", lambda number: None)
    labels, newest = torch.arange(10), 10
    for _ in range(4):
        after = improve(solved, target, 1)
        assert after.loss <= solved.loss
        solved, kept, newest = _exchange(after, labels, newest, target, 1, EXCHANGED)
        assert solved.loss <= after.loss
        assert len(kept.unique()) == len(solved.shapes) == 10


@pytest.mark.parametrize("allowed", [0.0, 0.2, 1.0])
def test_pruning_leaves_the_error_below_what_is_allowed(allowed):
    coords, weights = grid(TORUS, 24, 24)
    values = wavy(coords)[:, :1]
    found = GaussianMixture.fit(values, coords, weights, 20, domain=TORUS, num_steps=3)
    fewer = found.prune(values, coords, weights, allowed=allowed)
    error = fewer.error(values, coords, weights)
    assert error <= (1 + allowed) * found.error(values, coords, weights) * (1 + 1e-6)
    assert torch.isin(fewer.labels, found.labels).all()
    assert len(fewer) <= len(found)


def test_what_is_not_needed_is_pruned():
    coords, weights = grid(TORUS, 24, 24)
    noise = torch.randn(24**2, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values = KNOWN(coords) + 0.01 * noise
    twice = GaussianMixture(**{name: torch.cat([part, part[:1]]) if name not in ("offset", "domain", "variables") else part for name, part in vars(KNOWN).items()})  # fmt: skip
    assert len(twice) == 4
    fewer = twice.prune(values, coords, weights, allowed=0.01)
    assert len(fewer) == 3
    assert fewer.error(values, coords, weights) < 0.01


def test_axis_aligned_gaussians_have_diagonal_factors():
    coords, weights = grid(TORUS, 16, 16)
    found = GaussianMixture.fit(wavy(coords), coords, weights, 6, domain=TORUS, covariance="diagonal", num_steps=2)  # fmt: skip
    assert torch.equal(found.factors[:, 1, 0], torch.zeros(6).double())


def test_a_constant_field_is_met_exactly_and_so_is_one_constant_variable():
    coords, weights = grid(TORUS, 8, 8)
    values = torch.full((64, 1), 281.3, dtype=torch.float64)
    found = GaussianMixture.fit(values, coords, weights, 4, domain=TORUS)
    torch.testing.assert_close(found(coords), values)
    both = torch.cat([values, wavy(coords)[:, :1]], -1)
    found = GaussianMixture.fit(both, coords, weights, 4, domain=TORUS, num_steps=2)
    torch.testing.assert_close(found(coords)[:, :1], values)


def test_amplitudes_of_a_large_field_are_fitted_to_all_of_its_sites():
    domain = Domain.unit_box(1, True)
    coords, weights = grid(domain, 3 * MAX_SITES)
    values = torch.sin(2 * math.pi * coords)
    target = Target.of(values, coords, weights, domain)
    thin = target.thinned()
    assert len(thin.points) == MAX_SITES
    assert float(thin.weights.sum()) == pytest.approx(1)
    # A mean over what is kept is that over all sites.
    assert float(thin.weights @ thin.points[:, 0]) == pytest.approx(float(target.weights @ target.points[:, 0]), rel=1e-3)  # fmt: skip
    found = GaussianMixture.fit(values, coords, weights, 4, domain=domain, num_steps=2)
    assert found.error(values, coords, weights) < 0.05


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_particles": 65}, r"at most the number of sites that count \(64\), got 65"),
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
    given = {"values": wavy(coords), "coords": coords, "weights": weights, "num_particles": 4}
    with pytest.raises(ValueError, match=message):
        GaussianMixture.fit(**given | changes, domain=TORUS)


def test_an_empty_field_is_refused():
    with pytest.raises(ValueError, match="not empty"):
        GaussianMixture.fit(torch.zeros(0, 1), torch.zeros(0, 2), None, 1, domain=TORUS)


def test_axes_are_refused_on_the_sphere():
    with pytest.raises(ValueError, match="must be 'full' on the sphere"):
        GaussianMixture.fit(fibonacci(20), fibonacci(20), None, 3, domain=Domain.sphere(), covariance="diagonal")  # fmt: skip


def test_a_fit_that_is_stopped_has_all_particles_and_is_no_better_than_one_that_went_on():
    domain = TORUS
    coords, weights = grid(domain, 12, 10)
    values, asked = wavy(coords), []

    def after(number):
        def should_stop():
            asked.append(1)
            return len(asked) > number

        asked.clear()
        return GaussianMixture.fit(
            values, coords, weights, 6, domain=domain, should_stop=should_stop
        )

    fits = [after(number) for number in (0, 3, 10_000)]
    errors = [fit.error(values, coords, weights) for fit in fits]
    assert [len(fit) for fit in fits] == [6, 6, 6]
    assert errors == sorted(errors, reverse=True)
    whole = GaussianMixture.fit(values, coords, weights, 6, domain=domain)
    assert torch.equal(fits[-1].centers, whole.centers)


@pytest.mark.parametrize("name", BOXES)
def test_a_lattice_has_its_nodes_in_the_domain_and_meets_a_constant(name):
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
    # Nodes are even: no two are nearer than half of what evenly spread ones are.
    apart = domain.offset(flat.centers[:, None], flat.centers).norm(dim=-1)
    nearest = apart.fill_diagonal_(torch.inf).min(1).values
    assert nearest.min() > 0.5 * nearest.max()
