"""Small untrained models with test examples."""

from pathlib import Path

import numpy as np
import torch

from gpo.data.dataset import FieldData, Variable
from gpo.data.geometry import Geometry
from gpo.data.splits import split_time_slices
from gpo.training.config import RunConfig
from gpo.training.setup import new_forecaster
from tests.core.training.series import small_run

SIZES = {"hidden_dim": 8, "num_layers": 2, "num_gaussians": 3}
TORUS = Geometry.rectilinear([np.arange(16) / 16] * 2, periodic=True)


def series(geometry=TORUS, missing=(), names=("a",), num_frames=4, num_trajectories=10):
    """Smooth fields of their own on every trajectory."""
    random = np.random.default_rng(0)
    waves = random.normal(size=(num_trajectories, len(names), 6, geometry.coords.shape[1]))
    phases = random.uniform(0, 6, (num_trajectories, len(names), 6))
    places = np.einsum("nd,tckd->tnck", 4 * geometry.coords, waves) + phases[:, None]
    first = np.sin(places).sum(-1)
    frames = np.stack([0.9**time * first for time in range(num_frames)], 1)
    frames[:, :, list(missing)] = np.nan
    return FieldData(
        "waves", Path("waves"), tuple(Variable(name) for name in names), (geometry,),
        np.arange(num_frames, dtype=float), "", num_trajectories, lambda n, times: frames[n, times],
    )  # fmt: skip


def untrained(data, **changes):
    """A model of random weights large enough to matter, and the test split."""
    torch.manual_seed(changes.get("seed", 0))
    split = split_time_slices(data)
    variant = changes.pop("variant", "geometric")
    if variant == "geometric":
        # Every wave is switched off in turn; eight along an axis are 145 on a plane.
        changes = {"num_waves": 4, "num_transports": 1, **changes}
    config = RunConfig.of(data="x", blend=False, **small_run(variant, **{**SIZES, **changes}))
    forecaster = new_forecaster(data, split, config).eval()
    with torch.no_grad():
        for name, parameter in [
            *forecaster.model.lift.named_parameters(),
            *forecaster.model.layers.named_parameters(),
        ]:
            if not name.endswith("log_scale"):
                parameter.mul_(2)
    return forecaster, split.test


@torch.no_grad()
def only_mode(filters, mode, gain=1.0):
    """Leaves a filter one mode, on its own."""
    filters.widths = ()
    kept = gain * filters.packets[..., mode]
    filters.packets.zero_()
    filters.packets[..., mode] = kept
