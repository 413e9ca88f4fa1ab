import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck

from gpo.numerics.gaussian import gaussian, gaussian_gradient, gaussian_laplacian

KERNELS = [gaussian, gaussian_gradient, gaussian_laplacian]


@given(
    st.lists(st.tuples(st.floats(-3, 3), st.floats(0.1, 3)), min_size=1, max_size=3),
)
def test_kernel_is_its_formula(axes):
    offset = torch.tensor([x for x, _ in axes], dtype=torch.float64)
    scales = torch.tensor([s for _, s in axes], dtype=torch.float64)
    expected = math.prod(math.exp(-0.5 * x * x / (s * s)) for x, s in axes)
    assert gaussian(offset, scales).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels_pass_gradcheck(kernel, dim):
    offset = torch.randn(4, dim, dtype=torch.float64, requires_grad=True)
    scales = (torch.rand(4, dim, dtype=torch.float64) + 0.3).requires_grad_()
    assert gradcheck(kernel, (offset, scales))


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_derivatives_in_closed_form_are_those_of_autograd(dim):
    offset = torch.randn(6, dim, dtype=torch.float64, requires_grad=True)
    scales = torch.rand(6, dim, dtype=torch.float64) + 0.3
    (gradient,) = torch.autograd.grad(gaussian(offset, scales).sum(), offset, create_graph=True)
    torch.testing.assert_close(gaussian_gradient(offset, scales), gradient)
    laplacian = sum(
        torch.autograd.grad(gradient[:, axis].sum(), offset, retain_graph=True)[0][:, axis]
        for axis in range(dim)
    )
    torch.testing.assert_close(gaussian_laplacian(offset, scales), laplacian)
