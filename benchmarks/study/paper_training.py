"""Training of readings of the paper on ns2d, in stages that a kill does not lose.

A stage is stored every minute beside the results: weights, optimizer, order of examples and the
curve. The same command goes on from there, to the same numbers but for the seconds that steps take.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import process_time
from typing import Any

import torch
from torch import Tensor, nn

from gpo import RunConfig, relative_l2
from gpo.atomic_files import atomic_file
from gpo.forecast.examples import Example, TimeSliceExamples, collate
from gpo.forecast.forecaster import Forecaster
from gpo.model.losses import LossWeights
from gpo.model.model import build_model
from gpo.model.problem import Problem
from gpo.runs import read_data
from gpo.training.initial import freeze_field
from gpo.training.muon import make_optimizer
from gpo.training.objective import training_losses
from gpo.training.setup import new_forecaster, split_of

NUM_OVERFITTED, NUM_SCORED = 16, 64
"""Examples that are overfitted, and of training that are scored."""
NUM_POINTS = 10
"""Points of a curve."""
STORED_EVERY = 60.0
"""CPU seconds between two states on disk."""
FIELD_SHARE = 0.25
"""Fraction of the time for the field phase, where a reading has one."""
STUDIED = ("phases", "fourier_layers")
"""Keys of a reading that are no settings of a run."""


@dataclass
class Stage:
    """Some seconds of training of one part of a reading."""

    path: Path
    """File of its state."""
    seconds: float
    spent: float = 0.0
    steps: int = 0
    curve: list[list[float]] = field(default_factory=list)
    """CPU seconds, steps and score."""

    def run(
        self, module: nn.Module, optimizer: torch.optim.Optimizer, rate: float, clip: float,
        batches: "Batches", loss_of: Callable[[Example], Tensor], score: Callable[[], float],
    ) -> None:  # fmt: skip
        """Trains until the time is over, from where an earlier call was stopped."""
        if self.path.exists():
            stored = torch.load(self.path, weights_only=False)
            self.spent, self.steps, self.curve = stored["stage"]
            module.load_state_dict(stored["module"])
            optimizer.load_state_dict(stored["optimizer"])
            batches.restore(stored["batches"])
        kept = self.spent
        while self.spent < self.seconds:
            started = process_time()
            for group in optimizer.param_groups:
                group["lr"] = rate * 0.5 ** int(5 * self.spent / self.seconds)
            optimizer.zero_grad()
            loss_of(next(batches)).backward()
            torch.nn.utils.clip_grad_norm_(module.parameters(), clip)
            optimizer.step()
            self.steps += 1
            self.spent += process_time() - started
            is_over = self.spent >= self.seconds
            if is_over or self.spent >= (len(self.curve) + 1) * self.seconds / NUM_POINTS:
                self.curve.append([round(self.spent, 1), self.steps, score()])
            if is_over or self.spent - kept > STORED_EVERY:
                kept = self.spent
                with atomic_file(self.path) as partial:
                    state = {
                        "stage": (self.spent, self.steps, self.curve),
                        "module": module.state_dict(), "optimizer": optimizer.state_dict(),
                        "batches": batches.state(),
                    }  # fmt: skip
                    torch.save(state, partial)


class Batches(Iterator[Example]):
    """Batches of some examples in random order, without end."""

    def __init__(self, examples: list[Example], size: int, seed: int) -> None:
        self.examples, self.size = examples, min(size, len(examples))
        self.generator, self.order = torch.Generator().manual_seed(seed), list[int]()

    def __next__(self) -> Example:
        """Returns the next batch; an epoch drops the examples that make no whole one."""
        if len(self.order) < self.size:
            self.order = torch.randperm(len(self.examples), generator=self.generator).tolist()
        chosen, self.order = self.order[: self.size], self.order[self.size :]
        return collate([self.examples[number] for number in chosen])

    def state(self) -> tuple[Tensor, list[int]]:
        """Returns what `restore` takes."""
        return self.generator.get_state(), self.order

    def restore(self, state: tuple[Tensor, list[int]]) -> None:
        """Goes on from a state."""
        self.generator.set_state(state[0])
        self.order = state[1]


class FourierLayers(nn.Module):
    r"""A frozen field with FNO between the bases: $u=f^{dec}(\mathrm{FNO}(Z(a)))$."""

    def __init__(self, field_model: Forecaster, domain: Any, grid_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.forecaster = field_model
        for parameter in field_model.parameters():
            parameter.requires_grad_(False)
        gaussians = field_model.operator.lift.encoder.num_gaussians
        self.layers = build_model("fno", Problem(gaussians, gaussians, domain, grid_shape), None)

    def basis(self, values: Tensor, batch: Example) -> Tensor:
        """Returns the basis of normalised fields, samples first."""
        operator = self.forecaster.operator
        output = operator.run(operator.sites(values, batch.coords, batch.site_weights))
        return torch.cat([part.values for part in output.state]).transpose(0, 1)

    def loss(self, batch: Example) -> Tensor:
        """Returns the errors of the prediction, and of its basis beside that of the target."""
        target = self.forecaster.normalised(batch.target)
        predicted = self.predicted_basis(batch)
        with torch.no_grad():
            encoded = self.basis(target, batch)
        output = self.forecaster.operator.decoder.layers(predicted)
        prediction = relative_l2(output, target, batch.weights)
        return prediction + relative_l2(predicted, encoded, batch.weights)

    def predicted_basis(self, batch: Example) -> Tensor:
        """Returns the basis of the predicted field."""
        with torch.no_grad():
            basis = self.basis(self.forecaster.normalised_input(batch.frames), batch)
        return self.layers(basis, batch.coords, weights=batch.site_weights)

    def forward(self, batch: Example) -> Tensor:
        """Returns the predicted field in the units of the data."""
        output = self.forecaster.operator.decoder.layers(self.predicted_basis(batch))
        return self.forecaster.denormalised(output)


@dataclass
class Screening:
    """Trains readings on ns2d, one after the other."""

    benchmark: str
    seconds: float
    overfit_seconds: float
    seed: int
    batch_size: int
    learning_rate: float
    folder: Path
    """Folder of the states of stages."""

    def __post_init__(self) -> None:
        """Reads the data, which all readings share."""
        config = self.config({})
        self.data = read_data(config)
        self.split = split_of(self.data, config)
        self.training, self.validation = self._examples(reconstructs=False)
        self.fields, self.unseen_fields = self._examples(reconstructs=True)

    def _examples(self, *, reconstructs: bool) -> list[list[Example]]:
        found = (
            TimeSliceExamples(self.data, part, reconstructs=reconstructs)
            for part in (self.split.training, self.split.validation)
        )
        return [[examples[number] for number in range(len(examples))] for examples in found]

    @property
    def settings(self) -> dict[str, Any]:
        """What a row has besides the reading and its scores."""
        names = ("benchmark", "seconds", "overfit_seconds", "seed", "batch_size", "learning_rate")
        return {name: getattr(self, name) for name in names}

    def config(self, options: dict[str, Any], **others: Any) -> RunConfig:
        """Returns the configuration of a run with the options of a reading."""
        recipe: dict[str, Any] = {
            "optimizer": "adamw", "schedule": "step", "predict": "state",
            "learning_rate": self.learning_rate, "batch_size": self.batch_size,
            "benchmark": self.benchmark, "preset": "quick", "coarsen": 2, "model": "gpo-paper",
            "seed": self.seed, "blend": False,
        }  # fmt: skip
        settings = {name: value for name, value in options.items() if name not in STUDIED}
        return RunConfig.of(**{**recipe, **settings, **others})

    def row(self, name: str, options: dict[str, Any]) -> dict[str, Any]:
        """Returns the errors of a reading after overfitting, and after training on all examples."""
        few = self.training[:: len(self.training) // NUM_OVERFITTED][:NUM_OVERFITTED]
        digest = hashlib.sha256(json.dumps([options, self.settings], sort_keys=True).encode())
        prefix = self.folder / digest.hexdigest()[:12]
        overfitted = self._fitted(options, few, self.overfit_seconds, f"{prefix}-few", few)
        trained = self._fitted(
            options, self.training, self.seconds, f"{prefix}-all", self.validation
        )
        scored = self.training[:: max(1, len(self.training) // NUM_SCORED)][:NUM_SCORED]
        row = {
            "reading": name, "options": options, **self.settings,
            "parameters": trained.parameters,
            "overfitted": overfitted.stage.curve[-1][2], "overfit_curve": overfitted.stage.curve,
            "training": error(trained.predict, scored),
            "validation": trained.stage.curve[-1][2], "curve": trained.stage.curve,
            "steps": trained.stage.steps,
        }  # fmt: skip
        for path in self.folder.glob(f"{prefix.name}-*"):
            path.unlink()
        return row

    def _fitted(
        self, options: dict[str, Any], examples: list[Example], seconds: float, prefix: str,
        scored: list[Example],
    ) -> "Fitted":  # fmt: skip
        """Returns a model trained on some examples for some time."""
        config = self.config(options)
        torch.manual_seed(self.seed)
        field_model, spent = None, 0.0
        if options.get("phases") or options.get("fourier_layers"):
            spent = FIELD_SHARE * seconds
            field_model = self._field(options, examples, spent, prefix)
        if options.get("fourier_layers"):
            assert field_model is not None
            geometry = self.data.geometry()
            module = FourierLayers(field_model, geometry.domain, geometry.grid_shape)
            optimizer = torch.optim.AdamW(module.layers.parameters(), weight_decay=1e-4)
            predict, loss_of, counted = module, module.loss, module.layers
        else:
            module = new_forecaster(self.data, self.split, config)
            if field_model is not None:
                module.model.load_state_dict(field_model.model.state_dict(), strict=False)
                freeze_field(module)
            optimizer, weights = make_optimizer(module, config), LossWeights.of(config.model.config)
            predict, counted = _predicting(module), module
            loss_of = _loss_of(module, weights)
        stage = Stage(Path(f"{prefix}.pt"), seconds - spent)
        batches = Batches(examples, self.batch_size, self.seed)
        stage.run(
            module, optimizer, config.learning_rate, config.optimizer.clip, batches, loss_of,
            lambda: error(predict, scored),
        )  # fmt: skip
        return Fitted(predict, stage, sum(part.numel() for part in counted.parameters()))

    def _field(
        self, options: dict[str, Any], examples: list[Example], seconds: float, prefix: str
    ) -> Forecaster:
        """Returns the field of a reading, trained on the inputs of the examples."""
        known = {name: value for name, value in options.items() if not name.startswith("loss_")}
        config = self.config(known, phase="field")
        module = new_forecaster(self.data, self.split, config)
        fields = self.fields if examples is self.training else self.fields[: len(examples)]
        stage = Stage(Path(f"{prefix}-field.pt"), seconds)
        stage.run(
            module, make_optimizer(module, config), config.learning_rate, config.optimizer.clip,
            Batches(fields, self.batch_size, self.seed),
            _loss_of(module, LossWeights.of(config.model.config)),
            lambda: error(_predicting(module), self.unseen_fields),
        )  # fmt: skip
        return module


@dataclass(frozen=True)
class Fitted:
    """A trained reading."""

    predict: Callable[[Example], Tensor]
    stage: Stage
    parameters: int


def _loss_of(forecaster: Forecaster, weights: LossWeights) -> Callable[[Example], Tensor]:
    return lambda batch: training_losses(forecaster, batch, weights=weights)["total"]


def _predicting(forecaster: Forecaster) -> Callable[[Example], Tensor]:
    return lambda batch: forecaster(batch.frames, batch.coords, weights=batch.site_weights)


@torch.no_grad()
def error(predict: Callable[[Example], Tensor], examples: list[Example]) -> float:
    """Returns the mean relative L2 error of one step."""
    scores = []
    for first in range(0, len(examples), 16):
        batch = collate(examples[first : first + 16])
        score = relative_l2(predict(batch), batch.target, batch.weights)
        scores.append((len(batch.target), float(score)))
    return sum(count * score for count, score in scores) / sum(count for count, _ in scores)
