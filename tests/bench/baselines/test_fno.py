import pytest
import torch
from torch.nn.functional import conv1d, gelu, linear

from gpo import Domain
from gpo.model.problem import Problem, UnsupportedGeometryError
from gpo_bench.baselines.fno import FNO, FNOConfig

CLASSIC = {"widths": (20,) * 5, "modes": (12,) * 4, "head": (128,)}
LIBRARY = {"widths": (64,) * 5, "modes": (12,) * 4, "lift": (128,), "head": (64,)}
SMALL = {"widths": (4, 5, 6), "modes": (3, 2), "head": (7, 5)}


def make_problem(*grid: int, in_channels=1, out_channels=1) -> Problem:
    return Problem(in_channels, out_channels, Domain.unit_box(len(grid) or 2), grid)


def count(model) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("in_channels", "options", "expected"),
    [(1, {}, 640_305), (10, CLASSIC, 465_557), (10, LIBRARY, 4_749_377)],
    ids=["paper", "original", "library"],
)
def test_parameters_are_as_many_as_published(in_channels, options, expected):
    assert (
        count(FNO(make_problem(64, 64, in_channels=in_channels), FNOConfig(**options))) == expected
    )


def test_blocks_double_with_every_axis():
    """Two signs along every axis but the last; the modes 15, 12, 9, 9 in each."""
    pairs = [(16, 24, 15), (24, 24, 12), (24, 32, 9), (32, 32, 9)]
    for dim in (1, 2, 3):
        model = FNO(make_problem(*(32,) * dim))
        spectral = sum(p.numel() for p in model.parameters() if p.is_complex())
        assert spectral == sum(2 ** (dim - 1) * a * b * m**dim for a, b, m in pairs)


def written_out(model, values, grid):
    """The whole network on one plane, with whole transforms and every step in sight."""
    network = model.network
    axes = [torch.linspace(0, 1, size, dtype=values.dtype) for size in grid]
    indices = torch.cartesian_prod(*axes).expand(len(values), -1, -1)
    lift, layers, head = network.lift[0], network.layers, network.head
    hidden = linear(torch.cat([values, indices], -1), lift.weight, lift.bias)
    hidden = hidden.mT.unflatten(2, grid)
    for number, layer in enumerate(layers):
        (rows, columns), weight = layer.convolution.modes, layer.convolution.mix.weight
        spectrum = torch.fft.rfft2(hidden)
        out = torch.zeros(len(values), weight.shape[-1], *spectrum.shape[2:]).to(spectrum)
        for kept in (slice(rows), slice(-rows, None)):
            out[:, :, kept, :columns] = torch.einsum(
                "bixy,xyio->boxy", spectrum[:, :, kept, :columns], weight[kept]
            )
        local = conv1d(hidden.flatten(2), layer.pointwise.weight, layer.pointwise.bias)
        hidden = torch.fft.irfft2(out, s=grid) + local.unflatten(2, grid)
        if number < len(layers) - 1:
            hidden = gelu(hidden)
    hidden = hidden.flatten(2).mT
    first, second, third = (head[number] for number in (0, 2, 4))
    hidden = gelu(linear(hidden, first.weight, first.bias))
    hidden = gelu(linear(hidden, second.weight, second.bias))
    return linear(hidden, third.weight, third.bias)


def test_network_is_what_its_formula_says():
    grid = (7, 10)
    model = FNO(make_problem(*grid, in_channels=2, out_channels=3), FNOConfig(**SMALL)).double()
    with torch.no_grad():
        for layer in model.network.layers:
            layer.convolution.mix.weight.mul_(20)
    values = torch.randn(2, 70, 2, dtype=torch.float64)
    answer = model(values, torch.rand(70, 2))
    expected = written_out(model, values, grid)
    assert expected.std() > 0.01
    torch.testing.assert_close(answer, expected, rtol=1e-11, atol=1e-12)


def test_padding_is_zeros_behind_the_ends():
    """Layers that see a padded grid answer as those of the larger grid do to a field with zeros."""
    torch.manual_seed(1)
    padded = FNO(make_problem(6, 5), FNOConfig(**SMALL, padding=3)).double().network
    torch.manual_seed(1)
    larger = FNO(make_problem(9, 8), FNOConfig(**SMALL)).double().network
    assert padded.layers[0].convolution.modes == (3, 3)
    values = torch.randn(1, 30, 3, dtype=torch.float64)
    with torch.no_grad():
        hidden = torch.zeros(1, 4, 9, 8, dtype=torch.float64)
        hidden[:, :, :6, :5] = padded.lift(values).mT.unflatten(2, (6, 5))
        first, last = larger.layers
        cropped = last(gelu(first(hidden)))[:, :, :6, :5]
        expected = larger.head(cropped.flatten(2).mT)
        torch.testing.assert_close(padded(values), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("grid", [(5,), (33,), (2, 9), (17, 16), (4, 5, 6)])
def test_coarse_grids_of_every_dimension_are_taken(grid):
    model = FNO(make_problem(*grid)).double()
    sites = torch.rand(torch.Size(grid).numel(), len(grid), dtype=torch.float64)
    values = torch.randn(2, len(sites), 1, dtype=torch.float64)
    answer = model(values, sites)
    assert answer.shape == values.shape
    answer.square().sum().backward()
    dead = [name for name, part in model.named_parameters() if not part.grad.abs().sum() > 0]
    assert dead == []


def test_a_grid_on_the_sphere_is_taken():
    model = FNO(Problem(1, 1, Domain.sphere(), (6, 12)), FNOConfig(**SMALL))
    coords, weights = Domain.sphere().grid(6, 12)
    assert model(torch.randn(1, 72, 1), coords, weights=weights).isfinite().all()


def test_masked_sites_are_seen_as_zeros():
    model = FNO(make_problem(6, 8), FNOConfig(**SMALL))
    values, coords, weights = torch.randn(2, 48, 1), torch.rand(48, 2), torch.ones(48)
    weights[7:20] = 0
    zeros, nothing = values.clone(), values.clone()
    zeros[:, 7:20], nothing[:, 7:20] = 0, torch.nan
    assert torch.equal(model(nothing, coords, weights=weights), model(zeros, coords))


def test_mixed_precision_is_close_to_single():
    model, values, coords = FNO(make_problem(8, 8)), torch.randn(2, 64, 1), torch.rand(64, 2)
    exact = model(values, coords)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = model(values, coords)
    torch.testing.assert_close(mixed.float(), exact, rtol=0.02, atol=0.02 * exact.std().item())


@pytest.mark.parametrize(
    ("grid", "reason"),
    [((), "^needs a grid of 1 to 3 axes$"), ((1, 8), "needs at least two sites along every axis")],
)
def test_geometries_without_a_spectrum_are_refused(grid, reason):
    with pytest.raises(UnsupportedGeometryError, match=reason):
        FNO(make_problem(*grid))


def test_every_layer_needs_its_modes():
    with pytest.raises(ValueError, match="one entry more than `modes`, got 3 and 4"):
        FNOConfig(widths=(4, 4, 4))
