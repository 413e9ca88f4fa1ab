"""`gpo represent`: a field as few Gaussians, which can be drawn, saved and followed in time."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from tyro.conf import Positional, arg

from gpo.cli.console import PlainConsole, say
from gpo.cli.data import Reading

if TYPE_CHECKING:
    from gpo.data.dataset import StaticMaps, Trajectories, Variable
    from gpo.data.geometry import Geometry
    from gpo_mixture.represented import RepresentedField
    from gpo_mixture.series import MixtureSeries

SAVED, EXPORTED, DRAWN = (".nc", ".zarr"), (".vtp", ".ply"), (".png", ".pdf", ".svg")


@dataclass(frozen=True)
class RepresentCommand:
    """Writes the fields of a file as Gaussians with full covariance, and draws them."""

    file: Positional[tuple[Path, ...]]
    """File or folder in any layout we read, a pattern, or several files."""
    particles: int = 100
    """Gaussians for every frame."""
    out: Annotated[
        tuple[Path, ...],
        arg(metavar="FILE", help_behavior_hint="(default: NAME-gaussians.nc NAME-gaussians.png)"),
    ] = ()
    """What to write, by its ending: .nc or .zarr to load again, .vtp or .ply for other programs, .png, .pdf or .svg for a picture."""
    trajectory: int = 0
    """Trajectory or sample of the file, counted from 0."""
    frame: Annotated[
        int | None, arg(help_behavior_hint="(default: so that the last one is in)")
    ] = None
    """Frame to represent, the first of several, counted from 0, or from the end if negative."""
    frames: int = 1
    """Frames to follow in time: each fit begins with the one before, so that particles keep their names."""
    covariance: Literal["full", "diagonal"] = "full"
    """Ellipses of any direction, or along the axes."""
    steps: int = 20
    """Steps of every round of the fit; more are slower and closer."""
    reading: Reading = field(default_factory=Reading)

    def run(self) -> None:
        """Fits, prints error and numbers stored, and writes the files."""
        from gpo.atomic_files import new_file
        from gpo.cli.describe import open_file
        from gpo_mixture.represented import RepresentedField

        paths = self.out or tuple(
            Path(f"{self.file[0].stem}-gaussians{ending}") for ending in (".nc", ".png")
        )
        for path in paths:
            new_file(path, (*SAVED, *EXPORTED, *DRAWN))
        data = open_file(self.file, self.reading)
        chosen = choose_frames(data, self.trajectory, self.frame, self.frames)
        series = self._fit(chosen)
        self._print(series, chosen)
        units = tuple(one.units for one in chosen.variables)
        fields = {
            label: RepresentedField(mixture, chosen.geometry, values, units)
            for label, mixture, values in zip(
                chosen.labels, series.mixtures, chosen.values, strict=True
            )
        }
        self._write(paths, series, fields, getattr(data, "time_units", ""))

    def _fit(self, chosen: "ChosenFrames") -> "MixtureSeries":
        import torch
        from rich.progress import Progress

        from gpo_mixture.series import MixtureSeries

        geometry, frames = chosen.geometry, chosen.values
        coords, weights = torch.from_numpy(geometry.coords), torch.from_numpy(geometry.weights)
        with Progress(console=PlainConsole(), transient=True) as progress:
            task = progress.add_task("Fitting", total=len(frames))
            return MixtureSeries.fit(
                torch.from_numpy(frames), coords, weights, self.particles,
                domain=geometry.domain, covariance=self.covariance, num_steps=self.steps,
                variables=[one.name for one in chosen.variables], times=chosen.times,
                progress=lambda done: progress.update(task, completed=done),
            )  # fmt: skip

    def _print(self, series: "MixtureSeries", chosen: "ChosenFrames") -> None:
        import torch

        from gpo.numerics.norms import vrmse

        geometry, frames = chosen.geometry, chosen.values
        coords, weights = torch.from_numpy(geometry.coords), torch.from_numpy(geometry.weights)
        for label, mixture, values in zip(chosen.labels, series.mixtures, frames, strict=True):
            field = torch.from_numpy(values)
            relative = mixture.error(field, coords, weights)
            spread = float(vrmse(mixture(coords)[None], field[None], weights[None]))
            which = f"{label}: " if label else ""
            say(f"{which}relative L2 {relative:.4g}, error over standard deviation {spread:.4g}")
        counted = int((geometry.weights > 0).sum()) * frames.shape[-1]
        stored = series[0].num_numbers
        say(f"numbers stored: {stored} in place of {counted} ({counted / stored:.1f} times fewer)")
        if len(series) > 1:
            kept = np.isin(series[0].labels, series[len(series) - 1].labels).mean()
            say(f"particles of the first frame that are left in the last: {kept:.0%}")

    def _write(
        self,
        paths: tuple[Path, ...],
        series: "MixtureSeries",
        fields: Mapping[str, "RepresentedField"],
        time_units: str,
    ) -> None:
        geometry = next(iter(fields.values())).geometry
        units = geometry.axis_units[0] if len(set(geometry.axis_units)) == 1 else ""
        units = "1" if geometry.domain.is_sphere else units or "1"
        for path in paths:
            if path.suffix in SAVED:
                series.save(path, length_units=units, time_units=time_units)
            elif path.suffix in EXPORTED:
                series.export(path)
            else:
                _draw(path, fields)
            say(f"written: {path}")


def _draw(path: Path, fields: Mapping[str, "RepresentedField"]) -> None:
    """Draws the first and the last frame."""
    from gpo.optional import require

    shown = {label: fields[label] for label in (next(iter(fields)), list(fields)[-1])}
    rows = {
        f"{field.mixture.variables[0]}, {label}".rstrip(", "): field
        for label, field in shown.items()
    }
    require("gpo_mixture.pictures", "report", "Drawing Gaussians").save_mixtures_figure(path, rows)


@dataclass(frozen=True)
class ChosenFrames:
    """Some frames of a file; sites where any of them has no value are masked."""

    geometry: "Geometry"
    values: np.ndarray
    """Frames by points by variables, in double precision."""
    variables: "tuple[Variable, ...]"
    times: list[float]
    """Empty for static maps."""
    labels: list[str]
    """Number and time of every frame; a static map has none."""


def choose_frames(
    data: "Trajectories | StaticMaps", trajectory: int, frame: int | None, count: int
) -> ChosenFrames:
    """Returns consecutive frames of one trajectory, or one static map.

    Args:
        data: What a file holds.
        trajectory: Number of the trajectory or sample.
        frame: The first frame, from the end if negative; the last frames when not given.
        count: How many frames.
    """
    from gpo.data.dataset import StaticMaps

    count_of = data.num_samples if isinstance(data, StaticMaps) else data.num_trajectories
    _check_number("trajectory", trajectory, 0, count_of)
    num_frames = 1 if isinstance(data, StaticMaps) else len(data.time)
    first = num_frames - max(1, count) if frame is None else frame
    _check_number("frame", first, -num_frames, num_frames)
    start = first % num_frames
    if count < 1 or start + count > num_frames:
        raise ValueError(
            f"`frames` must be from 1 to {num_frames - start}, those from frame {start} to the "
            f"end, got {count}."
        )
    if isinstance(data, StaticMaps):
        values = np.concatenate(data.sample(trajectory), -1)[None]
        variables, times, labels = (*data.inputs, *data.outputs), [], [""]
    else:
        numbers = range(start, start + count)
        values = data.frames(trajectory, slice(start, start + count))
        variables, times = data.variables, data.time[start : start + count].tolist()
        labels = [f"frame {number}" for number in numbers]
        if data.time_units:
            shown = data.time_labels(numbers)
            labels = [f"{label} ({time})" for label, time in zip(labels, shown, strict=True)]
    values = values.astype(np.float64)
    is_missing = np.logical_not(np.isfinite(values).all(axis=(0, 2)))
    geometry = data.geometry(trajectory)
    try:
        geometry = geometry.masked(is_missing) if is_missing.any() else geometry
    except ValueError as error:
        raise ValueError(
            f"{data.source}: {error} in these frames: choose others with --frame."
        ) from error
    return ChosenFrames(geometry, values, tuple(variables), times, labels)


def _check_number(name: str, number: int, low: int, end: int) -> None:
    if not low <= number < end:
        raise ValueError(f"`{name}` must be from {low} to {end - 1}, got {number}.")
