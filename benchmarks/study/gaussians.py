"""What scales, transports and the optimiser are worth: one row for every variant, column and seed.

    python benchmarks/study/gaussians.py ns2d --variants default hat adamw --seeds 0 1 2 --seconds 120
    python benchmarks/study/gaussians.py era5-uk radar --files FOLDER --seconds 60

Every run is scored on validation data: one step, rollouts, and the same weights on half and double
resolution and on a random part of the sites. Rows are appended to `--out`; those that are there are
not made again.
"""

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import torch
import tyro
from jaxtyping import Float
from torch import Tensor
from tyro.conf import Positional, arg

from gpo.evaluation.rollout import make_rollouts
from gpo.evaluation.transfer import resolution_transfer
from gpo.execution.points import ChunkedField, Points, Sites
from gpo.model import transport
from gpo.model.layer import Parts
from gpo.model.transport import Displacements, TransportLayer
from gpo.model.wave_layer import State, WaveModes
from gpo.runs import read_data
from gpo.training.config import RunConfig
from gpo.training.fit import train
from gpo.training.run_folder import Run
from gpo.training.setup import split_of
from gpo_bench.columns import COLUMNS, Column

STEPS = (5, 10, 19)
"""Steps of rollouts that are kept."""
BUILD = transport.build_parts

ALL_COLUMNS = COLUMNS | {
    "ssh-med": Column(
        "sea level of the Mediterranean, one day ahead from two days, land masked",
        {"history": 2},
        file="ssh_med/dt_med_allsat_phy_l4_2005T2.nc",
    )
}
FIXED: dict[str, dict[str, Any]] = {"ns2d": {"noise": 0.0}}
"""Further settings of columns."""


def transports(parts: Parts) -> list[TransportLayer]:
    """Returns the layers with transport."""
    return [layer for layer in parts.layers if isinstance(layer, TransportLayer)]


def frozen(parts: Parts) -> None:
    """Keeps scales at their start."""
    for layer in transports(parts):
        layer.log_scale.requires_grad_(False)


def hat(parts: Parts) -> None:
    """Keeps scales at the floor: particles sample through the multilinear kernel."""
    frozen(parts)
    for layer in transports(parts):
        layer.log_scale.data.fill_(-20.0)


def shared(parts: Parts) -> None:
    """Gives all particles of a layer one scale."""
    for layer in transports(parts):
        layer.log_scale = torch.nn.Parameter(layer.log_scale.data[:1].clone())
        layer.__class__ = OneScale


class OneScale(TransportLayer):
    """A layer with transport whose particles have one scale."""

    def scales(self) -> torch.Tensor:
        """Returns standard deviations."""
        return self.log_scale.exp().expand(self.num_gaussians, -1)


class WeightedTransport(TransportLayer):
    """A layer with transport whose particles have weights: a softmax over those of a point."""

    def contribution(
        self, state: State, points: Points, modes: WaveModes, displacement: Displacements
    ) -> Float[Tensor, "points batch source_channels"]:
        """Returns the weighted contributions, on average as large as those without weights."""
        parts = super().contribution(state, points, modes, displacement)
        weights = self.num_gaussians * (state @ self.get_parameter("choose")).softmax(-1).unsqueeze(
            -1
        )
        return (weights * parts.unflatten(-1, (self.num_gaussians, -1))).flatten(-2)


def weighted(parts: Parts) -> None:
    """Gives particles weights, which are equal at the start."""
    for layer in transports(parts):
        channels = layer.source.shape[0]
        layer.choose = torch.nn.Parameter(torch.zeros(channels, layer.num_gaussians))
        layer.__class__ = WeightedTransport


class BlendedScales(TransportLayer):
    """A layer with transport that samples two smoothed copies, of its scales and of twice these.

    A factor between zero and one blends them: read off the state of a point, or one per particle.
    """

    by_site = True

    def couple(self, state: ChunkedField, sites: Sites) -> WaveModes:
        """Returns the modes, and two copies of the source features."""
        modes = self.modes(state, sites)
        displacements = partial(sites.map, self.twice_displacement, state, modes)
        features = sites.map(self.twice_features, state)
        scales = torch.cat([self.scales(), 2 * self.scales()])
        return replace(modes, source=sites.lattice(features, scales, displacements))

    def twice_features(self, state: State, points: Points) -> Tensor:
        """Returns the source features of both copies."""
        features = self.source_features(state, points)
        return torch.cat([features, features], -1)

    def twice_displacement(self, state: State, points: Points, modes: WaveModes) -> Tensor:
        """Returns the displacements of both copies, which are the same."""
        displacement = self.displacement(state, points, modes)
        return torch.cat([displacement, displacement], 2)

    def contribution(
        self, state: State, points: Points, modes: WaveModes, displacement: Displacements
    ) -> Float[Tensor, "points batch source_channels"]:
        """Returns the blend of both samples, minus the field at the point."""
        source = modes.source
        assert source is not None
        own = self.twice_features(state, points)
        if source.unsmoothed is not None:
            own = points.sample(source)
        sampled = points.sample(source, torch.cat([displacement, displacement], 2)) - own
        narrow, wide = (
            part.unflatten(-1, (self.num_gaussians, -1)) for part in sampled.chunk(2, -1)
        )
        choose = self.get_parameter("choose")
        factor = (state @ choose if self.by_site else choose.expand(*state.shape[:2], -1)).sigmoid()
        return (narrow + factor.unsqueeze(-1) * (wide - narrow)).flatten(-2)


class TwoScales(BlendedScales):
    """The same with one factor per particle."""

    by_site = False


def blended(kind: type[BlendedScales]) -> Callable[[Parts], None]:
    """Returns what gives particles two scales."""

    def change(parts: Parts) -> None:
        for layer in transports(parts):
            shape = (layer.source.shape[0], layer.num_gaussians)[0 if kind.by_site else 1 :]
            layer.choose = torch.nn.Parameter(torch.zeros(shape))
            layer.__class__ = kind

    return change


class OneStill(TransportLayer):
    """A layer with transport whose last particle does not move: it diffuses only."""

    def displacement(self, state: State, points: Points, modes: WaveModes) -> Displacements:
        """Returns displacements, zero for the last particle."""
        displacement = super().displacement(state, points, modes)
        return torch.cat([displacement[:, :, :-1], torch.zeros_like(displacement[:, :, -1:])], 2)


def one_still(parts: Parts) -> None:
    """Keeps the last particle at its point."""
    for layer in transports(parts):
        layer.__class__ = OneStill


def faster_scales(factor: float) -> Callable[[Parts], None]:
    """Returns what lets logarithms of scales learn faster: they are `factor` times a parameter."""

    def change(parts: Parts) -> None:
        for layer in transports(parts):
            layer.log_scale.data.div_(factor)
            layer.__class__ = type("FasterScales", (FasterScales,), {"factor": factor})

    return change


class FasterScales(TransportLayer):
    """A layer with transport whose scales learn faster."""

    factor = 1.0

    def scales(self) -> Tensor:
        """Returns standard deviations."""
        return (self.factor * self.log_scale).exp()


def starting_at(cells: float) -> Callable[[Parts], None]:
    """Returns what starts scales at some fraction of a cell; half a cell is the default."""

    def change(parts: Parts) -> None:
        for layer in transports(parts):
            layer.log_scale.data.add_(torch.tensor(2 * cells).log())

    return change


Variant = tuple[dict[str, Any], Callable[[Parts], None] | None]
ADAMW = {"optimizer": "adamw"}
VARIANTS: dict[str, Variant] = {
    "default": ({}, None),
    "hat": ({}, hat),
    "adamw": (ADAMW, None),
    "0.6": ({**ADAMW, "num_transports": 1}, hat),
    "one": ({"num_transports": 1}, None),
    "four": ({"num_transports": 4}, None),
    "frozen": ({}, frozen),
    "shared": ({}, shared),
    "weights": ({}, weighted),
    "fast-scales": ({}, faster_scales(10.0)),
    "by-site": ({}, blended(BlendedScales)),
    "two-scales": ({}, blended(TwoScales)),
    "one-still": ({}, one_still),
    "start-0.42": ({}, starting_at(0.42)),
    "start-1": ({}, starting_at(1.0)),
    "no-transport": ({"num_transports": 0}, None),
}
"""Settings, and what is changed in a new model. Others are read as settings, such as `num_waves=8,noise=0.06`."""


def parsed(name: str) -> Variant:
    """Returns a variant by name: known ones and settings, joined by commas."""
    settings: dict[str, Any] = {}
    changes: list[Callable[[Parts], None]] = []
    for part in name.split(","):
        if part in VARIANTS:
            own, change = VARIANTS[part]
            settings |= own
            changes += [change] if change else []
        else:
            key, _, value = part.partition("=")
            settings[key] = json.loads(value) if value[:1] in "0123456789-[tfn" else value

    def change_all(parts: Parts) -> None:
        for change in changes:
            change(parts)

    return settings, change_all


def measure(
    column: str, name: str, seed: int, limits: dict[str, Any], files: Path
) -> dict[str, Any]:
    """Trains a variant and returns its scores on validation data."""
    settings, change = parsed(name)
    source = ALL_COLUMNS[column].source(column, files, "quick")
    fixed = {"preset": "quick", "learning_rate": 6e-3, "epochs": 10**6, "patience": 10**6}
    config = RunConfig.of(
        **{**fixed, **source, **FIXED.get(column, {}), "seed": seed, **limits, **settings}
    )
    if "steps" in limits:
        config = config.changed(budget_cpu=None)
    if config.data.benchmark is None:
        config = config.changed(preset="default")

    def build(*arguments: Any) -> Parts:
        parts = BUILD(*arguments)
        change(parts)
        return parts

    transport.build_parts = build
    with TemporaryDirectory() as folder:
        data = read_data(config)
        forecaster = train(data, config, folder, is_quiet=True)
        record = Run(Path(folder)).record()
        assert record is not None
        row: dict[str, Any] = {"error": record.best_score, "steps": record.steps}
    validation = split_of(data, config).validation
    if forecaster.task.lead > 0:
        rollouts = make_rollouts(forecaster, data, validation, STEPS[-1], None)
        errors = rollouts.mean_errors()["model"]
        row["rollout"] = {step: errors[step - 1] for step in STEPS if step <= len(errors)}
    finer = None
    if config.data.benchmark is not None and config.data.coarsen % 2 == 0:
        finer = read_data(config, config.data.coarsen // 2)
    transferred = resolution_transfer(forecaster, data, validation, finer)
    row["transfer"] = {where: one.get("model") for where, one in transferred.items()}
    operator = forecaster.model.operator
    if operator is not None:
        layers = [layer for layer in operator.layers if isinstance(layer, TransportLayer)]
        row["scales"] = [layer.scales().tolist() for layer in layers]
    return row


def main(
    columns: Positional[Annotated[tuple[str, ...], arg(metavar="COLUMN")]] = ("ns2d",),
    /,
    variants: tuple[str, ...] = ("default", "hat", "adamw", "0.6"),
    seeds: tuple[int, ...] = (0,),
    seconds: float = 120.0,
    steps: int | None = None,
    files: Path = Path("data"),
    out: Path = Path("benchmarks/results/study/gaussians.jsonl"),
) -> None:
    """Makes all rows that are missing, and prints them."""
    out.parent.mkdir(parents=True, exist_ok=True)
    known = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    limits = {"steps": steps} if steps else {"budget_cpu": seconds}
    for seed, column, name in itertools.product(seeds, columns, variants):
        key = {"column": column, "variant": name, "seed": seed, **limits}
        row = next((one for one in known if key.items() <= one.items()), None)
        if row is None:
            row = {**key, **measure(column, name, seed, limits, files)}
            with out.open("a") as file:
                file.write(json.dumps(row) + "\n")
        rollout = " ".join(f"{value:.4f}" for value in row.get("rollout", {}).values() if value)
        transfer = " ".join(
            f"{where} {value:.4f} ({value / row['transfer']['1x']:.2f})"
            for where, value in row["transfer"].items()
            if value and where != "1x"
        )
        print(
            f"{column} {name} seed {seed}: {row['error']:.5f} ({row['steps']}); rollout {rollout};"
            f" {transfer}", flush=True,
        )  # fmt: skip


if __name__ == "__main__":
    torch.set_num_threads(1)
    tyro.cli(main)
