"""Advection by many steps of transport with exact displacements: its order of convergence."""

import itertools
import math

import pytest
import torch

from gpo import Domain
from gpo.numerics.domain import longitude_latitude, unit_vectors
from gpo.transforms.lattice import great_circle
from tests.conftest import make_model

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
        # A turn of the whole globe around an axis through the equator, in tangent planes.
        angle = 2 * math.pi / 16
        axis = torch.tensor([1.0, 0.0, 0.0], dtype=DOUBLE)
        back = coords * math.cos(angle) - torch.linalg.cross(
            axis.expand_as(coords), coords
        ) * math.sin(angle)
        back = back + axis * (coords @ axis)[:, None] * (1 - math.cos(angle))
        longitude, _ = longitude_latitude(coords)
        east = unit_vectors(longitude + 90, torch.zeros_like(longitude))
        north = torch.linalg.cross(coords, east)
        along = (coords * back).sum(-1, keepdim=True)
        way = torch.nn.functional.normalize(back - along * coords, dim=-1) * torch.acos(
            along.clamp(-1, 1)
        )
        displacement = -torch.stack([(way * east).sum(-1), (way * north).sum(-1)], -1)[
            :, None, None
        ]
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
