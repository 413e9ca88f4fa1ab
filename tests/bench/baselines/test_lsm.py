import math

import pytest
import torch
from torch import nn
from torch.nn.functional import conv2d, interpolate, linear, max_pool2d

from gpo import Domain
from gpo.model.problem import Problem, UnsupportedGeometryError
from gpo_bench.baselines.lsm import (
    LSM,
    LatentSpectralUNet,
    LSMConfig,
    SpectralBlock,
    join_patches,
    split_patches,
)
from gpo_bench.baselines.point_projection import points_of_modes
from gpo_bench.baselines.spectral_convolution import low_modes

SMALL = {"width": 8, "num_heads": 2, "num_tokens": 3, "num_basis": 5}
POINTS = {**SMALL, "latent_size": 16, "modes": (3, 3)}
PLANE = Domain.unit_box(2)


def count(model) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def make_lsm(*grid: int, **options) -> LSM:
    """A small model whose batch statistics are not those it was born with, and let signals pass."""
    model = LSM(
        Problem(1, 1, PLANE, grid), LSMConfig(**{**(SMALL if grid else POINTS), **options})
    ).double()
    for part in model.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.uniform_(-0.1, 0.1)
            part.running_var.uniform_(0.05, 0.15)
    return model.eval()


@pytest.mark.parametrize(("in_channels", "expected"), [(1, 19_187_457), (10, 19_188_033)])
def test_parameters_are_as_many_as_published(in_channels, expected):
    assert count(LSM(Problem(in_channels, 1, PLANE, (64, 64)))) == expected


def test_parameters_in_space_are_those_of_the_released_code():
    """Plasticity: one input, four outputs on 101 x 31 x 20 sites, 32 channels."""

    def double(a, b, c):
        return 27 * (a * b + b * c) + 2 * (b + c)

    def block(c):
        return 24 * c + 4 * c + (2 * c * c + 2 * c) + (c * c + c)

    widths = (32, 64, 128, 256, 256)
    convolutions = [(32, 32, 32), (32, 64, 64), (64, 128, 128), (128, 256, 256), (256, 256, 256)]
    convolutions += [(512, 256, 128), (256, 128, 64), (128, 64, 32), (64, 32, 32)]
    ends = (4 * 32 + 32) + (32 * 32 + 32) + (32 * 128 + 128) + (128 * 4 + 4)
    expected = ends + sum(double(*sizes) for sizes in convolutions) + sum(map(block, widths))
    problem = Problem(1, 4, Domain.unit_box(3), (101, 31, 20))
    with torch.device("meta"):
        model = LSM(problem, LSMConfig(width=32))
    assert count(model) == expected
    assert model.unet.padding == (11, 1, 12)
    assert model.unet.blocks[0].patch == (7, 2, 2)


def test_patches_have_as_many_sites_at_every_scale():
    for grid, patch in {(64, 64): (4, 4), (221, 51): (14, 4), (64, 64, 64): (4, 4, 4)}.items():
        unet = LatentSpectralUNet(grid, LSMConfig(width=8))
        assert [block.patch for block in unet.blocks] == [patch] * 5


def test_patches_are_the_tiles_of_the_grid():
    values = torch.randn(2, 3, 4, 6)
    patches = split_patches(values, (2, 3))
    assert patches.shape == (2 * 2 * 2, 6, 3)
    # The second sample's lower left tile.
    assert torch.equal(patches[4 + 2], values[1, :, 2:, :3].flatten(1).T)
    assert torch.equal(join_patches(patches, (2, 3), (4, 6)), values)


def test_patches_in_space_are_the_tiles_of_the_grid():
    values = torch.randn(2, 3, 4, 6, 2)
    patches = split_patches(values, (2, 3, 1))
    assert patches.shape == (2 * 2 * 2 * 2, 6, 3)
    # The second sample's tile of rows 2 and 3, columns 0 to 2, layer 1.
    assert torch.equal(patches[8 + 5], values[1, :, 2:, :3, 1].flatten(1).T)
    assert torch.equal(join_patches(patches, (2, 3, 1), (4, 6, 2)), values)


def spectral_block_loop(block, patch):
    """One patch: one head, one token, one channel, one frequency after the other."""
    num_heads, _, head_dim = block.tokens.shape
    projected = linear(patch, block.project.weight, block.project.bias)
    query, key, value = projected.unflatten(-1, (3, num_heads, head_dim)).unbind(1)
    out = patch.clone()
    for head in range(num_heads):
        tokens = []
        for start in block.tokens[head]:
            weights = torch.softmax(torch.stack([start @ k for k in key[:, head]]), 0)
            token = start + sum(s * v for s, v in zip(weights, value[:, head], strict=True))
            advanced = token.clone()
            for channel in range(head_dim):
                for j in range(block.sines.shape[-1]):
                    phase = math.pi * j * token[channel] / block.sines.shape[-1]
                    advanced[channel] += block.sines[head, 0, channel, j] * torch.sin(phase)
                    advanced[channel] += block.cosines[head, 0, channel, j] * torch.cos(phase)
            tokens.append(advanced)
        for site, q in enumerate(query[:, head]):
            weights = torch.softmax(torch.stack([q @ token for token in tokens]), 0)
            decoded = sum(s * t for s, t in zip(weights, tokens, strict=True))
            out[site, head * head_dim : (head + 1) * head_dim] += decoded
    return out


@torch.no_grad()
def test_spectral_block_is_what_its_formula_says():
    block = SpectralBlock(4, (2, 3), num_heads=2, num_tokens=3, num_basis=4).double()
    for parameter in (block.tokens, block.sines, block.cosines):
        parameter.normal_()
    values = torch.randn(1, 4, 4, 3, dtype=torch.float64)
    patches = torch.stack(
        [spectral_block_loop(block, patch) for patch in split_patches(values, (2, 3))]
    )
    expected = join_patches(patches, (2, 3), (4, 3))
    torch.testing.assert_close(block(values), expected, rtol=1e-12, atol=1e-12)


def test_latent_parameters_start_small_and_positive():
    block = SpectralBlock(40, (2, 2), num_heads=2, num_tokens=9, num_basis=12)
    for parameter in (block.tokens, block.sines, block.cosines):
        assert parameter.min() >= 0
        assert 0.9 < 40 * parameter.max() < 1


def double_convolution(parts, field):
    for convolution, norm in ((parts[0], parts[1]), (parts[3], parts[4])):
        field = conv2d(field, convolution.weight, padding=1)
        by_channel = (norm.running_mean, norm.running_var, norm.weight, norm.bias)
        mean, variance, scale, shift = (part[:, None, None] for part in by_channel)
        field = torch.relu((field - mean) / torch.sqrt(variance + 1e-5) * scale + shift)
    return field


@torch.no_grad()
def test_unet_joins_its_scales_from_coarse_to_fine():
    unet = make_lsm(32, 16).unet
    values = torch.randn(1, 8, 32, 16, dtype=torch.float64)
    x1 = double_convolution(unet.enter, values)
    x2 = double_convolution(unet.downs[0], max_pool2d(x1, 2))
    x3 = double_convolution(unet.downs[1], max_pool2d(x2, 2))
    x4 = double_convolution(unet.downs[2], max_pool2d(x3, 2))
    x5 = double_convolution(unet.downs[3], max_pool2d(x4, 2))
    assert [x.shape[1] for x in (x1, x2, x3, x4, x5)] == [8, 16, 32, 64, 64]
    hidden = unet.blocks[4](x5)
    for up, block, skip in zip(unet.ups, (3, 2, 1, 0), (x4, x3, x2, x1), strict=True):
        finer = interpolate(hidden, scale_factor=2, mode="bilinear", align_corners=True)
        hidden = double_convolution(up, torch.cat([unet.blocks[block](skip), finer], 1))
    expected = conv2d(hidden, unet.leave.weight.unsqueeze(-1), unet.leave.bias)
    assert expected.std((2, 3)).min() > 0.01
    torch.testing.assert_close(unet(values), expected, rtol=1e-10, atol=1e-12)


@torch.no_grad()
def test_sizes_are_padded_to_multiples_of_sixteen_and_cropped():
    odd, even = make_lsm(20, 17).unet, make_lsm(32, 32).unet
    even.load_state_dict(odd.state_dict())
    values = torch.randn(2, 8, 20, 17, dtype=torch.float64)
    padded = torch.zeros(2, 8, 32, 32, dtype=torch.float64)
    padded[:, :, :20, :17] = values
    assert torch.equal(odd(values), even(padded)[:, :, :20, :17])


@torch.no_grad()
def test_samples_do_not_see_each_other():
    for model, points in ((make_lsm(16, 20), 320), (make_lsm(), 40)):
        values, coords = torch.randn(3, points, 1).double(), torch.rand(3, points, 2)
        together = model(values, coords)
        for sample in range(3):
            alone = model(values[sample : sample + 1], coords[sample])
            torch.testing.assert_close(together[sample], alone[0], rtol=1e-10, atol=1e-12)


def test_a_grid_is_lifted_with_its_indices_and_read_out_by_sites():
    model, values = make_lsm(16, 32), torch.randn(2, 512, 1).double()
    axes = (torch.linspace(0, 1, size, dtype=torch.float64) for size in (16, 32))
    indices = torch.cartesian_prod(*axes).expand(2, -1, -1)
    hidden = linear(torch.cat([values, indices], -1), model.lift.weight, model.lift.bias)
    hidden = model.unet(hidden.mT.unflatten(2, (16, 32))).flatten(2).mT
    torch.testing.assert_close(model(values, torch.rand(512, 2)), model.head(hidden))


def test_points_go_to_the_latent_grid_and_back_by_their_image():
    model = make_lsm()
    values, coords = torch.randn(2, 30, 1).double(), torch.rand(2, 30, 2).double()
    image, is_active = model.deformation(coords), torch.ones(2, 30, dtype=torch.bool)
    hidden = linear(torch.cat([values, coords], -1), model.lift.weight, model.lift.bias)
    latent = model.unet(model.to_latent(hidden, image, is_active))
    modes = model.to_points.mix(low_modes(latent, (3, 3)))
    place = linear(coords, model.to_points.place.weight, model.to_points.place.bias)
    expected = model.head(points_of_modes(modes, image) + place)
    assert expected.std() > 0.01
    torch.testing.assert_close(model(values, coords), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("grid", [(16, 20), ()])
def test_mixed_precision_is_close_to_single(grid):
    model = make_lsm(*grid).float()
    values, coords = torch.randn(2, 320, 1), torch.rand(320, 2)
    exact = model(values, coords)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = model(values, coords)
    torch.testing.assert_close(mixed.float(), exact, rtol=0.05, atol=0.1 * exact.std().item())


@pytest.mark.parametrize("grid", [(16, 20), ()])
def test_every_parameter_learns(grid):
    model = make_lsm(*grid).train()
    model(torch.randn(2, 320, 1).double(), torch.rand(320, 2)).square().sum().backward()
    dead = [name for name, part in model.named_parameters() if not part.grad.abs().sum() > 0]
    assert dead == []


def test_order_of_points_does_not_matter():
    model, order = make_lsm(), torch.randperm(30)
    values, coords = torch.randn(2, 30, 1).double(), torch.rand(2, 30, 2).double()
    shuffled = model(values[:, order], coords[:, order])
    torch.testing.assert_close(shuffled, model(values, coords)[:, order], rtol=1e-9, atol=1e-11)


def test_padded_points_change_nothing_even_in_training():
    model = make_lsm().train()
    values, coords = torch.randn(2, 30, 1).double(), torch.rand(2, 30, 2).double()
    more_values = torch.cat([values, torch.full((2, 9, 1), math.nan).double()], 1)
    more_coords = torch.cat([coords, torch.full((2, 9, 2), 1e308, dtype=torch.float64)], 1)
    weights = torch.cat([torch.ones(30), torch.zeros(9)])
    padded = model(more_values, more_coords, weights=weights)
    assert padded.isfinite().all()
    torch.testing.assert_close(padded[:, :30], model(values, coords), rtol=1e-9, atol=1e-11)


def test_masked_sites_of_a_grid_are_seen_as_zeros():
    model = make_lsm(16, 17)
    values, coords, weights = torch.randn(2, 272, 1).double(), torch.rand(272, 2), torch.ones(272)
    weights[7:20] = 0
    zeros, nothing = values.clone(), values.clone()
    zeros[:, 7:20], nothing[:, 7:20] = 0, torch.nan
    assert torch.equal(model(nothing, coords, weights=weights), model(zeros, coords))


@pytest.mark.parametrize(
    ("domain", "grid"),
    [
        (Domain.unit_box(1), ()),
        (Domain.unit_box(3), ()),
        (Domain.sphere(), ()),
    ],
)
def test_other_geometries_are_refused(domain, grid):
    reason = "^needs a grid of 1 to 3 axes or points in a plane; its authors have no 3-D points$"
    with pytest.raises(UnsupportedGeometryError, match=reason):
        LSM(Problem(1, 1, domain, grid))


def test_heads_must_share_the_width():
    with pytest.raises(ValueError, match=r"multiple of `num_heads`.*width: 24"):
        LSMConfig(width=22)
