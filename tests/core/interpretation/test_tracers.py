"""Tracers go where displacements, or a flow, take them."""

from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr

from gpo import Tracers
from gpo.data.dataset import FieldData, Variable
from gpo.data.geometry import Geometry
from gpo.evaluation.flow import FlowVariables
from gpo.interpretation import tracers
from gpo.interpretation.displacements import displacements
from gpo.interpretation.tracers import follow_tracers
from gpo.model.particles import Particles
from gpo.numerics.domain import Domain
from tests.core.interpretation.readings import untrained

SIDE = np.arange(32) / 32
BEST = {"layer": 0, "particle": 1}
TORUS = Geometry.rectilinear([SIDE, SIDE], periodic=True)
GLOBE = Geometry.latitude_longitude(np.linspace(-87, 87, 30), np.arange(0, 360, 6.0))
POINTS = Geometry.unstructured(np.random.default_rng(0).random((600, 2)), domain=Domain.unit_box(2))
TURN = torch.tensor([[0.0, -0.1, 0.04], [0.1, 0.0, -0.07], [-0.04, 0.07, 0.0]]).double()
"""A turn of the sphere around an oblique axis, per step."""


def vortices(coords):
    """A steady flow on the torus, of half a cell to three cells per step."""
    x, y = 2 * np.pi * np.moveaxis(np.asarray(coords), -1, 0)
    return 0.05 * np.stack([np.sin(x) * np.cos(y), -np.cos(x) * np.sin(y)], -1)


def wheel(coords):
    """A turn around the middle of a square."""
    return 0.15 * (np.asarray(coords) - 0.5)[..., ::-1] * np.array([-1.0, 1.0])


def departed(flow, coords, steps=40):
    """Where what arrives at points was a step before, along a steady flow of the plane."""
    places, step = coords.copy(), -1 / steps
    for _ in range(steps):
        first = flow(places)
        second = flow(places + step / 2 * first)
        third = flow(places + step / 2 * second)
        fourth = flow(places + step * third)
        places = places + step / 6 * (first + 2 * second + 2 * third + fourth)
    return places


def steady(geometry, flow, names=("u", "v"), units="", signs=(1,) * 20):
    """Series of a steady velocity, times a sign, and of a third variable that changes."""
    random = np.random.default_rng(0).normal(size=(20, 8, geometry.num_points, 1))
    frames = np.stack([np.broadcast_to(sign * flow, (8, *flow.shape)) for sign in signs])
    frames = np.concatenate([frames + 1e-9 * random, random], -1)
    variables = (Variable(names[0], units), Variable(names[1], units), Variable("a"))
    return FieldData(
        "steady", Path("steady"), variables, (geometry,), np.arange(8.0), "s" if units else "",
        20, lambda n, times: frames[n, times],
    )  # fmt: skip


def followed(data, centers=None):
    """Tracers of a model whose second particle looks at given centers."""
    forecaster, samples = untrained(data, num_layers=1, num_waves=2)
    if centers is not None:
        domain, coords = data.geometry().domain, torch.from_numpy(data.geometry().coords)[None]
        held = torch.from_numpy(np.asarray(centers))[None, :, None]
        way = displacements(Particles(held, held, held[..., 0]), coords, domain)[0, :, 0].float()
        lengths = 1.0 if domain.is_sphere else domain.unit_lengths(way)
        transport = forecaster.model.layers[0]
        shape = transport.num_gaussians, transport.num_axes
        moved = torch.zeros(len(way), 1, *shape)
        moved[:, 0, 1] = way / lengths
        transport.displacement = lambda state, *_: moved.expand(-1, state.shape[1], -1, -1)
    variables = FlowVariables(data.variables)
    return follow_tracers(forecaster, data, samples, variables, BEST, num_examples=3)


@pytest.mark.parametrize(
    ("geometry", "flow", "most"), [(TORUS, vortices, 0.01), (POINTS, wheel, 0.02)], ids=["torus", "points"]
)  # fmt: skip
def test_displacements_that_are_the_velocity_advect_tracers_with_the_flow(geometry, flow, most):
    data = steady(geometry, flow(geometry.coords))
    result, ways = followed(data, departed(flow, geometry.coords))
    assert max(result["separation"]) < most
    assert result["num_steps"] == 7
    assert result["times"] == list(range(1, 8))
    assert result["spread"][0] > 0.01
    true, start = ways.of_kind("true_flow"), ways.of_kind("model")[:, 0]
    expected = start.numpy()
    for _ in range(7):
        expected = departed(lambda places: -flow(places), expected)
    is_there = true[:, -1].isfinite().all(-1)
    assert is_there.double().mean() > 0.7
    if geometry is POINTS:
        # A turn whose circle stays among the sites: beyond the outermost ones no velocity is known.
        is_there = is_there & ((start - 0.5).norm(dim=-1) < 0.47)
    torch.testing.assert_close(true[is_there, -1], torch.from_numpy(expected)[is_there], atol=3e-3, rtol=0)  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("corner", [(10.0, -3.0), (-0.5, 0.25)])
def test_where_the_corner_of_a_domain_lies_does_not_matter(corner):
    moved = Geometry.rectilinear([SIDE + corner[0], SIDE + corner[1]], periodic=True)
    data = steady(moved, vortices(TORUS.coords))
    result, ways = followed(data, departed(vortices, TORUS.coords) + np.array(corner))
    assert max(result["separation"]) < 0.01
    _, plain = followed(steady(TORUS, vortices(TORUS.coords)), departed(vortices, TORUS.coords))
    torch.testing.assert_close(
        ways.positions - torch.tensor(corner), plain.positions, rtol=0, atol=1e-4
    )


def test_tracers_go_around_the_globe_and_across_its_poles():
    coords = torch.from_numpy(GLOBE.coords)
    speed = coords @ TURN.T
    data = steady(GLOBE, to_degrees_of_freedom(speed, coords).numpy() * 6_371_000.0, units="m s-1")
    result, ways = followed(data, (coords @ torch.linalg.matrix_exp(-TURN).T).numpy())
    assert max(result["separation"]) < 0.01
    start = ways.of_kind("true_flow")[:, 0]
    expected = start @ torch.linalg.matrix_exp(7 * TURN).T
    torch.testing.assert_close(ways.of_kind("true_flow")[:, -1], expected, atol=2e-3, rtol=0)
    torch.testing.assert_close(ways.of_kind("model")[:, -1], expected, atol=5e-3, rtol=0)


def to_degrees_of_freedom(vectors, coords):
    """The components of vectors of space to the east and north."""
    from gpo.numerics.footprints import tangent_frame

    return torch.einsum("nd,nad->na", vectors, tangent_frame(coords))


def test_a_model_that_holds_still_is_as_far_off_as_tracers_that_stay():
    data = steady(TORUS, vortices(TORUS.coords))
    result, _ = followed(data, TORUS.coords)
    assert result["separation"] == pytest.approx(result["stay"])
    assert result["other_example"] == pytest.approx(result["stay"])


def test_displacements_of_another_example_lead_astray(monkeypatch):
    signs = [1, -1] * 10
    data = steady(TORUS, vortices(TORUS.coords), signs=signs)

    def own(forecaster, batch, best, num_steps):
        return [batch.example.fields[:, -1, :, :2].double()] * num_steps

    monkeypatch.setattr(tracers, "_displacements", own)
    result, _ = followed(data)
    assert result["separation"][-1] < 0.2
    assert result["other_example"][-1] > 0.5


def test_what_cannot_be_followed_says_why():
    flow = np.ones((GLOBE.num_points, 2))
    result, ways = followed(steady(GLOBE, flow))
    assert "units do not tell how far the flow goes" in result["reason"]
    assert ways is None
    result, _ = followed(steady(TORUS, vortices(TORUS.coords), names=("b", "c")))
    assert "no velocity is known" in result["reason"]


@pytest.mark.parametrize("domain", [Domain.unit_box(2, periodic=True), Domain.sphere()], ids=["torus", "sphere"])  # fmt: skip
def test_files_hold_the_same_tracers_as_cf_trajectories_and_lines(domain, tmp_path):
    places = domain.wrap(torch.randn(6, 4, domain.dim).double())
    places[2, 3] = torch.nan
    kinds = torch.tensor([0, 0, 1, 1, 2, 2])
    held = Tracers(places, torch.arange(4.0).double(), kinds, kinds % 2, domain, "s")
    held.save(tmp_path / "tracers.nc")
    held.export(tmp_path / "tracers.vtp", is_text=True)
    again = Tracers.load(tmp_path / "tracers.nc")
    torch.testing.assert_close(again.positions, places, equal_nan=True)
    torch.testing.assert_close(again.of_kind("true_flow"), places[2:4], equal_nan=True)
    assert (again.time_units, again.domain) == ("s", domain)
    with xr.open_dataset(tmp_path / "tracers.nc", decode_times=False) as stored:
        assert stored.attrs["featureType"] == "trajectory"
        assert stored["trajectory"].attrs["cf_role"] == "trajectory_id"
        assert stored["carried_by"].attrs["flag_meanings"] == "model true_flow other_example"
        assert stored["x"].dims == stored["time"].dims == ("trajectory", "obs")
        if domain.is_sphere:
            assert stored["longitude"].attrs["standard_name"] == "longitude"
    text = (tmp_path / "tracers.vtp").read_text()
    assert 'NumberOfPoints="23"' in text
    assert 'NumberOfLines="6"' in text
    assert "4 8 11 15 19 23" in text


def test_rows_that_do_not_fit_together_are_refused():
    with pytest.raises(ValueError, match="`positions` must have shape"):
        Tracers(torch.zeros(1, 3, 3), torch.zeros(3), torch.zeros(1).long(), torch.zeros(1).long(), Domain.unit_box(2))  # fmt: skip
    held = Tracers(torch.zeros(1, 3, 2), torch.zeros(3), torch.zeros(1).long(), torch.zeros(1).long(), Domain.unit_box(2))  # fmt: skip
    with pytest.raises(ValueError, match="`kind` must be one of model, true_flow"):
        held.of_kind("wind")
