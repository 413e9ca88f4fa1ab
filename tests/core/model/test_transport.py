"""Transport: samples at departure points, beside plain loops, on every kind of site."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.interpolate import LinearNDInterpolator

from gpo import Ablation, Domain
from gpo.execution.points import Chunked
from gpo.model.scales import MULTILINEAR
from gpo.numerics.domain import longitude_latitude, unit_vectors
from tests.conftest import make_model, random_points

DOUBLE = torch.float64


def stretched(count, is_periodic=False):
    """Nodes along an axis that are not evenly spaced."""
    even = torch.arange(count, dtype=DOUBLE) / (count if is_periodic else count - 1)
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
        "unstructured": (box(2), torch.rand(60, 2, dtype=DOUBLE), None, ()),
        "unstructured torus": (box(2, periodic=True), torch.rand(60, 2, dtype=DOUBLE), None, ()),
        "cloud": (box(3), torch.rand(90, 3, dtype=DOUBLE), None, ()),
        "unstructured globe": (Domain.sphere(), random_points(Domain.sphere(), 200), None, ()),
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


class Case:
    """A layer with transport on sites of some kind, a state there, and displacements."""

    def __init__(self, kind, batch=2, **changes):
        self.domain, self.coords, self.weights, mesh = kinds()[kind]
        torch.manual_seed(7)
        self.model = make_model(
            self.domain, variant="waves", num_waves=2, mesh_shape=mesh, hidden_dim=6,
            num_gaussians=3, num_nodes=80, **{"num_transports": 1, **changes},
        )  # fmt: skip
        self.layer, num_sites = self.model.layers[-1], self.coords.shape[-2]
        self.values = torch.randn(batch, num_sites, 2, dtype=DOUBLE)
        self.sites = self.model.sites(self.values, self.coords, self.weights, is_whole=True)
        (self.points,) = self.sites.chunks
        self.lattice = self.points.geometry.on_lattice.lattice
        gaps = torch.tensor(self.lattice.smoothing.gaps, dtype=DOUBLE)
        # In cells; one is below the floor of the lattice.
        cells = torch.tensor([0.2, 0.7, 1.3], dtype=DOUBLE)[:, None]
        self.layer.log_scale.data = (cells * gaps * torch.linspace(1, 1.2, len(gaps))).log()
        self.is_active = self.sites.weights[0] > 0
        self.state = torch.randn(num_sites, batch, 6, dtype=DOUBLE)
        self.displacement = 0.2 * torch.randn(
            num_sites, batch, 3, self.layer.num_axes, dtype=DOUBLE
        )

    def without_scales(self):
        """The same with the multilinear kernel."""
        self.layer.log_scale.data.fill_(MULTILINEAR)
        return self

    def modes(self, state):
        """What a layer takes from sites in some state."""
        return self.layer.couple(Chunked([state]), self.sites)

    def contribution(self, state, displacement):
        """What particles with these displacements sample, minus what they do without any."""
        return self.layer.contribution(state, self.points, self.modes(state), displacement)

    def source(self, state):
        """The source features of the sites, by particle."""
        return (state @ self.layer.source).unflatten(-1, (3, -1))


def kernel(position, nodes, is_periodic, poles=(False, False)):
    """The weight of every node at a position, by the definition of a piecewise linear function.

    Returns pairs of node and whether it lies across a pole.
    """
    line = [(float(x), n, False) for n, x in enumerate(nodes)]
    if is_periodic:
        line = [(x + turn, n, False) for turn in (-1, 0, 1) for x, n, _ in line]
    if poles[0]:
        line = [(-line[0][0], line[0][1], True), *line]
    if poles[1]:
        line = [*line, (2 - line[-1][0], line[-1][1], True)]
    if is_periodic:
        position = position - math.floor(position)
    else:
        position = min(max(position, line[0][0]), line[-1][0])
    if is_periodic and not line[0][0] <= position <= line[-1][0]:
        raise AssertionError
    values = {}
    for index, (x, n, across) in enumerate(line):
        weight = 0.0
        if position == x:
            weight = 1.0
        elif index > 0 and line[index - 1][0] < position < x:
            weight = (position - line[index - 1][0]) / (x - line[index - 1][0])
        elif index + 1 < len(line) and x < position < line[index + 1][0]:
            weight = (line[index + 1][0] - position) / (line[index + 1][0] - x)
        if weight:
            values[n, across] = values.get((n, across), 0.0) + weight
    return values


def loop_weights(case, site, displacement):
    """The weight of every node, by plain loops over axes and nodes."""
    lattice, positions = (
        case.lattice,
        case.model.waves.positions(case.coords.reshape(1, -1, case.domain.dim)),
    )
    start = positions[0, site]
    if lattice.region is None:
        departure = start - displacement
    else:
        # As a rotation of the unit vector, without any formula of great circles.
        x = case.coords[site]
        longitude, _ = longitude_latitude(x)
        east = unit_vectors(longitude + 90, torch.zeros((), dtype=DOUBLE))
        way = -(displacement[0] * east + displacement[1] * torch.linalg.cross(x, east))
        length = way.norm().clamp_min(1e-300)
        there = x * length.cos() + way / length * length.sin()
        departure = case.model.waves.positions(there.reshape(1, 1, 3))[0, 0]
    axes = lattice.axes
    weights = torch.zeros([axis.count for axis in axes], dtype=DOUBLE)
    first = kernel(float(departure[0]), axes[0].nodes, axes[0].is_periodic, axes[0].poles)
    for (node, is_across), weight in first.items():
        shifted = [float(part) + 0.5 * is_across for part in departure[1:]]
        others = [
            kernel(at, axis.nodes, axis.is_periodic)
            for at, axis in zip(shifted, axes[1:], strict=True)
        ]
        for rest in itertools.product(*(along.items() for along in others)):
            index = (node, *(n for (n, _), _ in rest))
            weights[index] += weight * math.prod(part for _, part in rest)
    return weights.flatten()


def second_difference(nodes, is_periodic):
    """The second difference along an axis, node by node; zero at open ends."""
    count = len(nodes)
    matrix = torch.zeros(count, count, dtype=DOUBLE)
    for j in range(count):
        if not is_periodic and j in (0, count - 1):
            continue
        before = float(nodes[j] - nodes[j - 1]) % 1
        after = float(nodes[(j + 1) % count] - nodes[j]) % 1
        cell = (before + after) / 2
        matrix[j, j - 1] += 1 / (before * cell)
        matrix[j, (j + 1) % count] += 1 / (after * cell)
        matrix[j, j] -= 1 / (before * cell) + 1 / (after * cell)
    return matrix


def sphere_operators(lattice):
    """The Laplacian along meridians and along circles of latitude, cell by cell."""
    region, (rows, columns) = lattice.region, lattice.axes
    height, width = math.radians(region.north - region.south), math.radians(region.width)
    latitude = math.radians(region.north) - height * rows.nodes
    last, gap = rows.count - 1, float(-latitude.diff().mean())
    along = torch.zeros(rows.count, rows.count, dtype=DOUBLE)
    for j in range(rows.count):
        ends = (j == 0, region.north, 1), (j == last, -region.south, -1)
        if any(is_end and not (region.is_round and degrees > 89.99) for is_end, degrees, _ in ends):
            continue
        faces = []
        for step, (is_end, _, sign) in zip((-1, 1), ends, strict=True):
            if is_end:
                faces.append((sign * math.pi / 2, 0.0))
                continue
            face = float(latitude[j] + latitude[j + step]) / 2
            flow = math.cos(face) / abs(float(latitude[j + step] - latitude[j]))
            faces.append((face, flow))
            along[j, j + step] += flow
            along[j, j] -= flow
        along[j] /= math.sin(faces[0][0]) - math.sin(faces[1][0])
    circles = second_difference(columns.nodes, columns.is_periodic) / width**2
    cosines = latitude.cos().square().clamp_min((1e-2 * gap) ** 2)
    return (
        torch.kron(along, torch.eye(columns.count, dtype=DOUBLE)),
        torch.kron(torch.diag(1 / cosines), circles),
        not region.is_round,
    )


def smoothed_by_matrices(case, at_nodes):
    """The field on the nodes, smoothed by matrix exponentials of all of them at once."""
    lattice, scales = case.lattice, case.layer.scales()
    floors = torch.tensor(lattice.smoothing.gaps, dtype=DOUBLE) ** 2 / 6
    variances = (scales**2 - floors).clamp_min(0)
    parts = []
    for particle, variance in enumerate(variances):
        if lattice.region is not None:
            along, around, is_split = sphere_operators(lattice)
            parts_of = (around, along) if is_split else (along + around,)
            kernel = torch.eye(lattice.num_nodes, dtype=DOUBLE)
            for operator in parts_of:
                kernel = torch.matrix_exp(variance[0] / 2 * operator) @ kernel
        else:
            kernel = torch.ones(1, 1, dtype=DOUBLE)
            for axis, one in zip(lattice.axes, variance, strict=True):
                operator = second_difference(axis.nodes, axis.is_periodic)
                kernel = torch.kron(kernel, torch.matrix_exp(one / 2 * operator))
        if lattice.mask is None:
            parts.append(torch.einsum("mn,nbc->mbc", kernel, at_nodes[:, :, particle]))
            continue
        mask = lattice.mask[:, 0, 0] > 0
        inside = kernel[mask][:, mask]
        inside = inside / inside.sum(1, keepdim=True)
        field = torch.einsum("mn,nbc->mbc", inside, at_nodes[mask, :, particle])
        whole = torch.zeros_like(at_nodes[:, :, particle]).masked_scatter(
            mask[:, None, None].expand_as(at_nodes[:, :, particle]), field
        )
        nodes = torch.arange(lattice.num_nodes)[mask]
        # A masked node takes the mean of the active nodes next to it.
        places = tensor_grid(*(axis.nodes for axis in lattice.axes))
        places = places * torch.tensor([3.0, 2.0])
        rows = []
        for node in range(lattice.num_nodes):
            distance = (places[nodes] - places[node]).norm(dim=1)
            nearest = nodes[distance <= distance.min() * (1 + 1e-5)]
            rows.append(whole[nearest].mean(0))
        parts.append(torch.stack(rows))
    return torch.stack(parts, 2)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("own sites",)])
def test_samples_equal_the_plain_loop_forward_and_backward(kind):
    case = Case(kind)
    state = case.state.requires_grad_()
    displacement = case.displacement.requires_grad_()
    rows = torch.arange(0, len(state), 5)
    contribution = case.contribution(state, displacement)[rows]
    at_nodes = case.lattice.interpolate(state @ case.layer.source).unflatten(-1, (3, -1))
    smooth = smoothed_by_matrices(case, at_nodes)
    at_sites = case.source(state)
    expected = torch.zeros_like(contribution).unflatten(-1, (3, -1))
    for number, site in enumerate(rows.tolist()):
        zero = torch.zeros_like(displacement[0, 0, 0])
        at_rest = torch.einsum("n,nbgc->bgc", loop_weights(case, site, zero), at_nodes)
        if case.lattice.has_nodes_at_sites:
            at_rest = at_sites[site]
        for sample, particle in itertools.product(range(2), range(3)):
            weights = loop_weights(case, site, displacement[site, sample, particle].detach())
            there = weights @ smooth[:, sample, particle]
            expected[number, sample, particle] = there - at_rest[sample, particle]
    active = slice(None) if case.weights is None else case.is_active[rows]
    expected, contribution = expected.flatten(-2)[active], contribution[active]
    torch.testing.assert_close(contribution, expected, rtol=1e-10, atol=1e-10)
    target = torch.randn_like(expected)
    by_loop, by_sample = (
        torch.autograd.grad((part * target).sum(), (state, case.layer.log_scale), retain_graph=True)
        for part in (expected, contribution)
    )
    torch.testing.assert_close(by_sample, by_loop, rtol=1e-9, atol=1e-9)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_samples_pass_gradcheck(kind):
    case = Case(kind, batch=2 if kind == "own sites" else 1)
    inputs = case.state.requires_grad_(), case.displacement.requires_grad_(), case.layer.log_scale
    rows = torch.randperm(len(case.state))[:4]
    assert torch.autograd.gradcheck(
        lambda *parts: case.contribution(*parts[:2])[rows], inputs, nondet_tol=1e-12
    )


@pytest.mark.parametrize("kind", KINDS)
def test_without_displacement_and_scale_the_contribution_is_exactly_zero(kind):
    case = Case(kind).without_scales()
    contribution = case.contribution(case.state, torch.zeros_like(case.displacement))
    active = case.is_active if case.weights is not None else slice(None)
    assert (contribution[active] == 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_constant_field_contributes_nothing_wherever_it_is_sampled(kind):
    case = Case(kind)
    state = case.state[:1].expand_as(case.state).contiguous()
    contribution = case.contribution(state, 3 * case.displacement)
    assert contribution.abs().max() < 1e-12


@pytest.mark.parametrize("kind", ["line", "open", "uneven", "fitted"])
def test_linear_fields_are_sampled_exactly_on_grids(kind):
    """As long as no departure point lies beyond an end; on a mesh, linear in its indices."""
    case = Case(kind)
    positions = case.model.waves.positions(case.coords[None])[0]
    axis = 1 if kind == "uneven" else 0
    state = positions[:, axis, None, None].expand_as(case.state).contiguous()
    assert case.layer.scales().max().item() > 1.2 * max(case.lattice.spacings)
    displacement = 0.3 * torch.tanh(case.displacement)
    inside = ((positions[:, None, None] - displacement)[..., axis] - 0.5).abs() <= 0.5
    source = case.layer.source.sum(0).unflatten(0, (3, -1))
    expected = -displacement[..., axis, None] * source
    contribution = case.contribution(state, displacement).unflatten(-1, (3, -1))
    assert inside.any()
    torch.testing.assert_close(contribution[inside], expected[inside], rtol=1e-10, atol=1e-12)


def test_a_globe_turned_by_whole_longitudes_turns_the_output():
    domain = Domain.sphere()
    model = make_model(domain, variant="waves", num_waves=2, features="none")
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
    model = make_model(domain, variant="waves")
    torch.manual_seed(1)
    coords = torch.rand(count, dim, dtype=DOUBLE)
    values, weights = torch.randn(1, count, 2, dtype=DOUBLE), 0.5 + torch.rand(count, dtype=DOUBLE)
    twice = torch.cat([torch.arange(count), torch.arange(count // 2)])
    halved = torch.where(torch.arange(count) < count // 2, weights / 2, weights)
    doubled = model(values[:, twice], coords[twice], weights=halved[twice])[:, :count]
    torch.testing.assert_close(
        doubled, model(values, coords, weights=weights), rtol=1e-9, atol=1e-10
    )


def test_unstructured_points_are_interpolated_in_their_triangles():
    case = Case("unstructured")
    nodes = tensor_grid(*(axis.nodes for axis in case.lattice.axes))
    field = torch.randn(60, 1, 1, dtype=DOUBLE)
    expected = LinearNDInterpolator(case.coords.numpy(), field.flatten().numpy())(nodes.numpy())
    is_inside = np.isfinite(expected)
    at_nodes = case.lattice.interpolate(field).flatten().numpy()
    np.testing.assert_allclose(at_nodes[is_inside], expected[is_inside], atol=1e-12)
    nearest = torch.cdist(nodes, case.coords).argmin(1)
    np.testing.assert_allclose(at_nodes[~is_inside], field.flatten()[nearest].numpy()[~is_inside])


@pytest.mark.parametrize("kind", KINDS)
def test_particles_are_those_that_were_used(kind):
    """Their weights sum to one, and their centers are within reach of their sites."""
    case = Case(kind)
    (particles,) = case.model.particles(case.values, case.coords, weights=case.weights)
    assert particles.centers.shape == (2, case.coords.shape[-2], 3, case.domain.dim)
    assert (particles.scales > 0).all()
    torch.testing.assert_close(
        particles.weights.sum(-1), torch.ones_like(particles.weights[..., 0])
    )
    if case.domain.is_sphere:
        torch.testing.assert_close(
            particles.centers.norm(dim=-1), torch.ones_like(particles.weights)
        )
    offset = case.domain.offset(particles.centers, case.coords.unsqueeze(-2))
    if case.domain.is_sphere:
        assert offset.norm(dim=-1).max() <= case.layer.reach * math.sqrt(2) + 1e-12
    elif kind != "fitted":
        reach = case.layer.reach * case.domain.unit_lengths(case.coords)
        assert (offset.abs() <= reach + 1e-12).all()


@pytest.mark.parametrize("kind", KINDS)
def test_without_particles_the_gate_stays(kind):
    case = Case(kind)
    with Ablation(gaussians=frozenset(range(3))).applied(case.model):
        ablated = case.model(case.values, case.coords, weights=case.weights)
    with torch.no_grad():
        case.layer.arrive.zero_()
    gate_alone = case.model(case.values, case.coords, weights=case.weights)
    active = case.is_active if case.weights is not None else slice(None)
    torch.testing.assert_close(ablated[:, active], gate_alone[:, active], rtol=1e-12, atol=1e-12)
