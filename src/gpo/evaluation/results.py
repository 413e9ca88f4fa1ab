"""All numbers of an evaluation, as `results.json` and `results.csv`."""

import csv
import io
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from gpo.atomic_files import write_text
from gpo.settings_files import read_json

Scope = Literal["all", "one-step"]
"""What is scored: everything, or one step alone, which is quick."""


COLUMNS = {"relative_l2": "relative L2", "rmse": "RMSE", "rmse_over_std": "RMSE / std"}
"""Titles of the errors of a variable."""


FLATTERING = (
    "The best epoch and the settings were chosen on validation data, which flatters the model."
)
"""What a verdict on validation data is worth."""


@dataclass(frozen=True)
class Results:
    """The numbers behind every figure of a report. Errors are in the units of the data."""

    num_examples: int
    """Test examples scored."""
    one_step: dict[str, dict[str, float]]
    """Errors by name, of the model and of references: persistence and climatology for time
    series, the mean output of the training split for static maps."""
    per_variable: dict[str, dict[str, float]]
    """Relative L2 of every variable alone, likewise."""
    verdict: str = ""
    """What the scores say, in one sentence."""
    comparisons: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By reference: `ratio` of the model's error to its own, both in standard deviations of the
    training data, the `interval` of the ratio at 95 %, and the `outcome`: better, worse, tied or
    unproven."""
    validation: dict[str, Any] = field(default_factory=dict)
    """The same on validation data, `num_examples`, `comparisons` and `verdict`, where best epoch and
    settings were chosen, so that it flatters; empty where other data or one step alone were scored."""
    reasons: dict[str, str] = field(default_factory=dict)
    """By reference that is not beaten on test or validation data: why not, in one sentence."""
    variables: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    """By variable and who: `relative_l2`; `rmse` in the units of the variable; `rmse_over_std`, in
    standard deviations of the training data; of the model also `skill_PERSISTENCE` and so on, one
    minus the ratio of its root mean square error to that of a reference."""
    units: dict[str, str] = field(default_factory=dict)
    """Units of every variable."""
    num_unknown: int = 0
    """Test examples of which every site is missing; they are not scored."""
    rollout: dict[str, list[float | None]] = field(default_factory=dict)
    """Relative L2 after every step, likewise; null once a forecast is not finite."""
    num_rollouts: int = 0
    lost_after: dict[str, int] = field(default_factory=dict)
    """By reference that a rollout loses to on the mean: the last step at which it does not."""
    diverged_at: list[int] = field(default_factory=list)
    """The first step of every rollout whose error exceeded five times the largest of references."""
    spectrum: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By variable: the `quantity`, variance or kinetic energy, by wave number or degree, of truth and
    model, after one step and at the end of the rollout, and the error in bins; or the reason why
    there is none."""
    resolution: dict[str, dict[str, float | str]] = field(default_factory=dict)
    """Relative L2 on coarser and finer grids and on a random part of the sites, or the reason why
    there is none."""
    between_sites: dict[str, float | str] = field(default_factory=dict)
    """Relative L2 at sites that the model was not given, or the reason why there is none."""
    model: dict[str, Any] = field(default_factory=dict)
    """What was scored: its name and number of parameters."""
    scope: Scope = "all"

    def save(self, folder: Path) -> None:
        """Writes `results.csv`, one number per line, and `results.json`, which says that all is there."""
        table = io.StringIO()
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow(("part", "who", "what", "value"))
        writer.writerows(self._rows())
        write_text(folder / "results.csv", table.getvalue())
        text = json.dumps(_without_nan(asdict(self)), indent=2, allow_nan=False)
        write_text(folder / "results.json", text + "\n")

    def _rows(self) -> Iterator[tuple[str, str, str | int, float | str | None]]:
        for part in ("one_step", "per_variable", "resolution"):
            for who, scores in getattr(self, part).items():
                yield from ((part, who, what, value) for what, value in scores.items())
        yield "verdict", "model", "sentence", self.verdict
        if self.validation:
            yield "verdict on validation data", "model", "sentence", self.validation["verdict"]
        yield from (("reason", who, "sentence", reason) for who, reason in self.reasons.items())
        for name, scores in self.variables.items():
            for who, numbers in scores.items():
                part = f"variable {name}"
                yield from ((part, who, what, value) for what, value in numbers.items())
        for who, errors in self.rollout.items():
            yield from (("rollout", who, step, error) for step, error in enumerate(errors, 1))
        yield from (("diverged_at", "model", n, step) for n, step in enumerate(self.diverged_at))
        yield from (
            ("between_sites", who, "relative_l2", v) for who, v in self.between_sites.items()
        )
        for variable, parts in self.spectrum.items():
            for name, content in parts.items():
                part = f"spectrum of {variable}"
                if isinstance(content, dict):
                    yield from ((part, name, what, value) for what, value in content.items())
                elif isinstance(content, list) and name != "wavenumbers":
                    numbers = zip(parts["wavenumbers"], content, strict=True)
                    yield from ((part, name, number, value) for number, value in numbers)

    def comparison_rows(self) -> dict[str, dict[str, float | str]]:
        """Returns a row for every split and reference: ratio, interval and outcome."""
        splits = {"test": self.comparisons, "validation": self.validation.get("comparisons", {})}
        rows: dict[str, dict[str, float | str]] = {}
        for split, comparisons in splits.items():
            for reference, found in comparisons.items():
                # A reference without error has no ratio that JSON could say.
                ends = [math.inf if end is None else end for end in found["interval"] or ()]
                told = " to ".join(shown_number(end) for end in ends) or "too few examples"
                ratio = math.inf if found["ratio"] is None else found["ratio"]
                row = {"ratio": ratio, "95 % interval": told, "outcome": found["outcome"]}
                rows[f"{split}, {reference}"] = row
        return rows

    @classmethod
    def load(cls, path: Path) -> "Results":
        """Reads the JSON file that `save` wrote."""
        try:
            stored = read_json(path)
            for part in ("one_step", "per_variable", "variables", "resolution", "between_sites"):
                stored[part] = _with_nan(stored.get(part, {}))
            return cls(**stored)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{path}: must be results that gpo evaluate wrote, got {error}"
            ) from error


def shown_number(value: float) -> str:
    """Returns a score as it is printed; says of one that is not finite that it is not."""
    return f"{value:.4g}" if math.isfinite(value) else "not finite"


def told_divergence(results: Results) -> str:
    """Returns in words how many rollouts diverged."""
    count, first = len(results.diverged_at), min(results.diverged_at)
    return (
        f"{count} of {results.num_rollouts} rollouts diverged, the first at step {first}: their "
        "error exceeds five times the largest of persistence and climatology"
    )


def _without_nan(content: Any) -> Any:
    """Returns the same with null for what is not finite, which JSON cannot say."""
    if isinstance(content, dict):
        return {name: _without_nan(part) for name, part in content.items()}
    if isinstance(content, list | tuple):
        return [_without_nan(part) for part in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def _with_nan(content: Any) -> Any:
    """Returns scores with NaN for null."""
    if isinstance(content, dict):
        return {name: _with_nan(part) for name, part in content.items()}
    return math.nan if content is None else content
