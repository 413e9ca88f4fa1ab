"""Automatic tuning: short trial runs, scored on validation data, before the main training.

The number of input frames is tuned first, because it has the largest effect. Then one setting is
changed at a time, and all changes that are better are combined. The best change and the unchanged
settings train twice as long, and the change is accepted if it is still better. Better means that the
95 % interval of the ratio of errors, over the same validation examples, is below one; with fewer than
four examples nothing is compared. A trial is an ordinary run folder: it can be resumed and extended, and the selected trial
becomes the run.
"""

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, field
from io import StringIO
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from jaxtyping import Float

from gpo.atomic_files import write_text
from gpo.data.dataset import FieldData
from gpo.data.seasons import DAY_LENGTHS
from gpo.data.splits import evenly
from gpo.evaluation.verdict import MIN_BLOCKS, compare
from gpo.forecast.blend_fit import MAX_EXAMPLES, scaled_errors
from gpo.forecast.examples import with_values
from gpo.forecast.forecaster import Forecaster
from gpo.forecast.references import fit_references
from gpo.settings_files import check_fields, read_json
from gpo.training.config import RunConfig
from gpo.training.fit import train
from gpo.training.run_folder import CHOICE_FOLDER, LIMITS, Run
from gpo.training.setup import new_forecaster, split_of

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
MIN_STEPS_PER_DAY = 4
"""Minimum number of time steps per day with which the time of day is tried as an input."""
YEAR_HOURS = 365 * 24.0
SEPARATOR = 9
"""Number of digits of a trajectory in the name of an example."""
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
    errors: dict = field(default_factory=dict)
    """Error of each validation example, in standard deviations, by trajectory and target."""

    def is_better(self, other: "Trial") -> bool:
        """Returns whether errors are smaller by an interval, over the examples that both have."""
        common = sorted(self.errors.keys() & other.errors.keys())
        if self.score is None or (other.score is not None and len(common) < MIN_BLOCKS):
            return False
        if other.score is None:
            return True
        own, others = (np.array([trial.errors[key] for key in common]) for trial in (self, other))
        trajectories = [key[:SEPARATOR] for key in common]
        series = [
            np.flatnonzero([t == one for t in trajectories]) for one in sorted({*trajectories})
        ]
        return compare(own, others, series).outcome == "better"

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
    references: dict = field(default_factory=dict)
    """Scores of reference forecasts, by name."""

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
        if "reference" in stored:
            # Versions before 0.8.0 had persistence only.
            name, score = stored.pop("reference"), stored.pop("reference_score", None)
            stored["references"] = {} if score is None else {name: score}
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
        for name, score in self.references.items():
            rows[name] = {"validation": score}
        for trial in sorted(self.trials, key=lambda trial: -trial.error):
            chosen = " (chosen)" if trial.settings == self.settings else ""
            name = ", ".join(f"{key} {_text(value)}" for key, value in trial.settings.items())
            rows[(name or "as requested") + chosen] = {
                **({} if trial.score is None else {"validation": trial.score}),
                "steps": float(trial.steps),
                "CPU seconds": trial.cpu_seconds,
            }
        return rows

    def verdict(self, score: float | None) -> str:
        """Returns a warning if the model is no better than a reference, else an empty string."""
        if not self.references:
            return ""
        best = min(self.references, key=lambda name: self.references[name])
        if score is not None and score < self.references[best]:
            return ""
        reached = "no score" if score is None else f"{score:.4g}"
        return (
            f"the model alone is not better than {best} on validation data: {reached} against "
            f"{self.references[best]:.4g}. A larger --budget-cpu or another --lead may help."
        )


def requested_settings(config: RunConfig) -> dict[str, Any]:
    """Returns the requested settings as they are stored in JSON."""
    flat = {name: pair[0] for name, pair in config.differences(RunConfig()).items()}
    plain = {name: value for name, value in flat.items() if name not in LIMITS}
    return json.loads(json.dumps(plain, default=str))


def best_by_interval(trials: Sequence[Trial]) -> Trial:
    """Returns the best trial, where a later one must be better by an interval than the best before.

    Args:
        trials: Trials of equal length, those with fewer changes first.
    """
    best = trials[0]
    for trial in trials[1:]:
        if trial.is_better(best):
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
        best = best_by_interval(trials)
        if best.steps < MIN_STEPS:
            # Fewer but longer trials, with smaller batches for more steps in the same time.
            seconds, batches = self.seconds / len(trials), self._smaller_batches()
            longer = self._try_all([{**trial.settings, **batches} for trial in trials], seconds)
            # A short trial may still be the best, because increments start from a good base.
            # A longer one needs no interval: training continues from it.
            return self._choice(min(best_by_interval(longer), best, key=lambda t: t.error))
        changes = [{**best.settings, **change} for change in self._changes(best.steps, is_forecast)]
        changed = self._try_all(changes, unit)
        better = [trial for trial in changed if trial.is_better(best)]
        if not better:
            return self._choice(best)
        better.sort(key=lambda trial: trial.error)
        if len(better) > 1:
            together: dict[str, Any] = {}
            # If two trials change the same setting, the better one wins.
            for trial in reversed(better):
                together |= trial.settings
            better.append(self._try(together, unit))
        finalists = [best.settings, best_by_interval(better).settings]
        return self._choice(best_by_interval(self._try_all(finalists, 2 * unit)))

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
            changes += [{"relative_to": "change"}, {"noise": 0.0}, *self._cycles()]
        else:
            changes.append({"learning_rate": float(f"{rate / 10:.3g}")})
        sizes = self.config.model.config
        if steps >= MIN_STEPS_WIDER and hasattr(sizes, "hidden_dim"):
            changes.append({"hidden_dim": 2 * sizes.hidden_dim})
        return [change for change in changes if not change.keys() & self.given]

    def _cycles(self) -> list[dict[str, Any]]:
        """Returns the time features of the cycles that training data have: the day, the year."""
        data, features = self.data, list[dict[str, Any]]()
        if self.config.forcings.time_features:
            return features
        day = DAY_LENGTHS.get(data.time_units, 0.0)
        if data.first_hour is not None and day >= MIN_STEPS_PER_DAY * data.time_step:
            features.append({"time_features": ("day",)})
        if data.origin is not None and np.ptp(data.time) >= YEAR_HOURS:
            features.append({"time_features": ("year",)})
        return features

    def _try_all(self, candidates: list[dict[str, Any]], seconds: float) -> list[Trial]:
        """Returns as many trials as time allows; reading large data takes time as well."""
        trials: list[Trial] = []
        for settings in candidates:
            if not trials or process_time() - self._started < MAX_OVERHEAD * self.seconds:
                trials.append(self._try(settings, seconds))
        return trials

    def _try(self, settings: dict[str, Any], seconds: float) -> Trial:
        """Runs a trial for some CPU seconds, or extends an earlier one with the same settings."""
        name, data = _folder_name(settings), with_features(self.data, settings)
        config = self.config.changed(**settings, budget_cpu=seconds)
        if config.optimizer.learning_rate is None:
            # Trials skip the range test.
            config = config.changed(learning_rate=config.learning_rate)
        run = Run(self.run.folder / CHOICE_FOLDER / name)
        try:
            # Messages of trials are hidden: the table shows the results.
            with redirect_stdout(StringIO()):
                forecaster = train(data, config, run.folder, is_quiet=True, fits_blend=False)
            record = run.record()
            assert record is not None
            trial = Trial(
                settings=settings,
                score=record.best_score,
                steps=record.steps,
                cpu_seconds=record.cpu_seconds,
                errors=validation_errors(forecaster, data, config),
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
        data = with_features(self.data, best.settings)
        errors = reference_errors(data, self.config.changed(**best.settings))
        return Choice(
            asked=requested_settings(self.config),
            settings=best.settings,
            trials=trials,
            cpu_seconds=sum(t.cpu_seconds for t in trials) - best.cpu_seconds,
            references={name: float(rows.mean()) for name, rows in errors.items()},
        )


def adopt_trial(run: Run, choice: Choice) -> None:
    """Moves the selected trial into the run, which continues from it, and deletes the others."""
    best = run.folder / CHOICE_FOLDER / _folder_name(choice.settings)
    for part in ("checkpoints", "log"):
        if (best / part).exists() and not (run.folder / part).exists():
            shutil.move(best / part, run.folder / part)
    shutil.rmtree(run.folder / CHOICE_FOLDER, ignore_errors=True)


def with_features(data: FieldData, settings: Mapping[str, Any]) -> FieldData:
    """Returns data with the time features of selected settings, if there are any."""
    features = settings.get("time_features", ())
    return data.with_time_features(features) if features else data


def validation_errors(
    forecaster: Forecaster, data: FieldData, config: RunConfig
) -> dict[str, float]:
    """Returns the error of each validation example, by trajectory and target."""
    samples = _validation(data, config)
    errors = scaled_errors({"model": forecaster.alone}, forecaster.task, data, samples)["model"]
    names = [_example_name(sample) for sample in samples]
    # Examples without a value at any site would leave fewer errors than names.
    return dict(zip(names, errors.tolist(), strict=True)) if len(names) == len(errors) else {}


def reference_errors(
    data: FieldData, config: RunConfig
) -> dict[str, Float[np.ndarray, " examples"]]:
    """Returns the errors of reference forecasts on validation examples, by name."""
    split = split_of(data, config)
    forecaster = new_forecaster(data, split, config)
    references = fit_references(forecaster.reference_inputs(data, split.training))
    if forecaster.reconstructs or not references:
        return {}
    return scaled_errors(references, forecaster.task, data, _validation(data, config))


def _validation(data: FieldData, config: RunConfig) -> list[Any]:
    samples = with_values(data, split_of(data, config).validation, "validation")[0]
    return evenly(samples, MAX_EXAMPLES)


def _example_name(sample: Any) -> str:
    """Returns a name that sorts by trajectory and time, the same for all histories."""
    return f"{sample.sample:0{SEPARATOR}d}:{sample.target:09d}"


def _folder_name(settings: Mapping[str, Any]) -> str:
    """Returns the name of the folder of a trial."""
    return "-".join(f"{key}-{_text(value)}" for key, value in settings.items()) or "asked"


def _text(value: Any) -> str:
    return "+".join(value) if isinstance(value, tuple | list) else str(value)
