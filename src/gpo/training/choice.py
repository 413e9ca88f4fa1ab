"""Choosing for the user: short runs on validation data, before the budget goes into the best one.

History comes first, since nothing else changes a forecast as much. Then one setting at a time is
changed, and what is better by a margin goes together. The best change and the settings without it go
on for as long again, and the change is taken where it is still better by the margin. A short run is a
run folder like any other: it resumes, goes on with more budget, and the chosen one becomes the run.
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
from gpo.data.dataset import StaticMaps, Trajectories
from gpo.forecast.examples import make_examples
from gpo.numerics.norms import relative_l2
from gpo.settings_files import check_fields, read_json
from gpo.training.config import RunConfig
from gpo.training.fit import train
from gpo.training.run_folder import CHOICE_FOLDER, LIMITS, Run
from gpo.training.setup import split_of

FRACTION = 1 / 3
"""The part of a budget of CPU seconds that may go into choosing."""
USUAL_SECONDS = 60.0
"""CPU seconds for choosing, where the budget has no limit in seconds."""
LEAST = 20.0
"""CPU seconds of a budget below which nothing is chosen."""
NUM_UNITS = 9
"""Short runs of equal length that the time is divided into."""
PATIENCE = 3.0
"""CPU seconds of all that choosing does, for every second of training in it, before it ends."""
FEW_STEPS = 25
"""Steps of a short run that tell one history from another, and nothing finer."""
MANY_STEPS = 150
"""Steps of a short run after which a wider model can show what it is worth."""
SMALLER = 4
"""By how much batches are smaller where a short run makes few steps."""
MARGIN = 0.9
"""A change is taken where the score is below this fraction of the one without: scores of short runs
are noisy, and noise on inputs, say, steadies rollouts that one step does not show."""
FILE_NAME = "auto.json"


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A short run: what it changed and what came out."""

    settings: dict
    """What differs from the run as it was asked for."""
    score: float | None
    """Relative L2 on validation data; None where no epoch ended well."""
    steps: int
    cpu_seconds: float

    @property
    def error(self) -> float:
        """The score, infinite where there is none."""
        return math.inf if self.score is None else self.score


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What was tried and taken: `auto.json`."""

    asked: dict
    """Settings before anything was chosen, without limits."""
    settings: dict
    """What was chosen, where it differs."""
    trials: list
    cpu_seconds: float
    """Of training, for all that was not chosen."""
    reference: str = ""
    """What learns nothing: persistence, where there is a next frame."""
    reference_score: float | None = None

    def save(self, folder: Path) -> None:
        """Writes the choice into a run folder."""
        write_text(folder / FILE_NAME, json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def load(cls, folder: Path) -> "Choice | None":
        """Returns the choice of a run folder, None where nothing was chosen."""
        path = folder / FILE_NAME
        if not path.exists():
            return None
        stored = read_json(path)
        try:
            trials = [Trial(**trial) for trial in stored.pop("trials")]
            return cls(**check_fields(cls, stored, str(path)), trials=trials)
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path}: must be what gpo run wrote, got {error}.") from error

    def applied(self, config: RunConfig) -> RunConfig:
        """Returns a configuration with what was chosen, less the seconds that choosing took."""
        changed = config.changed(**self.settings)
        seconds = config.budget.budget_cpu
        if seconds is None:
            return changed
        return changed.changed(budget_cpu=max(1.0, seconds - self.cpu_seconds))

    def rows(self) -> dict[str, dict[str, float]]:
        """Returns the table of what was tried, best last."""
        rows: dict[str, dict[str, float]] = {}
        if self.reference_score is not None:
            rows[self.reference] = {"validation": self.reference_score}
        for trial in sorted(self.trials, key=lambda trial: -trial.error):
            chosen = " (chosen)" if trial.settings == self.settings else ""
            name = ", ".join(f"{key} {value}" for key, value in trial.settings.items())
            rows[(name or "as asked") + chosen] = {
                **({} if trial.score is None else {"validation": trial.score}),
                "steps": float(trial.steps),
                "CPU seconds": trial.cpu_seconds,
            }
        return rows

    def verdict(self, score: float | None) -> str:
        """Returns a sentence where a model is no better than what learns nothing, else nothing."""
        if self.reference_score is None or (score is not None and score < self.reference_score):
            return ""
        reached = "no score" if score is None else f"{score:.4g}"
        return (
            f"not better than {self.reference} on validation data: {reached} against "
            f"{self.reference_score:.4g}. A larger --budget-cpu or another --lead may help."
        )


def asked_settings(config: RunConfig) -> dict[str, Any]:
    """Returns the settings that a choice was made for, as JSON keeps them."""
    flat = {name: pair[0] for name, pair in config.differences(RunConfig()).items()}
    plain = {name: value for name, value in flat.items() if name not in LIMITS}
    return json.loads(json.dumps(plain, default=str))


def preferred(trials: Sequence[Trial]) -> Trial:
    """Returns the first trial, or the best of those that are better by more than noise.

    One goes before another only where its error is below `MARGIN` of that one's.

    Args:
        trials: Of the same length, those that change less before those that change more.
    """
    taken = trials[0]
    for trial in trials[1:]:
        if trial.error < MARGIN * taken.error:
            taken = trial
    return taken


class Search:
    """Short runs within a run folder, one after the other.

    Args:
        data: What to learn from.
        config: The run as it was asked for.
        given: Names of settings that the user set, which stay.
        run: The run folder.
    """

    def __init__(
        self,
        data: Trajectories | StaticMaps,
        config: RunConfig,
        given: frozenset[str],
        run: Run,
    ) -> None:
        self.data, self.config, self.given, self.run = data, config, given, run
        budget = config.budget.budget_cpu
        self.seconds = USUAL_SECONDS if budget is None else FRACTION * budget
        self._started = process_time()
        self._trials: dict[str, Trial] = {}

    def choose(self) -> Choice:
        """Tries settings within the time, and returns what to train with."""
        unit = self.seconds / NUM_UNITS
        histories = self._histories()
        tried = self._try_all(histories, unit)
        best = preferred(tried)
        if best.steps < FEW_STEPS:
            # Longer runs in place of more of them, and more steps in the same time.
            share, batches = self.seconds / len(tried), self._smaller_batches()
            longer = self._try_all([{**trial.settings, **batches} for trial in tried], share)
            # Few steps may be the best, where they are added to a trend. What was trained for
            # longer needs no margin: it goes on from there.
            return self._choice(min(preferred(longer), best, key=lambda trial: trial.error))
        changes = [{**best.settings, **change} for change in self._changes(best.steps)]
        changed = self._try_all(changes, unit)
        better = [trial for trial in changed if trial.error < MARGIN * best.error]
        if not better:
            return self._choice(best)
        better.sort(key=lambda trial: trial.error)
        if len(better) > 1:
            together: dict[str, Any] = {}
            # The best one has the last word about a setting that two of them change.
            for trial in reversed(better):
                together |= trial.settings
            better.append(self._try(together, unit))
        finalists = [best.settings, preferred(better).settings]
        return self._choice(preferred(self._try_all(finalists, 2 * unit)))

    def _histories(self) -> list[dict[str, Any]]:
        """Returns the histories to try, those that the series is long enough for."""
        if "history" in self.given or isinstance(self.data, StaticMaps):
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
        is_given = "batch_size" in self.given or size < SMALLER
        return {} if is_given else {"batch_size": size // SMALLER}

    def _changes(self, steps: int) -> list[dict[str, Any]]:
        """Returns changes of one setting, most promising first, without those that the user set."""
        rate, is_map = self.config.learning_rate, isinstance(self.data, StaticMaps)
        changes: list[dict[str, Any]] = [{"learning_rate": float(f"{rate / 3:.3g}")}]
        if is_map:
            changes.append({"learning_rate": float(f"{rate / 10:.3g}")})
        else:
            changes += [{"relative_to": "change"}, {"noise": 0.0}]
        sizes = self.config.model.config
        if steps >= MANY_STEPS and hasattr(sizes, "hidden_dim"):
            changes.append({"hidden_dim": 2 * sizes.hidden_dim})
        return [change for change in changes if not change.keys() & self.given]

    def _try_all(self, candidates: list[dict[str, Any]], seconds: float) -> list[Trial]:
        """Returns short runs, as many as there is time for, which large data may take to read."""
        trials: list[Trial] = []
        for settings in candidates:
            if not trials or process_time() - self._started < PATIENCE * self.seconds:
                trials.append(self._try(settings, seconds))
        return trials

    def _try(self, settings: dict[str, Any], seconds: float) -> Trial:
        """Returns a short run of so many CPU seconds; one that was made before goes on."""
        name = "-".join(f"{key}-{value}" for key, value in settings.items()) or "asked"
        config = self.config.changed(**settings, budget_cpu=seconds)
        if config.optimizer.learning_rate is None:
            # No range test within a test.
            config = config.changed(learning_rate=config.learning_rate)
        run = Run(self.run.folder / CHOICE_FOLDER / name)
        try:
            # What happens on the way is nothing to tell of: the table says what came out.
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
            # It diverged again and again, or these data cannot be had so.
            if not settings:
                raise
            trial = Trial(settings=settings, score=None, steps=0, cpu_seconds=seconds)
        self._trials[name] = trial
        return trial

    def _choice(self, best: Trial) -> Choice:
        trials = list(self._trials.values())
        reference = persistence_score(self.data, self.config.changed(**best.settings))
        return Choice(
            asked=asked_settings(self.config),
            settings=best.settings,
            trials=trials,
            cpu_seconds=sum(t.cpu_seconds for t in trials) - best.cpu_seconds,
            reference="" if reference is None else "persistence",
            reference_score=reference,
        )


def take_over(run: Run, choice: Choice) -> None:
    """Makes the best short run the beginning of the run itself, and drops the others."""
    name = "-".join(f"{key}-{value}" for key, value in choice.settings.items()) or "asked"
    best = run.folder / CHOICE_FOLDER / name
    for part in ("checkpoints", "log"):
        if (best / part).exists() and not (run.folder / part).exists():
            shutil.move(best / part, run.folder / part)
    shutil.rmtree(run.folder / CHOICE_FOLDER, ignore_errors=True)


def persistence_score(data: Trajectories | StaticMaps, config: RunConfig) -> float | None:
    """Returns the relative L2 of the last frame as a forecast on validation data; None for maps."""
    if isinstance(data, StaticMaps):
        return None
    examples = make_examples(data, split_of(data, config).validation)
    scores = []
    for number in range(len(examples)):
        example = examples[number]
        last = example.fields[:, -1]
        scores.append(relative_l2(last, example.target, example.weights))
    return float(torch.stack(scores).mean())
