"""The density lemma, measured: more Gaussians approximate a continuous field better.

The centers lie on a lattice and the scales follow its spacing, as in the constructive proof;
the coefficients are the best ones in the least-squares sense.
"""

from itertools import pairwise

import pytest
import torch

from gpo import Domain
from gpo.numerics.gaussian import gaussian


def scalar_1d(x):
    return (x - 0.37).abs() + torch.sin(9 * x)


def vector_1d(x):
    return torch.cat([scalar_1d(x), torch.exp(-30 * (x - 0.6).square())], -1)


def scalar_2d(x):
    return (x - 0.4).norm(dim=-1, keepdim=True) + torch.sin(5 * x[..., :1] * x[..., 1:])


def vector_2d(x):
    return torch.cat([scalar_2d(x), torch.cos(4 * x[..., 1:]) * x[..., :1]], -1)


def best_fit_error(field, dim: int, per_axis: int) -> float:
    """Relative error between the samples of the best combination of `per_axis ** dim` Gaussians."""
    domain, spacing = Domain.unit_box(dim), 1 / (per_axis - 3)
    # One row of centers beyond every edge, so that the ends are fitted as well as the middle.
    beyond = Domain.box([-spacing] * dim, [1 + spacing] * dim)
    centers = beyond.grid(*[per_axis] * dim)[0].double()
    scales = torch.full_like(centers, spacing)

    def kernels(points):
        return gaussian(points.unsqueeze(-2) - centers, scales)

    num_fitted, num_tested = (400, 691) if dim == 1 else (45, 61)
    fitted = domain.grid(*[num_fitted] * dim)[0].double()
    tested = domain.grid(*[num_tested] * dim)[0].double()
    coefficients = torch.linalg.lstsq(kernels(fitted), field(fitted), driver="gelsd").solution
    return ((kernels(tested) @ coefficients - field(tested)).norm() / field(tested).norm()).item()


@pytest.mark.parametrize("field", [scalar_1d, vector_1d])
def test_more_gaussians_fit_better_in_one_dimension(field):
    errors = [best_fit_error(field, 1, n) for n in (4, 8, 16, 32, 64)]
    assert all(after < before / 2 for before, after in pairwise(errors)), errors
    assert errors[-1] < 1e-3


@pytest.mark.parametrize("field", [scalar_2d, vector_2d])
def test_more_gaussians_fit_better_in_two_dimensions(field):
    errors = [best_fit_error(field, 2, n) for n in (4, 6, 10, 18)]
    assert all(after < before / 2 for before, after in pairwise(errors)), errors
    assert errors[-1] < 2e-3
