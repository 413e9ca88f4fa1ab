"""Runs whose second particle moves as the velocity of their data says, on several geometries."""

from pathlib import Path

import numpy as np
import torch

from gpo.data.dataset import FieldData, Variable
from gpo.data.geometry import Geometry
from gpo.data.splits import split_time_slices
from gpo.training.config import RunConfig
from gpo.training.setup import new_forecaster
from gpo_explore.session import Session
from tests.core.interpretation.test_tracers import departed
from tests.core.training.series import small_run
from tests.explore.sessions import SIZES, triangulated

SIDE, FRAMES, ADVECTOR = 24, 6, 1
AXIS = np.arange(SIDE) / SIDE
PLACES = {
    "grid": Geometry.rectilinear([AXIS, AXIS], periodic=True),
    "mesh": triangulated(13),
    "globe": Geometry.latitude_longitude(np.linspace(-84, 84, 22), np.arange(0, 360, 10.0)),
    "cube": Geometry.rectilinear([np.arange(8) / 8] * 3, periodic=True),
}


def velocity(place, coords=None):
    """A steady flow, per step: along the axes, on the globe in radii to the east and north."""
    coords = PLACES[place].coords if coords is None else coords
    if place == "globe":
        return 0.08 * np.stack([np.hypot(coords[:, 0], coords[:, 1]), 0 * coords[:, 0]], -1)
    if place == "mesh":
        return 0.15 * (coords - 0.5)[:, ::-1] * np.array([-1.0, 1.0])
    angle = 2 * np.pi * coords
    first, second = np.sin(angle[:, 1]), np.cos(angle[:, 0])
    rest = [0.5 * np.sin(angle[:, 0])] if coords.shape[1] == 3 else []
    return 0.05 * np.stack([first, second, *rest], -1)


def displacement(place):
    """From where what arrives at the sites was a step before, to the sites."""
    coords = PLACES[place].coords
    if place == "globe":
        return velocity(place)
    return coords - departed(lambda places: velocity(place, places), coords)


def flowing(place, *, is_planted=True):
    """A run of an untrained model; velocities of every second series have the other sign.

    Args:
        place: Name of the geometry.
        is_planted: Whether the second particle moves with the velocity of the first series.
    """
    geometry, flow = PLACES[place], velocity(place)
    random = np.random.default_rng(0).normal(size=(20, FRAMES, geometry.num_points, 1))
    signs = np.resize([1.0, -1.0], 20)[:, None, None, None]
    is_sphere = geometry.domain.is_sphere
    moving = np.broadcast_to(signs * flow, (20, FRAMES, *flow.shape))
    frames = np.concatenate([moving * (6_371_000.0 if is_sphere else 1.0), random], -1)
    units = "m s-1" if is_sphere else ""
    names = ["u", "v", "w"][: flow.shape[1]]
    variables = (*(Variable(name, units) for name in names), Variable("dye"))
    data = FieldData(
        "flow", Path("flow.nc"), variables, (geometry,), np.arange(float(FRAMES)),
        "s" if is_sphere else "", 20, lambda n, times: frames[n, times],
    )  # fmt: skip
    torch.manual_seed(0)
    sizes = {**SIZES, "num_transports": 1}
    config = RunConfig.of(data="flow.nc", blend=False, **small_run("geometric", **sizes))
    split = split_time_slices(data)
    forecaster = new_forecaster(data, split, config)
    if is_planted:
        plant(forecaster, geometry, torch.from_numpy(displacement(place)))
    return Session("flow", forecaster, data, split.test, split.training)


def plant(forecaster, geometry, way):
    """Lets the second particle of every site look a way back, whatever it is given."""
    transport = forecaster.model.layers[-1]
    lengths = 1.0 if geometry.domain.is_sphere else geometry.domain.unit_lengths(way)
    moved = torch.zeros(geometry.num_points, 1, transport.num_gaussians, transport.num_axes)
    moved[:, 0, ADVECTOR] = (way / lengths).float()
    transport.displacement = lambda state, *_: moved.expand(-1, state.shape[1], -1, -1)
