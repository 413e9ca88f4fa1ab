import math

import pytest
import torch

from gpo.numerics.spectral import (
    energy_spectrum,
    half_wavenumbers,
    random_field,
    resample,
    shell_numbers,
    shell_spectrum,
)


def wave(size, kx, ky):
    x = torch.arange(size, dtype=torch.float64) / size
    return torch.cos(2 * math.pi * (kx * x[:, None] + ky * x[None, :]) + 0.3)


@pytest.mark.parametrize("size", [16, 48, 64])
def test_resampling_gives_the_same_function_on_another_grid(size):
    field = wave(32, 3, -5) + 2 * wave(32, 0, 4) + 0.5
    spectrum = resample(torch.fft.rfft2(field), size)
    expected = wave(size, 3, -5) + 2 * wave(size, 0, 4) + 0.5
    torch.testing.assert_close(torch.fft.irfft2(spectrum, s=(size, size)), expected)


def test_resampling_to_a_coarser_grid_drops_what_it_cannot_hold():
    field = wave(64, 1, 1) + wave(64, 20, 3)
    coarse = torch.fft.irfft2(resample(torch.fft.rfft2(field), 16))
    torch.testing.assert_close(coarse, wave(16, 1, 1))


def test_a_random_field_has_the_given_variance():
    def variance(squared):
        return 3 * (squared + 40) ** -1.5

    generator = torch.Generator().manual_seed(0)
    fields = torch.stack([random_field(32, variance, generator) for _ in range(800)])
    along_x, along_y = half_wavenumbers(32)
    expected = variance(4 * math.pi**2 * (along_x**2 + along_y**2))
    measured = (torch.fft.rfft2(fields) / 32**2).abs().square().mean(0)
    assert measured[0, 0] < 1e-20
    low = (slice(0, 5), slice(1, 5))
    torch.testing.assert_close(measured[low], expected[low], rtol=0.2, atol=0)
    assert (measured[low] / expected[low]).mean().item() == pytest.approx(1, abs=0.05)


def test_energy_of_all_shells_is_the_kinetic_energy():
    generator = torch.Generator().manual_seed(1)
    vorticity = random_field(32, lambda squared: (squared + 40) ** -1.5, generator)
    along_x, along_y = half_wavenumbers(32)
    squared = 4 * math.pi**2 * (along_x**2 + along_y**2)
    psi = torch.fft.rfft2(vorticity) / squared.clamp_min(1e-30)
    psi[0, 0] = 0
    u = torch.fft.irfft2(2j * math.pi * along_y * psi)
    v = torch.fft.irfft2(-2j * math.pi * along_x * psi)
    # The Nyquist mode has no derivative on the grid; it carries almost nothing here.
    kinetic = 0.5 * (u.square() + v.square()).mean()
    assert energy_spectrum(vorticity).sum().item() == pytest.approx(kinetic.item(), rel=1e-3)


def test_a_single_wave_fills_a_single_shell():
    spectrum = energy_spectrum(wave(32, 3, 4).unsqueeze(0))[0]
    # Vorticity cos(k.x) has energy 1/(4 |2 pi k|^2), here |k| = 5.
    assert spectrum[5].item() == pytest.approx(1 / (4 * (2 * math.pi * 5) ** 2))
    assert spectrum.sum().item() == pytest.approx(spectrum[5].item())


BOXES = [
    ((9,), (1.0,)),
    ((16,), (3.0,)),
    ((8, 8), (1.0, 1.0)),
    ((7, 10), (2.0, 0.6)),
    ((6, 6, 6), (1.0, 1.0, 1.0)),
    ((5, 8, 1), (1.0, 2.0, 9.0)),
    ((4, 7, 6), (1.0, 3.0, 0.5)),
]


@pytest.mark.parametrize(("shape", "lengths"), BOXES)
def test_shells_are_sums_over_all_modes_of_the_full_transform(shape, lengths):
    values = torch.randn(2, *shape, dtype=torch.float64)
    spectrum = shell_spectrum(values, lengths)
    expected = torch.zeros_like(spectrum)
    longest = max(length for size, length in zip(shape, lengths, strict=True) if size > 1)
    modes = torch.cartesian_prod(*(torch.fft.fftfreq(size, 1 / size) for size in shape))
    hats = torch.fft.fftn(values, dim=tuple(range(1, values.ndim))).flatten(1) / math.prod(shape)
    for mode, hat in zip(modes.reshape(-1, len(shape)).tolist(), hats.T, strict=True):
        radius = math.hypot(*(n * longest / side for n, side in zip(mode, lengths, strict=True)))
        expected[:, math.floor(radius + 0.5)] += hat.abs().square() / 2
    torch.testing.assert_close(spectrum, expected)


@pytest.mark.parametrize(("shape", "lengths"), BOXES)
def test_shells_of_a_periodic_box_sum_to_half_the_mean_square(shape, lengths):
    values = torch.randn(3, *shape, dtype=torch.float64) + 2
    expected = values.square().flatten(1).mean(1) / 2
    spectrum = shell_spectrum(values, lengths)
    torch.testing.assert_close(spectrum.sum(-1), expected)
    torch.testing.assert_close(spectrum[:, 0], values.flatten(1).mean(1).square() / 2)


@pytest.mark.parametrize(
    ("lengths", "mode", "shell"),
    [
        ((1.0,), (5,), 5),
        ((1.0, 1.0), (3, -4), 5),
        ((1.0, 1.0, 1.0), (2, -3, 6), 7),
        # Three waves over half the longest side are six over all of it.
        ((2.0, 4.0), (3, 0), 6),
        ((4.0, 2.0), (3, 2), 5),
        ((1.0, 3.0, 1.5), (2, 2, 1), 7),
    ],
)
def test_a_wave_fills_the_shell_of_its_physical_wavenumber(lengths, mode, shell):
    phase = torch.zeros((), dtype=torch.float64)
    for size, number in zip((16, 18, 20), mode, strict=False):
        phase = phase[..., None] + number * torch.arange(size, dtype=torch.float64) / size
    spectrum = shell_spectrum(torch.cos(2 * math.pi * phase + 0.3), lengths)
    assert spectrum[shell].item() == pytest.approx(0.25)
    assert spectrum.sum().item() == pytest.approx(0.25)


def test_shells_do_not_know_the_unit_of_length():
    values = torch.randn(12, 9, dtype=torch.float64)
    torch.testing.assert_close(
        shell_spectrum(values, (5.0, 3.0)), shell_spectrum(values, (5e3, 3e3))
    )


def test_kinetic_energy_is_that_of_the_velocity_shell_by_shell():
    vorticity = random_field(
        32, lambda squared: (squared + 40) ** -3.0, torch.Generator().manual_seed(1)
    )
    along_x, along_y = half_wavenumbers(32)
    squared = 4 * math.pi**2 * (along_x**2 + along_y**2)
    psi = torch.fft.rfft2(vorticity) / squared.clamp_min(1e-30)
    velocity = torch.fft.irfft2(2j * math.pi * torch.stack([along_y * psi, -along_x * psi]))
    expected = shell_spectrum(velocity, (1.0, 1.0)).sum(0)
    # The Nyquist mode has no derivative on the grid.
    torch.testing.assert_close(energy_spectrum(vorticity)[:16], expected[:16])


@pytest.mark.parametrize("periodic", [False, (False, True), (True, False)])
def test_shells_of_an_open_box_sum_to_the_windowed_variance_and_the_squared_mean(periodic):
    values = torch.randn(2, 12, 9, dtype=torch.float64) + 3
    is_open = [not (periodic and periodic[axis]) for axis in (0, 1)]
    window = torch.ones(12, 9, dtype=torch.float64)
    for axis, size in enumerate((12, 9)):
        place = (torch.arange(size, dtype=torch.float64) + 0.5) / size
        # The mean fourth power of the sine is 3/8.
        hann = torch.sin(math.pi * place) ** 2 / math.sqrt(3 / 8) if is_open[axis] else place * 0 + 1  # fmt: skip
        window = window * (hann[:, None] if axis == 0 else hann)
    mean = values.mean((1, 2), keepdim=True)
    windowed = (window * (values - mean)).square().mean((1, 2))
    expected = (windowed + mean.flatten().square()) / 2
    torch.testing.assert_close(shell_spectrum(values, (1.0, 2.0), periodic).sum(-1), expected)


def test_a_constant_is_all_in_shell_zero_of_an_open_box():
    spectrum = shell_spectrum(torch.full((8, 6), 3.0, dtype=torch.float64), (1.0, 1.0), False)
    assert spectrum[0].item() == pytest.approx(4.5)
    assert spectrum[1:].abs().max().item() < 1e-25


def test_a_window_keeps_the_energy_of_a_wave_within_one_wavenumber():
    x = (torch.arange(64, dtype=torch.float64) + 0.5) / 64
    spectrum = shell_spectrum(torch.cos(2 * math.pi * 9 * x + 0.4), (1.0,), False)
    assert spectrum[8:11].sum().item() == pytest.approx(0.25)
    assert spectrum.sum().item() == pytest.approx(0.25)


def test_a_window_hides_the_jump_at_the_ends_of_an_open_axis():
    slope = torch.linspace(-1, 1, 256, dtype=torch.float64)
    periodic_spectrum, open_spectrum = (
        shell_spectrum(slope, (1.0,), periodic) for periodic in (True, False)
    )
    assert (open_spectrum[20:] < 1e-3 * periodic_spectrum[20:]).all()


@pytest.mark.parametrize("periodic", [True, False])
@pytest.mark.parametrize("shape", [(4096,), (96, 96), (32, 32, 32)])
def test_white_noise_grows_like_the_surface_of_the_shell(shape, periodic):
    noise = torch.randn(8, *shape, dtype=torch.float64)
    spectrum = shell_spectrum(noise, [1.0] * len(shape), periodic).mean(0)
    shells = torch.arange(3, shape[0] // 2, dtype=torch.float64)
    # Weighted with the number of modes, as every one scatters by as much as it holds.
    weights = shells ** (len(shape) - 1)
    x, y = shells.log(), spectrum[3 : shape[0] // 2].log()
    x, y = x - (weights * x).sum() / weights.sum(), y - (weights * y).sum() / weights.sum()
    slope = (weights * x * y).sum() / (weights * x * x).sum()
    assert slope.item() == pytest.approx(len(shape) - 1, abs=0.1)


def test_shells_cover_the_modes_of_the_half_transform():
    assert shell_numbers((4,), (1.0,)).tolist() == [0, 1, 2]
    assert shell_numbers((4, 3), (1.0, 0.5)).tolist() == [[0, 2], [1, 2], [2, 3], [1, 2]]
    # Halves go up: 1.5, 3, 4.5 and 6 along the shorter side.
    assert shell_numbers((2, 8), (1.5, 1.0))[0].tolist() == [0, 2, 3, 5, 6]


def test_a_spectrum_needs_the_axes_of_a_grid():
    for lengths in ([], [1.0] * 4, [1.0] * 3):
        with pytest.raises(ValueError, match="one entry for each of the 1, 2 or 3 axes"):
            shell_spectrum(torch.zeros(4, 4), lengths)
