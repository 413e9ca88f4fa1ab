"""What kills cost: `gpo run` ended at random moments, again and again, beside undisturbed runs.

    python benchmarks/kills.py

Five settings, 20 kills each. Every sitting is a forked process of its own that runs the command
as typed; SIGKILL or SIGTERM ends it at a random moment, which is the begin of a batch or a change
to a file. After five kills a run comes to its end, and its weights, optimiser and scores are compared
bit by bit with those of an undisturbed run. Every second run also writes its state within epochs, as
runs with epochs of more than a minute do. Work lost is counted from outside: batches that a later
sitting computed again. The seed determines all signals and moments.
"""

import json
import math
import random
import shutil
import signal
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from rich.console import Console
from sittings import WITHIN, Sitting

from gpo_bench.protocol import describe_machine

RESULTS = Path(__file__).parent / "results" / "kills"
EPOCHS, KILLS_PER_RUN = 10, 5
TYPED = ["--model", "gpo", "--hidden-dim", "8", "--num-layers", "1", "--num-gaussians", "2",
         "--epochs", str(EPOCHS), "--batch-size", "4"]  # fmt: skip
SETTINGS: dict[str, list[str]] = {
    "plateau": ["--scope", "one-step", "--learning-rate", "0.03"],
    "moving average": ["--scope", "one-step", "--ema", "0.9", "--noise", "0.05"],
    "accumulation": ["--scope", "one-step", "--accumulate", "3"],
    "two processes": ["--scope", "one-step"],
    "folder moved": [],
}
"""Flags of every setting; the last one is scored in full and reported on."""


@dataclass(frozen=True)
class Kill:
    """One kill: by what, when, and what it cost."""

    signal: str
    victims: int
    """Processes that got the signal."""
    at: float
    """Epochs of work that were begun when it came."""
    lost: float
    """Epochs that a later sitting made again."""
    lost_seconds: float
    """Time since what was made again had begun."""


@dataclass(frozen=True)
class Outcome:
    """One run: its kills, and how it ended."""

    setting: str
    number: int
    writes_within: bool
    kills: tuple[Kill, ...]
    differs: str
    """What differs from the undisturbed run; empty where no bit does."""
    best_epoch: int


def make_data(folder: Path, *, is_noise: bool) -> Path:
    """Writes small time series in one dimension.

    Args:
        folder: Where the file goes.
        is_noise: Whether frames have nothing to do with one another: scores soon get worse.
    """
    import h5py

    generator = np.random.default_rng(0)
    x, t = np.arange(16) / 16, np.arange(10.0)
    height, phase = generator.normal(size=(2, 10, 1, 1))
    values = height * 0.9 ** t[None, :, None] * np.sin(2 * np.pi * (x - 0.05 * t[:, None]) + phase)
    if is_noise:
        values = generator.normal(size=values.shape)
    path = folder / ("noise.h5" if is_noise else "waves.h5")
    with h5py.File(path, "w") as file:
        file["tensor"], file["t-coordinate"], file["x-coordinate"] = values, t, x
    return path


def difference(whole: Path, other: Path) -> str:
    """Returns what of two finished runs differs in any bit, empty where nothing does."""
    from safetensors.torch import load_file

    first, second = (load_file(path / "model" / "model.safetensors") for path in (whole, other))
    if not _same(first, second):
        return "weights"
    states = [
        torch.load(path / "checkpoints" / "last.ckpt", weights_only=True) for path in (whole, other)
    ]
    for name in ("state_dict", "optimizer_states", "epoch", "global_step"):
        if not _same(states[0][name], states[1][name]):
            return name
    if len({(path / "results.json").read_bytes() for path in (whole, other)}) > 1:
        return "scores"
    names = [
        {file.relative_to(path) for file in path.rglob("*") if "log" not in file.parts}
        for path in (whole, other)
    ]
    return ", ".join(sorted(map(str, names[0] ^ names[1])))


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


def disturb(
    flags: Sequence[str],
    folder: Path,
    chance: random.Random,
    *,
    num_moments: int,
    world: int = 1,
    moves: bool = False,
    writes_within: bool = False,
    num_kills: int = KILLS_PER_RUN,
) -> tuple[list[Kill], Path]:
    """Takes a run through its kills to its end; returns them and the run folder.

    Args:
        flags: Of the command.
        folder: Where everything goes.
        chance: Chooses signals and moments.
        num_moments: Moments of an undisturbed run.
        world: The number of processes that train together.
        moves: Whether the run folder is moved after every kill.
        writes_within: Whether the state is written within epochs, too.
        num_kills: How many kills at most; fewer where the run ends before.
    """
    folder.mkdir()
    place, ended = folder / "run-0", []
    for number in range(num_kills + 1):
        is_last = number == num_kills
        moment = chance.randint(1, max(1, 2 * num_moments // (num_kills + 1)))
        sitting = Sitting(
            [*flags, "--out", str(place)], world, folder / "output.log",
            stop_at=0 if is_last else moment, writes_within=writes_within,
        )  # fmt: skip
        ended.append(sitting)
        processes = sitting.processes
        victims = chance.choice([processes, processes[:1], processes[-1:]])
        kill_signal = chance.choice([signal.SIGKILL, signal.SIGTERM])
        is_killed = not is_last and sitting.kill(victims, kill_signal)
        sitting.finish(is_killed=is_killed)
        if not is_killed:
            sitting.check()
            break
        if moves and place.exists():
            place = Path(shutil.move(place, folder / f"run-{number + 1}"))
    return _kills(ended), place


def _kills(sittings: Sequence[Sitting]) -> list[Kill]:
    """Returns what every kill cost, by where the next sitting that trained began."""
    kills = []
    for number, sitting in enumerate(sittings[:-1]):
        watch, lost, since = sitting.watch, 0.0, 0.0
        later = [one.watch.first for one in sittings[number + 1 :]]
        again = next((first for first in later if not math.isnan(first)), math.nan)
        if not math.isnan(watch.first) and again < watch.begun:
            lost = (watch.begun - again) / watch.per_epoch
            begins = [one.watch.begin_time(again) for one in sittings[: number + 1]]
            since = sitting.end - max(begin for begin in begins if not math.isnan(begin))
        at = next((one.watch for one in sittings[number::-1] if one.watch.begun > 0), None)
        epochs = 0.0 if at is None else at.begun / at.per_epoch
        kills.append(Kill(*sitting.killed_by, at=epochs, lost=lost, lost_seconds=since))
    return kills


def study(setting: str, folder: Path, seed: int, num_kills: int) -> list[Outcome]:
    """Returns all disturbed runs of one setting."""
    data = make_data(folder, is_noise=setting == "plateau")
    flags = ["--data", str(data), *TYPED, *SETTINGS[setting]]
    world = 2 if setting == "two processes" else 1
    whole = Sitting([*flags, "--out", str(folder / "whole")], world, folder / "output.log")
    whole.finish(is_killed=False)
    whole.check()
    chance, outcomes, done = random.Random(seed), [], 0
    while done < num_kills:
        number = len(outcomes)
        place = folder / f"disturbed-{number}"
        kills, run = disturb(
            flags, place, chance, num_moments=whole.watch.num_moments, world=world,
            moves=setting == "folder moved", writes_within=number % 2 == 1,
            num_kills=min(KILLS_PER_RUN, num_kills - done),
        )  # fmt: skip
        record = json.loads((run / "training.json").read_text())
        differs = difference(folder / "whole", run)
        kept = Outcome(
            setting, number, number % 2 == 1, tuple(kills), differs, record["best_epoch"]
        )
        outcomes.append(kept)
        done += len(kills)
        shutil.rmtree(place)
    return outcomes


COLUMNS = ("setting", "runs", "kills", "by SIGTERM", "bitwise equal runs",
           "best epoch", "most epochs lost", "mean", "most, where written within epochs",
           "most seconds lost")  # fmt: skip


def tabulate(outcomes: Sequence[Outcome]) -> str:
    """Returns one row per setting, as Markdown."""
    lines = [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
    for setting in dict.fromkeys(one.setting for one in outcomes):
        runs = [one for one in outcomes if one.setting == setting]
        kills = [kill for one in runs for kill in one.kills]
        within = [kill.lost for one in runs if one.writes_within for kill in one.kills]
        best = sorted({one.best_epoch for one in runs})
        cells = (
            setting, len(runs), len(kills), sum(kill.signal == "SIGTERM" for kill in kills),
            f"{sum(not one.differs for one in runs)} of {len(runs)}",
            f"{', '.join(map(str, best))} of {EPOCHS}", f"{max(kill.lost for kill in kills):.2f}",
            f"{np.mean([kill.lost for kill in kills]):.2f}", f"{max(within, default=0):.2f}",
            f"{max(kill.lost_seconds for kill in kills):.1f}",
        )  # fmt: skip
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def main(
    kills: int = 20,
    seed: int = 0,
    settings: tuple[str, ...] = tuple(SETTINGS),
    results: Path = RESULTS,
) -> None:
    """Kills and writes; exits with 1 where a run is not what it would have been.

    Args:
        kills: How many in every setting.
        seed: Of signals and moments.
        settings: Which settings; others stay in the table as they are.
        results: Where the table goes.
    """
    # Forked processes begin with all imports done, so that kills do not fall upon imports.
    import gpo.cli.work
    import gpo.training.fit  # noqa: F401

    torch.set_num_threads(1)
    console, stored, outcomes = Console(), results / "kills.json", []
    for setting in settings:
        with tempfile.TemporaryDirectory() as folder:
            outcomes += study(setting, Path(folder), seed, kills)
        console.print(tabulate(outcomes), markup=False)
    outcomes += [one for one in load(stored) if one.setting not in settings]
    outcomes.sort(key=lambda one: list(SETTINGS).index(one.setting))
    notes = (
        f"Runs of {EPOCHS} epochs, {KILLS_PER_RUN} kills each. Bitwise equal: weights of the model, "
        "weights and optimiser of the last checkpoint, scores, and the names of all files, beside a "
        "run that nobody disturbed. Lost: batches that the next sitting made again. Every second run "
        f"writes its state every {WITHIN} s within epochs, too, in place of every minute. Of two "
        "processes one or both are killed."
    )
    machine = describe_machine("python benchmarks/kills.py")
    text = "\n\n".join(["### Kills of `gpo run`", tabulate(outcomes), notes, *machine])
    results.mkdir(parents=True, exist_ok=True)
    (results / "table.md").write_text(text + "\n", encoding="utf-8")
    stored.write_text(json.dumps([asdict(one) for one in outcomes], indent=1) + "\n")
    if any(one.differs or max((k.lost for k in one.kills), default=0) > 1 for one in outcomes):
        raise SystemExit(1)


def load(path: Path) -> list[Outcome]:
    """Returns the runs of earlier calls, for other settings."""
    if not path.exists():
        return []
    stored = json.loads(path.read_text())
    return [
        Outcome(**{**one, "kills": tuple(Kill(**kill) for kill in one["kills"])}) for one in stored
    ]


if __name__ == "__main__":
    tyro.cli(main)
