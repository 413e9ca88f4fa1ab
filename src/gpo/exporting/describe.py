"""The description of an exported program: names, units, axes and sites, as plain values."""

import math
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from gpo.data.dataset import StaticMaps, Trajectories, Variable
from gpo.data.geometry import Geometry
from gpo.data.query_points import QueryPoints
from gpo.forecast.forecaster import Task

TIME_FEATURES = (
    "day_cos, day_sin: cosine and sine of 2 pi hour / 24, with the hour in universal time; year_cos, "
    "year_sin: of 2 pi times the part of the year that is over; solar_zenith_cos: cosine of the "
    "solar zenith angle, 0 at night"
)


def describe_program(
    task: Task,
    data: Trajectories | StaticMaps,
    sites: Geometry,
    is_known: np.ndarray,
    queries: QueryPoints | None = None,
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
    given = (*data.forcings, *data.variables) if is_series else data.inputs
    wanted = data.variables if is_series else data.outputs
    masked = np.flatnonzero(~is_known).tolist()
    description: dict[str, Any] = {
        "gpo": version("gpo"),
        "input": {
            "name": "frames",
            "axes": ["batch", "history", "sites", "variables"],
            "type": "float64" if task.needs_double else "float32",
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
        "sites": {**_places(_sites(sites), sites.grid_shape), "masked": masked},
    }
    if is_series and len(data.time) > 1:
        description |= {"time_step": data.time_step, "time_units": data.time_units}
    if task.num_forcings:
        description["input"] |= {
            "forcings": list(task.forcings),
            "forcing_times": f"those of a frame belong to the time {task.lead} step(s) after it",
            "time_features": TIME_FEATURES,
        }
    if queries is not None:
        description["queries"] = _places(queries)
    return description


def _sites(sites: Geometry) -> QueryPoints:
    return QueryPoints.of(sites) if sites.axes else QueryPoints.listed(sites)


def _names(variables: Sequence[Variable]) -> dict[str, list[str]]:
    return {"variables": [v.name for v in variables], "units": [v.units for v in variables]}


def _places(places: QueryPoints, grid_shape: tuple[int, ...] = ()) -> dict[str, Any]:
    """Returns where points are: along the axes of a grid, or one by one."""
    shape = places.shape if places.is_grid else grid_shape
    said: dict[str, Any] = {"count": math.prod(places.shape)}
    if shape:
        said |= {"grid_shape": list(shape), "order": "last axis fastest"}
    if not places.is_grid:
        points = np.stack(places.numbers, -1).astype(float).tolist()
        return said | {"names": list(places.names), "units": list(places.units), "points": points}
    axes = zip(places.names, places.units, places.numbers, strict=True)
    named = [
        {"name": n, "units": units, "values": v.astype(float).tolist()} for n, units, v in axes
    ]
    return said | {"axes": named}
