"""Displacements of particles lead from their centers to their sites."""

import numpy as np
import pytest
import torch

from gpo import Particles
from gpo.data.geometry import Geometry
from gpo.interpretation.flow import velocity
from gpo.interpretation.motion import displacements, has_moving_particles
from gpo.numerics.footprints import tangent_frame
from tests.conftest import make_field, make_model, random_points
from tests.interpretation.readings import TORUS


def owned(centers):
    """Particles with these centers; nothing else of them matters here."""
    return Particles(centers, torch.ones_like(centers), torch.ones_like(centers[..., 0]))


def test_displacements_lead_from_centers_to_sites_the_shortest_way(domain):
    coords = random_points(domain, 2, 7)
    num_axes = domain.dim - domain.is_sphere
    ways = 0.8 * torch.rand(2, 7, 3, num_axes, dtype=torch.double) - 0.4
    if domain.is_sphere:
        # Back along a great circle from the site.
        length = ways.norm(dim=-1, keepdim=True)
        tangent = (ways / length) @ tangent_frame(coords)
        centers = length.cos() * coords.unsqueeze(-2) - length.sin() * tangent
    else:
        ways = ways * domain.unit_lengths(ways)
        centers = domain.wrap(coords.unsqueeze(-2) - ways)
    torch.testing.assert_close(displacements(owned(centers), coords, domain), ways)
    at_rest = coords.unsqueeze(-2).expand(-1, -1, 3, -1)
    still = displacements(owned(at_rest), coords, domain)
    torch.testing.assert_close(still, torch.zeros_like(ways), atol=1e-12, rtol=0)


def test_displacements_of_a_model_are_those_it_computed(domain):
    """The model knows them along its axes; particles know centers alone."""
    model = make_model(domain, variant="geometric", num_layers=1, num_waves=2)
    transport = model.layers[0].transport
    read, seen = transport.read, []
    transport.read = lambda *given: seen.append(read(*given)) or seen[-1]
    coords, values = random_points(domain, 40), torch.randn(2, 40, 2).double()
    (found,) = model.particles(values, coords)
    expected = seen[-1].transpose(0, 1)
    if not domain.is_sphere:
        expected = expected * domain.unit_lengths(expected)
    torch.testing.assert_close(displacements(found, coords[None], domain), expected)


def test_only_particles_of_the_geometric_variant_move(domain):
    assert has_moving_particles(make_model(domain, variant="geometric"))
    assert not has_moving_particles(make_model(domain, variant="geometric", num_transports=0))
    assert not has_moving_particles(make_model(domain))
    assert not has_moving_particles(make_field(domain))


def test_a_velocity_is_taken_by_name_or_from_the_vorticity_of_a_torus():
    x, y = 2 * np.pi * TORUS.coords.T
    flow = np.stack([np.cos(x) * np.sin(y), -np.sin(x) * np.cos(y)], -1)
    vorticity = -4 * np.pi * np.cos(x) * np.cos(y)
    named = np.concatenate([vorticity[:, None], flow[:, ::-1]], -1)
    np.testing.assert_array_equal(velocity(TORUS, named, ("p", "V", "U")), flow)
    found = velocity(TORUS, vorticity[:, None], ("vorticity",))
    np.testing.assert_allclose(found, flow, atol=1e-12)
    assert velocity(TORUS.masked(x < 1), vorticity[:, None], ("vorticity",)) is None
    assert velocity(TORUS, flow, ("u", "pressure")) is None


@pytest.mark.parametrize("names", [("u",), ("vorticity",)])
def test_a_field_on_a_line_has_no_velocity(names):
    line = Geometry.rectilinear([np.arange(8) / 8], periodic=True)
    assert velocity(line, np.ones((8, 1)), names) is None
