import jaxtyping
import pytest
import torch

from gpo import Domain, GaussianParticleOperator
from tests.conftest import make_config, make_field, make_problem, random_points

NAN = float("nan")


@pytest.fixture(autouse=True)
def _as_in_production():
    """Users have no run-time type checker between them and our messages."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def build(domain, **changes):
    return GaussianParticleOperator(make_problem(domain, **changes), make_config(**changes))


def inputs(**changes):
    arguments = {"values": torch.zeros(2, 6, 2), "coords": torch.rand(6, 2), **changes}
    return arguments.pop("values"), arguments.pop("coords"), arguments


def nan_at(shape, *index):
    tensor = torch.zeros(shape)
    tensor[index] = NAN
    return tensor


BAD = {
    "rank of values": ({"values": torch.zeros(6, 2)}, r"`values` must have axes \(batch, points, channels\), got shape \(6, 2\)"),
    "channels": ({"values": torch.zeros(2, 6, 3)}, "`values` must have in_channels=2 channels, got 3"),
    "dtype": ({"values": torch.zeros(2, 6, 2).double()}, r"model's dtype torch.float32, got torch.float64.*values.to\(torch.float32\)"),
    "integers": ({"values": torch.zeros(2, 6, 2, dtype=torch.long)}, r"got torch.int64. Convert: values.to\(torch.float32\)."),
    "numpy values": ({"values": torch.zeros(2, 6, 2).numpy()}, r"`values` must be a torch.Tensor, got ndarray.*torch.as_tensor\(values"),
    "numpy coords": ({"coords": torch.rand(6, 2).numpy()}, "`coords` must be a torch.Tensor, got ndarray"),
    "no sites": ({"values": torch.zeros(2, 0, 2), "coords": torch.rand(0, 2)}, r"at least one sample and one site, got shape \(2, 0, 2\)"),
    "no samples": ({"values": torch.zeros(0, 6, 2)}, r"at least one sample and one site, got shape \(0, 6, 2\)"),
    "rank of coords": ({"coords": torch.rand(6)}, r"`coords` must have axes \(points, dim\) or \(batch, points, dim\), got shape \(6,\)"),
    "dim": ({"coords": torch.rand(6, 3)}, "`coords` must have dim=2 coordinates, got 3"),
    "points": ({"coords": torch.rand(5, 2)}, r"one row per site of `values` \(6\), got 5"),
    "batch of coords": ({"coords": torch.rand(3, 6, 2)}, r"`coords` must have the batch size of `values` \(2\), got 3"),
    "nan": ({"values": nan_at((2, 6, 2), 1, 4, 0)}, r"`values` must be finite, got 1 NaN.*\(1, 4, 0\). Give missing sites weight 0"),
    "infinite": ({"values": torch.full((2, 6, 2), torch.inf)}, "`values` must be finite, got 24 NaN or infinite"),
    "nan beside a mask": ({"values": nan_at((2, 6, 2), 1, 4, 0), "weights": torch.tensor([0.0, 1, 1, 1, 1, 1])}, "`values` must be finite"),
    "coords not finite": ({"coords": nan_at((6, 2), 3, 1)}, r"`coords` must be finite.*\(0, 3, 1\)"),
    "coords far away": ({"coords": 1000 * torch.rand(6, 2) + 500}, r"`coords` must lie near the domain.*Domain.around\(coords\)"),
    "all masked": ({"weights": torch.zeros(6)}, r"`weights` must leave at least one site.*all sites masked\) in sample 0"),
    "one sample masked": ({"weights": torch.tensor([[1.0] * 6, [0.0] * 6])}, "in sample 1"),
    "shape of weights": ({"weights": torch.ones(2, 5)}, r"`weights` must have shape \(6,\) or \(2, 6\), got \(2, 5\)"),
    "negative weights": ({"weights": -torch.ones(6)}, "`weights` must not be negative, got -1"),
    "weights not finite": ({"weights": nan_at((6,), 2)}, "`weights` must be finite"),
    "rank of queries": ({"queries": torch.rand(2)}, r"`queries` must have axes \(points, dim\)"),
    "dim of queries": ({"queries": torch.rand(4, 1)}, "`queries` must have dim=2 coordinates, got 1"),
    "no queries": ({"queries": torch.rand(0, 2)}, "`queries` must hold at least one point"),
    "queries not finite": ({"queries": nan_at((4, 2), 0, 0)}, "`queries` must be finite"),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), BAD.values(), ids=BAD.keys())
@pytest.mark.parametrize("make", [build, make_field], ids=["operator", "field"])
def test_bad_input_is_refused_with_its_name(make, changes, message):
    model = make(Domain.unit_box(2))
    values, coords, rest = inputs(**changes)
    with pytest.raises(ValueError, match=message):
        model(values, coords, **rest)


def test_longitudes_and_latitudes_are_refused_on_the_sphere():
    model = build(Domain.sphere())
    degrees = torch.tensor([[10.0, 50.0, 0.0]])
    with pytest.raises(
        ValueError, match=r"unit vectors on the sphere.*gpo.unit_vectors\(lon, lat\)"
    ):
        model(torch.zeros(1, 1, 2), degrees)


def test_periodic_coordinates_may_lie_anywhere():
    model = build(Domain.unit_box(2, periodic=True))
    assert model(torch.zeros(1, 4, 2), torch.rand(4, 2) + 100).isfinite().all()


def test_coordinates_take_the_type_of_the_values():
    model = build(Domain.unit_box(2))
    coords = random_points(Domain.unit_box(2), 6)
    assert (
        model(torch.zeros(1, 6, 2), coords, weights=torch.ones(6).double()).dtype == torch.float32
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_dim": 30, "num_heads": 4}, "multiple of `num_heads`, got hidden_dim=30, num_heads=4. Nearest valid hidden_dim: 32"),
        ({"sigma_min": -0.1}, "`sigma_min` must be positive, got sigma_min=-0.1"),
        ({"sigma_min": 0.5, "sigma_max": 0.2}, "`sigma_max` must be above sigma_min=0.5, got sigma_max=0.2"),
        ({"sigma_max": -1.0}, "`sigma_max`"),
        ({"num_gaussians": 0}, "`num_gaussians` must be a whole number, at least 1, got num_gaussians=0"),
        ({"variant": "waves", "gate": "open"}, "`gate` must be one of bounded, product, none, got gate='open'"),
        ({"variant": "waves", "num_waves": 0}, "`num_waves` must be from 1 to 10000, for all axes or for each, got num_waves=0"),
        ({"variant": "waves", "mesh_shape": (5,)}, "`grid_shape` of a body-fitted mesh must be two or three counts, each at least 2"),
        ({"hidden_dim": 64.0}, "`hidden_dim` must be a whole number, at least 1, got hidden_dim=64.0"),
        ({"centers": "relative"}, "`centers` must be one of absolute, displacement, got centers='relative'"),
        ({"features": "wavelet"}, "`features` must be one of fourier, mlp, none, got features='wavelet'"),
        ({"num_layers": -1}, "`num_layers` must be at least 0"),
        ({"mixing": 1.5}, r"`mixing` must be in \[0, 1\], got mixing=1.5"),
        ({"mixing": 1.0, "learns_mixing": True}, "strictly between 0 and 1 where it is learned"),
        ({"fourier_std": NAN}, "`fourier_std` must be finite and positive"),
        ({"features": "none"}, "Set centers='displacement'"),
        ({"in_channels": 0}, "`in_channels` must be at least 1, got 0"),
        ({"out_channels": 1.0}, "`out_channels` must be a whole number, at least 1, got out_channels=1.0"),
    ],
)  # fmt: skip
def test_impossible_configurations_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        build(Domain.unit_box(2), **changes)
