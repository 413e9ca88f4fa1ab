"""Advection and diffusion by steps of transport with exact displacements: their order of convergence."""

import itertools
import math

import pytest
import torch

from gpo import Domain
from gpo.execution.points import Chunked
from gpo.numerics.domain import longitude_latitude, unit_vectors
from gpo.transforms.lattice import great_circle
from tests.conftest import make_model, random_points
from tests.core.transforms.test_smoothing import heat_kernel

DOUBLE = torch.float64


def vortex_error(num_sites, kind):
    """The error of a blob after one turn around a vortex, in 16 steps with exact displacements."""
    torch.manual_seed(5)
    domain = Domain.unit_box(2)
    coords = domain.grid(num_sites, num_sites)[0].double()
    if kind == "unstructured":
        inner = torch.rand(num_sites**2, 2, dtype=DOUBLE)
        coords = torch.cat([inner, domain.grid(2, 2)[0].double()])
    model = make_model(
        domain, variant="waves", num_waves=2, num_gaussians=1, num_nodes=4 * num_sites**2
    )
    sites = model.sites(torch.zeros(1, len(coords), 2, dtype=DOUBLE), coords)
    angle = 2 * math.pi / 16
    turn = torch.tensor(
        [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]], dtype=DOUBLE
    )
    away = coords - 0.5
    # Far from the middle nothing turns, so that no departure point lies beyond the ends.
    is_near = (away.norm(dim=-1) < 0.49)[:, None]
    displacement = torch.where(is_near, away - away @ turn.T, 0.0)[:, None, None]
    blob = torch.exp(-((coords - torch.tensor([0.5, 0.7])) ** 2).sum(-1) / (2 * 0.07**2))
    return carried_error(sites.geometry.on_lattice, displacement, blob, 16)


def carried_error(points, displacement, blob, num_steps):
    nodes, weights = points.corners(displacement)
    field = blob[:, None, None]
    for _ in range(num_steps):
        at_nodes = points.lattice.interpolate(field).flatten()
        field = (weights * at_nodes[nodes.long()]).sum(-1)
    return ((field.flatten() - blob).norm() / blob.norm()).item()


def turned(coords, angle):
    """Points of the sphere, turned around an axis through the equator."""
    axis = torch.tensor([1.0, 0.0, 0.0], dtype=DOUBLE).expand_as(coords)
    along = (coords * axis).sum(-1, keepdim=True) * axis
    return (
        along
        + (coords - along) * math.cos(angle)
        + torch.linalg.cross(axis, coords) * math.sin(angle)
    )


def turning(coords, angle):
    """The displacements of such a turn, in tangent planes, east and north."""
    back = turned(coords, -angle)
    longitude, _ = longitude_latitude(coords)
    east = unit_vectors(longitude + 90, torch.zeros_like(longitude))
    north = torch.linalg.cross(coords, east)
    along = (coords * back).sum(-1, keepdim=True)
    way = torch.nn.functional.normalize(back - along * coords, dim=-1)
    way = way * torch.acos(along.clamp(-1, 1))
    return -torch.stack([(way * east).sum(-1), (way * north).sum(-1)], -1)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["grid", "unstructured"])
def test_a_blob_turns_around_a_vortex_with_second_order(kind):
    errors = [vortex_error(num_sites, kind) for num_sites in (24, 48, 96)]
    orders = [math.log2(coarse / fine) for coarse, fine in itertools.pairwise(errors)]
    assert errors[-1] < 0.1
    assert orders[-1] > 1.6, (errors, orders)


@pytest.mark.thorough
def test_a_blob_crosses_both_poles_with_second_order():
    domain = Domain.sphere()
    errors = []
    for count in (24, 48, 96):
        coords = domain.grid(count, 2 * count)[0].double()
        model = make_model(domain, variant="waves", num_waves=2, num_gaussians=1)
        sites = model.sites(torch.zeros(1, len(coords), 2, dtype=DOUBLE), coords)
        displacement = turning(coords, 2 * math.pi / 16)[:, None, None]
        blob = torch.exp(-(coords - torch.tensor([0.0, 1.0, 0.0])).square().sum(-1) / (2 * 0.25**2))
        errors.append(carried_error(sites.geometry.on_lattice, displacement, blob, 16))
    assert errors[-1] < 0.1
    assert math.log2(errors[-2] / errors[-1]) > 1.6, errors


def test_great_circles_end_where_rotations_do():
    latitude = torch.tensor([0.0, 1.0, -1.5, math.pi / 2], dtype=DOUBLE)
    east, north = torch.tensor([0.3, -0.2, 0.4, 0.2]), torch.tensor([0.1, 0.9, -0.6, -0.1])
    up, along = great_circle(latitude, east.double(), north.double())
    x = unit_vectors(torch.zeros(4, dtype=DOUBLE), latitude.rad2deg())
    eastern = torch.tensor([0.0, 1.0, 0.0], dtype=DOUBLE).expand(4, 3)
    way = east[:, None] * eastern + north[:, None] * torch.linalg.cross(x, eastern)
    length = way.norm(dim=-1, keepdim=True)
    there = x * length.cos() + way / length * length.sin()
    torch.testing.assert_close(unit_vectors(along.rad2deg(), (latitude + up).rad2deg()), there)


def wrapped_gaussian(coords, center, variances):
    """A Gaussian on the unit torus: the sum of its periodic images."""
    images = torch.arange(-2, 3, dtype=DOUBLE)
    distance = (coords - center)[..., None] - images
    return torch.exp(-(distance**2) / (2 * variances[:, None])).sum(-1).prod(-1) / (
        variances.prod().sqrt()
    )


class Torus:
    """A blob on a torus that moves straight on, at a velocity of its own in every sample."""

    scales, start = torch.tensor([0.05, 0.08], dtype=DOUBLE), 0.1
    center = torch.tensor([0.4, 0.55], dtype=DOUBLE)

    def __init__(self, coords, num_steps):
        self.velocities = torch.rand(8, 2, dtype=DOUBLE, generator=torch.Generator().manual_seed(2))
        self.velocities = (self.velocities - 0.5) / 2
        self.coords, self.num_steps = coords, num_steps
        self.displacement = self.velocities[:, None].expand(len(coords), 8, 1, 2)

    def at(self, step):
        variances = self.start**2 + step * self.scales**2
        centers = self.center + step * self.velocities
        parts = [wrapped_gaussian(self.coords, center, variances) for center in centers]
        return torch.stack(parts, -1)


class Globe:
    """A blob on a globe that crosses the north pole."""

    scales, start = torch.tensor([0.15], dtype=DOUBLE), 0.03
    center, angle = torch.tensor([0.0, 0.6, 0.8], dtype=DOUBLE), 0.23

    def __init__(self, coords, num_steps):
        self.coords, self.num_steps = coords, num_steps
        self.displacement = turning(coords, self.angle)[:, None, None]

    def at(self, step):
        center = turned(self.center, self.angle * step)
        time = self.start + step * float(self.scales) ** 2 / 2
        return heat_kernel((self.coords @ center).clamp(-1, 1), time)[:, None]


def advected_and_diffused(domain, coords, flow, num_nodes):
    """The relative error after some steps of a transport, beside advection-diffusion."""
    model = make_model(
        domain, variant="waves", num_waves=2, num_gaussians=1, hidden_dim=1, num_nodes=num_nodes
    )
    layer, field = model.layers[-1], flow.at(0).unsqueeze(-1)
    with torch.no_grad():
        layer.log_scale.copy_(flow.scales.log())
        layer.source.fill_(1), layer.arrive.fill_(1)
        sites = model.sites(torch.zeros(field.shape[1], len(coords), 2, dtype=DOUBLE), coords)
        (points,) = sites.chunks
        for _ in range(flow.num_steps):
            modes = layer.couple(Chunked([field]), sites)
            change = layer.contribution(field, points, modes, flow.displacement)
            field = field + change @ layer.arrive
    expected = flow.at(flow.num_steps)
    return ((field.squeeze(-1) - expected).norm() / expected.norm()).item()


@pytest.mark.parametrize("kind", ["grid", "unstructured", "across a pole"])
def test_a_blob_is_advected_and_diffused_with_second_order(kind):
    """A displacement is advection, a scale diffusion by half its square in every step."""
    errors = []
    for count in (24, 48, 96):
        torch.manual_seed(5)
        domain = Domain.sphere() if kind == "across a pole" else Domain.unit_box(2, periodic=True)
        if kind == "unstructured":
            coords = random_points(domain, count**2)
        elif kind == "grid":
            coords = domain.grid(count, count)[0].double()
        else:
            coords = domain.grid(count, 2 * count)[0].double()
        flow = (Globe if domain.is_sphere else Torus)(coords, 4)
        errors.append(advected_and_diffused(domain, coords, flow, 2 * count**2))
    assert errors[-1] < 0.01, errors
    # From end to end: where departure points lie in their cells changes from grid to grid.
    assert abs(math.log(errors[0] / errors[-1], 4) - 2) < 0.25, errors
