import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import sph_harm_y

from gpo.data.geometry import Geometry
from gpo.evaluation.flow import velocity
from gpo.evaluation.spectrum import NoSpectrumError, spectra, spectral_errors


def circle(size=64):
    return Geometry.rectilinear([np.arange(size) / size], periodic=True)


def wave(number, size=64):
    return np.cos(2 * np.pi * number * np.arange(size) / size + 0.3)


def globe(num_latitudes=12):
    latitude = 90 - (np.arange(num_latitudes) + 0.5) * 180 / num_latitudes
    longitude = np.arange(2 * num_latitudes) * 180 / num_latitudes
    return Geometry.latitude_longitude(latitude, longitude)


def noise(geometry, frames=2):
    return np.random.default_rng(0).normal(size=(frames, geometry.num_points))


def power_of(number, spectrum):
    return spectrum.power[spectrum.wavenumbers == number].sum()


def test_a_spectrum_is_averaged_over_frames():
    fields = np.stack([wave(3), 2 * wave(3) + wave(9)]).astype(np.float32)
    spectrum = spectra(fields, circle())
    assert spectrum.label == "wave number"
    assert spectrum.wavenumbers.tolist() == list(range(33))
    expected = np.zeros(33)
    expected[[3, 9]] = (0.5 + 2) / 2, 0.5 / 2
    np.testing.assert_allclose(spectrum.power, expected, atol=1e-7)


@pytest.mark.parametrize("shape", [(12,), (6, 8), (4, 6, 5), (6, 1, 4)])
def test_the_spectrum_of_a_periodic_grid_sums_to_the_mean_square(shape):
    axes = [np.arange(size) * 0.5 for size in shape]
    geometry = Geometry.rectilinear(axes, periodic=True)
    fields = noise(geometry)
    spectrum = spectra(fields, geometry)
    assert spectrum.quantity == "variance"
    assert spectrum.power.sum() == pytest.approx((fields**2).mean())


def test_axes_may_be_descending():
    axes = [np.arange(8.0)[::-1], np.arange(6.0)]
    fields = noise(Geometry.rectilinear(axes))
    down = spectra(fields, Geometry.rectilinear(axes))
    up = spectra(fields, Geometry.rectilinear([axes[0][::-1], axes[1]]))
    np.testing.assert_allclose(down.power, up.power)


def test_wave_numbers_are_relative_to_the_longest_side():
    geometry = Geometry.rectilinear([np.arange(16) / 16, np.arange(8) / 2], periodic=True)
    along_short = np.repeat(wave(2, 16), 8)[None]
    spectrum = spectra(along_short, geometry)
    # Two waves per unit are eight over the side of length four.
    assert power_of(8, spectrum) == pytest.approx(0.5)


def test_shells_without_a_mode_are_left_out():
    geometry = Geometry.rectilinear([np.arange(16) / 16, np.arange(4) * 2.5], periodic=True)
    spectrum = spectra(noise(geometry), geometry)
    assert 10 in spectrum.wavenumbers
    assert 15 not in spectrum.wavenumbers
    assert (spectrum.power > 0).all()


def test_a_repeated_end_of_a_periodic_axis_is_dropped():
    bounds = [(0.0, 1.0)]
    geometry = Geometry.rectilinear([np.linspace(0, 1, 65)], periodic=True, bounds=bounds)
    repeated = spectra(np.append(wave(5), wave(5)[0])[None], geometry)
    np.testing.assert_allclose(repeated.power, spectra(wave(5)[None], circle()).power, atol=1e-15)


def test_axes_that_are_not_periodic_are_tapered():
    slope = np.linspace(-1, 1, 64)[None]
    closed = spectra(slope, circle())
    opened = spectra(slope, Geometry.rectilinear([np.arange(64) / 64]))
    assert (opened.power[10:] < 1e-2 * closed.power[10:]).all()


@pytest.mark.parametrize("is_repeated", [False, True])
@pytest.mark.parametrize("has_poles", [False, True])
def test_the_spectrum_of_the_whole_sphere_is_by_degree(has_poles, is_repeated):
    latitude = np.linspace(-90, 90, 13) if has_poles else np.linspace(82.5, -82.5, 12)
    longitude = -40 + np.arange(24 + is_repeated) * 15.0
    geometry = Geometry.latitude_longitude(latitude, longitude)
    field = sph_harm_y(4, 2, np.deg2rad(90 - latitude)[:, None], np.deg2rad(longitude)).real
    spectrum = spectra(field.reshape(1, -1), geometry)
    assert spectrum.label == "degree"
    assert spectrum.wavenumbers.tolist() == list(range(12))
    # The mean square, as on boxes; that of a cosine is half that of |Y|.
    assert spectrum.power[4] == pytest.approx(1 / (8 * math.pi))
    assert spectrum.power.sum() == pytest.approx(spectrum.power[4])


def test_a_region_of_the_sphere_is_treated_as_a_plane_at_its_mean_latitude():
    latitude, longitude = np.linspace(50, 70, 41), (340 + np.arange(81) * 0.5) % 360
    region = Geometry.latitude_longitude(latitude, longitude)
    # At 60 degrees a degree of longitude is half as long: the plane is 41 by 81 / 2.
    plane = Geometry.rectilinear([latitude, np.arange(81) * 0.25])
    fields = noise(region)
    spectrum, expected = spectra(fields, region), spectra(fields, plane)
    assert spectrum.label == "wave number"
    np.testing.assert_array_equal(spectrum.wavenumbers, expected.wavenumbers)
    np.testing.assert_allclose(spectrum.power, expected.power)


def test_a_region_that_spans_all_longitudes_is_periodic():
    region = Geometry.latitude_longitude(np.linspace(-20, 20, 9), np.arange(72) * 5.0)
    fields = noise(region)
    turned = np.roll(fields.reshape(2, 9, 72), 30, 2).reshape(2, -1)
    np.testing.assert_allclose(spectra(turned, region).power, spectra(fields, region).power)


def torus(shape=(24, 36), lengths=(1.0, 1.5)):
    axes = [np.arange(n) * length / n for n, length in zip(shape, lengths, strict=True)]
    return Geometry.rectilinear(axes, periodic=True)


def test_the_energy_of_a_vorticity_sums_to_the_kinetic_energy_of_its_flow():
    geometry, random = torus(), np.random.default_rng(0)
    x, y = 2 * np.pi * geometry.coords.T / np.array([[1.0], [1.5]])
    fields = [
        sum(random.normal() * np.cos(k * x + m * y + random.uniform(0, 6)) for k in range(5) for m in range(1, 7))
        for _ in range(3)
    ]  # fmt: skip
    spectrum = spectra(np.stack(fields), geometry, is_vorticity=True)
    flows = [velocity(geometry, field[:, None], ["vorticity"]) for field in fields]
    assert spectrum.quantity == "kinetic energy"
    assert spectrum.power[0] == 0
    kinetic = np.mean([(flow**2).sum(-1).mean() / 2 for flow in flows])
    assert spectrum.power.sum() == pytest.approx(kinetic, rel=1e-10)


def test_the_energy_of_one_wave_of_vorticity_is_at_its_wave_number():
    geometry = torus((16, 16), (2.0, 2.0))
    x, y = geometry.coords.T
    spectrum = spectra(np.cos(np.pi * (3 * x + 4 * y))[None], geometry, is_vorticity=True)
    # Five waves along a side of length two: |u| = 1 / (5 pi), and half its mean square.
    assert power_of(5, spectrum) == pytest.approx(1 / (4 * (5 * np.pi) ** 2))
    assert spectrum.power.sum() == pytest.approx(power_of(5, spectrum))


def test_on_the_sphere_the_energy_of_a_vorticity_is_by_degree():
    geometry = globe()
    latitude, longitude = (np.deg2rad(part) for part in geometry.axes)
    field = sph_harm_y(4, 2, np.pi / 2 - latitude[:, None], longitude).real.reshape(1, -1)
    spectrum = spectra(field, geometry, is_vorticity=True)
    # A stream function 1 / l(l+1) times the vorticity, whose flow has l(l+1) times its mean square.
    assert spectrum.quantity == "kinetic energy"
    assert spectrum.power[4] == pytest.approx(1 / (8 * math.pi) / (2 * 4 * 5))
    assert spectrum.power.sum() == pytest.approx(spectrum.power[4])


@pytest.mark.parametrize("periodic", [False, (True, False)])
def test_a_vorticity_between_walls_has_a_spectrum_of_variance(periodic):
    geometry = Geometry.rectilinear([np.arange(8.0)] * 2, periodic=periodic)
    fields = noise(geometry)
    spectrum = spectra(fields, geometry, is_vorticity=True)
    assert spectrum.quantity == "variance"
    np.testing.assert_array_equal(spectrum.power, spectra(fields, geometry).power)


def test_errors_by_scale_are_relative_to_the_variance_of_the_truth():
    truth, geometry = noise(torus()), torus()
    errors = spectral_errors(truth, 0.9 * truth, geometry)
    assert [*errors.values()] == pytest.approx([0.1, 0.1, 0.1])


def uneven():
    axis = np.arange(16.0)
    axis[5] += 2e-3
    return Geometry.rectilinear([axis])


def gap_at_the_seam():
    return Geometry.rectilinear([np.arange(16.0)], periodic=True, bounds=[(0.0, 16.5)])


def gaussian_latitudes():
    latitude = np.rad2deg(np.arcsin(np.polynomial.legendre.leggauss(32)[0]))
    return Geometry.latitude_longitude(latitude, np.arange(64) * 360 / 64)


def mesh(triangles):
    points = np.array([[0.0, 0], [1, 0], [0, 1], [1, 1]])
    return Geometry.unstructured(points, np.array([[0, 1, 2], [1, 2, 3]]) if triangles else None)


def curvilinear():
    radius, angle = np.meshgrid(np.linspace(1, 2, 4), np.linspace(0, 1, 5), indexing="ij")
    return Geometry.curvilinear(radius * np.cos(angle), radius * np.sin(angle))


AROUND = np.arange(36) * 10.0

REFUSALS = {
    "unstructured": (mesh(False), "unstructured points"),
    "mesh": (mesh(True), "mesh"),
    "curvilinear": (curvilinear(), "curvilinear grid"),
    "uneven": (uneven(), "non-uniform axes"),
    "seam": (gap_at_the_seam(), "non-uniform axes"),
    "gaussian": (gaussian_latitudes(), "non-uniform axes"),
    "masked": (circle(8).masked(np.arange(8) == 3), "masked sites"),
    "nan weight": (replace(circle(8), weights=np.full(8, np.nan)), "masked sites"),
    "units": (
        Geometry.rectilinear([np.arange(4.0)] * 2, units=("hPa", "km")),
        "axes of different units",
    ),
    "site": (Geometry.rectilinear([np.zeros(1)]), "a single site"),
    "cap": (Geometry.latitude_longitude(np.linspace(60, 90, 7), AROUND), "reaches a pole"),
    "one pole": (Geometry.latitude_longitude(np.arange(-90, 90, 5.0), AROUND), "reaches a pole"),
    "no pole": (Geometry.latitude_longitude(np.arange(-85, 90, 5.0), AROUND), "reaches a pole"),
    "sector": (
        Geometry.latitude_longitude(np.arange(-85, 90, 10.0), np.arange(9.0)),
        "reaches a pole",
    ),
}


@pytest.mark.parametrize(("geometry", "reason"), REFUSALS.values(), ids=REFUSALS.keys())
def test_other_sites_are_refused_with_a_reason(geometry, reason):
    with pytest.raises(NoSpectrumError, match=f"{reason}$"):
        spectra(np.ones((1, geometry.num_points)), geometry)


@pytest.mark.parametrize(("value", "reason"), [(np.nan, "masked sites"), (np.inf, "infinite")])
def test_unknown_values_are_refused(value, reason):
    fields = np.stack([wave(1), wave(2)])
    fields[1, 7] = value
    with pytest.raises(NoSpectrumError, match=reason):
        spectra(fields, circle())


def test_sites_within_a_thousandth_of_the_spacing_are_uniform():
    axis = np.arange(16.0)
    axis[5] += 5e-4
    assert spectra(np.ones((1, 16)), Geometry.rectilinear([axis])).power[0] == pytest.approx(1.0)


def test_errors_are_separated_by_scale():
    # Wave numbers 1 to 64; edges at 4 and 16, each in the bin above it.
    numbers = {"low": (1, 3), "middle": (4, 15), "high": (16, 64)}
    truth = sum(wave(n, 128) for pair in numbers.values() for n in pair if n < 64)
    truth = (truth + np.cos(np.pi * np.arange(128)))[None]
    for name, (first, last) in numbers.items():
        for number in (first, last):
            error = 0.1 * (wave(number, 128) if number < 64 else np.cos(np.pi * np.arange(128)))
            errors = spectral_errors(truth, truth + error, circle(128))
            assert list(errors) == ["low", "middle", "high"]
            assert [key for key, value in errors.items() if value > 1e-9] == [name]
    errors = spectral_errors(truth, truth + 0.1 * wave(4, 128), circle(128))
    assert errors["middle"] == pytest.approx(0.1 / math.sqrt(2))


@pytest.mark.parametrize("geometry", [circle(), globe()], ids=["circle", "globe"])
def test_a_zero_prediction_has_error_one_and_a_perfect_one_zero(geometry):
    truth = noise(geometry, 3)
    assert [*spectral_errors(truth, 0 * truth, geometry).values()] == pytest.approx([1, 1, 1])
    assert [*spectral_errors(truth, truth, geometry).values()] == [0, 0, 0]


def test_errors_ignore_the_mean():
    truth = np.stack([wave(1), wave(5)]) + noise(circle())
    errors = spectral_errors(truth, truth + 7, circle())
    assert max(errors.values()) < 1e-12


@pytest.mark.parametrize(("number", "name"), [(2, "middle 1"), (4, "middle 2"), (16, "high")])
def test_a_wave_number_on_an_edge_belongs_to_the_bin_above(number, name):
    # Five bins from 1 to 32 have their edges at powers of two, up to rounding.
    truth = noise(circle())
    errors = spectral_errors(truth, truth + wave(number), circle(), 5)
    assert max(errors, key=lambda key: errors[key]) == name


def test_bins_may_be_more_or_fewer():
    truth = noise(circle())
    assert list(spectral_errors(truth, truth, circle(), 2)) == ["low", "high"]
    four = spectral_errors(truth, truth, circle(), 4)
    assert list(four) == ["low", "middle 1", "middle 2", "high"]
    with pytest.raises(ValueError, match="`num_bins` must be at least 2"):
        spectral_errors(truth, truth, circle(), 1)


@pytest.mark.parametrize("size", [4, 5])
def test_a_bin_without_wave_numbers_is_refused(size):
    truth = noise(circle(size))
    with pytest.raises(NoSpectrumError, match="too few wave numbers"):
        spectral_errors(truth, truth, circle(size))


def test_three_wave_numbers_fill_three_bins():
    truth = noise(circle(6))
    assert len(spectral_errors(truth, truth, circle(6))) == 3


def test_the_errors_of_a_prediction_that_diverged_are_nan():
    truth = noise(circle())
    prediction = truth.copy()
    prediction[1, 3] = np.inf
    assert np.isnan([*spectral_errors(truth, prediction, circle()).values()]).all()
    with pytest.raises(NoSpectrumError, match="infinite values"):
        spectral_errors(prediction, truth, circle())
