"""The numbers of `gpo interpret`: `interpret.json`, and a summary of it."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from gpo.atomic_files import write_text
from gpo.inspect.tracers import Tracers
from gpo.settings_files import read_json

FILE_NAME = "interpret.json"
TRACER_FILES = ("tracers.nc", "tracers.vtp")
Row = tuple[str, str, str]
"""A quantity, its value, and a reference to compare it with."""
CONTROLS = {
    "still": "zero displacement",
    "constant": "mean displacement everywhere",
    "site_mean": "mean displacement of every site",
    "other_example": "displacements of another example",
    "permuted": "displacements exchanged within a site",
    "at_floor": "scales at their floor",
    "initial_scales": "scales before training",
    "one_scale": "one scale per layer",
    "other_scales": "other model's scales",
    "no_change": "no change",
}
"""What replaces the model's own displacements or scales."""


@dataclass(frozen=True)
class Interpretation:
    """The interpretation of a trained gpo; docs/interpret.md explains every key."""

    variant: str
    """`geometric` or `paper`."""
    num_examples: int
    """Number of test examples."""
    structures: dict[str, Any]
    """Correlations of particles with structures of the field."""
    windows: dict[str, Any]
    """Energies of waves, or statistics of content windows."""
    ablations: dict[str, Any]
    """Changes when components are switched off."""
    stability: dict[str, Any] = field(default_factory=dict)
    """Changes on other data, at half resolution, and with another seed."""
    motion: dict[str, Any] = field(default_factory=dict)
    """Displacements of particles, and the attribution of the predicted change."""
    tracers: Tracers | None = field(default=None, compare=False)
    """Trajectories of tracers, saved in files of their own."""

    def save(self, folder: Path) -> Path:
        """Writes `interpret.json`, with null for non-finite numbers, and tracers if there are any."""
        path = folder / FILE_NAME
        parts = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "tracers"}
        write_text(path, json.dumps(_finite(parts), indent=1, allow_nan=False) + "\n")
        for name in TRACER_FILES:
            (folder / name).unlink(missing_ok=True)
        if self.tracers is not None:
            self.tracers.save(folder / TRACER_FILES[0], length_units=self._length_units)
            self.tracers.export(folder / TRACER_FILES[1])
        return path

    @property
    def _length_units(self) -> str:
        """Units of displacements for the files of tracers."""
        units = self.motion.get("displacement_units", "")
        return "1" if units in ("", "radii") else units

    @classmethod
    def load(cls, path: Path) -> "Interpretation":
        """Reads a file that `save` wrote."""
        try:
            return cls(**read_json(path))
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{path}: must be a file of gpo interpret, got {error}. Write it again: gpo "
                f"interpret {path.parent}"
            ) from error

    def summary(self) -> list[Row]:
        """Returns the most important numbers, one row each."""
        return [
            *_structure_rows(self.structures),
            *_motion_rows(self.motion),
            *_window_rows(self.windows),
            *_ablation_rows(self.ablations),
            *_stability_rows(self.stability),
        ]


def _structure_rows(part: Mapping[str, Any]) -> Iterator[Row]:
    if "reason" in part:
        yield "particles", "-", part["reason"]
        return
    for particle, row in part["correlations"].items():
        for structure, entry in row.items():
            if "reason" not in entry:
                yield f"ρ of {particle} – {structure}", f"{entry['value']:+.3f}", _band(entry)
    if "reason" not in part["alignment"]:
        entry = part["alignment"]
        yield f"cos 2θ of {part['direction']}, gradient", f"{entry['value']:+.3f}", _band(entry)
    if "reason" not in part.get("along_flow", {"reason": ""}):
        entry = part["along_flow"]
        yield "cos θ of displacement, velocity", f"{entry['value']:+.3f}", _band(entry)
        if entry["other_examples"] is not None:
            control = f"{entry['other_examples']:+.3f}"
            yield "cos θ, velocity of other examples", control, "0: no fixed motion"
    if part.get("fraction_at_reach") is not None:
        yield "displacements at their reach", f"{part['fraction_at_reach']:.1%}", "0 %"
    if "basis_at_site" in part:
        yield "own basis at a site", f"{part['basis_at_site']:.2g}", "0 to 1"
    for name, fraction in part["fraction_from_field"].items():
        if fraction is not None:
            yield f"{name} due to the field", f"{fraction:.1%}", "rest: site, index"


def _motion_rows(part: Mapping[str, Any]) -> Iterator[Row]:
    if not part or "reason" in part:
        return
    for row in part["particles"]:
        name = f"particle {row['particle'] + 1} of layer {row['layer'] + 1}"
        units = part["displacement_units"]
        size = f"rms displacement {row['rms_displacement']:.3g} {units}".rstrip()
        yield f"importance of {name}", f"{row['share']:.1%}", size
        if row["velocity_correlation"] is not None:
            value = f"{row['velocity_correlation']:+.3f}"
            yield f"correlation of {name}, velocity", value, _band(row)
            if row["other_examples"] is not None:
                control = f"{row['other_examples']:+.3f}"
                yield "… velocity of other examples", control, ""
    yield from _diffusion_rows(part)
    for name, row in part["budget"]["parts"].items():
        value = "" if row["shapley"] is None else f"Shapley value {row['shapley']:.1%}"
        yield f"importance of {name}", f"{row['share']:.1%}", value
    own = part["controls"]["own"]["error"]
    for name, row in part["controls"].items():
        if name != "own" and "error" in row:
            yield f"error, {CONTROLS[name]}", f"{row['error']:.3g}", f"as it is {own:.3g}"
    tracers = part.get("tracers", {"reason": ""})
    if "reason" not in tracers:
        first, last = tracers["separation"][0], tracers["separation"][-1]
        yield (
            f"tracer error, step 1, {tracers['num_steps']}",
            f"{first:.2f}, {last:.2f}",
            "1 for tracers at rest",
        )
        if tracers["other_example"] is not None:
            first, last = tracers["other_example"][0], tracers["other_example"][-1]
            yield "… advected by another example", f"{first:.2f}, {last:.2f}", ""


def _diffusion_rows(part: Mapping[str, Any]) -> Iterator[Row]:
    """Yields the viscosity that the most important particle implies, over the true one if known."""
    diffusion = part.get("diffusion", {"reason": ""})
    if "reason" in diffusion:
        return
    best = next(
        row for row in part["particles"] if part["best"] == {key: row[key] for key in part["best"]}
    )
    length, start = (
        ", ".join(f"{number:.3g}" for number in best[name])
        for name in ("diffusion_length", "initial_diffusion_length")
    )
    name = f"particle {best['particle'] + 1} of layer {best['layer'] + 1}"
    units = part["displacement_units"]
    yield f"diffusion length of {name}", f"{length} {units}".rstrip(), f"at start {start}"
    value = f"{'≤ ' if diffusion['is_at_floor'] else ''}{diffusion['best']:.3g}"
    yield f"implied viscosity, {diffusion['units']}", value, f"at start {diffusion['initial']:.3g}"
    if diffusion["true"] is not None:
        ratios = {name: f"{ratio:.2f}" for name, ratio in diffusion["ratio"].items()}
        yield (
            f"… over the true {diffusion['true']:.3g}",
            ratios["best"],
            f"at start {ratios['initial']}",
        )


def _window_rows(part: Mapping[str, Any]) -> Iterator[Row]:
    if "reason" in part:
        yield "windows", "-", part["reason"]
    elif part["kind"] == "waves":
        modes = [layer["effective_modes"] for layer in part["layers"]]
        used, count = f"{modes[0]:.0f}, {modes[-1]:.0f}", len(part["vectors"])
        yield "waves used, first, last layer", used, f"of {count}"
        if "reason" not in part["gram"]:
            unresolved = part["gram"]["measured"]["fraction_hardly_seen"]
            yield "functions that sites do not resolve", f"{unresolved:.1%}", "0 %"
    else:
        layers = part["layers"]
        modes = np.mean([layer["effective_modes"] for layer in layers])
        extent = np.mean([layer["extent"] for layer in layers])
        smallest = np.mean([layer["gram_smallest"] for layer in layers])
        count = len(layers[0]["coverage"][0])
        yield "effective number of modes per head", f"{modes:.1f}", f"of {count}"
        yield "extent of a window", f"{extent:.2f}", "1 everywhere"
        yield "smallest singular value of the Gram matrix", f"{smallest:.2g}", "1"


def _ablation_rows(part: Mapping[str, Any]) -> Iterator[Row]:
    if "reason" in part:
        yield "ablations", "-", part["reason"]
        return
    error, particles = f"error {part['error']:.2g}", part["particles"]
    if "reason" in particles:
        yield "change without any particle", "-", particles["reason"]
    else:
        change = particles["all"]["relative_l2"]
        yield "change without any particle", f"{change:.2g}", error
    changes = [layer["relative_l2"] for layer in part["layers"]]
    yield "change without one layer", f"{min(changes):.2g}, {max(changes):.2g}", ""
    first = max(part["modes"], key=lambda mode: mode["relative_l2"])
    yield f"change without {first['name']}", f"{first['relative_l2']:.2g}", ""
    rows = [row for row in part["regions"]["effects"] if row.get("fraction_inside") is not None]
    if rows:
        inside, expected = (
            float(np.mean([row[name] for row in rows]))
            for name in ("fraction_inside", "fraction_expected")
        )
        yield "effect of a region inside it", f"{inside:.2f}", f"{expected:.2f}"
    if part["faithfulness"]["area"] is not None:
        yield "faithfulness of energy", f"{part['faithfulness']['area']:+.2f}", "0"


def _stability_rows(part: Mapping[str, Any]) -> Iterator[Row]:
    half = part.get("half_resolution", {})
    if "prediction" in half:
        yield "change at half resolution", f"{half['prediction']:.2g}", "0"
    other = part.get("other_data")
    if other:
        yield "error, other over usual data", f"{other['degradation']:.3g}", "1"
        for name, row in other["drift"].items():
            if isinstance(row, dict) and row["ratio"] is not None:
                yield f"drift of {name}, other data", f"{row['ratio']:.3g}", "1"
    for path, row in part.get("other_seeds", {}).items():
        name = Path(path).name
        if "reason" not in row["density"]:
            yield f"ρ of density, {name}", f"{row['density']['value']:+.3f}", _band(row["density"])
        for component, value in row["effects"].items():
            if isinstance(value, float):
                yield f"ρ of effects of {component}, {name}", f"{value:+.2f}", "1"


def _band(entry: Mapping[str, Any]) -> str:
    return f"{entry['low']:+.3f} to {entry['high']:+.3f}, p = {entry['p']:.2g}"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def best_of(motion: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Returns the row of the particle with the largest importance; None if no particle moves."""
    best = motion.get("best")
    if best is None:
        return None
    return next(row for row in motion["particles"] if best == {name: row[name] for name in best})
