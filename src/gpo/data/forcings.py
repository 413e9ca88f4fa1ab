r"""Forcings: inputs that are known in advance and not predicted.

These are static fields, prescribed series, parameters of a trajectory, and time features:
$(\cos\varphi,\sin\varphi)$ of the time of day and of the year, and the cosine of the solar zenith
angle. Each input frame has the forcings of its target time, since the state already reflects
earlier forcings. With two input frames, a model has the forcings at both ends of the step.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from gpo.data.dates import TimeOrigin
from gpo.data.geometry import Geometry

TimeFeature = Literal["day", "year", "solar"]

SiteTransform = Callable[[int, np.ndarray], np.ndarray]
"""Maps values of a trajectory, (times, points, variables), to other sites."""


@dataclass(frozen=True)
class Variable:
    """A named quantity."""

    name: str
    units: str = ""
    """Units as in the file; empty if it has none."""
    long_name: str = field(default="", compare=False)
    """Descriptive name in the file; empty if it has none."""
    standard_name: str = field(default="", compare=False)
    """CF standard name; empty if the file has none."""

    @property
    def attributes(self) -> dict[str, str]:
        """The non-empty CF attributes of the variable."""
        names = ("units", "long_name", "standard_name")
        return {name: getattr(self, name) for name in names if getattr(self, name)}


@dataclass(frozen=True)
class Frames:
    """Frames of a trajectory at which forcings are evaluated."""

    trajectory: int
    numbers: np.ndarray
    """Frame indices, which may lie beyond the end of the file."""
    times: np.ndarray
    """Times of the frames, in the units of the file."""
    geometry: Geometry


class AbstractForcing(ABC):
    """A forcing of one or several variables."""

    variables: tuple[Variable, ...]
    is_constant: bool = False
    """Whether the values are the same at all times."""
    is_scaled: bool = True
    """Whether the values are normalised; cosines and sines are not."""
    note: str = ""
    """A note for the user, such as how missing values were filled."""

    @abstractmethod
    def at(self, frames: Frames) -> np.ndarray:
        """Returns (times, points, variables), with length one along axes of constant values."""

    def num_frames(self) -> int | None:
        """Returns the number of frames with values; None if unlimited."""
        return None

    def on(self, transform: SiteTransform) -> "AbstractForcing":
        """Returns the forcing at other sites."""
        return self


@dataclass(frozen=True)
class DayCycle(AbstractForcing):
    """Cosine and sine of the time of day."""

    hour: float
    """Time of day at time zero."""
    variables = (Variable("day_cos", "1"), Variable("day_sin", "1"))
    is_scaled = False

    def at(self, frames: Frames) -> np.ndarray:
        """Returns cosine and sine at the times of the frames."""
        return cycle((self.hour + frames.times) / 24)[:, None]


@dataclass(frozen=True)
class YearCycle(AbstractForcing):
    """Cosine and sine of the time of year, by the calendar of the file."""

    origin: TimeOrigin
    variables = (Variable("year_cos", "1"), Variable("year_sin", "1"))
    is_scaled = False

    def at(self, frames: Frames) -> np.ndarray:
        """Returns cosine and sine at the dates of the frames."""
        return cycle(self.origin.year_fraction(frames.times))[:, None]


@dataclass(frozen=True)
class SolarZenith(AbstractForcing):
    """Cosine of the solar zenith angle at each site; 0 at night."""

    origin: TimeOrigin
    variables = (Variable("solar_zenith_cos", "1"),)
    is_scaled = False

    def at(self, frames: Frames) -> np.ndarray:
        """Returns the cosine at the dates of the frames."""
        degrees = frames.geometry.geographic_degrees()
        assert degrees is not None
        longitude, latitude = np.deg2rad(degrees).T
        cosines = solar_zenith_cosine(
            latitude,
            longitude,
            self.origin.year_fraction(frames.times)[:, None],
            self.origin.day_hours(frames.times)[:, None],
        )
        return cosines[..., None]


@dataclass(frozen=True)
class StaticFields(AbstractForcing):
    """Fields that do not change in time, such as the orography."""

    variables: tuple[Variable, ...]
    values: tuple[np.ndarray, ...]
    """Values of shape (points, variables), shared or one array per trajectory."""
    note: str = ""
    is_constant = True

    def at(self, frames: Frames) -> np.ndarray:
        """Returns the fields with a time axis of length one."""
        return self.values[frames.trajectory if len(self.values) > 1 else 0][None]

    def on(self, transform: SiteTransform) -> "StaticFields":
        """Returns the fields at other sites."""
        values = (transform(number, part[None])[0] for number, part in enumerate(self.values))
        return replace(self, values=tuple(values))


@dataclass(frozen=True)
class Parameters(AbstractForcing):
    """Scalar parameters of each trajectory, such as a viscosity."""

    variables: tuple[Variable, ...]
    values: np.ndarray
    """Values of shape (trajectories, variables)."""
    is_constant = True

    def at(self, frames: Frames) -> np.ndarray:
        """Returns the parameters with time and point axes of length one."""
        return self.values[frames.trajectory][None, None]


@dataclass(frozen=True)
class SeriesForcing(AbstractForcing):
    """A scalar time series, such as the inflow into a channel."""

    variables: tuple[Variable, ...]
    values: np.ndarray
    """Values of shape (trajectories, frames, variables); a single trajectory is shared."""

    def num_frames(self) -> int | None:
        """Returns the number of frames."""
        return self.values.shape[1]

    def at(self, frames: Frames) -> np.ndarray:
        """Returns the values with a point axis of length one."""
        series = self.values[frames.trajectory if len(self.values) > 1 else 0]
        return series[frames.numbers][:, None]


@dataclass(frozen=True)
class FieldForcing(AbstractForcing):
    """Fields that are prescribed at every time, such as the sea surface temperature."""

    variables: tuple[Variable, ...]
    read: Callable[[int, np.ndarray], np.ndarray]
    """Reads frames of a trajectory by index as (times, points, variables)."""
    length: int
    """Number of frames in the file."""
    transforms: tuple[SiteTransform, ...] = ()
    note: str = ""

    def num_frames(self) -> int | None:
        """Returns the number of frames."""
        return self.length

    def at(self, frames: Frames) -> np.ndarray:
        """Returns the fields of the frames."""
        values = self.read(frames.trajectory, frames.numbers)
        for transform in self.transforms:
            values = transform(frames.trajectory, values)
        return values

    def on(self, transform: SiteTransform) -> "FieldForcing":
        """Returns the fields at other sites."""
        return replace(self, transforms=(*self.transforms, transform))


def stack_forcings(forcings: Sequence[AbstractForcing], frames: Frames) -> np.ndarray:
    """Returns all forcings, concatenated as (times, points, variables)."""
    shape = (len(frames.numbers), frames.geometry.num_points)
    parts = (forcing.at(frames) for forcing in forcings)
    return np.concatenate([np.broadcast_to(p, (*shape, p.shape[-1])) for p in parts], -1)


def cycle(fractions: np.ndarray) -> np.ndarray:
    """Returns cosine and sine of 2 pi times each fraction."""
    angles = 2 * math.pi * fractions
    return np.stack([np.cos(angles), np.sin(angles)], -1)


def solar_zenith_cosine(
    latitude: np.ndarray, longitude: np.ndarray, year_fraction: np.ndarray, hours: np.ndarray
) -> np.ndarray:
    r"""Returns $\max(0, \sin\varphi\sin\delta + \cos\varphi\cos\delta\cos h)$.

    The declination $\delta$ and the equation of time, which is part of the hour angle $h$, are
    Spencer's Fourier series (1971) in the elapsed fraction of the year.

    Args:
        latitude: $\varphi$ in radians.
        longitude: In radians, positive to the east.
        year_fraction: Elapsed fraction of the year.
        hours: Time of day (UTC).
    """
    angle = 2 * math.pi * year_fraction
    declination = (
        0.006918 - 0.399912 * np.cos(angle) + 0.070257 * np.sin(angle)
        - 0.006758 * np.cos(2 * angle) + 0.000907 * np.sin(2 * angle)
        - 0.002697 * np.cos(3 * angle) + 0.00148 * np.sin(3 * angle)
    )  # fmt: skip
    # Equation of time in radians: solar noon is up to a quarter of an hour early or late.
    equation = (
        0.000075 + 0.001868 * np.cos(angle) - 0.032077 * np.sin(angle)
        - 0.014615 * np.cos(2 * angle) - 0.040849 * np.sin(2 * angle)
    )  # fmt: skip
    hour_angle = 2 * math.pi * (hours - 12) / 24 + longitude + equation
    cosine = np.sin(latitude) * np.sin(declination)
    cosine = cosine + np.cos(latitude) * np.cos(declination) * np.cos(hour_angle)
    return np.maximum(cosine, 0.0)
