"""Automatic tuning: short trial runs, scored on validation data, before the main training.

The number of input frames is tuned first, because it has the largest effect. Then one setting is
changed at a time, and all changes that improve the score by a margin are combined. The best change
and the unchanged settings train twice as long, and the change is accepted if it is still better by
the margin. A trial is an ordinary run folder: it can be resumed and extended, and the selected trial
becomes the run.
"""

import json
import math
import shutil
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from io import StringIO
from pathlib import Path
from time import process_time
from typing import Any

import torch

from gpo.atomic_files import write_text
from gpo.data.dataset import FieldData
from gpo.evaluation.verdict import MIN_BLOCKS
from gpo.forecast.examples import TimeSliceExamples, with_values
from gpo.forecast.statistics import training_statistics
from gpo.numerics.norms import scaled_rmse
from gpo.settings_files import check_fields, read_json
from gpo.training.config import RunConfig
from gpo.training.fit import train
from gpo.training.run_folder import CHOICE_FOLDER, LIMITS, Run
from gpo.training.setup import split_of

FRACTION = 1 / 3
"""Fraction of the budget of CPU seconds for tuning."""
DEFAULT_SECONDS = 60.0
"""CPU seconds for tuning if the budget has no limit in seconds."""
MIN_BUDGET = 20.0
"""Smallest budget, in CPU seconds, with which settings are tuned."""
NUM_UNITS = 9
"""Number of trials of equal length in the time for tuning."""
MAX_OVERHEAD = 3.0
"""Limit of total CPU time of tuning, as a multiple of its training time."""
MIN_STEPS = 25
"""Steps of a trial below which only histories can be compared."""
MIN_STEPS_WIDER = 150
"""Steps of a trial from which a wider model is tried."""
BATCH_DIVISOR = 4
"""Divisor of the batch size if a trial takes few steps."""
MARGIN = 0.9
"""A change is accepted if it multiplies the score by less than this: scores of trials are noisy, and
some settings, such as input noise, help rollouts but not the one-step score."""
FILE_NAME = "auto.json"


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A short trial run: its changes and its score."""

    settings: dict
    """Settings that differ from those requested."""
    score: float | None
    """RMSE on validation data, in standard deviations; None if the trial failed."""
    steps: int
    cpu_seconds: float

    @property
    def error(self) -> float:
        """The score, infinite if there is none."""
        return math.inf if self.score is None else self.score


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Result of tuning: `auto.json`."""

    asked: dict
    """Requested settings, without limits."""
    settings: dict
    """Selected settings that differ from those requested."""
    trials: list
    cpu_seconds: float
    """CPU seconds of the rejected trials."""
    reference: str = ""
    """Name of the untrained reference: persistence for time series."""
    reference_score: float | None = None

    def save(self, folder: Path) -> None:
        """Writes the result into a run folder."""
        write_text(folder / FILE_NAME, json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def load(cls, folder: Path) -> "Choice | None":
        """Returns the result in a run folder, None if settings were not tuned."""
        path = folder / FILE_NAME
        if not path.exists():
            return None
        stored = read_json(path)
        try:
            trials = [Trial(**trial) for trial in stored.pop("trials")]
            return cls(**check_fields(cls, stored, str(path)), trials=trials)
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path}: must be a file written by gpo run, got {error}.") from error

    def applied(self, config: RunConfig) -> RunConfig:
        """Returns a configuration with the selected settings and the remaining budget."""
        changed = config.changed(**self.settings)
        seconds = config.budget.budget_cpu
        if seconds is None:
            return changed
        return changed.changed(budget_cpu=max(1.0, seconds - self.cpu_seconds))

    def rows(self) -> dict[str, dict[str, float]]:
        """Returns a table of the trials, best last."""
        rows: dict[str, dict[str, float]] = {}
        if self.reference_score is not None:
            rows[self.reference] = {"validation": self.reference_score}
        for trial in sorted(self.trials, key=lambda trial: -trial.error):
            chosen = " (chosen)" if trial.settings == self.settings else ""
            name = ", ".join(f"{key} {value}" for key, value in trial.settings.items())
            rows[(name or "as requested") + chosen] = {
                **({} if trial.score is None else {"validation": trial.score}),
                "steps": float(trial.steps),
                "CPU seconds": trial.cpu_seconds,
            }
        return rows

    def verdict(self, score: float | None) -> str:
        """Returns a warning if the model is no better than the reference, else an empty string."""
        if self.reference_score is None or (score is not None and score < self.reference_score):
            return ""
        reached = "no score" if score is None else f"{score:.4g}"
        return (
            f"not better than {self.reference} on validation data: {reached} against "
            f"{self.reference_score:.4g}. A larger --budget-cpu or another --lead may help."
        )


def requested_settings(config: RunConfig) -> dict[str, Any]:
    """Returns the requested settings as they are stored in JSON."""
    flat = {name: pair[0] for name, pair in config.differences(RunConfig()).items()}
    plain = {name: value for name, value in flat.items() if name not in LIMITS}
    return json.loads(json.dumps(plain, default=str))


def best_by_margin(trials: Sequence[Trial]) -> Trial:
    """Returns the best trial, where a later one must be better than the best before by `MARGIN`.

    Args:
        trials: Trials of equal length, those with fewer changes first.
    """
    best = trials[0]
    for trial in trials[1:]:
        if trial.error < MARGIN * best.error:
            best = trial
    return best


class Search:
    """Runs trials inside a run folder, one after the other.

    Args:
        data: The data set.
        config: The requested configuration.
        given: Names of settings that the user set, which are not tuned.
        run: The run folder.
    """

    def __init__(
        self,
        data: FieldData,
        config: RunConfig,
        given: frozenset[str],
        run: Run,
    ) -> None:
        self.data, self.config, self.given, self.run = data, config, given, run
        budget = config.budget.budget_cpu
        self.seconds = DEFAULT_SECONDS if budget is None else FRACTION * budget
        self._started = process_time()
        self._trials: dict[str, Trial] = {}

    def choose(self) -> Choice:
        """Runs trials within the time limit and returns the selected settings."""
        unit = self.seconds / NUM_UNITS
        split = split_of(self.data, self.config)
        if len(split.validation) < MIN_BLOCKS:
            # One or two examples would decide by chance.
            return self._choice(self._try({}, unit))
        is_forecast = split.training[0].lead > 0
        histories = self._histories() if is_forecast else [{}]
        trials = self._try_all(histories, unit)
        best = best_by_margin(trials)
        if best.steps < MIN_STEPS:
            # Fewer but longer trials, with smaller batches for more steps in the same time.
            seconds, batches = self.seconds / len(trials), self._smaller_batches()
            longer = self._try_all([{**trial.settings, **batches} for trial in trials], seconds)
            # A short trial may still be the best, because increments start from a good trend.
            # A longer one needs no margin: training continues from it.
            return self._choice(min(best_by_margin(longer), best, key=lambda trial: trial.error))
        changes = [{**best.settings, **change} for change in self._changes(best.steps, is_forecast)]
        changed = self._try_all(changes, unit)
        better = [trial for trial in changed if trial.error < MARGIN * best.error]
        if not better:
            return self._choice(best)
        better.sort(key=lambda trial: trial.error)
        if len(better) > 1:
            together: dict[str, Any] = {}
            # If two trials change the same setting, the better one wins.
            for trial in reversed(better):
                together |= trial.settings
            better.append(self._try(together, unit))
        finalists = [best.settings, best_by_margin(better).settings]
        return self._choice(best_by_margin(self._try_all(finalists, 2 * unit)))

    def _histories(self) -> list[dict[str, Any]]:
        """Returns the histories for which the series is long enough."""
        if "history" in self.given:
            return [{}]
        possible: list[dict[str, Any]] = [{}]
        for history in (2, 3):
            try:
                split_of(self.data, self.config.changed(history=history))
            except ValueError:
                break
            possible.append({"history": history})
        return possible

    def _smaller_batches(self) -> dict[str, Any]:
        """Returns a fraction of the batch size, unless the user set it."""
        size = self.config.optimizer.batch_size
        is_fixed = "batch_size" in self.given or size < BATCH_DIVISOR
        return {} if is_fixed else {"batch_size": size // BATCH_DIVISOR}

    def _changes(self, steps: int, is_forecast: bool) -> list[dict[str, Any]]:
        """Returns changes of one setting each, most promising first, except those that the user set."""
        rate = self.config.learning_rate
        changes: list[dict[str, Any]] = [{"learning_rate": float(f"{rate / 3:.3g}")}]
        if is_forecast:
            changes += [{"relative_to": "change"}, {"noise": 0.0}]
        else:
            changes.append({"learning_rate": float(f"{rate / 10:.3g}")})
        sizes = self.config.model.config
        if steps >= MIN_STEPS_WIDER and hasattr(sizes, "hidden_dim"):
            changes.append({"hidden_dim": 2 * sizes.hidden_dim})
        return [change for change in changes if not change.keys() & self.given]

    def _try_all(self, candidates: list[dict[str, Any]], seconds: float) -> list[Trial]:
        """Returns as many trials as time allows; reading large data takes time as well."""
        trials: list[Trial] = []
        for settings in candidates:
            if not trials or process_time() - self._started < MAX_OVERHEAD * self.seconds:
                trials.append(self._try(settings, seconds))
        return trials

    def _try(self, settings: dict[str, Any], seconds: float) -> Trial:
        """Runs a trial for some CPU seconds, or extends an earlier one with the same settings."""
        name = "-".join(f"{key}-{value}" for key, value in settings.items()) or "asked"
        config = self.config.changed(**settings, budget_cpu=seconds)
        if config.optimizer.learning_rate is None:
            # Trials skip the range test.
            config = config.changed(learning_rate=config.learning_rate)
        run = Run(self.run.folder / CHOICE_FOLDER / name)
        try:
            # Messages of trials are hidden: the table shows the results.
            with redirect_stdout(StringIO()):
                train(self.data, config, run.folder, is_quiet=True)
            record = run.record()
            assert record is not None
            trial = Trial(
                settings=settings,
                score=record.best_score,
                steps=record.steps,
                cpu_seconds=record.cpu_seconds,
            )
        except ValueError:
            # Training diverged repeatedly, or the data do not allow these settings.
            if not settings:
                raise
            trial = Trial(settings=settings, score=None, steps=0, cpu_seconds=seconds)
        self._trials[name] = trial
        return trial

    def _choice(self, best: Trial) -> Choice:
        trials = list(self._trials.values())
        reference = persistence_score(self.data, self.config.changed(**best.settings))
        return Choice(
            asked=requested_settings(self.config),
            settings=best.settings,
            trials=trials,
            cpu_seconds=sum(t.cpu_seconds for t in trials) - best.cpu_seconds,
            reference="" if reference is None else "persistence",
            reference_score=reference,
        )


def adopt_trial(run: Run, choice: Choice) -> None:
    """Moves the selected trial into the run, which continues from it, and deletes the others."""
    name = "-".join(f"{key}-{value}" for key, value in choice.settings.items()) or "asked"
    best = run.folder / CHOICE_FOLDER / name
    for part in ("checkpoints", "log"):
        if (best / part).exists() and not (run.folder / part).exists():
            shutil.move(best / part, run.folder / part)
    shutil.rmtree(run.folder / CHOICE_FOLDER, ignore_errors=True)


def persistence_score(data: FieldData, config: RunConfig) -> float | None:
    """Returns the score of persistence on validation data; None for static maps."""
    split = split_of(data, config)
    if split.training[0].lead == 0:
        return None
    std = torch.from_numpy(training_statistics(data, split.training)[1].std)
    examples = TimeSliceExamples(data, with_values(data, split.validation, "validation")[0])
    scores = []
    for number in range(len(examples)):
        example = examples[number]
        last = example.fields[:, -1]
        scores.append(scaled_rmse(last, example.target, std, example.weights))
    return float(torch.stack(scores).mean())
