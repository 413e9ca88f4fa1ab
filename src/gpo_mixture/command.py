"""`gpo represent`: fits Gaussians to fields of a file, saves, exports and draws them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from tyro.conf import arg

from gpo.cli.console import PlainConsole, say
from gpo.cli.data import Files, Reading, open_file

if TYPE_CHECKING:
    from gpo.data.dataset import FieldData, Variable
    from gpo.data.geometry import Geometry
    from gpo_mixture.series import MixtureSeries
    from gpo_mixture.structure import RepresentedField

SAVED, EXPORTED, DRAWN = (".nc", ".zarr"), (".vtp", ".ply"), (".png", ".pdf", ".svg")


@dataclass(frozen=True)
class RepresentCommand:
    """Fits Gaussians with full covariance to fields of a file, saves and draws them."""

    file: Files
    """File or folder in any supported layout, a pattern, or several files."""
    particles: int = 100
    """Number of Gaussians in every frame."""
    out: Annotated[
        tuple[Path, ...],
        arg(metavar="FILE", help_behavior_hint="(default: NAME-gaussians.nc NAME-gaussians.png)"),
    ] = ()
    """Files to write: .nc or .zarr to load again, .vtp or .ply to export, .png, .pdf or .svg for a figure."""
    trajectory: int = 0
    """Index of the trajectory or sample in the file, from 0."""
    frame: Annotated[
        int | None, arg(metavar="INT", help_behavior_hint="(default: ends at the last frame)")
    ] = None
    """Index of the first frame, from 0; negative counts from the end."""
    frames: int = 1
    """Number of consecutive frames; each fit starts from the previous one, so Gaussians keep their labels."""
    covariance: Literal["full", "diagonal"] = "full"
    """Ellipses of any orientation, or axis-aligned."""
    steps: int = 20
    """Optimizer steps in every round of the fit; more are slower and more accurate."""
    reading: Reading = field(default_factory=Reading)

    def run(self) -> None:
        """Fits, prints the error and the number of stored values, and writes the files."""
        from gpo.atomic_files import new_file
        from gpo_mixture.structure import RepresentedField

        names = [path.stem for path in self.file[:1]]
        paths = self.out or tuple(
            Path(f"{name}-gaussians{suffix}") for name in names for suffix in (".nc", ".png")
        )
        for path in paths:
            new_file(path, (*SAVED, *EXPORTED, *DRAWN))
        data = open_file(self.file, self.reading)
        frames = select_frames(data, self.trajectory, self.frame, self.frames)
        series = self._fit(frames)
        _print_errors(series, frames)
        units = tuple(variable.units for variable in frames.variables)
        rows = zip(frames.labels, series.mixtures, frames.values, strict=True)
        fields = {
            label: RepresentedField(mixture, frames.geometry, values, units)
            for label, mixture, values in rows
        }
        _write(paths, series, fields, data.time_units)

    def _fit(self, frames: "SelectedFrames") -> "MixtureSeries":
        import torch
        from rich.progress import Progress

        from gpo_mixture.fitting import fit_series

        geometry, values = frames.geometry, torch.from_numpy(frames.values)
        coords, weights = torch.from_numpy(geometry.coords), torch.from_numpy(geometry.weights)
        with Progress(console=PlainConsole(), transient=True) as progress:
            task = progress.add_task("Fitting", total=len(values))
            return fit_series(
                values, coords, weights, self.particles,
                domain=geometry.domain, covariance=self.covariance, num_steps=self.steps,
                variables=[variable.name for variable in frames.variables], times=frames.times,
                progress=lambda done: progress.update(task, completed=done),
            )  # fmt: skip


@dataclass(frozen=True)
class SelectedFrames:
    """Frames of a file; sites where any of them has a missing value are masked."""

    geometry: "Geometry"
    values: np.ndarray
    """Frames by points by variables, in double precision."""
    variables: "tuple[Variable, ...]"
    times: list[float]
    labels: list[str]
    """Index and time of every frame."""


def select_frames(
    data: "FieldData", trajectory: int, frame: int | None, count: int
) -> SelectedFrames:
    """Returns consecutive frames of a sample.

    Args:
        data: Content of the file.
        trajectory: Index of the sample.
        frame: Index of the first frame, from the end if negative; the last frames if None.
        count: Number of frames.
    """
    _check_range("trajectory", trajectory, 0, data.num_samples)
    num_frames = len(data.time)
    first = num_frames - max(1, count) if frame is None else frame
    _check_range("frame", first, -num_frames, num_frames)
    start = first % num_frames
    if count < 1 or start + count > num_frames:
        raise ValueError(
            f"`frames` must be from 1 to {num_frames - start}, the number of frames from frame "
            f"{start} to the end, got {count}."
        )
    values = data.frames(trajectory, slice(start, start + count))
    indices, times = range(start, start + count), data.time[start : start + count].tolist()
    labels = [f"frame {index}" for index in indices]
    if data.time_units:
        dates = data.time_labels(indices)
        labels = [f"{label} ({date})" for label, date in zip(labels, dates, strict=True)]
    values = values.astype(np.float64)
    is_missing = np.logical_not(np.isfinite(values).all(axis=(0, 2)))
    geometry = data.geometry(trajectory)
    try:
        geometry = geometry.masked(is_missing) if is_missing.any() else geometry
    except ValueError as error:
        raise ValueError(
            f"{data.source}: {error} in these frames: choose others with --frame."
        ) from error
    return SelectedFrames(geometry, values, data.variables, times, labels)


def _check_range(name: str, index: int, low: int, end: int) -> None:
    if not low <= index < end:
        raise ValueError(f"`{name}` must be from {low} to {end - 1}, got {index}.")


def _print_errors(series: "MixtureSeries", frames: SelectedFrames) -> None:
    import torch

    from gpo.numerics.norms import vrmse

    geometry = frames.geometry
    coords, weights = torch.from_numpy(geometry.coords), torch.from_numpy(geometry.weights)
    for label, mixture, frame in zip(frames.labels, series.mixtures, frames.values, strict=True):
        values = torch.from_numpy(frame)
        relative = mixture.error(values, coords, weights)
        scaled = float(vrmse(mixture(coords)[None], values[None], weights[None]))
        prefix = f"{label}: " if label else ""
        say(f"{prefix}relative L2 {relative:.4g}, error over standard deviation {scaled:.4g}")
    num_values = int((geometry.weights > 0).sum()) * frames.values.shape[-1]
    stored = series[0].num_parameters
    ratio = num_values / stored
    say(f"numbers stored: {stored} in place of {num_values} ({ratio:.1f} times fewer)")
    if len(series) > 1:
        kept = np.isin(series[0].labels, series[len(series) - 1].labels).mean()
        say(f"Gaussians of the first frame that are still present in the last: {kept:.0%}")


def _write(
    paths: tuple[Path, ...],
    series: "MixtureSeries",
    fields: Mapping[str, "RepresentedField"],
    time_units: str,
) -> None:
    from gpo_mixture.exports import export
    from gpo_mixture.files import save

    geometry = next(iter(fields.values())).geometry
    units = geometry.axis_units[0] if len(set(geometry.axis_units)) == 1 else ""
    units = "1" if geometry.domain.is_sphere else units or "1"
    for path in paths:
        if path.suffix in SAVED:
            save(series, path, length_units=units, time_units=time_units)
        elif path.suffix in EXPORTED:
            export(series, path)
        else:
            _draw(path, fields)
        say(f"written: {path}")


def _draw(path: Path, fields: Mapping[str, "RepresentedField"]) -> None:
    """Draws the first and the last frame."""
    from gpo.optional import require

    rows = {
        f"{fields[label].mixture.variables[0]}, {label}".rstrip(", "): fields[label]
        for label in (next(iter(fields)), list(fields)[-1])
    }
    require("gpo_mixture.pictures", "report", "Drawing Gaussians").save_mixtures_figure(path, rows)
