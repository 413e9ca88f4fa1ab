"""The description of an exported program as JSON values: names, units, axes and sites."""

import math
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from gpo.data.dataset import FieldData, Variable
from gpo.data.geometry import Geometry
from gpo.data.query_points import QueryPoints
from gpo.forecast.forecaster import Task

TIME_FEATURES = (
    "day_cos, day_sin: cosine and sine of 2 pi hour / 24, with the hour in universal time; year_cos, "
    "year_sin: of 2 pi times the elapsed fraction of the year; solar_zenith_cos: cosine of the "
    "solar zenith angle, 0 at night"
)


def describe_program(
    task: Task,
    data: FieldData,
    sites: Geometry,
    is_known: np.ndarray,
    queries: QueryPoints | None = None,
) -> dict[str, Any]:
    """Returns names, units and axes of input and output, and the coordinates of all points.

    Args:
        task: The forecasting task of the program.
        data: Data with the variables and times of the task.
        sites: The fixed sites of the program.
        is_known: False at masked sites.
        queries: Points at which the program predicts; the sites if None.
    """
    masked = np.flatnonzero(~is_known).tolist()
    description: dict[str, Any] = {
        "gpo": version("gpo"),
        "input": {
            "name": "frames",
            "axes": ["batch", "history", "sites", "variables"],
            "type": "float64" if task.needs_double else "float32",
            "history": task.history,
            "order": "oldest frame first",
            **_names((*data.forcings, *data.inputs)),
        },
        "output": {
            "name": "prediction",
            "axes": ["batch", "sites" if queries is None else "queries", "variables"],
            **_names(data.outputs),
        },
        "lead": task.lead,
        "forecast": "the model alone: no reference forecast is blended with it",
        "sites": {**_coordinates(_site_points(sites), sites.grid_shape), "masked": masked},
    }
    if len(data.time) > 1:
        description |= {"time_step": data.time_step, "time_units": data.time_units}
    if task.num_forcings:
        description["input"] |= {
            "forcings": list(task.forcings),
            "forcing_times": f"the forcings of a frame are valid {task.lead} step(s) after it",
            "time_features": TIME_FEATURES,
        }
    if queries is not None:
        description["queries"] = _coordinates(queries)
    return description


def _site_points(sites: Geometry) -> QueryPoints:
    return QueryPoints.of(sites) if sites.axes else QueryPoints.listed(sites)


def _names(variables: Sequence[Variable]) -> dict[str, list[str]]:
    return {"variables": [v.name for v in variables], "units": [v.units for v in variables]}


def _coordinates(points: QueryPoints, grid_shape: tuple[int, ...] = ()) -> dict[str, Any]:
    """Returns the axes of a grid, or the coordinates of all points."""
    shape = points.shape if points.is_grid else grid_shape
    result: dict[str, Any] = {"count": math.prod(points.shape)}
    if shape:
        result |= {"grid_shape": list(shape), "order": "last axis fastest"}
    names, units = list(points.names), list(points.units)
    if not points.is_grid:
        coords = np.stack(points.numbers, -1).astype(float).tolist()
        return result | {"names": names, "units": units, "points": coords}
    axes = [
        {"name": name, "units": unit, "values": values.astype(float).tolist()}
        for name, unit, values in zip(names, units, points.numbers, strict=True)
    ]
    return result | {"axes": axes}
