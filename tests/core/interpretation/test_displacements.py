"""Displacements of particles lead from their centers to their sites."""

import numpy as np
import pytest
import torch

from gpo import Particles, Problem
from gpo.data.geometry import Geometry
from gpo.evaluation.derivatives import LocalFits
from gpo.evaluation.flow import velocity
from gpo.interpretation.displacements import displacements, has_moving_particles
from gpo.interpretation.particle_fields import MotionFields
from gpo.interpretation.structures import fraction_at_reach
from gpo.numerics.footprints import tangent_frame
from tests.conftest import make_field, make_model, random_points
from tests.core.interpretation.readings import TORUS


def owned(centers):
    """Particles with these centers; nothing else of them matters here."""
    return Particles(centers, torch.ones_like(centers), torch.ones_like(centers[..., 0]))


def departed(coords, ways, domain):
    """Points from which these ways lead to sites: straight, on the sphere along great circles."""
    if not domain.is_sphere:
        return domain.wrap(coords.unsqueeze(-2) - ways)
    length = ways.norm(dim=-1, keepdim=True)
    tangent = (ways / length) @ tangent_frame(coords)
    return length.cos() * coords.unsqueeze(-2) - length.sin() * tangent


def random_ways(domain, *shape, reach=0.4):
    """Ways of less than a reach along every axis, in domain units or radii."""
    num_axes = domain.dim - domain.is_sphere
    ways = reach * (2 * torch.rand(*shape, num_axes, dtype=torch.double) - 1)
    return ways if domain.is_sphere else ways * domain.unit_lengths(ways)


def test_displacements_lead_from_centers_to_sites_the_shortest_way(domain):
    coords, ways = random_points(domain, 2, 7), random_ways(domain, 2, 7, 3)
    result = displacements(owned(departed(coords, ways, domain)), coords, domain)
    torch.testing.assert_close(result, ways)
    at_rest = coords.unsqueeze(-2).expand(-1, -1, 3, -1)
    still = displacements(owned(at_rest), coords, domain)
    torch.testing.assert_close(still, torch.zeros_like(ways), atol=1e-12, rtol=0)


def test_a_displacement_that_is_the_same_everywhere_is_that_of_all_particles(domain):
    if domain.is_sphere:
        return  # where no direction is the same everywhere
    model = make_model(domain, variant="geometric", num_layers=1, num_waves=2)
    way = random_ways(domain, 5, reach=0.2)
    lengths = domain.unit_lengths(way)
    model.layers[0].displacement = lambda state, *_: (way / lengths).expand(*state.shape[:2], -1, -1)  # fmt: skip
    coords, values = random_points(domain, 40), torch.randn(2, 40, 2).double()
    (result,) = model.particles(values, coords)
    expected = way.expand(2, 40, -1, -1)
    torch.testing.assert_close(displacements(result, coords[None], domain), expected)


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
    result = velocity(TORUS, vorticity[:, None], ("vorticity",))
    np.testing.assert_allclose(result, flow, atol=1e-12)
    assert velocity(TORUS.masked(x < 1), vorticity[:, None], ("vorticity",)) is None
    assert velocity(TORUS, flow, ("u", "pressure")) is None


@pytest.mark.parametrize("names", [("u",), ("vorticity",)])
def test_a_field_on_a_line_has_no_velocity(names):
    line = Geometry.rectilinear([np.arange(8) / 8], periodic=True)
    assert velocity(line, np.ones((8, 1)), names) is None


def test_displacements_at_their_reach_are_counted(domain):
    model = make_model(domain, variant="geometric", reach=0.2)
    coords, names = random_points(domain, 60), ("x", "y", "z")[: domain.dim]
    geometry = Geometry(coords.numpy(), np.full(60, 1 / 60), domain, names, ("",) * domain.dim)
    fits = LocalFits.of(geometry, np.ones(60, dtype=bool))
    sides = torch.tensor(domain.upper).double() - torch.tensor(domain.lower).double()
    sides = sides.max().expand(2) if domain.is_sphere else sides
    ways = 0.19 * sides * (2 * torch.rand(1, 60, 4, len(sides)).double() - 1)
    ways[..., 0, -1] = -0.2 * sides[-1]
    held = owned(departed(coords[None], ways, domain))
    result = fraction_at_reach([MotionFields.of(held, 0, geometry, fits)], model)
    assert result == pytest.approx(0.25)
    model.problem = Problem(2, 3, domain, (6, 10), is_fitted=True)
    assert fraction_at_reach([], model) is None
