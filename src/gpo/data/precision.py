"""Whether the numbers of a file can hold what they shall tell: a small signal on a large mean.

Means and origins are subtracted in double precision, so that nothing is lost here. What a file has
rounded before is lost all the same: in single precision a pressure of 100,000 Pa knows steps of
0.008 Pa. Whoever learns from such a file learns the steps, too, and is told so.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from gpo.data.dataset import StaticMaps, Trajectories, Variable
from gpo.data.geometry import Geometry

COARSE = 0.01
"""Part of the spread of a variable, or of the distance of sites, from which on steps are told."""
NUM_LOOKS = 4
"""Frames or samples that are looked at."""
MAX_SITES = 2**16
"""Sites of each that are looked at, about."""
FULL = 0.1
"""Part of the numbers that use the last digit of a precision, from which on they are rounded to it."""


def precision_notes(data: Trajectories | StaticMaps) -> list[str]:
    """Returns a sentence for every variable, and for coordinates, that the file rounds coarsely."""
    notes = [note for variable, values in _looks(data) if (note := _coarse(variable.name, values))]
    note = _coarse_sites(data.geometry())
    return [*notes, note] if note else notes


def _looks(data: Trajectories | StaticMaps) -> Iterator[tuple[Variable, np.ndarray]]:
    """Yields known values of every variable in some frames or samples."""
    if isinstance(data, StaticMaps):
        numbers = _spread_out(data.num_samples)
        variables = (*data.inputs, *data.outputs)
        rows = [_some(np.concatenate(data.sample(number), -1)) for number in numbers]
    else:
        numbers, variables = _spread_out(len(data.time)), data.variables
        rows = [_some(data.frames(0, slice(number, number + 1))[0]) for number in numbers]
    for column, variable in enumerate(variables):
        values = np.concatenate([row[:, column] for row in rows])
        yield variable, values[np.isfinite(values)]


def _some(rows: np.ndarray) -> np.ndarray:
    """Returns a part of many rows, without keeping the others in memory."""
    return rows[:: max(1, len(rows) // MAX_SITES)].copy()


def _spread_out(count: int) -> Sequence[int]:
    return np.unique(np.linspace(0, count - 1, NUM_LOOKS).astype(int)).tolist()


def rounding_step(values: np.ndarray) -> float:
    """Returns the steps in which numbers of this size are stored: those of single or of double precision.

    Numbers count as single precision where all of them are, and many use its last digit. Whole
    numbers in double precision are counts, though a single one of ten million has steps of one, too.
    """
    if values.dtype == np.float64 and np.array_equal(values, np.rint(values)):
        return 0.0
    with np.errstate(over="ignore", under="ignore"):
        single = values.astype(np.float32)
    if np.array_equal(single, values):
        step = np.spacing(np.abs(single)).astype(np.float64)
        is_odd = np.mod(values.astype(np.float64) / step, 2) == 1
        return float(np.median(step)) if is_odd.mean() > FULL else 0.0
    return float(np.median(np.spacing(np.abs(values))))


def _coarse(name: str, values: np.ndarray) -> str | None:
    if not len(values):
        return None
    values64 = values.astype(np.float64)
    middle = float(values64.mean())
    spread, step = float((values64 - middle).std()), rounding_step(values)
    if not 0 < COARSE * spread < step:
        return None
    return (
        f"{name} varies by {spread:.3g} around {middle:.6g}, and the file stores it in steps of "
        f"{step:.2g}: scores and forecasts cannot be finer. Write it in double precision, or as the "
        "difference from its mean"
    )


def _coarse_sites(geometry: Geometry) -> str | None:
    """Returns a sentence where coordinates are too coarse for the distances of sites."""
    domain = geometry.domain
    sides = np.subtract(domain.upper, domain.lower)
    if domain.is_sphere:
        distance, step = float(sides.max()) / geometry.num_points**0.5, float(np.spacing(np.float32(0.5)))  # fmt: skip
        if step <= COARSE * distance:
            return None
        return (
            f"sites are {np.rad2deg(distance):.2g} degrees apart, and models know places on a sphere "
            f"in steps of {np.rad2deg(step):.1g} degrees. Give them in a projection, in metres"
        )
    distances = sides / max(1.0, geometry.num_points ** (1 / domain.dim))
    steps = np.array([rounding_step(column) for column in geometry.coords.T])
    worst = int(np.argmax(steps / distances))
    step, distance = float(steps[worst]), float(distances[worst])
    if step <= COARSE * distance:
        return None
    name = (*geometry.axis_names, "x", "y", "z")[worst]
    return (
        f"coordinates along {name} are stored in steps of {step:.2g}, where sites are "
        f"{distance:.2g} apart: they lie elsewhere than the file says. Write them in double "
        "precision, or from an origin near by"
    )
