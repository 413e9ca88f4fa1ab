"""Which reading of the paper learns? Eight readings of gpo-paper, and further ones by name.

    OMP_NUM_THREADS=1 python benchmarks/study/paper_readings.py --seconds 60
    OMP_NUM_THREADS=1 python benchmarks/study/paper_readings.py --seconds 600 --only literal tls

The design is {feed-forward on tokens} x {LayerNorm, no renormalisation} x {sharp windows}, on ns2d
(quick data, viscosity 1e-4) at 32 x 32 sites, one step, the state itself, with AdamW and the step
schedule of the paper. A reading first overfits 16 examples, which says whether it can represent the
map at all; then it is trained on all, and its training error stands beside its validation error,
which says whether it generalises. Errors are relative L2 in the units of the data.

Every finished reading is a row of a jsonl file; the same command leaves out the rows that are there.
Seconds are CPU seconds of training steps.
"""

import json
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from time import process_time
from typing import Any

import torch
import tyro

from gpo import RunConfig, relative_l2
from gpo.forecast.examples import Example, TimeSliceExamples, collate
from gpo.forecast.forecaster import Forecaster
from gpo.model.losses import LossWeights
from gpo.runs import read_data
from gpo.training.muon import make_optimizer
from gpo.training.objective import training_losses
from gpo.training.setup import new_forecaster, split_of

PARTS: dict[str, dict[str, Any]] = {
    "t": {"token_width": 256},
    "l": {"layer_norm": True, "renormalises": False},
    "s": {"temperature": 0.05},
}
"""Parts of the design: feed-forward on tokens, LayerNorm without renormalisation, sharp windows."""

DESIGN = ["".join(name for name, on in zip("tls", which, strict=True) if on) or "literal"
          for which in product((False, True), repeat=3)]  # fmt: skip

ALL = {key: value for part in PARTS.values() for key, value in part.items()}
PLACED = {"places_windows": True, "names_modes": True}

OTHERS: dict[str, dict[str, Any]] = {
    "without layers": {"num_layers": 0},
    "tls, positions in the windows": {**ALL, "places_windows": True},
    "tls, named modes": {**ALL, "names_modes": True},
    "tls, both": {**ALL, **PLACED},
    "literal, both, sharp": {**PARTS["s"], **PLACED},
    "tls, hidden 128": {**ALL, "hidden_dim": 128, "num_heads": 8},
}
"""Further readings, trained where they are named."""

NUM_OVERFITTED, NUM_SCORED = 16, 64
"""Examples that are overfitted, and of training that are scored."""


def options_of(name: str) -> dict[str, Any]:
    """Returns the options of a reading."""
    if name in OTHERS:
        return OTHERS[name]
    parts = [] if name == "literal" else list(name)
    return {key: value for part in parts for key, value in PARTS[part].items()}


@dataclass
class Screening:
    """Trains readings of gpo-paper on ns2d, one after the other."""

    seconds: float
    overfit_seconds: float
    seed: int
    batch_size: int
    learning_rate: float

    def __post_init__(self) -> None:
        """Reads the data, which all readings share."""
        config = self.config({})
        self.data = read_data(config)
        self.split = split_of(self.data, config)
        self.training, self.validation = (
            [examples[number] for number in range(len(examples))]
            for examples in (
                TimeSliceExamples(self.data, part)
                for part in (self.split.training, self.split.validation)
            )
        )

    def config(self, options: dict[str, Any]) -> RunConfig:
        """Returns the configuration of a run with the options of a reading."""
        recipe = {"optimizer": "adamw", "schedule": "step", "predict": "state"}
        return RunConfig.of(
            **recipe, benchmark="ns2d", preset="quick", coarsen=2, model="gpo-paper",
            seed=self.seed, learning_rate=self.learning_rate, batch_size=self.batch_size, **options,
        )  # fmt: skip

    def row(self, name: str, options: dict[str, Any]) -> dict[str, Any]:
        """Returns the errors of a reading after overfitting, and after training on all examples."""
        few = self.training[:: len(self.training) // NUM_OVERFITTED][:NUM_OVERFITTED]
        overfitted, few_steps = self.fitted(options, few, self.overfit_seconds)
        forecaster, steps = self.fitted(options, self.training, self.seconds)
        scored = self.training[:: max(1, len(self.training) // NUM_SCORED)][:NUM_SCORED]
        return {
            "reading": name, "options": options, **self.settings,
            "parameters": forecaster.num_parameters,
            "overfitted": error(overfitted, few), "steps overfitting": few_steps,
            "training": error(forecaster, scored),
            "validation": error(forecaster, self.validation), "steps": steps,
        }  # fmt: skip

    @property
    def settings(self) -> dict[str, Any]:
        """What a row has besides the reading and its scores."""
        names = ("seconds", "overfit_seconds", "seed", "batch_size", "learning_rate")
        return {name: getattr(self, name) for name in names}

    def fitted(
        self, options: dict[str, Any], examples: list[Example], seconds: float
    ) -> tuple[Forecaster, int]:
        """Returns a model trained on some examples for some time, and the number of steps."""
        config = self.config(options)
        torch.manual_seed(self.seed)
        forecaster = new_forecaster(self.data, self.split, config)
        optimizer, weights = make_optimizer(forecaster, config), LossWeights.of(config.model.config)
        generator, order = torch.Generator().manual_seed(self.seed), list[int]()
        started, steps = process_time(), 0
        while (progress := (process_time() - started) / seconds) < 1:
            if len(order) < self.batch_size:
                order = torch.randperm(len(examples), generator=generator).tolist()
            chosen, order = order[: self.batch_size], order[self.batch_size :]
            for group in optimizer.param_groups:
                group["lr"] = self.learning_rate * 0.5 ** int(5 * progress)
            batch = collate([examples[number] for number in chosen])
            optimizer.zero_grad()
            training_losses(forecaster, batch, weights=weights)["total"].backward()
            torch.nn.utils.clip_grad_norm_(forecaster.parameters(), config.optimizer.clip)
            optimizer.step()
            steps += 1
        return forecaster, steps


@torch.no_grad()
def error(forecaster: Forecaster, examples: list[Example]) -> float:
    """Returns the mean relative L2 error of one step."""
    scores = []
    for first in range(0, len(examples), 16):
        batch = collate(examples[first : first + 16])
        prediction = forecaster(batch.frames, batch.coords, weights=batch.site_weights)
        score = relative_l2(prediction, batch.target, batch.weights)
        scores.append((len(batch.target), float(score)))
    return sum(count * score for count, score in scores) / sum(count for count, _ in scores)


def main(
    seconds: float = 60.0,
    overfit_seconds: float = 30.0,
    only: tuple[str, ...] = (),
    seed: int = 0,
    batch_size: int = 8,
    learning_rate: float = 1e-3,
    changes: str = "{}",
    out: Path = Path("runs/paper-readings.jsonl"),
) -> None:
    """Trains readings and appends a row for each.

    Args:
        seconds: CPU seconds of training on all examples.
        overfit_seconds: CPU seconds of overfitting.
        only: Names of readings: literal, letters of t, l and s, or others (default: the design).
        seed: Random seed.
        batch_size: Examples per batch.
        learning_rate: Learning rate at the start.
        changes: Further options for all readings, as a JSON object, such as {"fourier_std": 4.0}.
        out: The jsonl file.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    lines = out.read_text().splitlines() if out.exists() else []
    screening = Screening(seconds, overfit_seconds, seed, batch_size, learning_rate)
    done = [json.loads(line) for line in lines]
    for name in only or DESIGN:
        options = {**options_of(name), **json.loads(changes)}
        expected = {"options": options, **screening.settings}
        if any(all(row[key] == value for key, value in expected.items()) for row in done):
            continue
        row = screening.row(name, options)
        with out.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(
            f"{name:16s} overfitted {row['overfitted']:.4f} ({row['steps overfitting']}), training "
            f"{row['training']:.4f}, validation {row['validation']:.4f} ({row['steps']} steps)",
            flush=True,
        )


if __name__ == "__main__":
    tyro.cli(main)
