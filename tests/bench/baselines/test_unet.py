import pytest
import torch
from torch.nn.functional import batch_norm, conv2d, conv_transpose2d, linear

from gpo import Domain
from gpo.model.problem import Problem, UnsupportedGeometryError
from gpo_bench.baselines.base import to_grid
from gpo_bench.baselines.unet import UNet, UNetConfig


def count(in_channels, **settings) -> int:
    with torch.device("meta"):
        model = UNet(Problem(in_channels, 1, Domain.unit_box(2), (64, 64)), UNetConfig(**settings))
    return sum(part.numel() for part in model.parameters())


@pytest.mark.parametrize(
    ("in_channels", "settings", "expected"),
    [
        (1, {}, 17_460_529),
        (1, {"width": 32}, 7_762_465),
        (3, {"width": 32}, 7_763_041),
        (1, {"size": "medium"}, 3_033_781),
        (1, {"size": "small"}, 271_693),
    ],
    ids=["The Well", "PDEBench", "PDEBench, three channels", "medium", "small"],
)
def test_parameters_are_as_many_as_published(in_channels, settings, expected):
    assert count(in_channels, **settings) == expected


def test_the_network_is_the_straight_line_of_its_specification():
    shape = (8, 12)
    model = UNet(Problem(1, 2, Domain.unit_box(2), shape), UNetConfig(width=3, num_levels=2)).eval()
    for name, part in model.double().named_buffers():
        if name.endswith("running_mean"):
            part.normal_()
        elif name.endswith("running_var"):
            part.uniform_(0.5, 2)
    state = model.state_dict()

    def twice(name, x):
        for number in (0, 3):
            x = conv2d(x, state[f"{name}.{number}.convolution.weight"], padding=1)
            norm = f"{name}.{number + 1}"
            statistics = (state[f"{norm}.{part}"] for part in ("running_mean", "running_var", "weight", "bias"))  # fmt: skip
            x = torch.tanh(batch_norm(x, *statistics))
        return x

    def halved(x):
        return x.unflatten(3, (-1, 2)).unflatten(2, (-1, 2)).amax((3, 5))

    def up(name, x, skip):
        finer = conv_transpose2d(x, state[f"{name}.weight"], state[f"{name}.bias"], stride=2)
        return torch.cat([finer, skip], dim=1)

    values = torch.randn(2, 96, 1, dtype=torch.float64)
    fine = twice("encoder.0", values.view(2, 1, *shape))
    middle = twice("encoder.1", halved(fine))
    coarse = twice("encoder.2", halved(middle))
    hidden = twice("decoder.1", up("ups.1", coarse, middle))
    hidden = twice("decoder.0", up("ups.0", hidden, fine))
    expected = linear(hidden.movedim(1, -1), state["head.weight"], state["head.bias"])
    result = model(values, Domain.unit_box(2).grid(*shape)[0].double())
    torch.testing.assert_close(to_grid(result, shape), expected.movedim(-1, 1))


@pytest.mark.parametrize("padding", ["zeros", "periodic"])
def test_only_periodic_padding_commutes_with_shifts_of_periodic_domains(padding):
    domain = Domain.unit_box(2, periodic=[True, False])
    config = UNetConfig(width=3, num_levels=2, padding=padding)
    model = UNet(Problem(1, 1, domain, (8, 8)), config).double().eval()
    coords, field = torch.rand(64, 2), torch.randn(1, 1, 8, 8, dtype=torch.float64)

    def answer(values):
        return to_grid(model(values.flatten(2).mT, coords), (8, 8))

    for axis, commutes in ((2, padding == "periodic"), (3, False)):
        # By whole sites of the coarsest grid.
        shifted, expected = answer(field.roll(4, axis)), answer(field).roll(4, axis)
        assert torch.allclose(shifted, expected, rtol=1e-10, atol=1e-10) == commutes


def test_grids_that_cannot_be_halved_are_refused_with_sizes_that_can():
    reason = "^needs grid sizes that are multiples of 16, such as 96$"
    with pytest.raises(UnsupportedGeometryError, match=reason):
        UNet(Problem(1, 1, Domain.unit_box(1), (100,)))
