import math

import pytest
import torch
from torch.nn.functional import conv1d, gelu, linear

from gpo import Domain
from gpo.model.problem import Problem, UnsupportedGeometryError
from gpo_bench.baselines import point_projection
from gpo_bench.baselines.fno import FNO, FNOConfig
from gpo_bench.baselines.geo_fno import GeoFNO, GeoFNOConfig
from gpo_bench.baselines.point_projection import (
    DeformationNetwork,
    modes_of_points,
    points_of_modes,
)

PLANE = Domain.box([0, -2], [1, 2])
SMALL = {"width": 6, "modes": (3, 4), "latent_size": 10}


def make_points(in_channels=1, out_channels=1, **options) -> GeoFNO:
    return GeoFNO(
        Problem(in_channels, out_channels, PLANE), GeoFNOConfig(**{**SMALL, **options})
    ).double()


def random_field(batch: int, points: int, channels=1):
    values = torch.randn(batch, points, channels, dtype=torch.float64)
    unit = torch.rand(batch, points, 2, dtype=torch.float64)
    return values, PLANE.from_unit(unit)


def uniform_grid(size: int):
    along = torch.arange(size, dtype=torch.float64) / size
    return torch.cartesian_prod(along, along).unsqueeze(0)


def count(model) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_parameters_are_as_many_as_published():
    elasticity = Problem(2, 1, Domain.unit_box(2))
    airfoil = Problem(2, 1, Domain.unit_box(2), (221, 51))
    assert count(GeoFNO(elasticity, GeoFNOConfig(appends_coords=False))) == 1_546_403
    assert count(GeoFNO(airfoil, GeoFNOConfig(appends_coords=False, modes=(24, 12)))) == 2_368_033
    # The released network of plasticity has four batch norms besides, which it never uses.
    plasticity = Problem(1, 4, Domain.unit_box(3), (101, 31, 20))
    with torch.device("meta"):
        model = GeoFNO(plasticity, GeoFNOConfig(appends_coords=False, padding=5))
    assert count(model) == 18_883_492


def test_idle_parameters_are_those_that_get_no_gradient():
    model = make_points()
    model(*random_field(2, 30)).square().sum().backward()
    idle = {
        name
        for name, part in model.named_parameters()
        if part.grad is None or not part.grad.abs().sum() > 0
    }
    assert idle == GeoFNO.unused


def test_points_on_a_uniform_grid_have_the_modes_of_a_fourier_transform():
    size, (rows, columns) = 9, (3, 4)
    values = torch.randn(2, size**2, 3, dtype=torch.float64)
    image = uniform_grid(size).expand(2, -1, -1)
    whole = torch.fft.fft2(values.mT.unflatten(2, (size, size)))
    expected = torch.cat([whole[:, :, :rows, :columns], whole[:, :, -rows:, :columns]], dim=2)
    modes = modes_of_points(values, image, (rows, columns))
    torch.testing.assert_close(modes, expected, rtol=1e-12, atol=1e-12)


def test_modes_at_points_of_a_uniform_grid_are_an_inverse_fourier_transform():
    size, (rows, columns) = 10, (3, 4)
    modes = torch.randn(2, 3, 2 * rows, columns, dtype=torch.complex128)
    half = torch.zeros(2, 3, size, size // 2 + 1, dtype=torch.complex128)
    half[:, :, :rows, :columns] = modes[:, :, :rows]
    half[:, :, -rows:, :columns] = modes[:, :, rows:]
    expected = torch.fft.irfft2(half, s=(size, size), norm="forward").flatten(2).mT
    answer = points_of_modes(modes, uniform_grid(size).expand(2, -1, -1))
    torch.testing.assert_close(answer, expected, rtol=1e-12, atol=1e-12)


def test_point_transforms_are_the_sums_they_say():
    rows, columns = 2, 3
    values, image = torch.randn(1, 7, 2).double(), 3 * torch.rand(1, 7, 2).double() - 1
    coefficients = torch.randn(1, 2, 2 * rows, columns, dtype=torch.complex128)
    modes = torch.zeros_like(coefficients)
    back = torch.zeros(1, 7, 2, dtype=torch.complex128)
    for row, first in enumerate((0, 1, -2, -1)):
        for column in range(columns):
            for point, (x, y) in enumerate(image[0]):
                angle = 2 * math.pi * (first * x + column * y)
                wave = torch.complex(torch.cos(angle), torch.sin(angle))
                modes[0, :, row, column] += values[0, point] * wave.conj()
                term = coefficients[0, :, row, column]
                back[0, point] += term * wave
                if column > 0:
                    back[0, point] += term.conj() * wave.conj()
    torch.testing.assert_close(modes_of_points(values, image, (rows, columns)), modes)
    torch.testing.assert_close(points_of_modes(coefficients, image), back.real)


def test_deformation_is_what_its_formula_says():
    network = DeformationNetwork().double()
    coords = torch.rand(1, 3, 2, dtype=torch.float64)
    for point, (x, y) in enumerate(coords[0].tolist()):
        features = [x, y, math.atan2(y - 1e-4, x - 1e-4), math.hypot(x - 1e-4, y - 1e-4)]
        phases = [math.pi * 2**j * f for f in features for j in range(8)]
        lifted = network.lift(torch.tensor(features, dtype=torch.float64))
        waves = [math.sin(p) for p in phases] + [math.cos(p) for p in phases]
        hidden = torch.cat([lifted, torch.tensor(waves, dtype=torch.float64)])
        widen, *squash, out = (part for part in network.layers if hasattr(part, "weight"))
        hidden = linear(hidden, widen.weight, widen.bias)
        assert len(squash) == 3
        for part in squash:
            hidden = torch.tanh(linear(hidden, part.weight, part.bias))
        shift = linear(hidden, out.weight, out.bias)
        expected = coords[0, point] * (1 + shift)
        torch.testing.assert_close(network(coords)[0, point], expected, rtol=1e-12, atol=1e-12)


def channels_first(layer, field):
    return conv1d(field.flatten(2), layer.weight, layer.bias).unflatten(2, field.shape[2:])


def spectral(layer, field, rows, columns):
    """A spectral layer by whole transforms."""
    weight = layer.mix.weight
    spectrum = torch.fft.rfft2(field)
    out = torch.zeros_like(spectrum)
    for kept in (slice(rows), slice(-rows, None)):
        low = spectrum[:, :, kept, :columns]
        out[:, :, kept, :columns] = torch.einsum("bixy,xyio->boxy", low, weight[kept])
    return torch.fft.irfft2(out, s=field.shape[2:])


def test_point_network_is_what_its_formula_says():
    size, (rows, columns), model = 10, (3, 4), make_points(in_channels=2, out_channels=3)
    values, coords = random_field(2, 25, 2)
    network, unit = model.network, PLANE.to_unit(coords)
    image = network.deformation(unit)
    hidden = linear(torch.cat([values, unit], -1), network.lift.weight, network.lift.bias)
    weight = network.to_latent.mix.weight
    mixed = torch.einsum("bixy,xyio->boxy", modes_of_points(hidden, image, (3, 4)), weight)
    half = torch.zeros(2, 6, size, size // 2 + 1, dtype=torch.complex128)
    half[:, :, :rows, :columns], half[:, :, -rows:, :columns] = mixed.chunk(2, dim=2)
    axis = torch.linspace(0, 1, size, dtype=torch.float64)
    places = torch.stack(torch.meshgrid(axis, axis, indexing="ij")).unsqueeze(0)
    latent = torch.fft.irfft2(half, s=(size, size)) + channels_first(
        network.to_latent.place, places
    )
    latent = gelu(latent)
    for layer, place in zip(network.layers, network.places, strict=True):
        total = spectral(layer.convolution, latent, rows, columns)
        total = total + channels_first(layer.pointwise, latent) + channels_first(place, places)
        latent = gelu(total)
    spectrum = torch.fft.rfft2(latent)
    low = torch.cat([spectrum[:, :, :rows, :columns], spectrum[:, :, -rows:, :columns]], dim=2)
    weight = network.to_points.mix.weight
    answer = points_of_modes(torch.einsum("bixy,xyio->boxy", low, weight), image)
    answer = answer + linear(unit, network.to_points.place.weight, network.to_points.place.bias)
    widen, _, out = network.head
    answer = linear(gelu(linear(answer, widen.weight, widen.bias)), out.weight, out.bias)
    torch.testing.assert_close(model(values, coords), answer, rtol=1e-10, atol=1e-12)


def test_order_of_points_does_not_matter():
    model, (values, coords), order = make_points(), random_field(2, 30), torch.randperm(30)
    shuffled = model(values[:, order], coords[:, order])
    torch.testing.assert_close(shuffled, model(values, coords)[:, order], rtol=1e-10, atol=1e-12)


def test_padded_points_change_nothing():
    model, (values, coords) = make_points(), random_field(2, 30)
    alone = model(values, coords)
    for extra in (1, 17):
        more_values = torch.cat([values, torch.full((2, extra, 1), math.nan).double()], 1)
        more_coords = torch.cat([coords, torch.full((2, extra, 2), 1e308, dtype=torch.float64)], 1)
        weights = torch.cat([torch.ones(30), torch.zeros(extra)])
        padded = model(more_values, more_coords, weights=weights)
        torch.testing.assert_close(padded[:, :30], alone, rtol=1e-11, atol=1e-13)
        assert padded.isfinite().all()


def test_many_points_are_taken_in_chunks_with_the_same_result(monkeypatch):
    model, field = make_points(), random_field(2, 30)

    def answer_and_gradients():
        model.zero_grad()
        answer = model(*field)
        answer.square().sum().backward()
        return [answer.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]

    sizes = []
    whole = answer_and_gradients()
    waves = point_projection.plane_waves
    monkeypatch.setattr(point_projection, "MAX_SITES", 14)
    monkeypatch.setattr(
        point_projection,
        "plane_waves",
        lambda image, modes: sizes.append(image.shape[1]) or waves(image, modes),
    )
    for chunked, expected in zip(answer_and_gradients(), whole, strict=True):
        torch.testing.assert_close(chunked, expected, rtol=1e-9, atol=1e-11)
    # There and back, and both once more for the gradient.
    assert sorted(sizes) == sorted(4 * [7, 7, 7, 7, 2])


@pytest.mark.parametrize("grid", [(6, 9), (6, 3, 3)])
def test_a_mesh_is_a_fourier_network_on_its_indices(grid):
    """Its own coordinates are channels like any other; zeros stand behind both ends."""
    domain = Domain.box([0, -2, 1][: len(grid)], [1, 2, 4][: len(grid)])
    config = GeoFNOConfig(width=5, modes=(3, 3, 3))
    mesh = GeoFNO(Problem(1, 2, domain, grid), config).double()
    plain = FNO(
        Problem(1 + len(grid), 2, domain, grid),
        FNOConfig(widths=(5,) * 5, modes=(3,) * 4, head=(128,), padding=8),
    ).double()
    plain.load_state_dict(mesh.state_dict())
    values = torch.randn(2, 54, 1, dtype=torch.float64)
    coords = domain.from_unit(torch.rand(2, 54, len(grid), dtype=torch.float64))
    inputs = torch.cat([values, domain.to_unit(coords)], -1)
    torch.testing.assert_close(mesh(values, coords), plain(inputs, coords), rtol=0, atol=0)


def test_masked_sites_of_a_mesh_are_seen_as_zeros():
    model = GeoFNO(Problem(1, 1, PLANE, (6, 8)), GeoFNOConfig(width=5, modes=(3, 3))).double()
    (values, coords), weights = random_field(2, 48), torch.ones(48)
    weights[7:20] = 0
    answer = model(values, coords, weights=weights)
    values[:, 7:20], coords[:, 7:20] = math.nan, 1e308
    assert torch.equal(model(values, coords, weights=weights), answer)


def test_a_grid_on_the_sphere_is_a_mesh():
    coords, weights = Domain.sphere().grid(6, 12)
    model = GeoFNO(Problem(1, 1, Domain.sphere(), (6, 12)), GeoFNOConfig(width=5, modes=(3, 3)))
    assert model.network.lift[0].in_features == 1 + 3 + 2
    assert model(torch.randn(1, 72, 1), coords, weights=weights).isfinite().all()


def test_mixed_precision_is_close_to_single():
    model, (values, coords) = make_points().float(), random_field(2, 30)
    exact = model(values.float(), coords.float())
    with torch.autocast("cpu", torch.bfloat16):
        mixed = model(values.float(), coords.float())
    torch.testing.assert_close(mixed.float(), exact, rtol=0.05, atol=0.1 * exact.std().item())


@pytest.mark.parametrize(
    ("domain", "grid"),
    [
        (Domain.unit_box(1), (8,)),
        (Domain.unit_box(1), ()),
        (Domain.unit_box(3), ()),
        (Domain.sphere(), ()),
    ],
)
def test_other_geometries_are_refused(domain, grid):
    reason = "^needs a grid of 2 to 3 axes or points in a plane; its authors have no 3-D points$"
    with pytest.raises(UnsupportedGeometryError, match=reason):
        GeoFNO(Problem(1, 1, domain, grid))


def test_samples_that_share_their_points_are_answered_as_if_they_did_not():
    model = make_points()
    values, coords = random_field(3, 30)
    shared = coords[:1].expand(2, -1, -1)
    mixed = torch.cat([shared, coords[2:]])
    assert model.network.deformation(shared).shape == (1, 30, 2)
    expected = model(values, mixed)[:2]
    torch.testing.assert_close(model(values[:2], shared), expected, rtol=1e-12, atol=1e-12)


def test_every_axis_has_a_number_of_modes():
    with pytest.raises(ValueError, match=r"`modes` must be 3 numbers, got \(12, 12\)"):
        GeoFNO(Problem(1, 1, Domain.unit_box(3), (8, 8, 8)), GeoFNOConfig(modes=(12, 12)))
    with pytest.raises(ValueError, match=r"`modes` must be a number for each axis, got \(12,\)"):
        GeoFNOConfig(modes=(12,))
