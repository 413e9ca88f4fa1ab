"""Inputs beside the state among named arrays: static fields, numbers per time and per sample.

An array that is no time series of fields is told by its shape: that of the sites, with or without
samples in front, is a static field; as many entries as frames are one number per time.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from gpo.data.dataset import DataError, InputCandidate, Variable
from gpo.data.readers.array_files import Stored
from gpo.data.readers.axis_order import Axes, Field, Order, common_length


def is_beside(axes: Axes, stored: Stored, patterns: Sequence[str]) -> bool:
    """Returns whether an array has the axes of sites or of times, and not of both."""
    if axes.is_bare or axes.stated or stored.is_vector:
        return False
    if any(axes.fits(order, stored.shape) for order in axes.orders(patterns)):
        return False
    others = ["sites", "sample sites", *(["sample time"] if "time" in axes.lengths else [])]
    return any(axes.fits(order, stored.shape) for order in axes.orders(others))


def find_array_candidates(
    path: Path, rest: Mapping[str, Stored], fields: Sequence[Field], num_times: int
) -> tuple[InputCandidate, ...]:
    """Returns static fields, and arrays with one number per time.

    Args:
        path: The file, for messages.
        rest: Arrays that are neither coordinates nor times.
        fields: Those that are time series of fields.
        num_times: Frames of these.
    """
    known = [field.stored for field in fields]
    widest = max(fields, key=lambda field: len(field.sites))
    labels = tuple(label for label in widest.order if label in widest.sites)
    lengths = {label: common_length(path, fields, label) for label in ("sample", *labels)}
    found: list[InputCandidate] = []
    for name, stored in rest.items():
        if stored in known or stored.size == 1:
            continue
        variable = Variable(name, stored.units)
        order = _static_order(stored, labels, lengths)
        if order is not None:
            read = partial(_read_static, Field(name, _squeezed(stored), order), lengths["sample"])
            found.append(InputCandidate(variable, "static", read))
        shape = _squeezed(stored).shape
        if shape == (num_times,) or shape == (lengths["sample"], num_times):
            found.append(InputCandidate(variable, "series", stored.values))
    return tuple(found)


def split_map_inputs(
    path: Path, given: Mapping[str, Stored], outputs: Sequence[Field]
) -> tuple[list[Field], list[Variable], np.ndarray]:
    """Returns the inputs of static maps that are fields, and those that are numbers with values.

    A vector, or table, with one entry, or row, per sample are numbers.

    Args:
        path: The file, for messages.
        given: The arrays that are inputs.
        outputs: The fields that they are mapped to.
    """
    count, sites = common_length(path, outputs, "sample"), outputs[0].sites
    labels = tuple(label for label in outputs[0].order if label in sites)
    lengths = tuple(outputs[0].length(label) for label in labels)
    fields: list[Field] = []
    variables: list[Variable] = []
    columns: list[np.ndarray] = [np.zeros((count, 0))]
    for name, stored in given.items():
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
            variables += [Variable(one, stored.units) for one in names]
            columns.append(values)
        else:
            problem = (
                f"has shape {shape}; an input must have {count} samples first, as {outputs[0].name}"
                f" has, then nothing, numbers, or the sites {lengths}."
            )
            raise DataError(path, name, problem)
    values = np.concatenate(columns, 1)
    if not np.isfinite(values).all():
        named = ", ".join(variable.name for variable in variables)
        raise DataError(path, named, "must be known for every sample, got NaN.")
    return fields, variables, values


def _static_order(stored: Stored, labels: Order, lengths: Mapping[str, int]) -> Order | None:
    """Returns the axes of a static field: those of the sites, with or without samples."""
    shape = _squeezed(stored).shape
    # The order of the fields first, then the reverse, such as y before x.
    for sites in dict.fromkeys((labels, labels[::-1])):
        for order in (sites, ("sample", *sites)):
            if shape == tuple(lengths[label] for label in order):
                return order
    return None


def _squeezed(stored: Stored) -> Stored:
    """Returns a vector with one axis, however a file keeps it; other arrays as they are."""
    if not stored.is_vector or len(stored.shape) <= 1:
        return stored
    return Stored((stored.size,), partial(_read_vector, stored), stored.units)


def _read_vector(stored: Stored, key: tuple[int | slice, ...]) -> np.ndarray:
    return np.asarray(np.ravel(stored.values())[key])


def _read_static(field: Field, count: int) -> np.ndarray:
    """Reads points, or samples by points."""
    if "sample" not in field.order:
        return field.read()[:, 0]
    return np.stack([field.read(sample=sample)[:, 0] for sample in range(count)])
