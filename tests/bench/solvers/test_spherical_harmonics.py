import math
import sys

import numpy as np
import pytest

from gpo.optional import MissingPackageError
from gpo_bench.solvers.spherical_harmonics import SphericalHarmonics


def random_coefficients(harmonics, seed=0, smallest_degree=0):
    random = np.random.default_rng(seed)
    real, imaginary = random.normal(size=(2, len(harmonics.degree)))
    values = np.where(harmonics.order == 0, real, real + 1j * imaginary)
    return values * (harmonics.degree >= smallest_degree)


@pytest.fixture(params=["gauss", "centers"])
def harmonics(request):
    return SphericalHarmonics(15, request.param, 24)


def test_fields_come_back_from_their_coefficients(harmonics):
    coefficients = random_coefficients(harmonics)
    result = harmonics.coefficients(harmonics.field(coefficients))
    np.testing.assert_allclose(result, coefficients, atol=1e-12)


def test_vectors_come_back_from_curl_and_divergence(harmonics):
    curl = random_coefficients(harmonics, smallest_degree=1)
    divergence = random_coefficients(harmonics, seed=1, smallest_degree=1)
    result = harmonics.curl_and_divergence(harmonics.vector(curl, divergence))
    np.testing.assert_allclose(result, (curl, divergence), atol=1e-11)


def test_coefficients_are_those_of_orthonormal_harmonics(harmonics):
    constant = harmonics.coefficients(np.ones(harmonics.shape))
    np.testing.assert_allclose(
        constant, math.sqrt(4 * math.pi) * (harmonics.degree == 0), atol=1e-13
    )


def test_eastward_rotation_has_twice_its_rate_as_vorticity_at_the_north_pole(harmonics):
    theta = harmonics.theta[:, None] + 0 * harmonics.phi
    curl, divergence = harmonics.curl_and_divergence(np.stack([0 * theta, np.sin(theta)]))
    np.testing.assert_allclose(harmonics.field(curl), 2 * np.cos(theta), atol=1e-12)
    np.testing.assert_allclose(divergence, 0, atol=1e-12)


def test_flow_out_of_a_potential_is_its_gradient(harmonics):
    theta, phi = harmonics.theta[:, None], harmonics.phi
    # The potential x z = sin θ cos θ cos φ is of degree 2, so its Laplacian is -6 times itself.
    divergence = harmonics.coefficients(-6 * np.sin(theta) * np.cos(theta) * np.cos(phi))
    south, east = harmonics.vector(0 * divergence, divergence)
    np.testing.assert_allclose(south, np.cos(2 * theta) * np.cos(phi), atol=1e-12)
    np.testing.assert_allclose(east, -np.cos(theta) * np.sin(phi), atol=1e-12)


def test_products_of_two_fields_are_projected_exactly():
    coarse, fine = SphericalHarmonics(15), SphericalHarmonics(31)
    first, second = random_coefficients(coarse), random_coefficients(coarse, seed=1)
    product = coarse.coefficients(coarse.field(first) * coarse.field(second))
    fields = [fine.field(fine.truncated(part)) for part in (first, second)]
    exact = coarse.truncated(fine.coefficients(fields[0] * fields[1]))
    np.testing.assert_allclose(product, exact, atol=1e-11)
    flux = coarse.field(first) * coarse.vector(0 * second, second)
    finely = fields[0] * fine.vector(0 * fine.degree + 0j, fine.truncated(second))
    exact = coarse.truncated(fine.curl_and_divergence(finely)[1])
    np.testing.assert_allclose(coarse.curl_and_divergence(flux)[1], exact, atol=1e-10)


def test_a_field_of_first_order_is_projected_as_any_other(harmonics):
    profile = np.exp(-harmonics.theta)
    everything = harmonics.coefficients(np.outer(profile, np.cos(harmonics.phi)))
    np.testing.assert_allclose(harmonics.first_order(profile), everything, atol=1e-13)


def test_truncation_keeps_what_both_degrees_have(harmonics):
    coefficients = random_coefficients(harmonics)
    finer, coarser = SphericalHarmonics(20), SphericalHarmonics(9)
    np.testing.assert_array_equal(harmonics.truncated(finer.truncated(coefficients)), coefficients)
    cut = harmonics.truncated(coarser.truncated(coefficients))
    np.testing.assert_array_equal(cut, np.where(harmonics.degree <= 9, coefficients, 0))
    same = SphericalHarmonics(20, "centers", 24).field(finer.truncated(coefficients))
    np.testing.assert_allclose(
        same, SphericalHarmonics(15, "centers", 24).field(coefficients), atol=1e-12
    )


def test_without_the_library_the_message_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ducc0", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'gpo\[sphere\]'"):
        SphericalHarmonics(5)
