"""A grid of experiments, rows by columns, some at a time.

A killed grid goes on where it was, and a failed experiment is reported with its reason.
"""

import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gpo.atomic_files import write_text
from gpo_bench.columns import COLUMNS
from gpo_bench.experiment import Experiment, ExperimentError, Outcome


@dataclass
class ExperimentGrid:
    """Experiments and what became of them."""

    root: Path
    """The folder of all experiments."""
    rules: str
    """What every experiment is given, in words."""
    outcomes: dict[tuple[str, str], list[Outcome]] = field(default_factory=dict)
    """By row and column, one per seed."""
    failures: dict[tuple[str, str], str] = field(default_factory=dict)
    """By row and column, the reason."""
    other_rules: dict[tuple[str, str], str] = field(default_factory=dict)
    """By row and column, the rules of those that were taken from an earlier grid with others."""

    def run(
        self,
        experiments: Sequence[Experiment],
        *,
        jobs: int = 1,
        on_done: Callable[[Experiment, str], None] = lambda experiment, message: None,
    ) -> None:
        """Makes all experiments that are not made yet.

        Args:
            experiments: What to make.
            jobs: How many at a time; they share the cores.
            on_done: Called after each experiment with a line about it.
        """
        threads = max(1, (os.cpu_count() or 1) // jobs)
        with ThreadPoolExecutor(jobs) as pool:
            waiting = {
                pool.submit(experiment.make, self.root, threads): experiment
                for experiment in experiments
            }
            try:
                for future in as_completed(waiting):
                    experiment = waiting[future]
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

    def save(self, path: Path) -> None:
        """Writes every outcome and every failure, from which the tables can be made again."""

        def place(key: tuple[str, str]) -> dict[str, Any]:
            rules = self.other_rules.get(key, self._rules_in(key[1]))
            return {"row": key[0], "column": key[1], "rules": rules}

        stored = {
            "outcomes": [
                {**place(key), "seeds": [asdict(outcome) for outcome in outcomes]}
                for key, outcomes in sorted(self.outcomes.items())
            ],
            "failures": [
                {**place(key), "reason": reason} for key, reason in sorted(self.failures.items())
            ],
        }
        write_text(path, json.dumps(stored, indent=2) + "\n")

    def take_earlier(self, path: Path) -> None:
        """Takes what `save` wrote for rows and columns that were not made now.

        So a grid can be made in several sittings; what was made under other rules stays marked.
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
                f"{path}: must be experiments of gpo bench table1, got {error!r}."
            ) from error
        made = {*self.outcomes, *self.failures}
        for ours, theirs in ((self.outcomes, outcomes), (self.failures, failures)):
            new = {key: value for key, value in theirs.items() if key not in made}
            ours |= new
            is_other = {key: rules[key] != self._rules_in(key[1]) for key in new}
            self.other_rules |= {key: rules[key] for key in new if is_other[key]}

    def _rules_in(self, column: str) -> str:
        """Returns what every experiment of a column is given, in words."""
        also = COLUMNS[column].rules
        return f"{self.rules}; {also}" if also else self.rules


def _key(entry: dict[str, Any]) -> tuple[str, str]:
    return entry["row"], entry["column"]
