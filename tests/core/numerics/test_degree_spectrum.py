import numpy as np
import pytest
from scipy.special import sph_harm_y

from gpo.numerics.spectral import degree_spectrum, latitude_rule


def with_poles(size):
    return np.linspace(-90, 90, size)


def cell_centres(size):
    return (np.arange(size) + 0.5) * 180 / size - 90


GRIDS = {
    "poles": (with_poles(13), 24),
    "poles, odd": (with_poles(12), 25),
    "centres": (cell_centres(12), 24),
    "centres, descending": (cell_centres(13)[::-1], 26),
    "poles, descending": (with_poles(13)[::-1], 30),
}


@pytest.fixture(params=GRIDS.values(), ids=[*GRIDS])
def grid(request):
    latitude, num_longitudes = request.param
    return latitude, -170.0 + np.arange(num_longitudes) * 360 / num_longitudes


def harmonic(degree, order, latitude, longitude):
    return sph_harm_y(degree, order, np.deg2rad(90 - latitude)[:, None], np.deg2rad(longitude))


def test_a_spherical_harmonic_has_its_own_degree_only(grid):
    top = len(grid[0]) - (2 if np.abs(grid[0]).max() == 90 else 1)
    for degree in (0, 1, 2, 5, top):
        for order in {0, 1, degree // 2, degree}:
            if order <= degree:
                # The area-weighted mean of |Y|^2 is 1 / 4 pi, shared by both parts.
                field = harmonic(degree, order, *grid)
                power = degree_spectrum(field.real, grid[0]) + degree_spectrum(field.imag, grid[0])
                expected = np.zeros(top + 1)
                expected[degree] = 1 / (4 * np.pi)
                np.testing.assert_allclose(power, expected, rtol=1e-12, atol=1e-15)


def test_a_constant_has_its_square_in_degree_zero(grid):
    power = degree_spectrum(np.full((len(grid[0]), len(grid[1])), -3.0), grid[0])
    assert power[0] == pytest.approx(9)
    assert np.abs(power[1:]).max() < 1e-25


def band_limited(generator, grid, max_degree):
    field = np.zeros((len(grid[0]), len(grid[1])))
    for degree in range(max_degree + 1):
        for order in range(degree + 1):
            part = generator.normal(size=2) @ [1, 1j]
            field += (part * harmonic(degree, order, *grid)).real
    return field


def test_degrees_sum_to_the_area_weighted_mean_square(grid):
    # The square of a field of degree 5 has degree 10, which a Gaussian rule integrates exactly.
    nodes, weights = np.polynomial.legendre.leggauss(8)
    fine = np.rad2deg(np.arcsin(nodes)), np.arange(16) * 22.5
    for seed in range(3):
        field, exact = (
            band_limited(np.random.default_rng(seed), where, 5) for where in (grid, fine)
        )
        expected = (weights / 2) @ (exact**2).mean(1)
        power = degree_spectrum(field, grid[0])
        assert power.sum() == pytest.approx(expected, rel=1e-12)
        assert np.abs(power[6:]).max() < 1e-25


def test_power_ignores_where_longitudes_start_and_which_way_axes_run(grid):
    field = band_limited(np.random.default_rng(0), grid, 8)
    power = degree_spectrum(field, grid[0])
    for other in (np.roll(field, 5, 1), field[:, ::-1], field[::-1]):
        np.testing.assert_allclose(degree_spectrum(other, grid[0]), power, rtol=1e-12, atol=1e-25)
    np.testing.assert_allclose(degree_spectrum(field[::-1], grid[0][::-1]), power, rtol=1e-12, atol=1e-25)  # fmt: skip


def test_fields_are_taken_one_by_one_and_in_single_precision_too():
    fields = np.random.default_rng(0).normal(size=(2, 3, 12, 24)).astype(np.float32)
    power = degree_spectrum(fields, cell_centres(12))
    assert power.shape == (2, 3, 12)
    np.testing.assert_array_equal(power[1, 2], degree_spectrum(fields[1, 2], cell_centres(12)))


def test_degrees_end_where_longitudes_resolve_no_more_orders():
    latitude, longitude = cell_centres(24), np.arange(17) * 360 / 17
    power = degree_spectrum(harmonic(8, 8, latitude, longitude).real, latitude)
    assert len(power) == 9
    assert power[8] == pytest.approx(1 / (8 * np.pi))
    # A degree beyond the last one does not fold back into those below.
    assert degree_spectrum(harmonic(20, 3, latitude, longitude).real, latitude).max() < 1e-25


def test_white_noise_has_the_power_of_its_number_of_orders():
    generator = np.random.default_rng(0)
    latitude = cell_centres(48)
    # Variance one per area: every coefficient has variance one.
    edges = np.sin(np.deg2rad(np.linspace(-90, 90, 49)))
    noise = generator.normal(size=(60, 48, 96)) / np.sqrt(np.diff(edges) * 2 * np.pi / 96)[:, None]
    power = degree_spectrum(noise, latitude).mean(0)[:25]
    ratio = power * 4 * np.pi / (2 * np.arange(25) + 1)
    assert ratio[4:] == pytest.approx(1, abs=0.15)
    assert ratio[4:].mean() == pytest.approx(1, abs=0.03)


def test_grids_are_recognised_by_their_latitudes():
    assert latitude_rule(with_poles(9)) == latitude_rule(with_poles(9)[::-1]) == "CC"
    assert latitude_rule(cell_centres(8)) == latitude_rule(cell_centres(8)[::-1]) == "F1"
    gaussian = np.rad2deg(np.arcsin(np.polynomial.legendre.leggauss(64)[0]))
    one_pole = with_poles(9)[1:]
    for other in (gaussian, one_pole, with_poles(9)[1:-1], np.linspace(30, 60, 9), np.zeros(1)):
        assert latitude_rule(other) is None


def test_latitudes_of_another_grid_are_refused():
    with pytest.raises(ValueError, match=r"with both poles, or centres of cells.*from 30 to 60"):
        degree_spectrum(np.zeros((4, 8)), np.linspace(30, 60, 4))
