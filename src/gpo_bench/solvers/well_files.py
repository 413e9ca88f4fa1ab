"""Writes The Well's HDF5 layout, for the reader of it and The Well's own loader."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import h5py
import numpy as np

from gpo.data.readers.well import ORDERS, Arrays

EMPTY: Arrays = MappingProxyType({})


def write_well(
    path: Path,
    *,
    name: str,
    axes: Arrays,
    periodic: Sequence[bool],
    time: np.ndarray,
    t0: Arrays,
    t1: Arrays = EMPTY,
    parameters: Mapping[str, float | np.ndarray] = EMPTY,
    units: Mapping[str, str] = MappingProxyType({}),
    grid_type: str = "cartesian",
) -> None:
    """Writes one file of scalar and vector fields in single precision.

    Args:
        path: The file.
        name: Name of the benchmark.
        axes: Coordinates along each axis, in the order of the arrays; radians on the sphere.
        periodic: Which axes are periodic.
        time: Times of the frames.
        t0: Scalar fields of shape (trajectories, times, grid).
        t1: Vector fields, with the components along an additional last axis.
        parameters: Scalar parameters, or arrays of one value per trajectory.
        units: Units by name of field, axis or `time`: an attribute that The Well ignores.
        grid_type: `cartesian`, or `equiangular` for axes theta and phi on the sphere.
    """
    grid = tuple(len(axis) for axis in axes.values())
    count = len(next(itertools.chain(t0.values(), t1.values())))
    common = {key: float(value) for key, value in parameters.items() if np.ndim(value) == 0}
    with h5py.File(path, "w", libver=("earliest", "v108")) as file:
        file.attrs.update({"dataset_name": name, "grid_type": grid_type, **common})
        file.attrs.update({"n_spatial_dims": len(axes), "n_trajectories": count})
        file.attrs["simulation_parameters"] = list(common)
        dimensions = file.create_group("dimensions")
        dimensions.attrs["spatial_dims"] = list(axes)
        _write(dimensions, "time", time, sample_varying=False)
        for key, axis in axes.items():
            _write(dimensions, key, axis, sample_varying=False, time_varying=False)
        _write_boundaries(file.create_group("boundary_conditions"), axes, periodic)
        scalars = file.create_group("scalars")
        scalars.attrs["field_names"] = list(parameters)
        for key, value in parameters.items():
            _write(scalars, key, value, sample_varying=key not in common, time_varying=False)
        for order, fields in enumerate((t0, t1, EMPTY)):
            shape = (count, len(time), *grid) + (len(axes),) * order
            _write_fields(file.create_group(ORDERS[order]), fields, shape, order)
        for group, key in itertools.product(file.values(), units):
            if key in group:
                group[key].attrs["units"] = units[key]


def _write_fields(group: h5py.Group, fields: Arrays, shape: tuple[int, ...], order: int) -> None:
    group.attrs["field_names"] = list(fields)
    is_used = [True] * (len(shape) - 2 - order)
    for name, values in fields.items():
        if np.shape(values) != shape:
            raise ValueError(f"`{name}` must have shape {shape}, got {np.shape(values)}.")
        _write(group, name, values, sample_varying=True, time_varying=True, dim_varying=is_used)


def _write_boundaries(group: h5py.Group, axes: Arrays, periodic: Sequence[bool]) -> None:
    for (name, axis), wraps in zip(axes.items(), periodic, strict=True):
        kind = "PERIODIC" if wraps else "OPEN"
        boundary = group.create_group(f"{name}_{kind.lower()}")
        boundary.attrs.update({"associated_dims": [name], "associated_fields": []})
        boundary.attrs.update({"bc_type": kind, "sample_varying": False, "time_varying": False})
        mask = np.zeros(len(axis), bool)
        mask[[0, -1]] = True
        boundary.create_dataset("mask", data=mask)
        boundary.create_dataset("values", data=np.zeros(mask.sum(), np.float32))


def _write(group: h5py.Group, name: str, values: np.ndarray | float, **attributes: Any) -> None:
    data = group.create_dataset(name, data=np.asarray(values, np.float32))
    data.attrs.update(attributes)
