import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpo import Domain, longitude_latitude, unit_vectors
from tests.conftest import random_points

coordinates = st.floats(-50, 50)


@given(coordinates, coordinates, st.floats(0.1, 10))
def test_periodic_offset_is_the_shortest_of_all_images(x, origin, length):
    domain = Domain.box([1.0], [1.0 + length], periodic=True)
    offset = domain.offset(
        torch.tensor([x], dtype=torch.float64), torch.tensor([origin], dtype=torch.float64)
    ).item()
    shortest = min((x - origin + turn * length for turn in range(-1100, 1101)), key=abs)
    assert abs(offset) == pytest.approx(abs(shortest), abs=1e-9)


def test_unit_coordinates_round_trip(domain):
    points = random_points(domain, 20)
    torch.testing.assert_close(domain.from_unit(domain.to_unit(points)), points)


def test_wrapping_moves_by_whole_periods_and_only_once(domain):
    points = 7 * (random_points(domain, 200) - 0.3)
    wrapped = domain.wrap(points)
    torch.testing.assert_close(domain.wrap(wrapped), wrapped)
    if domain.is_sphere:
        torch.testing.assert_close(wrapped.norm(dim=-1), torch.ones(200, dtype=torch.float64))
        return
    turns = (points - wrapped) / domain.unit_lengths(points)
    torch.testing.assert_close(turns, turns.round(), atol=1e-9, rtol=0)
    for axis, is_periodic in enumerate(domain.periodic):
        if is_periodic:
            assert (wrapped[:, axis] >= domain.lower[axis]).all()
            assert (wrapped[:, axis] < domain.upper[axis]).all()
        else:
            torch.testing.assert_close(wrapped[:, axis], points[:, axis])


def test_a_rounding_error_below_the_lower_end_wraps_inside():
    domain = Domain.unit_box(1, periodic=True)
    wrapped = domain.wrap(torch.tensor([[-1e-20]], dtype=torch.float64))
    assert 0 <= wrapped.item() < 1


def test_embedding_has_no_seam(domain):
    points = random_points(domain, 20)
    shift = domain.unit_lengths(points) * torch.tensor(domain.periodic)
    assert domain.embed(points).shape[-1] == domain.embedding_dim
    torch.testing.assert_close(domain.embed(points + shift), domain.embed(points))


def test_nearest_image_keeps_the_anchor_itself_exactly(domain):
    points = random_points(domain, 20)
    assert torch.equal(domain.nearest_image(points, points), points)


def test_grid_weights_integrate_exactly_what_their_rule_integrates():
    torch.set_default_dtype(torch.float64)
    try:
        coords, weights = Domain.box([0, 0], [2, 1], [True, False]).grid(8, 5)
        field = torch.sin(torch.pi * coords[:, 0]) ** 2 * (3 * coords[:, 1] + 1)
        assert (weights * field).sum().item() == pytest.approx(0.5 * 2.5, rel=1e-12)
        coords, weights = Domain.sphere().grid(64, 128)
        assert weights.sum().item() == pytest.approx(1, rel=1e-12)
        # The mean of z^2 over the sphere is 1/3; the midpoint rule is of second order.
        assert (weights * coords[:, 2] ** 2).sum().item() == pytest.approx(1 / 3, rel=1e-3)
    finally:
        torch.set_default_dtype(torch.float32)


def test_longitude_and_latitude_round_trip():
    longitude = torch.tensor([0.0, 90, -170, 12.5], dtype=torch.float64)
    latitude = torch.tensor([0.0, 45, -89, 71], dtype=torch.float64)
    back = longitude_latitude(unit_vectors(longitude, latitude))
    torch.testing.assert_close(back[0], longitude)
    torch.testing.assert_close(back[1], latitude)


def test_around_holds_all_points_even_on_a_plane():
    points = torch.tensor([[0.0, 3.0], [2.0, 3.0]])
    assert Domain.around(points) == Domain.box([0, 3], [2, 4])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Domain.box([0], [0]), r"below `upper`.*\[0.0, 0.0\] on axis 0"),
        (lambda: Domain.box([0, 0], [1]), "one entry per axis, got 2, 1 and 2"),
        (lambda: Domain.box([0] * 4, [1] * 4), "1, 2 or 3 entries, got 4"),
        (lambda: Domain.box([0], [float("inf")]), "finite"),
        (
            lambda: Domain((0.0,), (1.0,), (False,), is_sphere=True),
            r"three open axes.*Domain.sphere\(\)",
        ),
        (lambda: Domain.unit_box(2).grid(4), r"2 positive counts.*got \(4,\)"),
        (lambda: Domain.sphere().grid(4, 4, 4), "2 positive counts"),
    ],
)
def test_impossible_domains_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
