import pytest
import torch
from torch.nn.functional import gelu, linear, relu

from gpo import Domain
from gpo.model.problem import Problem, UnsupportedGeometryError
from gpo_bench.baselines.base import to_grid
from gpo_bench.baselines.flower import Flower, FlowerConfig, Warp, sample

SMALL = FlowerConfig(width=4, num_levels=3, num_heads=2, num_groups=2)
COUNTS = {"small": 172_145, "medium": 2_777_889, "published": 17_328_081}


def count(problem, config) -> int:
    with torch.device("meta"):
        return sum(part.numel() for part in Flower(problem, config).parameters())


def places_of(*index):
    """The places of sites and of points between them, counted in sites, on a grid of 4 x 6."""
    sizes = torch.tensor([4.0, 6.0], dtype=torch.float64)
    return 2 * torch.tensor(index, dtype=torch.float64) / (sizes - 1) - 1


@pytest.mark.parametrize(("size", "expected"), COUNTS.items())
def test_parameters_are_as_many_as_published(size, expected):
    problem = Problem(1, 1, Domain.unit_box(2), (64, 64))
    assert count(problem, FlowerConfig(size=size)) == expected


def test_numbers_that_are_set_replace_those_of_the_named_size():
    config = FlowerConfig(size="small", width=160, num_levels=4, num_heads=40, num_groups=40)
    assert count(Problem(1, 1, Domain.unit_box(2), (64, 64)), config) == COUNTS["published"]
    assert FlowerConfig(size="small", width=16).resolved.num_heads == 8
    assert FlowerConfig(size="small").width == 0


@pytest.mark.parametrize("is_periodic", [(False, False), (True, False), (True, True)])
def test_a_field_is_interpolated_between_sites(is_periodic):
    content = torch.randn(1, 2, 4, 6, dtype=torch.float64)
    # One place for every site: (1.25, 3.5).
    places = places_of(1.25, 3.5).expand(1, 4, 6, 2)
    expected = 0
    for row, column, weight in [(1, 3, 0.375), (1, 4, 0.375), (2, 3, 0.125), (2, 4, 0.125)]:
        expected = expected + weight * content[:, :, row, column]
    result = sample(content, places, is_periodic)
    torch.testing.assert_close(result, expected[..., None, None].expand_as(content))


def test_places_wrap_around_periodic_axes_and_are_zero_beyond_the_ends_of_others():
    content = torch.randn(1, 1, 4, 6, dtype=torch.float64)
    first, last = content[0, 0, 0, 2], content[0, 0, 3, 2]
    for is_periodic, expected in (((True, False), (first + last) / 2), ((False, False), last / 2)):
        for turns in (0, -2, 3) if is_periodic[0] else (0,):
            places = places_of(3.5 + 4 * turns, 2).expand(1, 4, 6, 2)
            result = sample(content, places, is_periodic)[0, 0, 0, 0]
            torch.testing.assert_close(result, expected)
    far = places_of(4.5, 2).expand(1, 4, 6, 2)
    assert (sample(content, far, (False, False)) == 0).all()


def test_samples_in_three_dimensions_are_those_of_a_linear_field():
    axes = [torch.linspace(-1, 1, size, dtype=torch.float64) for size in (3, 4, 5)]
    sites = torch.stack(torch.meshgrid(*axes, indexing="ij"))
    slopes = torch.tensor([2.0, -1.0, 0.5], dtype=torch.float64)
    field = torch.einsum("a,a...->...", slopes, sites)[None, None]
    places = 0.9 * (2 * torch.rand(1, 3, 4, 5, 3, dtype=torch.float64) - 1)
    result = sample(field, places, (False, False, False))
    torch.testing.assert_close(result[0, 0], (places @ slopes)[0])


def test_every_head_samples_its_channels_at_its_own_displacement():
    warp = Warp(3, 4, 2, (True, True)).double()
    features = torch.randn(2, 3, 4, 6, dtype=torch.float64)
    with torch.no_grad():
        warp.guide[2].weight.zero_()
        # The first head moves by one row, the second by two columns.
        warp.guide[2].bias.copy_(torch.tensor([2 / 3, 0, 0, 4 / 5]))
        content = warp.content(features)
        expected = torch.cat([content[:, :2].roll(-1, 2), content[:, 2:].roll(-2, 3)], dim=1)
        torch.testing.assert_close(warp(features), expected)


def test_the_network_is_the_straight_line_of_its_specification():
    shape = (8, 12)
    model = Flower(Problem(1, 2, Domain.unit_box(2), shape), SMALL).double()
    values = torch.randn(2, 96, 1, dtype=torch.float64)
    rows, columns = (torch.linspace(-1, 1, size, dtype=torch.float64) for size in shape)
    index = torch.stack(torch.meshgrid(rows, columns, indexing="ij")).expand(2, 2, *shape)
    hidden = model.lift(torch.cat([values.view(2, 1, *shape), index], dim=1))

    def block(part, x):
        first, _, second = part.warp.guide
        channels = x.movedim(1, -1)
        moved = linear(relu(linear(channels, first.weight, first.bias)), second.weight, second.bias)
        axes = [torch.linspace(-1, 1, size, dtype=torch.float64) for size in x.shape[2:]]
        sites = torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)
        contents = part.warp.content(x).chunk(2, dim=1)
        heads = [
            sample(content, sites + delta, (False, False))
            for content, delta in zip(contents, moved.chunk(2, dim=-1), strict=True)
        ]
        return gelu(part.norm(torch.cat(heads, dim=1) + part.local(x)))

    middle = relu(model.downs[0](block(model.encoder[0], hidden)))
    coarse = relu(model.downs[1](block(model.encoder[1], middle)))
    coarse = block(model.bottleneck, coarse)
    up = torch.cat([relu(model.ups[1](block(model.decoder[1], coarse))), middle], dim=1)
    up = torch.cat([relu(model.ups[0](block(model.decoder[0], up))), hidden], dim=1)
    assert up.shape == (2, 8, *shape)
    expected = model.head[2](relu(model.head[0](up)))
    result = model(values, Domain.unit_box(2).grid(*shape)[0].double())
    torch.testing.assert_close(to_grid(result, shape), expected)


def test_mixed_precision_is_close_to_single():
    model = Flower(Problem(1, 1, Domain.unit_box(2, periodic=True), (8, 8)), SMALL)
    values, coords = torch.randn(2, 64, 1), torch.rand(64, 2)
    exact = model(values, coords)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = model(values, coords)
    torch.testing.assert_close(mixed.float(), exact, rtol=0.05, atol=0.1 * exact.std().item())


def test_masked_sites_are_zeros():
    model = Flower(Problem(1, 1, Domain.unit_box(3), (4, 4, 4)), SMALL)
    values, weights = torch.randn(2, 64, 1), torch.ones(64)
    weights[10:20] = 0
    emptied, spoiled = values.clone(), values.clone()
    emptied[:, 10:20], spoiled[:, 10:20] = 0, torch.nan
    coords = Domain.unit_box(3).grid(4, 4, 4)[0]
    assert torch.equal(model(spoiled, coords, weights=weights), model(emptied, coords))


def test_grids_that_cannot_be_halved_are_refused_with_sizes_that_can():
    reason = "^needs grid sizes that are multiples of 4, such as 32 x 12$"
    with pytest.raises(UnsupportedGeometryError, match=reason):
        Flower(Problem(1, 1, Domain.unit_box(2), (33, 12)), SMALL)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 8, "num_heads": 3}, "multiple of `num_heads`.*width: 9"),
        ({"size": "small", "num_groups": 5}, "multiple of `num_groups`.*width: 30"),
        ({"num_levels": 1}, "`num_levels` must be at least 2, got 1"),
        ({"num_levels": 60}, "`width` is too large"),
        ({"num_levels": 100_000}, "`num_levels` must be at most 1000"),
    ],
)
def test_sizes_must_fit_each_other(settings, message):
    with pytest.raises(ValueError, match=message):
        FlowerConfig(**settings)
