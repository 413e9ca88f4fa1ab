"""Particles that move: the look through them, beside plain loops, on every kind of site."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.interpolate import LinearNDInterpolator

from gpo import Ablation, Domain
from gpo.model.layer import view_from
from gpo.model.transport import Content
from gpo.numerics.domain import longitude_latitude, unit_vectors
from gpo.numerics.weighted_rows import RowTable
from gpo.transforms.lattice import great_circle
from tests.conftest import make_model, random_points

DOUBLE = torch.float64


def stretched(count, is_closed=False):
    """Nodes along an axis that are not evenly spaced."""
    even = torch.arange(count, dtype=DOUBLE) / (count if is_closed else count - 1)
    return even + 0.3 / (2 * math.pi) * torch.sin(2 * math.pi * even)


def gaussian_latitudes(count):
    return torch.from_numpy(np.degrees(np.arcsin(np.polynomial.legendre.leggauss(count)[0]))).flip(
        0
    )


def grid_of(domain, *shape):
    """The nodes of a grid without the rounding of single precision."""
    torch.set_default_dtype(DOUBLE)
    try:
        return domain.grid(*shape)[0]
    finally:
        torch.set_default_dtype(torch.float32)


def tensor_grid(*axes):
    return torch.cartesian_prod(*axes).reshape(-1, len(axes))


def kinds():
    """Domain, sites, weights and mesh of every kind of site."""
    torch.manual_seed(3)
    box = Domain.unit_box
    globe = tensor_grid(gaussian_latitudes(8), torch.arange(15, dtype=DOUBLE) * 24)
    patch = tensor_grid(
        torch.linspace(60, 40, 7, dtype=DOUBLE), torch.linspace(170, 200, 6, dtype=DOUBLE)
    )
    patch = unit_vectors(patch[:, 1], patch[:, 0])
    open_grid = grid_of(Domain.box([1, -2], [4, 0]), 7, 6)
    sea = torch.ones(42, dtype=DOUBLE)
    sea[torch.randperm(42)[:15]] = 0
    angle, radius = tensor_grid(
        torch.linspace(0, 3, 8, dtype=DOUBLE), torch.linspace(1, 2, 5, dtype=DOUBLE)
    ).unbind(-1)
    fitted = torch.stack([radius * angle.cos(), radius * angle.sin()], -1)
    return {
        "circle": (box(1, periodic=True), grid_of(box(1, periodic=True), 9), None, ()),
        "line": (box(1), stretched(9)[:, None], None, ()),
        "torus": (box(2, periodic=True), grid_of(box(2, periodic=True), 6, 7), None, ()),
        "open": (Domain.box([1, -2], [4, 0]), open_grid, None, ()),
        "uneven": (box(2, periodic=(True, False)), tensor_grid(stretched(7, True), stretched(6)), None, ()),
        "cube": (box(3, periodic=True), grid_of(box(3, periodic=True), 4, 3, 5), None, ()),
        "globe": (Domain.sphere(), grid_of(Domain.sphere(), 6, 12), None, ()),
        "odd globe": (Domain.sphere(), unit_vectors(globe[:, 1], globe[:, 0]), None, ()),
        "patch": (Domain.sphere(patch), patch, None, ()),
        "masked": (Domain.box([1, -2], [4, 0]), open_grid, sea, ()),
        "fitted": (Domain.around(fitted), fitted, None, (8, 5)),
        "scattered": (box(2), torch.rand(60, 2, dtype=DOUBLE), None, ()),
        "scattered torus": (box(2, periodic=True), torch.rand(60, 2, dtype=DOUBLE), None, ()),
        "cloud": (box(3), torch.rand(90, 3, dtype=DOUBLE), None, ()),
        "scattered globe": (Domain.sphere(), random_points(Domain.sphere(), 200), None, ()),
        "own sites": (box(2), torch.rand(2, 50, 2, dtype=DOUBLE), None, ()),
    }  # fmt: skip


KINDS = list(kinds())
GRIDS = [
    "circle",
    "line",
    "torus",
    "open",
    "uneven",
    "cube",
    "globe",
    "odd globe",
    "patch",
    "fitted",
]


class Look:
    """A transport on sites of some kind, its content, and displacements to look along."""

    def __init__(self, kind, batch=2, **changes):
        self.domain, self.coords, self.weights, mesh = kinds()[kind]
        torch.manual_seed(7)
        self.model = make_model(
            self.domain, variant="geometric", num_waves=2, mesh_shape=mesh, hidden_dim=6,
            num_gaussians=3, num_nodes=80, **changes,
        )  # fmt: skip
        self.layer = self.model.layers[-1]
        self.transport, num_sites = self.layer.transport, self.coords.shape[-2]
        self.values = torch.randn(batch, num_sites, 2, dtype=DOUBLE)
        sites = self.model.check(self.values, self.coords, self.weights, None)
        (self.chunk,) = self.model.chunker.split(sites, None, is_whole=True)
        self.lattice = self.chunk.on_lattice.lattice
        self.is_counted = sites.weights[0] > 0
        self.state = torch.randn(num_sites, batch, 6, dtype=DOUBLE)
        self.displacement = 0.2 * torch.randn(
            num_sites, batch, 3, self.transport.num_axes, dtype=DOUBLE
        )

    def view(self, state):
        """What particles look at where sites are in some state."""
        laid = self.lattice.lay(self.transport.carry(state))
        return view_from(self.chunk, Content(RowTable.of(laid)), Ablation(), 0)

    def brought(self, state, displacement):
        return self.transport.brought(state, displacement, self.view(state))


def hat(place, nodes, is_closed, poles=(False, False)):
    """The weight of every node at a place, by the definition of a piecewise linear function.

    Returns pairs of node and whether it is seen across a pole.
    """
    line = [(float(x), n, False) for n, x in enumerate(nodes)]
    if is_closed:
        line = [(x + turn, n, False) for turn in (-1, 0, 1) for x, n, _ in line]
    if poles[0]:
        line = [(-line[0][0], line[0][1], True), *line]
    if poles[1]:
        line = [*line, (2 - line[-1][0], line[-1][1], True)]
    place = place - math.floor(place) if is_closed else min(max(place, line[0][0]), line[-1][0])
    if is_closed and not line[0][0] <= place <= line[-1][0]:
        raise AssertionError
    values = {}
    for index, (x, n, across) in enumerate(line):
        weight = 0.0
        if place == x:
            weight = 1.0
        elif index > 0 and line[index - 1][0] < place < x:
            weight = (place - line[index - 1][0]) / (x - line[index - 1][0])
        elif index + 1 < len(line) and x < place < line[index + 1][0]:
            weight = (line[index + 1][0] - place) / (line[index + 1][0] - x)
        if weight:
            values[n, across] = values.get((n, across), 0.0) + weight
    return values


def loop_weights(look, site, displacement):
    """The weight of every node, by plain loops over axes and nodes."""
    lattice, positions = (
        look.lattice,
        look.model.waves.positions(look.coords.reshape(1, -1, look.domain.dim)),
    )
    start = positions[0, site]
    if lattice.region is None:
        place = start - displacement
    else:
        # As a rotation of the unit vector, without any formula of the great circle's.
        x = look.coords[site]
        longitude, _ = longitude_latitude(x)
        east = unit_vectors(longitude + 90, torch.zeros((), dtype=DOUBLE))
        way = -(displacement[0] * east + displacement[1] * torch.linalg.cross(x, east))
        length = way.norm().clamp_min(1e-300)
        there = x * length.cos() + way / length * length.sin()
        place = look.model.waves.positions(there.reshape(1, 1, 3))[0, 0]
    axes = lattice.axes
    weights = torch.zeros([axis.count for axis in axes], dtype=DOUBLE)
    first = hat(float(place[0]), axes[0].nodes, axes[0].is_closed, axes[0].poles)
    for (node, is_across), weight in first.items():
        shifted = [float(part) + 0.5 * is_across for part in place[1:]]
        others = [
            hat(at, axis.nodes, axis.is_closed) for at, axis in zip(shifted, axes[1:], strict=True)
        ]
        for rest in itertools.product(*(one.items() for one in others)):
            index = (node, *(n for (n, _), _ in rest))
            weights[index] += weight * math.prod(share for _, share in rest)
    return weights.flatten()


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("own sites",)])
def test_a_look_equals_the_plain_loop_forward_and_backward(kind):
    look = Look(kind)
    state = look.state.requires_grad_()
    displacement = look.displacement.requires_grad_()
    rows = torch.arange(0, len(state), 5)
    seen = look.brought(state, displacement)[rows]
    content = look.lattice.lay(look.transport.carry(state)).unflatten(-1, (3, -1))
    own = look.transport.carry(state).unflatten(-1, (3, -1))
    expected = torch.zeros_like(seen).unflatten(-1, (3, -1))
    for number, site in enumerate(rows.tolist()):
        still = torch.zeros_like(displacement[0, 0, 0])
        at_rest = torch.einsum("n,nbgc->bgc", loop_weights(look, site, still), content)
        if look.lattice.holds_sites:
            at_rest = own[site]
        for sample, particle in itertools.product(range(2), range(3)):
            weights = loop_weights(look, site, displacement[site, sample, particle].detach())
            there = weights @ content[:, sample, particle]
            expected[number, sample, particle] = there - at_rest[sample, particle]
    kept = slice(None) if look.weights is None else look.is_counted[rows]
    expected = expected.flatten(-2)[kept]
    torch.testing.assert_close(seen[kept], expected, rtol=1e-10, atol=1e-10)
    target = torch.randn_like(expected)
    by_loop, by_look = (
        torch.autograd.grad((part * target).sum(), state, retain_graph=True)[0]
        for part in (expected, seen[kept])
    )
    torch.testing.assert_close(by_look, by_loop, rtol=1e-10, atol=1e-10)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_a_look_passes_gradcheck(kind):
    look = Look(kind, batch=2 if kind == "own sites" else 1)
    given = look.state.requires_grad_(), look.displacement.requires_grad_()
    rows = torch.randperm(len(look.state))[:4]
    assert torch.autograd.gradcheck(
        lambda *parts: look.brought(*parts)[rows], given, nondet_tol=1e-12
    )


@pytest.mark.parametrize("kind", KINDS)
def test_without_displacement_nothing_moves_exactly(kind):
    look = Look(kind)
    still = torch.zeros_like(look.displacement)
    moved = look.transport(look.state, still, look.view(look.state))
    counted = look.is_counted if look.weights is not None else slice(None)
    assert torch.equal(moved[counted], look.state[counted])


@pytest.mark.parametrize("kind", KINDS)
def test_constant_content_stays_constant_wherever_particles_look(kind):
    look = Look(kind)
    state = look.state[:1].expand_as(look.state)
    brought = look.brought(state, 3 * look.displacement)
    assert brought.abs().max() < 1e-12


@pytest.mark.parametrize("kind", ["line", "open", "uneven", "fitted"])
def test_linear_content_is_carried_exactly_on_grids(kind):
    """As long as nobody looks beyond an end; on a mesh, linear in its indices."""
    look = Look(kind)
    places = look.model.waves.positions(look.coords[None])[0]
    axis = 1 if kind == "uneven" else 0
    state = places[:, axis, None, None].expand_as(look.state)
    displacement = 0.3 * torch.tanh(look.displacement)
    inside = ((places[:, None, None] - displacement)[..., axis] - 0.5).abs() <= 0.5
    content = look.transport.content.sum(0).unflatten(0, (3, -1))
    expected = -displacement[..., axis, None] * content
    brought = look.brought(state, displacement).unflatten(-1, (3, -1))
    assert inside.any()
    torch.testing.assert_close(brought[inside], expected[inside], rtol=1e-10, atol=1e-12)


def test_a_globe_turned_by_whole_longitudes_turns_the_answer():
    domain = Domain.sphere()
    model = make_model(domain, variant="geometric", num_waves=2, features="none")
    coords = grid_of(domain, 6, 12)
    values = torch.randn(1, 6, 12, 2, dtype=DOUBLE)
    first, second = (
        model(part.flatten(1, 2), coords).unflatten(1, (6, 12))
        for part in (values, values.roll(5, 2))
    )
    torch.testing.assert_close(first.roll(5, 2), second, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("dim", "count"), [(1, 50), (2, 200), (3, 600)])
def test_a_doubled_site_changes_nothing_where_sites_are_few(dim, count):
    """There are 1 to 1.5 sites for every function."""
    domain = Domain.unit_box(dim)
    model = make_model(domain, variant="geometric")
    torch.manual_seed(1)
    coords = torch.rand(count, dim, dtype=DOUBLE)
    values, weights = torch.randn(1, count, 2, dtype=DOUBLE), 0.5 + torch.rand(count, dtype=DOUBLE)
    twice = torch.cat([torch.arange(count), torch.arange(count // 2)])
    halved = torch.where(torch.arange(count) < count // 2, weights / 2, weights)
    doubled = model(values[:, twice], coords[twice], weights=halved[twice])[:, :count]
    torch.testing.assert_close(
        doubled, model(values, coords, weights=weights), rtol=1e-9, atol=1e-10
    )


def test_scattered_sites_are_interpolated_in_their_triangles():
    look = Look("scattered")
    nodes = tensor_grid(*(axis.nodes for axis in look.lattice.axes))
    field = torch.randn(60, 1, 1, dtype=DOUBLE)
    expected = LinearNDInterpolator(look.coords.numpy(), field.flatten().numpy())(nodes.numpy())
    is_inside = np.isfinite(expected)
    laid = look.lattice.lay(field).flatten().numpy()
    np.testing.assert_allclose(laid[is_inside], expected[is_inside], atol=1e-12)
    nearest = torch.cdist(nodes, look.coords).argmin(1)
    np.testing.assert_allclose(laid[~is_inside], field.flatten()[nearest].numpy()[~is_inside])


@pytest.mark.parametrize("kind", KINDS)
def test_particles_are_those_that_were_used(kind):
    """Content that is a coordinate arrives as the difference between center and site."""
    look = Look(kind)
    (particles,) = look.model.particles(look.values, look.coords, weights=look.weights)
    assert particles.centers.shape == (2, look.coords.shape[-2], 3, look.domain.dim)
    assert (particles.scales > 0).all()
    torch.testing.assert_close(
        particles.weights.sum(-1), torch.ones_like(particles.weights[..., 0])
    )
    if look.domain.is_sphere:
        torch.testing.assert_close(
            particles.centers.norm(dim=-1), torch.ones_like(particles.weights)
        )
    offset = look.domain.offset(particles.centers, look.coords.unsqueeze(-2))
    if look.domain.is_sphere:
        assert offset.norm(dim=-1).max() <= look.transport.reach * math.sqrt(2) + 1e-12
    elif kind != "fitted":
        reach = look.transport.reach * look.domain.unit_lengths(look.coords)
        assert (offset.abs() <= reach + 1e-12).all()


@pytest.mark.parametrize("kind", KINDS)
def test_particles_that_bring_nothing_leave_the_gate_alone(kind):
    look = Look(kind)
    arguments = {"weights": look.weights}
    silent = look.model(
        look.values, look.coords, **arguments, ablation=Ablation(gaussians=frozenset(range(3)))
    )
    with torch.no_grad():
        look.transport.arrive.zero_()
    still = look.model(look.values, look.coords, **arguments)
    counted = look.is_counted if look.weights is not None else slice(None)
    torch.testing.assert_close(silent[:, counted], still[:, counted], rtol=1e-12, atol=1e-12)


def vortex_error(num_sites, kind):
    """The error of a blob after one turn around a vortex, in 16 looks along the exact way."""
    torch.manual_seed(5)
    domain = Domain.unit_box(2)
    coords = domain.grid(num_sites, num_sites)[0].double()
    if kind == "scattered":
        inner = torch.rand(num_sites**2, 2, dtype=DOUBLE)
        coords = torch.cat([inner, domain.grid(2, 2)[0].double()])
    model = make_model(
        domain, variant="geometric", num_waves=2, num_gaussians=1, num_nodes=4 * num_sites**2
    )
    sites = model.check(torch.zeros(1, len(coords), 2, dtype=DOUBLE), coords, None, None)
    (chunk,) = model.chunker.split(sites, None, is_whole=True)
    angle = 2 * math.pi / 16
    turn = torch.tensor(
        [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]], dtype=DOUBLE
    )
    away = coords - 0.5
    # Far from the middle nothing turns, so that nobody looks beyond the ends.
    is_near = (away.norm(dim=-1) < 0.49)[:, None]
    displacement = torch.where(is_near, away - away @ turn.T, 0.0)[:, None, None]
    blob = torch.exp(-((coords - torch.tensor([0.5, 0.7])) ** 2).sum(-1) / (2 * 0.07**2))
    return carried_error(chunk.on_lattice, displacement, blob, 16)


def carried_error(points, displacement, blob, num_steps):
    nodes, weights = points.corners(displacement)
    field = blob[:, None, None]
    for _ in range(num_steps):
        laid = points.lattice.lay(field).flatten()
        field = (weights * laid[nodes.long()]).sum(-1)
    return ((field.flatten() - blob).norm() / blob.norm()).item()


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["grid", "scattered"])
def test_a_blob_goes_around_a_vortex_with_second_order(kind):
    errors = [vortex_error(num_sites, kind) for num_sites in (24, 48, 96)]
    orders = [math.log2(coarse / fine) for coarse, fine in itertools.pairwise(errors)]
    assert errors[-1] < 0.1
    assert orders[-1] > 1.6, (errors, orders)


@pytest.mark.thorough
def test_a_blob_goes_across_both_poles_with_second_order():
    domain = Domain.sphere()
    errors = []
    for count in (24, 48, 96):
        coords = domain.grid(count, 2 * count)[0].double()
        model = make_model(domain, variant="geometric", num_waves=2, num_gaussians=1)
        sites = model.check(torch.zeros(1, len(coords), 2, dtype=DOUBLE), coords, None, None)
        (chunk,) = model.chunker.split(sites, None, is_whole=True)
        # A turn of the whole globe around an axis through the equator, seen in tangent planes.
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
        errors.append(carried_error(chunk.on_lattice, displacement, blob, 16))
    assert errors[-1] < 0.1
    assert math.log2(errors[-2] / errors[-1]) > 1.6, errors


def test_great_circles_lead_where_rotations_do():
    latitude = torch.tensor([0.0, 1.0, -1.5, math.pi / 2], dtype=DOUBLE)
    east, north = torch.tensor([0.3, -0.2, 0.4, 0.2]), torch.tensor([0.1, 0.9, -0.6, -0.1])
    up, along = great_circle(latitude, east.double(), north.double())
    x = unit_vectors(torch.zeros(4, dtype=DOUBLE), latitude.rad2deg())
    eastern = torch.tensor([0.0, 1.0, 0.0], dtype=DOUBLE).expand(4, 3)
    way = east[:, None] * eastern + north[:, None] * torch.linalg.cross(x, eastern)
    length = way.norm(dim=-1, keepdim=True)
    there = x * length.cos() + way / length * length.sin()
    torch.testing.assert_close(unit_vectors(along.rad2deg(), (latitude + up).rad2deg()), there)
