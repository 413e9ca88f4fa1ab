"""Warns of rounding errors in a file: a small signal on a large mean in single precision.

Means and origins are subtracted in double precision, which loses nothing. The rounding of the file
itself remains: in single precision, a pressure of 100,000 Pa has a resolution of 0.008 Pa. A model
trained on such a file would also fit these steps.
"""

from collections.abc import Iterator

import numpy as np

from gpo.data.dataset import FieldData, Variable
from gpo.data.geometry import Geometry
from gpo.data.summary import spaced_frames

MAX_RELATIVE_STEP = 0.01
"""Largest acceptable step, relative to the spread of a variable or the spacing of sites."""
NUM_FRAMES = 4
"""Number of frames or samples to inspect."""
MAX_SITES = 2**16
"""Approximate number of sites to inspect in each frame."""
MIN_ODD_FRACTION = 0.1
"""Fraction of values that use the last bit, above which they are rounded to single precision."""


def precision_notes(data: FieldData) -> list[str]:
    """Returns a note for each variable, and for coordinates, that the file rounds coarsely."""
    parts = _finite_values(data)
    notes = [note for variable, values in parts if (note := _value_note(variable.name, values))]
    note = _coordinate_note(data.geometry())
    return [*notes, note] if note else notes


def _finite_values(data: FieldData) -> Iterator[tuple[Variable, np.ndarray]]:
    """Yields finite values of each variable from some frames or samples."""
    rows = [_thinned(frame) for frame in spaced_frames(data, NUM_FRAMES)]
    for column, variable in enumerate(data.variables):
        values = np.concatenate([row[:, column] for row in rows])
        yield variable, values[np.isfinite(values)]


def _thinned(rows: np.ndarray) -> np.ndarray:
    """Returns a copy of evenly spaced rows, so that the others can be freed."""
    return rows[:: max(1, len(rows) // MAX_SITES)].copy()


def rounding_step(values: np.ndarray) -> float:
    """Returns the spacing of floating-point numbers of this size, in single or double precision.

    Values are rounded to single precision if all of them are representable in it and many use its
    last bit. Whole numbers in double precision are counts, which are exact.
    """
    if values.dtype == np.float64 and np.array_equal(values, np.rint(values)):
        return 0.0
    with np.errstate(over="ignore", under="ignore"):
        single = values.astype(np.float32)
    if np.array_equal(single, values):
        step = np.spacing(np.abs(single)).astype(np.float64)
        is_odd = np.mod(values.astype(np.float64) / step, 2) == 1
        return float(np.median(step)) if is_odd.mean() > MIN_ODD_FRACTION else 0.0
    return float(np.median(np.spacing(np.abs(values))))


def _value_note(name: str, values: np.ndarray) -> str | None:
    if not len(values):
        return None
    values64 = values.astype(np.float64)
    mean = float(values64.mean())
    spread, step = float((values64 - mean).std()), rounding_step(values)
    if not 0 < MAX_RELATIVE_STEP * spread < step:
        return None
    return (
        f"{name} varies by {spread:.3g} around {mean:.6g}, and the file stores it in steps of "
        f"{step:.2g}, which limits scores and forecasts. Store it in double precision, or as the "
        "difference from its mean"
    )


def _coordinate_note(geometry: Geometry) -> str | None:
    """Returns a note if coordinates are too coarse for the distance between sites."""
    domain = geometry.domain
    sides = np.subtract(domain.upper, domain.lower)
    if domain.is_sphere:
        distance = float(sides.max()) / geometry.num_points**0.5
        step = float(np.spacing(np.float32(0.5)))
        if step <= MAX_RELATIVE_STEP * distance:
            return None
        return (
            f"sites are {np.rad2deg(distance):.2g} degrees apart, and coordinates on the sphere have "
            f"a resolution of {np.rad2deg(step):.1g} degrees. Use a map projection, in metres"
        )
    distances = sides / max(1.0, geometry.num_points ** (1 / domain.dim))
    steps = np.array([rounding_step(column) for column in geometry.coords.T])
    worst = int(np.argmax(steps / distances))
    step, distance = float(steps[worst]), float(distances[worst])
    if step <= MAX_RELATIVE_STEP * distance:
        return None
    name = (*geometry.axis_names, "x", "y", "z")[worst]
    return (
        f"coordinates along {name} are stored in steps of {step:.2g}, where sites are "
        f"{distance:.2g} apart: their positions are wrong. Store coordinates in double precision, "
        "or relative to a nearby origin"
    )
