"""Gaussian smoothing on lattices: what it keeps, how wide it is, and that windows change nothing."""

import math

import pytest
import torch

from gpo import Domain
from gpo.numerics.domain import longitude_latitude, unit_vectors
from gpo.transforms import diffusion
from gpo.transforms.smoothing import _smoothed, smoothed
from tests.conftest import make_model

DOUBLE = torch.float64


def lattice_of(domain, coords, weights=None, **changes):
    """The lattice that is fitted to sites."""
    model = make_model(domain, variant="waves", num_waves=2, num_gaussians=2, **changes)
    values = torch.zeros(1, coords.shape[-2], 2, dtype=DOUBLE)
    return model.sites(values, coords, weights, is_whole=True).geometry.on_lattice.lattice


def torus(*shape):
    axes = (torch.arange(count, dtype=DOUBLE) / count for count in shape)
    coords = torch.cartesian_prod(*axes).reshape(-1, len(shape))
    return lattice_of(Domain.unit_box(len(shape), periodic=True), coords)


def scales_in_cells(lattice, *cells):
    return torch.tensor(cells, dtype=DOUBLE)[:, None] * torch.tensor(
        lattice.smoothing.gaps, dtype=DOUBLE
    )


@pytest.mark.parametrize("shape", [(9,), (8, 11), (4, 5, 6)])
def test_the_total_of_a_field_is_conserved_on_periodic_grids(shape):
    lattice = torus(*shape)
    field = torch.randn(math.prod(shape), 2, 4, dtype=DOUBLE)
    smooth = lattice.smooth(field, scales_in_cells(lattice, 0.6, 2.0))
    assert (smooth - field).abs().max() > 0.1
    torch.testing.assert_close(smooth.sum(0), field.sum(0), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("cells", [0.5, 1.0, 3.0])
def test_the_kernel_and_multilinear_sampling_have_the_variance_of_the_gaussian(cells):
    """The mean over all positions of a departure point within its cell."""
    lattice = torus(80)
    impulse = torch.zeros(80, 1, 2, dtype=DOUBLE)
    impulse[40] = 1
    kernel = lattice.smooth(impulse, scales_in_cells(lattice, cells, cells))[:, 0, 0]
    distance = torch.arange(80, dtype=DOUBLE) - 40
    # A hat between nodes has a variance of a sixth of a cell.
    variance = (kernel * distance**2).sum() + 1 / 6
    torch.testing.assert_close(variance, torch.tensor(cells**2, dtype=DOUBLE), rtol=1e-9, atol=0)


def test_a_scale_below_the_floor_changes_nothing_exactly():
    lattice = torus(6, 7)
    field = torch.randn(42, 1, 4, dtype=DOUBLE)
    assert torch.equal(lattice.smooth(field, scales_in_cells(lattice, 0.1, 0.4)), field)


def test_nothing_leaks_from_masked_nodes():
    domain = Domain.unit_box(2)
    weights = torch.ones(7, 8, dtype=DOUBLE)
    weights[2:5, :5] = 0
    lattice = lattice_of(domain, domain.grid(7, 8)[0].double(), weights.flatten())
    field = torch.randn(56, 1, 4, dtype=DOUBLE)
    land = (weights == 0).flatten()
    changed = torch.where(land[:, None, None], 1e6, field)
    scales = scales_in_cells(lattice, 0.7, 2.0)
    first, second = (lattice.smooth(one, scales) for one in (field, changed))
    assert torch.equal(first, second)
    sea = field[~land]
    assert first.min() >= sea.min()
    assert first.max() <= sea.max()
    constant = torch.where(land[:, None, None], 0.0, torch.ones_like(field))
    torch.testing.assert_close(lattice.smooth(constant, scales), torch.ones_like(field))


@pytest.mark.parametrize("is_periodic", [True, False])
@pytest.mark.parametrize("is_even", [True, False])
def test_windows_of_a_long_axis_equal_one_matrix(monkeypatch, is_periodic, is_even):
    count = 300
    nodes = torch.arange(count, dtype=DOUBLE) / (count if is_periodic else count - 1)
    if not is_even:
        nodes = nodes + 0.3 / (2 * math.pi) * torch.sin(2 * math.pi * nodes)
    domain = Domain.unit_box(1, periodic=is_periodic)
    lattice = lattice_of(domain, nodes[:, None])
    field = torch.randn(count, 1, 4, dtype=DOUBLE, requires_grad=True)
    scales = scales_in_cells(lattice, 0.6, 2.0).requires_grad_()
    target = torch.randn_like(field)

    def result():
        lattice.smoothing.axes[0].found.clear()
        smooth = smoothed(field, lattice.smoothing, scales)
        return smooth, *torch.autograd.grad((smooth * target).sum(), (field, scales))

    parts = result()
    assert len(lattice.smoothing.axes[0].found[0].index) > 1
    monkeypatch.setattr(diffusion, "MAX_MATRIX", count)
    wholes = result()
    assert len(lattice.smoothing.axes[0].found[0].index) == 1
    for part, whole in zip(parts, wholes, strict=True):
        torch.testing.assert_close(part, whole, rtol=1e-8, atol=1e-8)


def test_windows_follow_scales_that_grow():
    lattice = torus(400)
    axis, field = lattice.smoothing.axes[0], torch.randn(400, 1, 2, dtype=DOUBLE)
    lattice.smooth(field, scales_in_cells(lattice, 0.5, 0.5))
    before = axis.found[0].halo
    wide = lattice.smooth(field, scales_in_cells(lattice, 8.0, 8.0))
    assert axis.found[0].halo > before
    axis.found.clear()
    torch.testing.assert_close(lattice.smooth(field, scales_in_cells(lattice, 8.0, 8.0)), wide)


def test_portions_change_nothing(monkeypatch):
    """Some particles in some samples, and some of the lines along long axes."""
    lattice = torus(130, 140)
    field = torch.randn(130 * 140, 3, 4, dtype=DOUBLE, requires_grad=True)
    scales = scales_in_cells(lattice, 0.6, 1.5).requires_grad_()
    target = torch.randn_like(field)

    def result(size):
        monkeypatch.setitem(diffusion.PORTION, "cpu", size)
        smooth = smoothed(field, lattice.smoothing, scales)
        return smooth, *torch.autograd.grad((smooth * target).sum(), (field, scales))

    parts, wholes = result(field.numel() // 18), result(field.numel())
    for part, whole in zip(parts, wholes, strict=True):
        torch.testing.assert_close(part, whole, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("kind", ["torus", "globe", "globe with eigenvectors", "large globe"])
def test_the_backward_pass_is_that_of_the_plain_function(kind):
    domain = Domain.sphere()
    if kind == "torus":
        lattice = torus(9, 12)
    elif kind == "globe with eigenvectors":
        columns = torch.arange(20, dtype=DOUBLE) * 18 + 2 * torch.rand(20, dtype=DOUBLE)
        rows = torch.linspace(89, -89, 100, dtype=DOUBLE)
        pairs = torch.cartesian_prod(rows, columns)
        lattice = lattice_of(domain, unit_vectors(pairs[:, 1], pairs[:, 0]))
    else:
        shape = (8, 16) if kind == "globe" else (98, 131)
        lattice = lattice_of(domain, domain.grid(*shape)[0].double())
    content = torch.randn(lattice.num_nodes, 2, 4, dtype=DOUBLE, requires_grad=True)
    scales = scales_in_cells(lattice, 0.7, 1.5).requires_grad_()
    target, smoothing = torch.randn_like(content), lattice.smoothing
    fast = smoothed(content, smoothing, scales)
    plain = _smoothed(content, smoothing, smoothing.variance(scales))
    assert torch.equal(fast, plain)
    gradients = (
        torch.autograd.grad((one * target).sum(), (content, scales)) for one in (fast, plain)
    )
    for first, second in zip(*gradients, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-9, atol=1e-9)


def heat_kernel(cosine, time):
    """The solution of the heat equation on the unit sphere that starts at a point."""
    total, before, current = torch.zeros_like(cosine), torch.ones_like(cosine), cosine
    for degree in range(120):
        total += (2 * degree + 1) / (4 * math.pi) * math.exp(-degree * (degree + 1) * time) * before
        following = ((2 * degree + 3) * cosine * current - (degree + 1) * before) / (degree + 2)
        before, current = current, following
    return total


@pytest.mark.parametrize("place", [90, 83, 45, 0, -90])
@pytest.mark.parametrize("has_poles", [False, True])
def test_a_blob_diffuses_alike_at_every_latitude_with_second_order(place, has_poles):
    """Also where the poles are nodes; the scale is the same in kilometres, and round."""
    start, scale, errors = 0.03, 0.15, []
    domain = Domain.sphere()
    center = unit_vectors(torch.tensor(20.0, dtype=DOUBLE), torch.tensor(place, dtype=DOUBLE))
    for count in (24, 48, 96):
        coords = domain.grid(count, 2 * count)[0].double()
        if has_poles:
            latitude = torch.linspace(90, -90, count, dtype=DOUBLE)
            pairs = torch.cartesian_prod(
                latitude, torch.arange(2 * count, dtype=DOUBLE) * 180 / count
            )
            coords = unit_vectors(pairs[:, 1], pairs[:, 0])
        smoothing = lattice_of(domain, coords).smoothing
        cosine = (coords @ center).clamp(-1, 1)
        blob, expected = (heat_kernel(cosine, t) for t in (start, start + scale**2 / 2))
        variance = torch.tensor([[scale**2]], dtype=DOUBLE)
        result = smoothing.smooth(blob.view(1, count, 2 * count, 1), variance).flatten()
        errors.append(((result - expected).abs().max() / expected.max()).item())
    assert errors[-1] < 4e-3, errors
    assert math.log2(errors[-2] / errors[-1]) > 1.6, errors


def test_a_region_is_smoothed_as_that_part_of_the_globe():
    """Away from its ends; there a field is continued, not known."""
    rows, columns = 40, 60
    pairs = torch.cartesian_prod(
        torch.linspace(70, 31, rows, dtype=DOUBLE), torch.linspace(-20, 39, columns, dtype=DOUBLE)
    )
    coords = unit_vectors(pairs[:, 1], pairs[:, 0])
    lattice = lattice_of(Domain.sphere(coords), coords)
    center = unit_vectors(torch.tensor(10.0, dtype=DOUBLE), torch.tensor(52.0, dtype=DOUBLE))
    cosine, scale = (coords @ center).clamp(-1, 1), 0.03
    blob, expected = (heat_kernel(cosine, t) for t in (0.003, 0.003 + scale**2 / 2))
    variance = torch.tensor([[scale**2]], dtype=DOUBLE)
    result = lattice.smoothing.smooth(blob.view(1, rows, columns, 1), variance).flatten()
    longitude, latitude = longitude_latitude(coords)
    inside = (latitude - 52).abs() < 10
    inside &= (longitude - 10).abs() < 15
    assert ((result - expected)[inside].abs().max() / expected.max()) < 5e-3
