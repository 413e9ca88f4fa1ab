"""Small random models on every kind of geometry, ready to be explored."""

from pathlib import Path

import numpy as np
import torch

from gpo import Domain, PaperConfig
from gpo.data.dataset import FieldData, Variable
from gpo.data.geometry import Geometry
from gpo.data.splits import split_time_slices
from gpo.training.config import RunConfig
from gpo.training.setup import new_forecaster
from gpo_explore.session import Session
from tests.core.training.series import small_run


def triangulated(side=7):
    """A square of triangles, its nodes moved a little."""
    generator = np.random.default_rng(3)
    x, y = (part.ravel() for part in np.meshgrid(np.arange(side), np.arange(side), indexing="ij"))
    points = np.stack([x, y], -1) / (side - 1) + 0.02 * generator.normal(size=(side**2, 2))
    corner = (x < side - 1) & (y < side - 1)
    first = np.flatnonzero(corner)
    lower = np.stack([first, first + side, first + side + 1], -1)
    upper = np.stack([first, first + side + 1, first + 1], -1)
    return Geometry.unstructured(points, np.concatenate([lower, upper]))


def masked_square():
    axis = np.linspace(0, 1, 8)
    square = Geometry.rectilinear([axis, axis])
    return square.masked(square.coords[:, 0] < 0.3)


def geometries():
    generator = np.random.default_rng(0)
    points = generator.random((60, 3))
    return {
        "line": Geometry.rectilinear([np.arange(16) / 16], periodic=True),
        "grid": Geometry.rectilinear([np.arange(8) / 8, np.arange(10) / 10], periodic=True),
        "masked": masked_square(),
        "scattered": Geometry.unstructured(points[:, :2], domain=Domain.unit_box(2)),
        "mesh": triangulated(),
        "fitted": Geometry.curvilinear(
            *np.meshgrid(np.linspace(0, 1, 7), np.linspace(0, 2, 6), indexing="ij")
        ),
        "globe": Geometry.latitude_longitude(np.linspace(75, -75, 6), np.arange(12) * 30.0),
        "patch": Geometry.latitude_longitude(np.linspace(60, 50, 6), np.linspace(-8, 4, 8)),
        "sites on the globe": Geometry.on_sphere(
            360 * points[:, 0] - 180, np.rad2deg(np.arcsin(1.9 * points[:, 1] - 0.95))
        ),
        "cube": Geometry.rectilinear([np.linspace(0, 1, n) for n in (5, 4, 6)]),
        "cloud": Geometry.unstructured(points, domain=Domain.unit_box(3)),
    }


KINDS = tuple(geometries())
SIZES = {"hidden_dim": 8, "num_layers": 2, "num_gaussians": 4, "seed": 0}


def lively(forecaster):
    """Makes the parameters of an untrained model large enough to matter."""
    config = getattr(forecaster.model, "config", None)
    factor = 6 if isinstance(config, PaperConfig) else 2
    with torch.no_grad():
        for name, parameter in forecaster.model.named_parameters():
            if not name.endswith("log_scale"):
                parameter.mul_(factor if "layers." in name or "decoder" in name else 2)
    return forecaster


def make_session(kind="grid", variant="geometric", geometry=None, **changes):
    """An untrained run on one kind of geometry: two variables, forecast from two frames.

    Args:
        kind: Name of the geometry.
        variant: Of the model.
        geometry: One of your own.
        changes: Settings of the run.
    """
    geometry = geometry or geometries()[kind]
    generator = np.random.default_rng(1)
    slope, phase = generator.normal(size=(2, 4, 1, geometry.coords.shape[1]))
    t = np.arange(8)[None, :, None]
    angle = 3 * np.einsum("nd,tkd->tkn", geometry.coords, slope) + 0.4 * t + phase[..., :1]
    values = np.stack([280 + 4 * np.sin(angle), np.cos(angle)], -1)
    values[:, :, geometry.is_masked] = np.nan
    data = FieldData(
        "waves", Path("waves.nc"), (Variable("t2m", "K"), Variable("b")), (geometry,),
        np.arange(8.0), "h", 4, lambda n, times: values[n, times],
    )  # fmt: skip
    torch.manual_seed(0)
    # A page ablates every wave; eight along an axis are 145 on a plane.
    waves = {"num_waves": 4, "num_transports": 1} if variant == "geometric" else {}
    given = small_run(variant, **{**SIZES, **waves}) if "model" not in changes else {}
    config = RunConfig.of(**{"data": "waves.nc", "history": 2, "blend": False, **given, **changes})
    split = split_time_slices(data, history=config.task.history, lead=config.task.lead)
    forecaster = lively(new_forecaster(data, split, config))
    return Session("waves", forecaster, data, split.test, split.training)


def make_map_session(variant="geometric"):
    """Static maps whose sites differ from sample to sample."""
    generator = np.random.default_rng(2)
    sites = tuple(
        Geometry.unstructured(generator.random((20 + number % 3, 2)), domain=Domain.unit_box(2))
        for number in range(20)
    )
    fields = [np.sin(5 * where.coords[:, :1] + generator.normal()) for where in sites]
    data = FieldData.of_maps(
        layout="maps", source=Path("maps.h5"), inputs=(Variable("a", "m"),),
        outputs=(Variable("s", "m2"), Variable("c")), geometries=sites, num_samples=20,
        fetch=lambda number: (fields[number], np.concatenate([fields[number] ** 2, 0 * fields[number]], 1)),
    )  # fmt: skip
    split = split_time_slices(data)
    torch.manual_seed(0)
    config = RunConfig.of(data="maps.h5", **small_run(variant, **SIZES))
    return Session("maps", lively(new_forecaster(data, split, config)), data, split.test)
