"""Additional inputs among named arrays: static fields, scalar series and sample parameters.

They are recognised by shape: an array with the shape of the sites, with or without a leading sample
axis, is a static field; an array with one entry per frame is a scalar series.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import xarray as xr

from gpo.data.dataset import DataError
from gpo.data.readers.array_files import Stored
from gpo.data.readers.axis_order import SMALLEST_GRID, Axes, Field, common_length, match
from gpo.data.readers.lazy import NAME, Key


def is_extra_input(axes: Axes, stored: Stored, patterns: Sequence[str]) -> bool:
    """Returns whether an array has axes of sites or of times, but not of both."""
    if axes.is_bare or axes.stated or stored.is_vector:
        return False
    if any(axes.fits(order, stored.shape) for order in axes.orders(patterns)):
        return False
    others = ["sites", "sample sites", *(["sample time"] if "time" in axes.lengths else [])]
    return any(axes.fits(order, stored.shape) for order in axes.orders(others))


def find_inputs(
    path: Path, rest: Mapping[str, Stored], fields: Sequence[Field], num_times: int
) -> dict[str, xr.Variable]:
    """Returns static fields and scalar series.

    Args:
        path: The file, for error messages.
        rest: Arrays that are neither coordinates nor times.
        fields: Time series of fields among them.
        num_times: Number of frames.
    """
    used = [field.stored for field in fields]
    widest = max(fields, key=lambda field: len(field.sites))
    labels = tuple(label for label in widest.order if label in widest.sites)
    lengths = {label: common_length(path, fields, label) for label in ("sample", *labels)}
    lengths["time"] = num_times
    # Try the order of the fields first, then the reverse, such as y before x.
    orders = [order for sites in (labels, labels[::-1]) for order in (sites, ("sample", *sites))]
    orders += [("time",), ("sample", "time")]
    inputs: dict[str, xr.Variable] = {}
    for name, stored in rest.items():
        squeezed = _squeezed(stored)
        fitting = [
            order for order in orders
            if stored not in used and stored.size > 1
            and squeezed.shape == tuple(lengths[label] for label in order)
        ]  # fmt: skip
        # A vector may be both: a field on a line, and a series of as many times.
        static = next((order for order in fitting if "time" not in order), None)
        series = next((order for order in fitting if "time" in order), None)
        for key, order in ((name, static), (f"{name}_series" if static else name, series)):
            if order is not None:
                inputs[key] = Field(name, squeezed, order).variable(order)
                inputs[key].attrs[NAME] = name
    return inputs


def split_map_inputs(
    path: Path, inputs: Mapping[str, Stored], outputs: Sequence[Field]
) -> tuple[list[Field], dict[str, xr.Variable]]:
    """Splits the inputs of static maps into fields and scalars.

    Arrays with one entry or one row per sample are scalars.

    Args:
        path: The file, for error messages.
        inputs: Arrays that are inputs.
        outputs: Fields that are outputs.
    """
    count, sites = common_length(path, outputs, "sample"), outputs[0].sites
    labels = tuple(label for label in outputs[0].order if label in sites)
    lengths = tuple(outputs[0].length(label) for label in labels)
    fields: list[Field] = []
    scalars: dict[str, xr.Variable] = {}
    for name, stored in inputs.items():
        shape = stored.shape
        if "sample" not in outputs[0].order and shape == lengths:
            fields.append(Field(name, stored, labels))
        elif shape[:1] == (count,) and shape[1:] == lengths:
            fields.append(Field(name, stored, ("sample", *labels)))
        elif shape[:1] == (count,) and shape[1:-1] == lengths and len(lengths):
            fields.append(Field(name, stored, ("sample", *labels, "component")))
        elif (stored.size == count and max(shape, default=1) == count) or (
            len(shape) == 2 and shape[0] == count
        ):
            values = stored.values().astype(np.float64).reshape(count, -1)
            width = values.shape[1]
            names = [name] if width == 1 else [f"{name}_{column}" for column in range(width)]
            for column, values_of in zip(names, values.T, strict=True):
                scalars[column] = xr.Variable("sample", values_of, {"units": stored.units})
        else:
            problem = (
                f"has shape {shape}; an input must have a first axis of {count} samples, as "
                f"{outputs[0].name} has, then no other axis, scalars, or the sites {lengths}."
            )
            raise DataError(path, name, problem)
    return fields, scalars


def _squeezed(stored: Stored) -> Stored:
    """Returns a vector with one axis, without those of length one; other arrays unchanged."""
    if not stored.is_vector or len(stored.shape) <= 1:
        return stored
    return Stored((stored.size,), stored.dtype, partial(_read_vector, stored), stored.units)


def _read_vector(stored: Stored, key: Key) -> np.ndarray:
    return np.asarray(np.ravel(stored.values())[key])


def parameter_tables(arrays: Mapping[str, Stored], num_times: int | None) -> list[str]:
    """Returns names of arrays with a row of parameters for each sample of larger arrays."""
    counts = {stored.shape[0] for stored in arrays.values() if len(stored.shape) > 2}
    return [
        name
        for name, stored in arrays.items()
        if len(stored.shape) == 2
        and 1 < stored.shape[1] < SMALLEST_GRID
        and stored.shape[0] in counts - {num_times}
    ]


def sample_parameters(
    path: Path,
    rest: Mapping[str, Stored],
    fields: Sequence[Field],
    count: int,
    is_selected: bool,
    inputs: Collection[str] = (),
    unknown_times: int | None = None,
) -> dict[str, np.ndarray]:
    """Returns scalars, and vectors with one value per sample; other vectors are an error.

    Args:
        path: The file, for error messages.
        rest: Arrays that are neither coordinates nor times.
        fields: Fields among them.
        count: Number of samples.
        is_selected: Whether the user named variables, so that other arrays are ignored.
        inputs: Names of arrays that are additional inputs.
        unknown_times: Number of frames if nothing states that they are times, and not samples.
    """
    used = [field.stored for field in fields]
    parameters: dict[str, np.ndarray] = {}
    for name, stored in rest.items():
        if stored in used or not stored.is_vector:
            continue
        if stored.size in (1, count):
            parameters[name] = np.broadcast_to(np.ravel(stored.values()), (count,)).copy()
        elif name not in inputs and (not is_selected or stored.size == unknown_times):
            alike = " ".join(n for n, array in rest.items() if array.shape == stored.shape)
            problem = (
                f"has shape {stored.shape}, which is neither a field nor one value for each of "
                f"{count} samples."
            )
            if stored.size == fields[0].length("time"):
                order = ",".join(fields[0].order)
                problem += (
                    f" If the {stored.size} frames are samples: `--inputs {alike}`; if they are times: "
                    f"`--forcing {alike}`, or without it `--select axes={order}`."
                )
            else:
                problem += (
                    f" Leave it out by naming the variables to read: `--var {fields[0].name}`."
                )
            raise DataError(path, name, problem)
    return parameters


def match_series(
    path: Path,
    name: str,
    stored: Stored,
    axes: Axes,
    patterns: Sequence[str],
    rest: Mapping[str, Stored],
) -> Field:
    """Returns a field with its axes; an error names vectors that may be parameters of samples."""
    try:
        return match(path, name, stored, axes, patterns)
    except DataError as error:
        alike = [
            key for key, part in rest.items() if part.is_vector and part.size == stored.shape[0]
        ]
        if "time" in axes.lengths or axes.stated or not alike:
            raise
        advice = f"If its {stored.shape[0]} entries are samples: `--inputs {' '.join(alike)}`."
        raise DataError(path, name, f"{error.problem} {advice}") from None
