import math

import pytest
import torch

from gpo.numerics.spectral import energy_spectrum, half_wavenumbers, random_field, resample


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


def test_a_random_field_has_the_variance_it_is_told():
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
