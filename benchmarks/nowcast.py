"""Nowcasts of rain: models beside persistence, climatology and extrapolation along optical flow.

    python benchmarks/nowcast.py --files FOLDER --models gpo fno --seeds 0 1 2

Models are trained by `gpo train` on the column `radar` of Table 1, whose file is in `FOLDER`, with the
flags of `--settings` (all models) and `--own` (one model), and roll out from every start of a split.
The settings of the extrapolation are chosen on the training frames. It needs opencv-python-headless;
where pysteps is installed, its Lucas-Kanade flow and its extrapolation are scored as well.
"""

import hashlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import tyro
from jaxtyping import Bool, Float
from nowcast_motion import compare_motions
from nowcast_tables import draw_scores, make_tables

from gpo import FieldData, open_data, open_run
from gpo.atomic_files import write_text
from gpo.data.splits import TimeSlice
from gpo.data.units import conversion
from gpo.evaluation.rollout import roll_out
from gpo_bench.columns import COLUMNS
from gpo_bench.extrapolation import ExtrapolationConfig, estimate_motion, extrapolate, nearest_seen
from gpo_bench.nowcast import SCORES, Fields, Parts, difference, mean_parts, score
from gpo_bench.protocol import describe_machine

COLUMN = COLUMNS["radar"]
NUM_STEPS = 6
"""Steps of five minutes."""
UNITS = "mm h-1"
EARLIER = 3
"""Frames before the first start, from which the motion is estimated."""
UNUSED = 2
"""Frames between training and validation, which no model learns from."""
CHOICES: dict[str, tuple[Any, ...]] = {
    "window": (9, 15, 25, 40),
    "smoothing": (0.0, 2.0, 4.0, 8.0, 16.0),
    "floor": (0.03, 0.1, 0.3, 1.0),
    "num_pairs": (1, 2, 3),
    "neighbourhood": (5, 7),
    "num_levels": (1, 2, 3),
    "order": (1, 3),
}
"""Settings of the extrapolation that are chosen one after the other, twice."""
BLURS = (0.1, 0.2, 0.3, 0.4, 0.5)


@dataclass(frozen=True)
class Radar:
    """Rain rates on a grid, and which frames belong to which split."""

    path: Path
    data: FieldData
    frames: Float[np.ndarray, "time rows columns"]
    """Rain rates in mm/h."""
    is_seen: Bool[np.ndarray, "rows columns"]
    """False outside the radar image."""
    factor: float
    """Converts the unit of the file to mm/h."""
    first: dict[str, int]
    """First frame of validation and test."""

    @classmethod
    def of(cls, path: Path) -> "Radar":
        """Reads the file of the column."""
        data = open_data(path)
        units = data.variables[0].units
        factors = conversion(units, UNITS)
        if factors is None:
            raise ValueError(
                f"{path}: the variable must be a rain rate, in units such as {UNITS}, got "
                f"{units!r}. Convert it first."
            )
        geometry = data.geometry()
        frames = np.asarray(data.frames(0), dtype=float)[..., 0] * factors[0]
        first = {
            name: int(np.searchsorted(data.time, data.time_of(COLUMN.settings[f"{name}_from"])))
            for name in ("validation", "test")
        }
        shape = geometry.grid_shape
        seen = ~geometry.is_masked.reshape(shape)
        return cls(path, data, frames.reshape(len(frames), *shape), seen, factors[0], first)

    def starts(self, split: str) -> range:
        """Returns the last input frames of all forecasts whose targets lie in a split."""
        first, last = self.first["validation"], self.first["test"]
        match split:
            case "training":
                return range(EARLIER, first - UNUSED - NUM_STEPS)
            case "validation":
                return range(first - 1, last - NUM_STEPS)
            case _:
                return range(last - 1, len(self.frames) - NUM_STEPS)

    def truth(self, starts: Sequence[int]) -> Fields:
        """Returns the observed rain."""
        return np.stack([self.cells(self.frames[t + 1 : t + 1 + NUM_STEPS]) for t in starts])

    def cells(
        self, fields: Float[np.ndarray, "*shape rows columns"]
    ) -> Float[np.ndarray, "*shape cells"]:
        """Returns the values at the cells that the radar sees."""
        return fields[..., self.is_seen]


def extrapolated(radar: Radar, starts: Sequence[int], config: ExtrapolationConfig) -> Fields:
    """Returns extrapolations along the optical flow before each start."""
    rows = []
    for t in starts:
        motion = estimate_motion(radar.frames[t - EARLIER : t + 1], radar.is_seen, config)
        rows.append(extrapolate(radar.frames[t], radar.is_seen, motion, NUM_STEPS, config))
    return radar.cells(np.stack(rows))


def tune(radar: Radar) -> tuple[ExtrapolationConfig, ExtrapolationConfig]:
    """Returns the best settings without blur, and with it, on the training frames.

    The best has the smallest relative L2, averaged over all leads.
    """
    starts = radar.starts("training")
    truth = radar.truth(starts)

    def error(config: ExtrapolationConfig) -> float:
        parts = SCORES["relative L2"].parts(extrapolated(radar, starts, config), truth)
        return float(score(parts).mean())

    def best_of(config: ExtrapolationConfig, name: str, values: Sequence[Any]) -> ExtrapolationConfig:  # fmt: skip
        return min((replace(config, **{name: value}) for value in values), key=error)

    sharp = ExtrapolationConfig()
    for _ in range(2):
        for name, values in CHOICES.items():
            sharp = best_of(sharp, name, values)
    return sharp, best_of(sharp, "blur", BLURS)


def pysteps_forecasts(radar: Radar, starts: Sequence[int]) -> Fields:
    """Returns forecasts of pysteps: Lucas-Kanade flow of three frames, and its extrapolation."""
    advect = import_module("pysteps.extrapolation.semilagrangian").extrapolate
    dense_lucaskanade = import_module("pysteps.motion.lucaskanade").dense_lucaskanade
    filled = radar.frames[:, *nearest_seen(radar.is_seen)]
    rows = []
    for t in starts:
        # Rain in decibels above 0.1 mm/h, as the library's examples have it.
        decibels = 10 * np.log10(np.maximum(filled[t - 2 : t + 1], 0.1 / 10**0.5))
        motion = dense_lucaskanade(decibels, verbose=False)
        rows.append(advect(filled[t], motion, NUM_STEPS, map_coordinates_mode="nearest"))
    return radar.cells(np.stack(rows))


def references(
    radar: Radar, starts: Sequence[int], configs: tuple[ExtrapolationConfig, ExtrapolationConfig]
) -> dict[str, Fields]:
    """Returns all forecasts that learn nothing from other rain than the last, or only its mean."""
    training = radar.frames[: radar.first["validation"] - UNUSED]
    shape = (len(starts), NUM_STEPS, int(radar.is_seen.sum()))
    found = {
        "persistence": np.broadcast_to(radar.cells(radar.frames[list(starts)])[:, None], shape),
        "climatology": np.broadcast_to(radar.cells(training.mean(0)), shape),
        "extrapolation": extrapolated(radar, starts, configs[0]),
        "extrapolation, blurred": extrapolated(radar, starts, configs[1]),
    }
    if find_spec("pysteps"):
        found["pysteps"] = pysteps_forecasts(radar, starts)
    return found


def trained(radar: Radar, model: str, seed: int, flags: Sequence[str], runs: Path) -> Path:
    """Returns the folder of a finished run; the name has a hash of its flags."""
    of_column = [f"--{name.replace('_', '-')}={value}" for name, value in COLUMN.settings.items()]
    command = ["--data", str(radar.path), *of_column, "--model", model, "--seed", str(seed), *flags]
    name = hashlib.sha256(shlex.join(command).encode()).hexdigest()[:8]
    out = runs / f"{model}-{name}"
    if not (out / "model").exists():
        command = [sys.executable, "-m", "gpo", "train", *command, "--no-auto", "--quiet"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run([*command, "--out", str(out)], check=True, env=environment)
    return out


def rolled_out(radar: Radar, run: Path, starts: Sequence[int], *, is_blended: bool) -> Fields:
    """Returns autoregressive forecasts of a run in mm/h, which are at least zero.

    Args:
        radar: The data.
        run: Folder of the run.
        starts: Last input frames.
        is_blended: Whether references have weights, as in what `gpo predict` writes.
    """
    opened = open_run(run)
    forecaster, rows = opened.forecaster().eval(), []
    forecaster = forecaster if is_blended else forecaster.alone
    for t in starts:
        time_slice = TimeSlice(0, t - (forecaster.task.history - 1), t, t + 1)
        rollout = roll_out(forecaster, opened.data, time_slice, NUM_STEPS)
        assert rollout is not None
        rows.append(rollout.forecast[..., 0].numpy().reshape(NUM_STEPS, *radar.is_seen.shape))
    return radar.cells(np.maximum(radar.factor * np.stack(rows), 0))


def compared(
    models: dict[str, list[Fields]], given: dict[str, Fields], truth: Fields
) -> dict[str, Any]:
    """Returns all scores, and differences of each model from the best reference at every lead."""
    found: dict[str, Any] = {}
    for name, one in SCORES.items():
        parts = {who: one.parts(fields, truth) for who, fields in given.items()}
        seeds = {who: [one.parts(f, truth) for f in fields] for who, fields in models.items()}
        values = {who: score(part) for who, part in parts.items()}
        best = one.best(values)
        found[name] = {
            "is_higher_better": one.is_higher_better,
            "references": {who: value.tolist() for who, value in values.items()},
            "models": {who: _over_seeds(parts) for who, parts in seeds.items()},
            "best_reference": best,
            "differences": {
                who: [
                    asdict(difference(mean_parts(rows)[:, step], parts[best[step]][:, step]))
                    for step in range(NUM_STEPS)
                ]
                for who, rows in seeds.items()
            },
        }  # fmt: skip
    return found


def _over_seeds(parts: list[Parts]) -> dict[str, list[float]]:
    values = np.stack([score(part) for part in parts])
    # Runs whose forecasts are the same differ by rounding.
    spread = values.std(0, ddof=1).round(12) if len(values) > 1 else np.zeros(NUM_STEPS)
    return {"mean": score(mean_parts(parts)).tolist(), "spread": spread.tolist()}


def main(
    files: Path,
    models: tuple[str, ...] = ("gpo",),
    seeds: tuple[int, ...] = (0,),
    settings: str = "--budget-cpu 120 --history 3",
    own: tuple[str, ...] = (),
    split: Literal["validation", "test"] = "validation",
    runs: Path = Path("runs/nowcast"),
    out: Path = Path("benchmarks/results/nowcast"),
) -> None:
    """Trains, scores and writes tables, a figure and all numbers.

    Args:
        files: Folder of the real files.
        models: Names of models, whose forecasts are what `gpo predict` writes: references have weights.
            Beside them are those of the network alone.
        seeds: Random seeds of each model.
        settings: Flags of `gpo train` for all models, as `--settings="--steps 200"`.
        own: Further flags of single models, as `--own "gpo=--reach 0.05"`.
        split: Which frames are forecast; the test once, when all settings are fixed.
        runs: Folder of the runs; what is finished there is not trained again.
        out: Folder of the results.
    """
    torch.set_num_threads(1)
    path = files / str(COLUMN.file)
    if not path.exists():
        raise SystemExit(f"--files must be the folder that has {COLUMN.file}, got {files}.")
    radar = Radar.of(path)
    starts = radar.starts(split)
    configs = tune(radar)
    flags = dict(text.split("=", 1) for text in own)
    folders = {
        model: [
            trained(radar, model, seed, shlex.split(f"{settings} {flags.get(model, '')}"), runs)
            for seed in seeds
        ]
        for model in models
    }
    given, truth = references(radar, starts, configs), radar.truth(starts)
    forecasts = {
        name if is_blended else f"{name}, network alone": [
            rolled_out(radar, run, starts, is_blended=is_blended) for run in part
        ]
        for name, part in folders.items()
        for is_blended in (True, False)
    }
    command = "python benchmarks/nowcast.py --files FOLDER " + shlex.join(
        part for part in sys.argv[1:] if part not in ("--files", str(files))
    )
    results = {
        "split": split,
        "num_starts": len(starts),
        "settings": settings,
        "own": list(own),
        "seeds": list(seeds),
        "extrapolation": [asdict(config) for config in configs],
        "scores": compared(forecasts, given, truth),
        "motion": {
            name: compare_motions(radar, folders[name][0], starts, configs[0])
            for name in models
            if name == "gpo"
        },
    }
    out.mkdir(parents=True, exist_ok=True)
    stem = "" if split == "test" else f"_{split}"
    write_text(out / f"nowcast{stem}.json", json.dumps(results, indent=2) + "\n")
    tables = make_tables(results)
    text = "\n".join([*tables, "\n\n".join(describe_machine(command.strip()))]) + "\n"
    write_text(out / f"table{stem}.md", text)
    maps = {"observed": truth, **{name: fields[0] for name, fields in forecasts.items()}, **given}
    draw_scores(out / f"nowcast{stem}.png", results, radar.is_seen, maps)
    print(text)


if __name__ == "__main__":
    tyro.cli(main)
