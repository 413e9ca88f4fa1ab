"""Which axis of an array is which, by their lengths; where two answers fit, none is given.

An order of axes is a list of labels: `sample`, `time`, `component`, and those of the sites, which
are `points` of a cloud, some of `x`, `y`, `z` of a grid, or `row` and `column` of a grid whose
coordinates are two-dimensional.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gpo.data.errors import DataError
from gpo.data.readers.stores import Stored

Order = tuple[str, ...]

SERIES = (
    "time sites", "time sites component", "time component sites",
    "sample time sites", "sample time sites component", "sample time component sites",
    "sites time", "sites component time", "sites time component",
    "sample sites time", "sample sites component time", "sample sites time component",
)  # fmt: skip
"""Orders of time series whose sites have coordinates."""
BARE_SERIES = (*SERIES[:6], "sites time", "sites component time")
"""Orders without coordinates: samples, if any, come first, and time right after them."""
MAPS = ("sample sites", "sample sites component", "sample component sites")
"""Orders of static maps."""

BARE_SITES: tuple[Order, ...] = (("x",), ("x", "y"), ("x", "y", "z"))
SITE_LABELS = ("points", "x", "y", "z", "row", "column")
"""Labels of sites in the order in which sites are listed."""

MOST_COMPONENTS = 10
SMALLEST_GRID = 5
"""Without coordinates a shorter axis is components, and none of this length or longer is."""


@dataclass(frozen=True)
class Field:
    """An array all of whose axes are known."""

    name: str
    stored: Stored
    order: Order

    def length(self, label: str) -> int:
        """Returns the length of an axis, one where the array has no such axis."""
        return dict(zip(self.order, self.stored.shape, strict=True)).get(label, 1)

    @property
    def sites(self) -> Order:
        """Labels of the sites in the order in which sites are listed."""
        return tuple(label for label in SITE_LABELS if label in self.order)

    def read(self, **index: int | slice) -> np.ndarray:
        """Reads a part: times, if there is an axis of them, by points by components.

        Args:
            index: What to take of an axis, by label; all of an axis that is not named.
        """
        values = self.stored.read(tuple(index.get(label, slice(None)) for label in self.order))
        left = [label for label in self.order if not isinstance(index.get(label), int)]
        if "component" not in left:
            values, left = values[..., None], [*left, "component"]
        wanted = [label for label in ("time", *self.sites, "component") if label in left]
        values = values.transpose([left.index(label) for label in wanted])
        num_times = 1 if "time" in left else 0
        num_points = math.prod(values.shape[num_times:-1])
        return values.reshape(*values.shape[:num_times], num_points, values.shape[-1])


@dataclass(frozen=True)
class Axes:
    """What is known of the axes before any array is looked at."""

    lengths: Mapping[str, int]
    """Lengths of the axes that have coordinates or times."""
    sites: tuple[Order, ...]
    """Orders in which the axes of the sites may come."""
    stated: Order = ()
    """The order of all axes where the user says it; `component` may be missing in an array."""

    @property
    def is_bare(self) -> bool:
        """True where sites have no coordinates."""
        return not any(label in self.lengths for label in self.sites[0])

    def orders(self, patterns: Sequence[str]) -> list[Order]:
        """Returns all orders that an array may have."""
        if self.stated:
            without = tuple(label for label in self.stated if label != "component")
            return [self.stated, without] if without != self.stated else [self.stated]
        return [
            tuple(pattern.replace("sites", " ".join(sites)).split())
            for pattern in patterns
            for sites in self.sites
        ]

    def fits(self, order: Order, shape: tuple[int, ...]) -> bool:
        """Tells whether an array may have this order of axes."""
        return len(order) == len(shape) and all(
            self._suits(label, length) for label, length in zip(order, shape, strict=True)
        )

    def _suits(self, label: str, length: int) -> bool:
        if label in self.lengths:
            return length == self.lengths[label]
        if label in ("sample", "time") or self.stated:
            return True
        if label == "component":
            return length < SMALLEST_GRID if self.is_bare else length <= MOST_COMPONENTS
        return length >= SMALLEST_GRID


def match(path: Path, name: str, stored: Stored, axes: Axes, patterns: Sequence[str]) -> Field:
    """Returns an array with its axes; refuses where no order of them fits, or more than one."""
    found = [order for order in axes.orders(patterns) if axes.fits(order, stored.shape)]
    if len(found) == 1:
        return Field(name, stored, found[0])
    known = ", ".join(f"{label} {length}" for label, length in axes.lengths.items()) or "none"
    stated = f" The axes were said to be {','.join(axes.stated)}." if axes.stated else ""
    if not found:
        problem = (
            f"has shape {stored.shape}, which fits no order of axes; known lengths are: {known}."
            f"{stated} Leave it out by naming the variables to read, or transpose it."
        )
    else:
        fitting = " and ".join(f"({', '.join(order)})" for order in found)
        example = ",".join(found[0])
        problem = (
            f"has shape {stored.shape}, which fits {fitting}; known lengths are: {known}. "
            f"Say which it is, for example select axes={example}, or save coordinates and times "
            "whose lengths differ."
        )
    raise DataError(path, name, problem)


def state_order(path: Path, text: str, axes: Axes, needed: Sequence[str]) -> Axes:
    """Returns axes in the order a user names, such as `time,y,x`.

    Args:
        path: The file, for messages.
        text: Labels with commas between them.
        axes: What is known of the axes.
        needed: Labels that must be there besides those of the sites.
    """
    stated = tuple(label.strip() for label in text.split(","))
    allowed = {"sample", "time", "component"} if "time" in needed else {"sample", "component"}
    sites = tuple(label for label in stated if label not in allowed)
    is_known = any(set(sites) == set(order) for order in axes.sites)
    if not is_known or len(set(stated)) < len(stated) or not set(needed) <= set(stated):
        choices = " or ".join(",".join(order) for order in axes.sites)
        problem = (
            f"must name each axis once: {', '.join(needed)}, {choices}, and where there are any "
            f"{', '.join(sorted(allowed - set(needed)))}; got {text!r}."
        )
        raise DataError(path, "axes", problem)
    return Axes(axes.lengths, (sites,), stated)


def common_length(path: Path, fields: Sequence[Field], label: str) -> int:
    """Returns the length of an axis, which must be the same in all arrays."""
    lengths = {field.length(label) for field in fields}
    if len(lengths) > 1:
        shapes = ", ".join(f"{field.name} {field.stored.shape}" for field in fields)
        problem = f"must have as many entries on axis {label} as the others, got shapes {shapes}."
        raise DataError(path, fields[0].name, problem)
    return lengths.pop()
