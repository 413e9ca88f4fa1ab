"""Gaussians of a domain at any points, against automatic differentiation."""

import pytest
import torch

from gpo.numerics.derivatives import gaussians_at
from gpo.numerics.gaussian import gaussian, gaussian_curvature
from tests.conftest import DOMAINS, random_points


def random_gaussians(domain, count=4):
    scales = (torch.rand(count, domain.dim).double() + 0.2) * domain.unit_lengths(torch.ones(()).double())  # fmt: skip
    return random_points(domain, count), scales, torch.rand(count).double()


def test_values_gradients_and_laplacians_are_those_of_autograd(domain):
    """A function on the sphere is continued along rays: then both have the same derivatives."""
    centers, scales, weights = random_gaussians(domain)
    points = random_points(domain, 7).requires_grad_()
    derivatives = gaussians_at(points.detach(), centers, scales, weights, domain)
    where = points / points.norm(dim=-1, keepdim=True) if domain.is_sphere else points
    values = weights * gaussian(domain.offset(where.unsqueeze(1), centers), scales)
    torch.testing.assert_close(derivatives.values, values)
    for number in range(len(centers)):
        (gradient,) = torch.autograd.grad(values[:, number].sum(), points, create_graph=True)
        laplacian = sum(
            torch.autograd.grad(gradient[:, axis].sum(), points, retain_graph=True)[0][:, axis]
            for axis in range(domain.dim)
        )
        torch.testing.assert_close(derivatives.gradients[:, number], gradient)
        torch.testing.assert_close(derivatives.laplacians[:, number], laplacian)


def test_the_second_derivative_along_a_direction_is_that_of_autograd():
    offset, direction = torch.randn(3).double(), torch.randn(3).double()
    scales = torch.rand(3).double() + 0.3
    hessian = torch.autograd.functional.hessian(lambda place: gaussian(place, scales), offset)
    derivatives = gaussian_curvature(offset, scales, direction)
    torch.testing.assert_close(derivatives, direction @ hessian @ direction)


@pytest.mark.parametrize("name", ["circle", "torus", "channel", "cube"])
def test_a_shift_by_a_period_changes_nothing(name):
    domain = DOMAINS[name]
    gaussians, points = random_gaussians(domain), random_points(domain, 5)
    lengths = torch.tensor(domain.upper) - torch.tensor(domain.lower)
    shift = 3 * lengths * torch.tensor(domain.periodic)
    here, there = (gaussians_at(at, *gaussians, domain) for at in (points, points + shift))
    torch.testing.assert_close(there.gradients, here.gradients)
    torch.testing.assert_close(there.laplacians, here.laplacians)


def test_a_linear_harmonic_of_the_sphere_has_eigenvalue_minus_two():
    """A very wide Gaussian around a point is one minus a multiple of the chord squared."""
    sphere, wide = DOMAINS["sphere"], 1e3
    center = torch.tensor([[0.0, 0.0, 1.0]]).double()
    points = random_points(sphere, 6)
    scales, weights = torch.full((1, 3), wide).double(), torch.ones(1).double()
    derivatives = gaussians_at(points, center, scales, weights, sphere)
    # exp(-(2 - 2 z) / (2 wide^2)) = 1 - (1 - z) / wide^2 + O(wide^-4), and the Laplacian of z is -2 z.
    expected = -2 * points[:, 2:] / wide**2
    torch.testing.assert_close(derivatives.laplacians, expected, rtol=1e-4, atol=1e-10)
