"""Flags of several commands: points at which a model is evaluated, and names of velocities."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

if TYPE_CHECKING:
    from gpo.data.geometry import Geometry
    from gpo.data.query_points import QueryPoints

QueryFile = Annotated[Path | None, arg(metavar="PATH", help_behavior_hint="")]
QueryGrid = Annotated[tuple[int, ...], arg(metavar="N [...]", help_behavior_hint="")]
Velocity = Annotated[
    tuple[str, ...], arg(metavar="VAR [...]", help_behavior_hint="(default: identified by name)")
]


def check_query_flags(file: QueryFile, grid: QueryGrid) -> None:
    """Raises an error if both flags are set."""
    if file and grid:
        raise ValueError("Give either --queries or --grid, not both.")


def read_query_flags(
    file: QueryFile, grid: QueryGrid, geometry: "Geometry"
) -> "QueryPoints | None":
    """Returns the query points of the two flags; None if neither is set.

    Args:
        file: One point per row.
        grid: Points per axis of a regular grid.
        geometry: The points and domain of the data.
    """
    from gpo.data.query_points import read_query_points, regular_query_points

    if file:
        return read_query_points(file, geometry)
    return regular_query_points(grid, geometry) if grid else None
