import itertools

import pytest
import torch

from gpo_bench.baselines.spectral_convolution import SpectralConvolution, low_modes, resolved_modes

GRIDS = {"line": ((13,), (5,)), "plane": ((9, 12), (3, 4)), "box": ((6, 7, 8), (3, 2, 5))}


def corners_written_out(layer, values):
    """The whole spectrum, with one block of weights for every corner of low modes."""
    *full, half = layer.modes
    spectrum = torch.fft.rfftn(values, dim=tuple(range(2, values.ndim)))
    out = torch.zeros(len(values), layer.mix.weight.shape[-1], *spectrum.shape[2:]).to(spectrum)
    for signs in itertools.product((1, -1), repeat=len(full)):
        rows = [
            slice(count) if sign > 0 else slice(-count, None)
            for sign, count in zip(signs, full, strict=True)
        ]
        corner = (slice(None), slice(None), *rows, slice(half))
        weight = layer.mix.weight[tuple(rows)]
        out[corner] = torch.einsum("bi...,...io->bo...", spectrum[corner], weight)
    return torch.fft.irfftn(out, s=values.shape[2:], dim=tuple(range(2, values.ndim)))


@pytest.mark.parametrize(("grid", "modes"), GRIDS.values(), ids=GRIDS.keys())
def test_low_modes_are_corners_of_the_whole_spectrum(grid, modes):
    layer = SpectralConvolution(2, 3, modes).double()
    values = torch.randn(2, 2, *grid, dtype=torch.float64)
    expected = corners_written_out(layer, values)
    assert expected.std() > 0.01
    torch.testing.assert_close(layer(values), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("grid", [(9,), (8,), (6, 5), (4, 6, 7)])
def test_all_modes_and_unit_weights_give_the_field_back(grid):
    modes = resolved_modes((99,) * len(grid), grid)
    layer = SpectralConvolution(2, 2, modes).double()
    with torch.no_grad():
        layer.mix.weight.copy_(torch.eye(2).expand_as(layer.mix.weight))
    values = torch.randn(3, 2, *grid, dtype=torch.float64)
    torch.testing.assert_close(layer(values), values, rtol=1e-12, atol=1e-12)


def test_modes_are_no_more_than_a_grid_resolves():
    assert resolved_modes((15, 15), (64, 64)) == (15, 15)
    assert resolved_modes((15, 15), (16, 17)) == (8, 9)
    assert resolved_modes((3, 15), (16, 17)) == (3, 9)
    assert resolved_modes((9, 9, 9), (5, 8, 2)) == (2, 4, 2)
    assert resolved_modes((9,), (10,)) == (6,)


def test_a_band_limited_field_is_convolved_alike_on_every_grid():
    layer = SpectralConvolution(2, 3, (6, 6)).double()
    waves = torch.randn(2, 2, 4, 4, dtype=torch.float64)

    def field(size):
        x = torch.arange(size, dtype=torch.float64) / size
        along = torch.stack([torch.cos(2 * torch.pi * k * x + k) for k in range(4)])
        return torch.einsum("bckl,kx,ly->bcxy", waves, along, along)

    coarse, fine = layer(field(64)), layer(field(128))
    assert coarse.std() > 0.01
    torch.testing.assert_close(fine[..., ::2, ::2], coarse, rtol=1e-12, atol=1e-12)


def test_a_shifted_field_gives_a_shifted_answer():
    layer = SpectralConvolution(1, 1, (3, 4)).double()
    values = torch.randn(1, 1, 8, 9, dtype=torch.float64)
    shifted = layer(values.roll((3, 2), dims=(2, 3)))
    torch.testing.assert_close(
        shifted, layer(values).roll((3, 2), dims=(2, 3)), rtol=1e-12, atol=1e-14
    )


def test_weights_start_uniform_in_both_parts():
    parts = torch.view_as_real(SpectralConvolution(4, 5, (9, 9)).mix.weight.detach()) * 20
    assert (parts >= 0).all()
    assert (parts < 1).all()
    torch.testing.assert_close(
        parts.flatten(end_dim=-2).mean(0), torch.full((2,), 0.5), rtol=0, atol=0.03
    )


@pytest.mark.parametrize("convert", [lambda m: m.double(), lambda m: m.to(torch.float64)])
def test_precision_changes_both_parts_of_the_weights(convert):
    layer = SpectralConvolution(2, 2, (3, 3))
    weight = layer.mix.weight
    before = weight.detach().clone()
    convert(layer)
    assert layer.mix.weight is weight
    assert weight.dtype == torch.complex128
    assert layer(torch.zeros(1, 2, 8, 8, dtype=torch.float64)).dtype == torch.float64
    assert torch.equal(layer.float().mix.weight, before)


def test_half_precision_is_transformed_in_single():
    layer, values = SpectralConvolution(2, 2, (3, 3)), torch.randn(1, 2, 8, 8).bfloat16()
    assert torch.equal(layer(values), layer(values.float()))
    assert low_modes(values, (3, 3)).dtype == torch.complex64


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("grid", "modes"), [((10, 12), (3, 4)), ((6, 8, 7), (2, 3, 4))])
def test_neuraloperator_agrees(grid, modes):
    """Its modes count both signs, stand in increasing order, and its norms cancel as ours do."""
    neuralop = pytest.importorskip("neuralop.layers.spectral_convolution")
    ours = SpectralConvolution(2, 3, modes)
    signed = (*(2 * count for count in modes[:-1]), 2 * modes[-1] - 2)
    reference = neuralop.SpectralConv(2, 3, signed, bias=False)
    centred = torch.fft.fftshift(ours.mix.weight.detach(), dim=tuple(range(len(modes) - 1)))
    with torch.no_grad():
        reference.weight.tensor.copy_(centred.movedim((-2, -1), (0, 1)))
    values = torch.randn(2, 2, *grid)
    torch.testing.assert_close(reference(values), ours(values), rtol=1e-5, atol=1e-6)
