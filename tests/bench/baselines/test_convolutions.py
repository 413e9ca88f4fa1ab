import pytest
import torch
from torch.nn.functional import conv1d, linear, pad

from gpo import Domain
from gpo.model.problem import Problem, UnsupportedGeometryError
from gpo_bench.baselines.convolutions import (
    ChannelLinear,
    SameConvolution,
    check_divisible,
    continued,
    periodic_axes,
    wrapped_axes,
)

MIXED = Domain.unit_box(2, periodic=[True, False])


def test_a_field_continues_on_periodic_axes_only():
    field = torch.randn(2, 3, 4, 5)
    expected = torch.cat([field[:, :, -2:], field, field[:, :, :1]], dim=2)
    assert torch.equal(continued(field, (True, False), 2, 1), expected)
    assert torch.equal(continued(field, (True, True), 2, 2), pad(field, (2, 2, 2, 2), "circular"))


def test_a_field_continues_further_than_its_own_size():
    field = torch.arange(2.0).view(1, 1, 2)
    assert continued(field, (True,), 3, 3).flatten().tolist() == [1, 0, 1, 0, 1, 0, 1, 0]


@pytest.mark.parametrize(("size", "shape"), [(3, (6,)), (7, (5, 4)), (3, (4, 3, 5))])
def test_a_periodic_convolution_commutes_with_shifts_and_one_with_zeros_does_not(size, shape):
    field = torch.randn(2, 3, *shape, dtype=torch.float64)
    axes = tuple(range(2, 2 + len(shape)))
    shifts = tuple(range(1, 1 + len(shape)))
    for wraps in (True, False):
        layer = SameConvolution(3, 4, size, (wraps,) * len(shape)).double()
        shifted, expected = layer(field.roll(shifts, axes)), layer(field).roll(shifts, axes)
        assert shifted.shape == (2, 4, *shape)
        assert torch.allclose(shifted, expected, rtol=1e-12, atol=1e-12) == wraps


def test_a_convolution_continues_open_axes_with_zeros():
    layer = SameConvolution(1, 1, 3, (False,), bias=False).double()
    field = torch.randn(1, 1, 5, dtype=torch.float64)
    expected = conv1d(pad(field, (1, 1)), layer.convolution.weight)
    torch.testing.assert_close(layer(field), expected)


def test_a_map_of_channels_is_that_of_a_linear_layer_at_each_site():
    layer = ChannelLinear(3, 5).double()
    field = torch.randn(2, 3, 4, 6, dtype=torch.float64)
    expected = linear(field.movedim(1, -1), layer.weight, layer.bias).movedim(-1, 1)
    torch.testing.assert_close(layer(field), expected)


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (Problem(1, 1, MIXED, (4, 4)), (True, False)),
        (Problem(1, 1, MIXED, (4, 4), is_fitted=True), (False, False)),
        (Problem(1, 1, Domain.sphere(), (4, 8)), (False, True)),
        (Problem(1, 1, Domain.sphere(torch.eye(3)), (4, 8)), (False, False)),
    ],
    ids=["box", "mesh", "sphere", "patch"],
)
def test_axes_of_a_mesh_and_of_a_patch_are_open_and_longitude_of_the_sphere_is_periodic(
    problem, expected
):
    assert periodic_axes(problem) == expected
    assert wrapped_axes(problem, "periodic") == expected
    assert wrapped_axes(problem, "zeros") == (False, False)


def test_a_grid_that_cannot_be_divided_is_refused_with_sizes_that_can():
    check_divisible((8, 24), 8)
    reason = "^needs grid sizes that are multiples of 8, such as 32 x 8 x 16$"
    with pytest.raises(UnsupportedGeometryError, match=reason):
        check_divisible((33, 3, 16), 8)
