import pytest
import torch
from torch.nn.functional import pad

from gpo import Domain
from gpo.model.problem import Problem, UnsupportedGeometryError
from gpo_bench.baselines.base import from_grid, to_grid
from gpo_bench.baselines.cno import CNO, CNOConfig, band_limited_relu, resample

SQUARE = Domain.unit_box(2)


def small_cno(grid_shape, **changes):
    options = {"num_levels": 2, "width": 8, "num_residuals": 1, "num_bottleneck_residuals": 2}
    model = CNO(
        Problem(1, 2, SQUARE, grid_shape), CNOConfig(**{**options, "lift_width": 6, **changes})
    )
    return model.double()


@pytest.mark.parametrize(
    ("width", "num_bottleneck_residuals", "count"), [(32, 6, 2_608_081), (16, 4, 514_793)]
)
def test_the_counts_are_those_of_the_vanilla_version(width, num_bottleneck_residuals, count):
    with torch.device("meta"):
        model = CNO(
            Problem(1, 1, SQUARE, (64, 64)),
            CNOConfig(width=width, num_bottleneck_residuals=num_bottleneck_residuals),
        )
    assert sum(part.numel() for part in model.parameters()) == count


def test_constants_pass_the_activation_as_through_a_leaky_relu():
    field = torch.tensor([2.0, -2.0], dtype=torch.float64).view(1, 2, 1, 1).expand(1, 2, 8, 12)
    for size in [(8, 12), (4, 6), (16, 24)]:
        result = band_limited_relu(field, size)
        expected = torch.tensor([2.0, -0.02], dtype=torch.float64).view(1, 2, 1, 1)
        torch.testing.assert_close(result, expected.expand(1, 2, *size))


def test_the_nonlinearity_acts_between_the_points_of_the_grid():
    # Along the steep side of this wave the finer grid sees the kink where the coarse one has no point.
    wave = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(8).view(1, 1, 1, 16)
    field = wave.expand(1, 1, 16, 16)
    fine = resample(field, (32, 32))
    expected = resample(torch.where(fine > 0, fine, 0.01 * fine), (16, 16))
    torch.testing.assert_close(band_limited_relu(field, (16, 16)), expected)
    assert (expected - torch.where(field > 0, field, 0.01 * field)).abs().max() > 0.05


def test_halving_damps_waves_that_the_coarser_grid_cannot_hold():
    wave = torch.cos(2 * torch.pi / 3 * torch.arange(48, dtype=torch.float64))
    coarse = resample(wave.expand(1, 1, 48, 48), (24, 24))
    # Without the filter against aliases 0.78 of it would be left; near the ends it is cut off.
    assert coarse[..., 3:-3].abs().max() < 0.2


def test_the_network_is_the_straight_line_of_its_specification():
    model = small_cno((8, 12)).eval()
    for part in model.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            part.running_mean.normal_()
            part.running_var.uniform_(0.5, 2)
    values = torch.randn(2, 96, 1, dtype=torch.float64)
    rows, columns = (torch.linspace(0, 1, size, dtype=torch.float64) for size in (8, 12))
    index = torch.stack(torch.meshgrid(rows, columns, indexing="ij")).expand(2, 2, 8, 12)
    field = torch.cat([values.view(2, 1, 8, 12), index], dim=1)

    def block(part, x, size):
        return band_limited_relu(part.norm(part.conv(x)), size)

    def refine(chain, x):
        for part in chain:
            size = tuple(x.shape[2:])
            x = x + part.norm(part.conv(block(part.first, x, size)))
        return x

    sizes = [(8, 12), (4, 6), (2, 3)]
    fine = model.lift.second(band_limited_relu(model.lift.first(field), sizes[0]))
    middle = block(model.downs[0], fine, sizes[1])
    coarse = refine(model.bottleneck, block(model.downs[1], middle, sizes[2]))
    up = block(model.ups[1], block(model.bridges[2], coarse, sizes[2]), sizes[1])
    skip = block(model.bridges[1], refine(model.skips[1], middle), sizes[1])
    up = block(model.ups[0], torch.cat([up, skip], dim=1), sizes[0])
    skip = block(model.bridges[0], refine(model.skips[0], fine), sizes[0])
    hidden = model.project.first(torch.cat([up, skip], dim=1))
    expected = model.project.second(band_limited_relu(hidden, sizes[0]))

    result = model(values, SQUARE.grid(8, 12)[0].double())
    torch.testing.assert_close(to_grid(result, (8, 12)), expected)


def test_other_sizes_are_padded_with_zeros_and_cropped():
    model = small_cno((6, 9)).eval()
    values = torch.randn(1, 54, 1, dtype=torch.float64)
    inputs, outputs = [], []
    model.lift.register_forward_pre_hook(lambda _, arguments: inputs.append(arguments[0]))
    model.project.register_forward_hook(lambda _, arguments, output: outputs.append(output))
    result = model(values, SQUARE.grid(6, 9)[0].double())
    assert inputs[0].shape == (1, 3, 8, 12)
    assert torch.equal(inputs[0][:, :1], pad(values.view(1, 1, 6, 9), (0, 3, 0, 2)))
    assert inputs[0][:, 1:, 6:].eq(0).all()
    assert inputs[0][:, 1, 5, :9].eq(1).all()
    assert inputs[0][:, 2, :6, 8].eq(1).all()
    assert torch.equal(result, from_grid(outputs[0][..., :6, :9]))


def test_masked_sites_are_zeros():
    model = small_cno((8, 8))
    values = torch.randn(2, 64, 1, dtype=torch.float64)
    weights = torch.ones(64, dtype=torch.float64)
    weights[10:20] = 0
    coords = SQUARE.grid(8, 8)[0].double()
    emptied = values.clone()
    emptied[:, 10:20] = 0
    spoiled = values.clone()
    spoiled[:, 10:20] = torch.nan
    assert torch.equal(model(spoiled, coords, weights=weights), model(emptied, coords))


@pytest.mark.parametrize("grid_shape", [(), (16,), (8, 8, 8)])
def test_only_two_axes_will_do(grid_shape):
    with pytest.raises(
        UnsupportedGeometryError, match=r"^needs a 2-D grid; its authors have no 3-D version$"
    ):
        CNO(Problem(1, 1, SQUARE, grid_shape))
