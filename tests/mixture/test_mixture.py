"""Derivatives agree with autograd, integrals with quadrature, and files give back the same bits."""

import re

import numpy as np
import pytest
import torch

import gpo_mixture
from gpo import CheckpointError, Domain
from gpo_mixture import GaussianMixture, export, load, save
from tests.mixture.fields import BOXES, grid, random_mixture

every_domain = pytest.mark.parametrize("domain", BOXES.values(), ids=BOXES)


def some_points(domain, count=7):
    generator = torch.Generator().manual_seed(3)
    if domain.is_sphere:
        return domain.wrap(torch.randn(count, 3, generator=generator, dtype=torch.float64))
    return domain.from_unit(torch.rand(count, domain.dim, generator=generator, dtype=torch.float64))


def brute_force(mixture, points):
    """Sums every Gaussian and, on periodic axes, many images of it."""
    total = mixture.offset.expand(len(points), -1).clone()
    periods = [
        torch.arange(-6, 7) * (high - low) if is_periodic else torch.zeros(1)
        for low, high, is_periodic in zip(
            mixture.domain.lower, mixture.domain.upper, mixture.domain.periodic, strict=True
        )
    ]
    shifts = torch.cartesian_prod(*periods).reshape(-1, mixture.domain.dim).double()
    for center, factor, height in zip(
        mixture.centers, mixture.factors, mixture.amplitudes, strict=True
    ):
        precision = torch.linalg.inv(factor @ factor.mT)
        offset = points - center - shifts[:, None]
        squared = torch.einsum("snd,de,sne->sn", offset, precision, offset)
        total = total + torch.exp(-0.5 * squared).sum(0)[:, None] * height
    return total


@every_domain
def test_values_are_the_sum_of_all_gaussians_and_their_images(domain):
    mixture, points = random_mixture(domain), some_points(domain)
    torch.testing.assert_close(mixture(points), brute_force(mixture, points), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in BOXES if name != "sphere"])
def test_gradient_and_laplacian_are_those_of_autograd(name):
    mixture, points = random_mixture(BOXES[name]), some_points(BOXES[name])
    derivatives = mixture.derivatives(points)
    torch.testing.assert_close(derivatives.values, mixture(points))
    for channel in range(2):

        def field(point, channel=channel):
            return brute_force(mixture, point[None])[0, channel]

        for number, point in enumerate(points):
            slope = torch.autograd.functional.jacobian(field, point)
            laplacian = torch.autograd.functional.hessian(field, point).trace()
            gradient = derivatives.gradients[number, channel]
            torch.testing.assert_close(gradient, slope, rtol=1e-9, atol=1e-10)
            torch.testing.assert_close(derivatives.laplacians[number, channel], laplacian, rtol=1e-9, atol=1e-9)  # fmt: skip


def test_derivatives_on_the_sphere_are_finite_differences_along_great_circles():
    domain = Domain.sphere()
    mixture, points = random_mixture(domain), some_points(domain)
    derivatives, step = mixture.derivatives(points), 1e-4
    first = domain.wrap(torch.linalg.cross(points, torch.ones_like(points)))
    total = torch.zeros_like(derivatives.laplacians)
    for direction in (first, torch.linalg.cross(points, first)):
        ahead, behind = (mixture(points * np.cos(step) + sign * direction * np.sin(step)) for sign in (1, -1))  # fmt: skip
        slope = (derivatives.gradients * direction[:, None]).sum(-1)
        # Central differences are of second order in the step.
        torch.testing.assert_close((ahead - behind) / (2 * step), slope, rtol=1e-5, atol=1e-5)
        total += (ahead + behind - 2 * mixture(points)) / step**2
    torch.testing.assert_close(total, derivatives.laplacians, rtol=1e-4, atol=1e-4)
    outward = (derivatives.gradients * points[:, None]).sum(-1)
    torch.testing.assert_close(outward, torch.zeros_like(outward), rtol=0, atol=1e-12)


@every_domain
def test_the_integral_is_that_of_fine_quadrature(domain):
    # The trapezoidal rule in a non-periodic box is of second order in the spacing.
    shapes = {1: (4001,), 2: (801, 801), 3: (101, 101, 101)}
    shape = (400, 800) if domain.is_sphere else shapes[domain.dim]
    coords, weights = grid(domain, *shape)
    size = 4 * torch.pi if domain.is_sphere else float(np.prod(np.subtract(domain.upper, domain.lower)))  # fmt: skip
    mixture = random_mixture(domain, count=3)
    expected = size * (weights / weights.sum()) @ mixture(coords)
    torch.testing.assert_close(mixture.integral(), expected, rtol=3e-4, atol=3e-4)


def test_the_integral_over_a_torus_is_the_closed_form():
    mixture = random_mixture(BOXES["torus"])
    mass = 2 * torch.pi * torch.linalg.det(mixture.factors)
    torch.testing.assert_close(mixture.integral(), mass @ mixture.amplitudes + 4 * mixture.offset)


def test_the_integral_of_a_round_gaussian_on_the_sphere_is_the_closed_form():
    domain, scale = Domain.sphere(), 0.4
    mixture = GaussianMixture(
        domain.wrap(torch.tensor([[1.0, 2.0, -2.0]], dtype=torch.float64)),
        scale * torch.eye(3, dtype=torch.float64)[None],
        torch.ones(1, 1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64),
        torch.arange(1), domain,
    )  # fmt: skip
    expected = 2 * torch.pi * scale**2 * (1 - np.exp(-2 / scale**2))
    assert mixture.integral().item() == pytest.approx(expected, rel=1e-10)


@every_domain
@pytest.mark.parametrize("suffix", ["nc", "zarr"])
def test_a_file_gives_back_the_same_bits(tmp_path, domain, suffix):
    mixture = random_mixture(domain)
    save(mixture, tmp_path / f"mixture.{suffix}")
    (loaded,) = load(tmp_path / f"mixture.{suffix}").mixtures
    assert loaded.domain == domain
    for name in ("centers", "factors", "amplitudes", "offset", "labels"):
        assert torch.equal(getattr(loaded, name), getattr(mixture, name)), name


def test_names_of_variables_are_kept_and_a_foreign_file_is_refused(tmp_path):
    mixture = random_mixture(BOXES["plane"])
    named = GaussianMixture(**{**vars(mixture), "variables": ("sea level", "t2m")})
    save(named, tmp_path / "named.nc", length_units="km")
    assert load(tmp_path / "named.nc")[0].variables == ("sea level", "t2m")
    mixture.cloud().save(tmp_path / "cloud.nc")
    with pytest.raises(CheckpointError, match="must hold a GaussianMixture, got ParticleCloud"):
        load(tmp_path / "cloud.nc")


def test_exports_hold_amplitudes_and_footprints_of_any_orientation(tmp_path):
    mixture = random_mixture(BOXES["plane"])
    export(mixture, tmp_path / "mixture.vtp", is_text=True)
    text = (tmp_path / "mixture.vtp").read_text()
    numbers = re.search(r'Name="footprint"[^>]*>([^<]*)<', text)
    tensors = np.array(numbers[1].split(), dtype=float).reshape(-1, 3, 3)
    squares = torch.from_numpy(tensors[:, :2, :2] @ tensors[:, :2, :2])
    # A footprint is the square root of the covariance.
    torch.testing.assert_close(squares, mixture.covariances)
    export(mixture, tmp_path / "mixture.ply", is_text=True)
    assert "property double amplitude_0\n" in (tmp_path / "mixture.ply").read_text()
    with pytest.raises(ValueError, match=r"must end in .vtp or .ply"):
        export(mixture, tmp_path / "mixture.obj")


@pytest.mark.parametrize("name", ["plane", "sphere"])
def test_an_outline_is_a_contour_of_the_gaussian(name):
    mixture = random_mixture(BOXES[name], count=1, channels=1, size=0.02)
    single = GaussianMixture(**{**vars(mixture), "amplitudes": torch.ones(1, 1).double(), "offset": torch.zeros(1).double()})  # fmt: skip
    outline = single.footprints(2.0).outlines(16)[0]
    # On the sphere the ellipse lies in the tangent plane: exact for small Gaussians only.
    tolerance = 1e-12 if name == "plane" else 2e-2
    torch.testing.assert_close(single(outline), torch.full((16, 1), np.exp(-2.0), dtype=torch.float64), rtol=tolerance, atol=0)  # fmt: skip


def test_parameters_are_centers_covariances_amplitudes_and_offsets():
    assert random_mixture(BOXES["plane"], count=5, channels=2).num_parameters == 5 * (2 + 3 + 2) + 2
    assert random_mixture(BOXES["space"], count=5, channels=1).num_parameters == 5 * (3 + 6 + 1) + 1
    assert (
        random_mixture(BOXES["sphere"], count=5, channels=1).num_parameters == 5 * (2 + 3 + 1) + 1
    )


def test_invalid_points_are_refused():
    mixture = random_mixture(BOXES["plane"])
    with pytest.raises(ValueError, match=r"`points` must have shape \(points, 2\)"):
        mixture(torch.zeros(3, 3))
    with pytest.raises(ValueError, match="`points` must be finite"):
        mixture(torch.full((1, 2), torch.nan))
    with pytest.raises(ValueError, match="unit vectors"):
        random_mixture(BOXES["sphere"])(torch.ones(2, 3))


def test_every_public_name_can_be_imported():
    assert all(callable(getattr(gpo_mixture, name)) for name in gpo_mixture.__all__)
