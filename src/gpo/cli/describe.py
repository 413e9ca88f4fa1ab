"""The description of a data set that `gpo data info` prints."""

import numpy as np
from rich.table import Table

from gpo.cli.console import PlainConsole
from gpo.data.dataset import FieldData, JoinedFiles
from gpo.data.geometry import Geometry
from gpo.data.periodic import looks_periodic
from gpo.data.precision import precision_notes
from gpo.data.splits import split_time_slices
from gpo.data.steps import even_steps, format_step
from gpo.data.summary import MAX_VALUES, summarise, value_notes
from gpo.evaluation.verdict import MIN_BLOCKS

CANDIDATES = {
    "static": ("a field without a time axis", "static"),
    "series": ("one value per time", "forcing"),
}
"""Description of each kind of possible input, and the flag that adds it."""


def print_description(data: FieldData, most: int | None = MAX_VALUES) -> None:
    """Prints a description of the data and ranges of all variables.

    Args:
        data: The data set.
        most: Number of values above which only some frames are read (None: all are read).
    """
    console = PlainConsole()
    for label, text in describe(data):
        console.print(f"{label:<9} {text}")
    summary = summarise(data, most)
    table = Table()
    for column in ("variable", "units", "minimum", "mean", "maximum", "missing"):
        table.add_column(column, justify="left" if column in ("variable", "units") else "right")
    for row in summary.ranges:
        numbers = (f"{value:.5g}" for value in (row.minimum, row.mean, row.maximum))
        table.add_row(row.name, row.units or "-", *numbers, f"{row.missing:.1%}")
    console.print(table)
    console.print(f"ranges over {summary.coverage}")


def describe(data: FieldData) -> list[tuple[str, str]]:
    """Returns label and text of each line before the table."""
    lines = [("file", str(data.source)), ("layout", data.layout)]
    geometry = data.geometry()
    lines.append(("series", _series(data)) if data.has_time else ("samples", _samples(data)))
    if data.files is not None:
        lines.append(("joined", _files(data.files)))
    lines += [
        ("sites", _sites(data, geometry)),
        ("domain", describe_domain(geometry)),
        ("weights", _weights(geometry)),
        ("training", _training(data)),
    ]
    names = looks_periodic(data)
    if names:
        hint = f"{' and '.join(names)} may be periodic: fields are smooth across the ends."
        lines.append(("hint", f"{hint} If so: --periodic {' '.join(names)}"))
    lines += [
        ("note", f"{note}.")
        for note in (
            *filter(None, [geometry.projection_note]),
            *precision_notes(data),
            *value_notes(data),
            *_few_examples(data),
        )
    ]
    for name, values in data.parameters.items():
        text = f"{name}: {np.min(values):g} to {np.max(values):g}"
        advice = f" (--parameters {name} adds it as an input)" if np.ptp(values) > 0 else ""
        lines.append(("constant", text + advice))
    for candidate in data.candidates:
        kind, flag = CANDIDATES[candidate.kind]
        name = candidate.variable.name
        lines.append(("input", f"{name}: {kind} (--{flag} {name} adds it as an input)"))
    return lines


def describe_domain(geometry: Geometry) -> str:
    """Returns a description of the domain."""
    domain = geometry.domain
    if domain.is_sphere:
        if domain.lower == (-1.0,) * 3:
            return "the whole sphere, as unit vectors"
        where = ""
        if geometry.axes:
            spans = (f"{n} {np.min(a):g} to {np.max(a):g}" for n, a in
                     zip(geometry.axis_names, geometry.axes, strict=True))  # fmt: skip
            where = f" ({', '.join(spans)})"
        if geometry.pole is not None:
            pole = geometry.pole
            north = f"{pole.grid_north_pole_latitude:g}, {pole.grid_north_pole_longitude:g}"
            return f"a patch of the sphere{where}, in the frame of the pole at {north}"
        return f"a patch of the sphere, as unit vectors{where}"
    parts = []
    for axis, (low, high, is_periodic) in enumerate(
        zip(domain.lower, domain.upper, domain.periodic, strict=True)
    ):
        units = geometry.axis_units[axis] if axis < len(geometry.axis_units) else ""
        name = geometry.axis_names[axis] if axis < len(geometry.axis_names) else f"axis {axis}"
        parts.append(
            f"{name} from {low:g} to {high:g}{' ' + units if units else ''}"
            f" ({'periodic' if is_periodic else 'open'})"
        )
    if geometry.projected_from is not None:
        west, south = geometry.projected_from.min(axis=0)
        east, north = geometry.projected_from.max(axis=0)
        parts.append(f"latitude {south:.4g} to {north:.4g}, longitude {west:.4g} to {east:.4g}")
    return "; ".join(parts)


def _samples(data: FieldData) -> str:
    inputs, outputs = (", ".join(v.name for v in side) for side in (data.inputs, data.outputs))
    return f"{data.num_samples} maps from {inputs} to {outputs}"


def _series(data: FieldData) -> str:
    text = f"{data.num_samples} x {len(data.time)} frames"
    if len(data.time) > 1:
        text += f", one every {format_step(data.time_step, data.time_units)}"
        uneven = int((~even_steps(data.time, data.origin)).sum())
        if uneven:
            text += f"; {uneven} steps of another length are not used for training"
    if data.origin is not None:
        first, last = data.time_labels([0, len(data.time) - 1])
        text += f"; from {first} to {last} ({data.origin.calendar} calendar)"
    if data.first_hour is not None:
        text += f"; first frame at {data.first_hour:g} h"
        features = _time_features(data)
        text += f" (--time-features {features} adds the time as an input)" if features else ""
    return text


def _time_features(data: FieldData) -> str:
    """Returns the time features that these frames can have, as on the command line."""
    # Frames that are a day or more apart have a constant time of day.
    day = ["day"] if data.time_step < 24 else []
    year = ["year"] if data.origin is not None else []
    solar = ["solar"] if data.geometry().geographic_degrees() is not None and year else []
    return " ".join([*day, *year, *solar])


def _files(files: JoinedFiles) -> str:
    count = len(files.starts)
    if files.kind == "series":
        return f"{count} files, concatenated in time"
    return f"{count} files with the same times, each with its own samples"


def _sites(data: FieldData, geometry: Geometry) -> str:
    count = f"{geometry.num_points:,}"
    if len(data.geometries) > 1:
        counts = [geometry.num_points for geometry in data.geometries]
        low, high = min(counts), max(counts)
        count = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        count += " in each sample, at different coordinates"
    if geometry.grid_shape:
        kind = "grid" if geometry.axes else "curvilinear grid"
        return f"{count} on a {kind} of {' x '.join(str(n) for n in geometry.grid_shape)}"
    if geometry.triangles is not None:
        return f"{count} on a mesh of {len(geometry.triangles):,} cells"
    return f"{count} unstructured points"


def _weights(geometry: Geometry) -> str:
    relative = geometry.weights[geometry.weights > 0] * geometry.num_points
    masked = float(geometry.is_masked.mean())
    text = f"from {relative.min():.3g} to {relative.max():.3g} times the mean"
    if np.ptp(relative) < 1e-6 * relative.max():
        text = "all equal"
    return f"{text}; {masked:.1%} of the sites masked"


def _few_examples(data: FieldData) -> list[str]:
    """Returns a note on parts of the split that are too small to choose or judge a model."""
    try:
        split = split_time_slices(data)
    except ValueError:
        return []
    counts = {"validation": len(split.validation), "test": len(split.test)}
    few = " and ".join(f"{count} {name}" for name, count in counts.items() if count < MIN_BLOCKS)
    if not few:
        return []
    needed = f"at least {MIN_BLOCKS} of each are needed to choose settings and to judge a model"
    return [f"only {few} example(s): {needed}. More frames or files help"]


def _training(data: FieldData) -> str:
    try:
        split = split_time_slices(data)
    except ValueError:
        return "too few frames or samples for training, validation and test"
    sizes = f"{len(split.training)} / {len(split.validation)} / {len(split.test)}"
    return f"{sizes} examples to train / validate / test, split by {split.kind}"
