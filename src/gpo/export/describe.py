"""What a user of an exported program has to know, as plain values."""

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
import torch

from gpo.data.geometry import Geometry
from gpo.data.trajectories import Pairs, Trajectories, Variable
from gpo.numerics.domain import longitude_latitude
from gpo.train.forecaster import Task

DIGITS = 9
"""Significant digits of coordinates; a float has no more."""


def describe_program(
    task: Task,
    data: Trajectories | Pairs,
    sites: Geometry,
    is_known: np.ndarray,
    queries: Geometry | None = None,
) -> dict[str, Any]:
    """Returns names, units and axes of input and output, and where the points are.

    Args:
        task: What is predicted from what.
        data: Where the sites come from.
        sites: The sites that the program was fixed to.
        is_known: False at those that it masks.
        queries: Where it predicts; at the sites when not given.
    """
    is_series = isinstance(data, Trajectories)
    given, wanted = (data.variables,) * 2 if is_series else (data.inputs, data.outputs)
    masked = np.flatnonzero(~is_known).tolist()
    description: dict[str, Any] = {
        "gpo": version("gpo"),
        "input": {
            "name": "frames",
            "axes": ["batch", "history", "sites", "variables"],
            "history": task.history,
            "order": "oldest frame first",
            **_names(given),
        },
        "output": {
            "name": "prediction",
            "axes": ["batch", "sites" if queries is None else "queries", "variables"],
            **_names(wanted),
        },
        "lead": task.lead,
        "sites": {**_places(sites), "masked": masked},
    }
    if is_series and len(data.time) > 1:
        step = float(np.median(np.diff(data.time)))
        description |= {"time_step": step, "time_units": data.time_units}
    if queries is not None:
        description["queries"] = _places(queries)
    return description


def _names(variables: Sequence[Variable]) -> dict[str, list[str]]:
    return {"variables": [v.name for v in variables], "units": [v.units for v in variables]}


def _places(geometry: Geometry) -> dict[str, Any]:
    """Returns where points are: along the axes of a grid, or one by one."""
    places: dict[str, Any] = {"count": geometry.num_points}
    if geometry.grid_shape:
        places |= {"grid_shape": list(geometry.grid_shape), "order": "last axis fastest"}
    if geometry.axes:
        return places | {
            "axes": [
                {"name": name, "units": units, "values": _rounded(along)}
                for name, units, along in zip(
                    geometry.axis_names, geometry.axis_units, geometry.axes, strict=True
                )
            ]
        }
    if geometry.domain.is_sphere:
        columns = longitude_latitude(torch.from_numpy(geometry.coords.astype(np.float64)))
        points = np.stack([column.numpy() for column in columns], -1)
        names, units = ["longitude", "latitude"], ["degrees_east", "degrees_north"]
    else:
        points = geometry.coords
        names, units = list("xyz"[: points.shape[1]]), list(geometry.axis_units)
    return places | {"names": names, "units": units, "points": [_rounded(row) for row in points]}


def _rounded(numbers: np.ndarray) -> list[float]:
    return [float(f"{number:.{DIGITS}g}") for number in numbers]
