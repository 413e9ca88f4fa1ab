"""The numbers of an evaluation, and their files `results.json` and `results.csv`."""

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
"""What is scored: everything, or one step only, which is quick."""
COLUMNS = {
    "relative_l2": "relative L2",
    "rmse": "RMSE",
    "rmse_over_std": "RMSE / std",
    "bias": "bias",
    "anomaly_correlation": "anomaly correlation",
}
"""Column titles of the errors of a variable."""
VALIDATION_CAVEAT = "The best epoch and the settings were chosen on validation data, so scores there are optimistic."
"""Caveat that follows each score on validation data."""


@dataclass(frozen=True)
class Results:
    """All numbers of an evaluation. Errors are in the units of the data.

    A forecast is `"blend"`, what `gpo predict` writes, where the model is combined with references;
    `"model"`, the model alone; or the name of a registered reference. Verdicts and comparisons are those
    of the blend, where there is one.
    """

    num_examples: int
    """Number of test examples that were scored."""
    one_step: dict[str, dict[str, float]]
    """Mean of each metric, by forecast."""
    per_variable: dict[str, dict[str, float]]
    """Relative L2 by forecast and variable."""
    verdict: str = ""
    """The verdict, in one sentence."""
    comparisons: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By reference: `ratio` of the model's error to that of the reference, both in standard deviations
    of the training data, its 95 % `interval`, and the `outcome`: better, worse, tied or unproven."""
    comparisons_alone: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The same for the model alone, where forecasts are a blend."""
    blend: str = ""
    """What forecasts are made of, in one sentence; empty for the model alone."""
    validation: dict[str, Any] = field(default_factory=dict)
    """`num_examples`, `comparisons` and `verdict` on validation data, which are optimistic, because the
    best epoch and the settings were chosen there. Empty for other data and for one step only."""
    reasons: dict[str, str] = field(default_factory=dict)
    """By reference that is not beaten on test or validation data: the likely reason, in one sentence."""
    variables: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    """By variable and forecast: `relative_l2`; `rmse` in the units of the variable; `rmse_over_std`, in
    standard deviations of the training data; for the model also `skill_REFERENCE`: one minus the ratio
    of its root mean square error to that of the reference."""
    units: dict[str, str] = field(default_factory=dict)
    """Units of each variable."""
    num_unknown: int = 0
    """Number of test examples without any value, which are not scored."""
    rollout: dict[str, list[float | None]] = field(default_factory=dict)
    """Mean relative L2 after each step, by forecast; null once a forecast is not finite."""
    num_rollouts: int = 0
    lost_after: dict[str, int] = field(default_factory=dict)
    """By reference that beats the rollouts at the last step: the last step at which it does not."""
    diverged_at: list[int] = field(default_factory=list)
    """First step, of each diverged rollout, with an error above five times the largest of a reference."""
    spectrum: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By variable: the `quantity`, variance or kinetic energy, by wave number or degree, of truth and
    model, after one step and at the end of the rollout, and the `errors` by scale; or the `reason` why
    there is none."""
    resolution: dict[str, dict[str, float | str]] = field(default_factory=dict)
    """Relative L2 on coarser and finer grids and on a random subset of the sites, or the `reason` why
    there is none."""
    between_sites: dict[str, float | str] = field(default_factory=dict)
    """Relative L2 at withheld sites, or the `reason` why there is none."""
    model: dict[str, Any] = field(default_factory=dict)
    """Name and number of parameters of the model."""
    scope: Scope = "all"

    @property
    def written(self) -> str:
        """Name of the forecast that is written."""
        return "blend" if "blend" in self.one_step else "model"

    @property
    def labels(self) -> dict[str, str]:
        """Labels of the forecasts of one step, the one that is written first.

        Where the model has all weight, the forecast that is written is that of the model.
        """
        written = self.one_step[self.written]
        own = {"blend": "blend", "model": "model alone" if self.written == "blend" else "model"}
        if self.written == "blend" and written == self.one_step["model"]:
            own = {"blend": "model"}
        references = [name for name in self.one_step if name not in ("blend", "model")]
        return {name: own[name] for name in own if name in self.one_step} | dict(
            zip(references, references, strict=True)
        )

    def save(self, folder: Path) -> None:
        """Writes `results.csv`, one number per line, and then `results.json`, which marks completion."""
        table = io.StringIO()
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow(("part", "who", "what", "value"))
        writer.writerows(self._rows())
        write_text(folder / "results.csv", table.getvalue())
        text = json.dumps(_without_nan(asdict(self)), indent=2, allow_nan=False)
        write_text(folder / "results.json", text + "\n")

    def _rows(self) -> Iterator[tuple[str, str, str | int, float | str | None]]:
        for part in ("one_step", "per_variable", "resolution"):
            for name, scores in getattr(self, part).items():
                yield from ((part, name, key, value) for key, value in scores.items())
        yield "verdict", self.written, "sentence", self.verdict
        if self.blend:
            yield "blend", "blend", "sentence", self.blend
        if self.validation:
            yield "verdict on validation data", self.written, "sentence", self.validation["verdict"]
        yield from (("reason", name, "sentence", reason) for name, reason in self.reasons.items())
        for variable, scores in self.variables.items():
            for name, numbers in scores.items():
                part = f"variable {variable}"
                yield from ((part, name, key, value) for key, value in numbers.items())
        for name, errors in self.rollout.items():
            yield from (("rollout", name, step, error) for step, error in enumerate(errors, 1))
        yield from (
            ("diverged_at", self.written, n, step) for n, step in enumerate(self.diverged_at)
        )
        for name, error in self.between_sites.items():
            yield "between_sites", name, "relative_l2", error
        for variable, parts in self.spectrum.items():
            for name, content in parts.items():
                part = f"spectrum of {variable}"
                if isinstance(content, dict):
                    yield from ((part, name, key, value) for key, value in content.items())
                elif isinstance(content, list) and name != "wavenumbers":
                    numbers = zip(parts["wavenumbers"], content, strict=True)
                    yield from ((part, name, number, value) for number, value in numbers)

    def comparison_rows(self) -> dict[str, dict[str, float | str]]:
        """Returns ratio, interval and outcome for each split and reference."""
        splits = {
            "test": self.comparisons,
            "test, model alone": self.comparisons_alone,
            "validation": self.validation.get("comparisons", {}),
        }
        rows: dict[str, dict[str, float | str]] = {}
        for split, comparisons in splits.items():
            for reference, entry in comparisons.items():
                # JSON stores infinity, the ratio to a reference without error, as null.
                ends = [math.inf if end is None else end for end in entry["interval"] or ()]
                interval = " to ".join(format_score(end) for end in ends) or "too few examples"
                ratio = math.inf if entry["ratio"] is None else entry["ratio"]
                row = {"ratio": ratio, "95 % interval": interval, "outcome": entry["outcome"]}
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
                f"{path}: must be results that gpo evaluate wrote, got {str(error).rstrip('.')}. "
                f"Write them again: gpo evaluate {path.parent}"
            ) from error


def format_score(value: float, digits: int = 4) -> str:
    """Returns a score as text with so many digits, or "not finite"."""
    return f"{value:.{digits}g}" if math.isfinite(value) else "not finite"


def divergence_message(results: Results) -> str:
    """Returns a sentence on the number of rollouts that diverged."""
    count, first = len(results.diverged_at), min(results.diverged_at)
    return (
        f"{count} of {results.num_rollouts} rollouts diverged, the first at step {first}: their "
        "error exceeds five times the largest error of a reference"
    )


def _without_nan(content: Any) -> Any:
    """Returns the content with None in place of numbers that are not finite, which JSON cannot hold."""
    if isinstance(content, dict):
        return {name: _without_nan(part) for name, part in content.items()}
    if isinstance(content, list | tuple):
        return [_without_nan(part) for part in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def _with_nan(content: Any) -> Any:
    """Returns scores with NaN in place of None."""
    if isinstance(content, dict):
        return {name: _with_nan(part) for name, part in content.items()}
    return math.nan if content is None else content
