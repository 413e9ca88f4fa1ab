import pytest
import torch
from torch.nn.functional import conv2d, conv_transpose2d, gelu, layer_norm, linear

from gpo import Domain
from gpo.model.problem import Problem, UnsupportedGeometryError
from gpo_bench.baselines.base import to_grid
from gpo_bench.baselines.cnextu import CNextU, CNextUConfig

SMALL = {"width": 4, "num_levels": 2, "num_blocks": 2}
COUNTS = {"small": 470_689, "medium": 2_757_313, "published": 18_568_537}


def small_model(shape, *, periodic=False, **settings):
    """A small model whose blocks change their input visibly."""
    domain = Domain.unit_box(len(shape), periodic)
    model = CNextU(Problem(1, 2, domain, shape), CNextUConfig(**{**SMALL, **settings})).double()
    with torch.no_grad():
        for name, part in model.named_parameters():
            if name.endswith((".scale", "0.weight")):
                part.uniform_(0.5, 2)
    return model


@pytest.mark.parametrize(("size", "expected"), COUNTS.items())
def test_parameters_are_as_many_as_published(size, expected):
    with torch.device("meta"):
        model = CNextU(Problem(1, 1, Domain.unit_box(2), (64, 64)), CNextUConfig(size=size))
    assert sum(part.numel() for part in model.parameters()) == expected


def test_the_network_is_the_straight_line_of_its_specification():
    shape = (8, 12)
    model = small_model(shape)
    state = model.state_dict()

    def conv(name, x, **options):
        return conv2d(x, state[f"{name}.weight"], state[f"{name}.bias"], **options)

    def block(name, x):
        hidden = conv(f"{name}.depthwise.convolution", x, padding=3, groups=x.shape[1])
        weights = state[f"{name}.norm.weight"], state[f"{name}.norm.bias"]
        hidden = layer_norm(hidden.movedim(1, -1), x.shape[1:2], *weights, 1e-6)
        first, second = ([state[f"{name}.mlp.{n}.{p}"] for p in ("weight", "bias")] for n in (0, 2))
        hidden = linear(gelu(linear(hidden, *first)), *second)
        return x + (state[f"{name}.scale"] * hidden).movedim(-1, 1)

    def unit(name, x):
        return state[f"{name}.0.weight"] * x / x.norm(dim=1, keepdim=True)

    def down(name, x):
        return conv(f"{name}.1", unit(name, x), stride=2)

    def up(name, x):
        weights = state[f"{name}.1.weight"], state[f"{name}.1.bias"]
        return conv_transpose2d(unit(name, x), *weights, stride=2)

    values = torch.randn(2, 96, 1, dtype=torch.float64)
    fine = conv("lift.convolution", values.view(2, 1, *shape), padding=1)
    middle = down("downs.0", block("encoder.0.1", block("encoder.0.0", fine)))
    coarse = down("downs.1", block("encoder.1.1", block("encoder.1.0", middle)))
    coarse = block("bottleneck", coarse)
    hidden = up("ups.1", block("decoder.1.1", block("decoder.1.0", coarse)))
    merged = torch.cat([hidden, middle], dim=1).movedim(1, -1)
    hidden = linear(merged, state["merges.0.weight"], state["merges.0.bias"]).movedim(-1, 1)
    hidden = up("ups.0", block("decoder.0.1", block("decoder.0.0", hidden)))
    expected = conv("head.convolution", hidden, padding=1)
    result = model(values, Domain.unit_box(2).grid(*shape)[0].double())
    torch.testing.assert_close(to_grid(result, shape), expected)


@pytest.mark.parametrize("padding", ["zeros", "periodic"])
@pytest.mark.parametrize("shape", [(8, 8), (4, 8, 4)])
def test_only_periodic_padding_commutes_with_shifts_of_periodic_domains(padding, shape):
    model = small_model(shape, periodic=True, padding=padding)
    coords = torch.rand(torch.Size(shape).numel(), len(shape))
    field = torch.randn(1, 1, *shape, dtype=torch.float64)

    def answer(values):
        return to_grid(model(values.flatten(2).mT, coords), shape)

    # By whole sites of the coarsest grid.
    shifted, expected = answer(field.roll(4, 3)), answer(field).roll(4, 3)
    is_same = torch.allclose(shifted, expected, rtol=1e-10, atol=1e-10)
    assert is_same == (padding == "periodic")


def test_the_bias_that_the_published_model_never_adds_is_declared():
    model = small_model((4, 4))
    assert model.unused == {f"{part}.{n}.0.bias" for part in ("downs", "ups") for n in (0, 1)}


def test_grids_that_cannot_be_halved_are_refused_with_sizes_that_can():
    reason = "^needs grid sizes that are multiples of 16, such as 48 x 16$"
    with pytest.raises(UnsupportedGeometryError, match=reason):
        CNextU(Problem(1, 1, Domain.unit_box(2), (50, 8)))
