"""All numbers of an evaluation, as `results.json` and `results.csv`."""

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from gpo.files import write_text

Scope = Literal["all", "one-step"]
"""What is scored: everything, or one step alone, which is quick."""


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
    rollout: dict[str, list[float | None]] = field(default_factory=dict)
    """Relative L2 after every step, likewise; null once a forecast is not finite."""
    num_rollouts: int = 0
    diverged_at: list[int] = field(default_factory=list)
    """The first step of every rollout whose error exceeded ten times the norm of the truth."""
    spectrum: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By variable: energy by wave number of truth and model, after one step and at the end of
    the rollout, and the error in bins; or the reason why there is none."""
    resolution: dict[str, dict[str, float | str]] = field(default_factory=dict)
    """Relative L2 on coarser and finer grids and on a random part of the sites, or the reason why
    there is none."""
    between_sites: dict[str, float | str] = field(default_factory=dict)
    """Relative L2 at sites that the model was not given, or the reason why there is none."""
    model: dict[str, Any] = field(default_factory=dict)
    """What was scored: its name and number of parameters."""
    scope: Scope = "all"

    def save(self, folder: Path) -> None:
        """Writes `results.json` and, one number per line, `results.csv`."""
        write_text(folder / "results.json", json.dumps(asdict(self), indent=2) + "\n")
        table = io.StringIO()
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow(("part", "who", "what", "value"))
        writer.writerows(self._rows())
        write_text(folder / "results.csv", table.getvalue())

    def _rows(self) -> Iterator[tuple[str, str, str | int, float | str | None]]:
        for part in ("one_step", "per_variable", "resolution"):
            for who, scores in getattr(self, part).items():
                yield from ((part, who, what, value) for what, value in scores.items())
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

    @classmethod
    def load(cls, path: Path) -> "Results":
        """Reads the JSON file that `save` wrote."""
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{path}: must be results that gpo evaluate wrote, got {error}"
            ) from error
