"""A grid of experiments: rows by columns, several at a time.

An interrupted grid resumes, and failed experiments are recorded with their reason.
"""

import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gpo.atomic_files import write_text
from gpo_bench.columns import COLUMNS
from gpo_bench.experiment import Experiment, ExperimentError, Outcome
from gpo_bench.table import Entry


@dataclass
class ExperimentGrid:
    """The outcomes and failures of experiments, by row and column."""

    root: Path
    """Folder of all experiments."""
    rules: str
    """Description of the protocol."""
    outcomes: dict[tuple[str, str], list[Outcome]] = field(default_factory=dict)
    """Outcomes of all seeds."""
    failures: dict[tuple[str, str], str] = field(default_factory=dict)
    """Reasons of failures."""
    other_rules: dict[tuple[str, str], str] = field(default_factory=dict)
    """Protocols of entries from an earlier grid with a different protocol."""

    def run(
        self,
        experiments: Sequence[Experiment],
        *,
        jobs: int = 1,
        on_done: Callable[[Experiment, str], None] = lambda experiment, message: None,
    ) -> None:
        """Runs all experiments that are not finished.

        Args:
            experiments: The experiments.
            jobs: Number of experiments at a time, which share the cores.
            on_done: Called with each experiment and a message when it has ended.
        """
        threads = max(1, (os.cpu_count() or 1) // jobs)
        with ThreadPoolExecutor(jobs) as pool:
            futures = {
                pool.submit(experiment.execute, self.root, threads): experiment
                for experiment in experiments
            }
            try:
                for future in as_completed(futures):
                    experiment = futures[future]
                    key = (experiment.row, experiment.column)
                    try:
                        outcome = future.result()
                    except ExperimentError as error:
                        self.failures[key] = str(error)
                        on_done(experiment, f"failed: {error}")
                    else:
                        self.outcomes.setdefault(key, []).append(outcome)
                        on_done(
                            experiment, f"{outcome.relative_l2:.4g} after {outcome.steps} steps"
                        )
            except KeyboardInterrupt:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def error(self, row: str, column: str) -> Entry:
        """Returns mean and standard deviation of relative L2 over seeds, or why there are none."""
        outcomes = self.outcomes.get((row, column))
        if not outcomes:
            return Entry(note=self.failures.get((row, column), "not run"))
        errors = [outcome.relative_l2 for outcome in outcomes]
        spread = float(np.std(errors, ddof=1)) if len(errors) > 1 else None
        return Entry(float(np.mean(errors)), spread)

    def mean_steps(self, row: str, column: str) -> int | None:
        """Returns the mean number of optimizer steps over seeds; None without outcomes."""
        outcomes = self.outcomes.get((row, column))
        return int(np.mean([outcome.steps for outcome in outcomes])) if outcomes else None

    def optimizers(self) -> str:
        """Returns a note on the optimizers that were selected."""
        rows: dict[str, list[str]] = {}
        for (row, column), outcomes in sorted(self.outcomes.items()):
            # All seeds share the choice.
            if outcomes[0].optimizer == "muon":
                rows.setdefault(column, []).append(row)
        if not rows:
            return "All entries have AdamW."
        muon = "; ".join(f"{column} {', '.join(names)}" for column, names in rows.items())
        return f"Entries with Muon, which was better on validation data: {muon}. All others have AdamW."

    def in_column(self, column: str) -> list[Outcome]:
        """Returns the first outcome of each row in a column."""
        return [outcomes[0] for (_, name), outcomes in self.outcomes.items() if name == column]

    def reference(self, name: str, column: str) -> float | None:
        """Returns the relative L2 of a reference forecast; None if no outcome contains it."""
        errors = [outcome.references.get(name) for outcome in self.in_column(column)]
        return next((error for error in errors if error is not None), None)

    def save(self, path: Path) -> None:
        """Writes all outcomes and failures to a JSON file."""

        def header(key: tuple[str, str]) -> dict[str, Any]:
            rules = self.other_rules.get(key, self._rules_in(key[1]))
            return {"row": key[0], "column": key[1], "rules": rules}

        stored = {
            "outcomes": [
                {**header(key), "seeds": [asdict(outcome) for outcome in outcomes]}
                for key, outcomes in sorted(self.outcomes.items())
            ],
            "failures": [
                {**header(key), "reason": reason} for key, reason in sorted(self.failures.items())
            ],
        }
        write_text(path, json.dumps(stored, indent=2) + "\n")

    def take_earlier(self, path: Path) -> None:
        """Adds entries of an earlier grid, written by `save`, that this grid does not have.

        A table can thus be computed in several sessions. Entries with a different protocol are
        listed in `other_rules`.
        """
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            rules = {
                _key(entry): entry["rules"] for entry in (*stored["outcomes"], *stored["failures"])
            }
            outcomes = {
                _key(entry): [Outcome(**seed) for seed in entry["seeds"]]
                for entry in stored["outcomes"]
            }
            failures = {_key(entry): entry["reason"] for entry in stored["failures"]}
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{path}: must be an experiments.json of gpo bench table1, got {error!r}."
            ) from error
        existing = {*self.outcomes, *self.failures}
        self.outcomes |= {key: item for key, item in outcomes.items() if key not in existing}
        self.failures |= {key: item for key, item in failures.items() if key not in existing}
        self.other_rules |= {
            key: text
            for key, text in rules.items()
            if key not in existing and text != self._rules_in(key[1])
        }

    def _rules_in(self, column: str) -> str:
        """Returns the description of the protocol and of the settings of a column."""
        settings = COLUMNS[column].rules
        return f"{self.rules}; {settings}" if settings else self.rules


def _key(entry: dict[str, Any]) -> tuple[str, str]:
    return entry["row"], entry["column"]
