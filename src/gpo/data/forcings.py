r"""Forcings: inputs beside the state, known in advance and never predicted.

Static fields, prescribed series, parameters of a trajectory, and time features, which follow from
the date: $(\cos\varphi,\sin\varphi)$ of the time of day and of the year, and the cosine of the
solar zenith angle. A frame begins with the forcings of the time that it predicts: what is
prescribed there decides the answer there, while earlier values have left their trace in the state.
With two frames of history a model has both ends of the step.
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
"""Takes a trajectory and its values, times by points by variables, to other sites."""


@dataclass(frozen=True)
class Variable:
    """A named quantity."""

    name: str
    units: str = ""
    """Units as the file has them; empty where it has none."""
    long_name: str = field(default="", compare=False)
    """What the file calls it, for people; empty where it does not."""
    standard_name: str = field(default="", compare=False)
    """Its name in the CF conventions; empty where the file has none."""

    @property
    def attributes(self) -> dict[str, str]:
        """CF attributes of the variable, as far as they are known."""
        names = ("units", "long_name", "standard_name")
        return {name: getattr(self, name) for name in names if getattr(self, name)}


@dataclass(frozen=True)
class Frames:
    """Some frames of a trajectory, for which forcings are asked."""

    trajectory: int
    numbers: np.ndarray
    """Numbers of the frames; they may lie beyond the end of the file."""
    times: np.ndarray
    """Their times, as the file counts them."""
    geometry: Geometry


class AbstractForcing(ABC):
    """Some inputs that belong together."""

    variables: tuple[Variable, ...]
    is_constant: bool = False
    """Whether they are the same at all times."""
    is_scaled: bool = True
    """Whether they are normalised; the hand of a clock has length one and is left as it is."""
    note: str = ""
    """What a user should know, such as where missing values were filled."""

    @abstractmethod
    def at(self, frames: Frames) -> np.ndarray:
        """Returns times by points by variables; one entry stands for all times, or all points."""

    def num_frames(self) -> int | None:
        """Returns at how many frames they are known; None where at any."""
        return None

    def on(self, transform: SiteTransform) -> "AbstractForcing":
        """Returns the same at other sites."""
        return self


@dataclass(frozen=True)
class DayCycle(AbstractForcing):
    """Cosine and sine of the time of day."""

    hour: float
    """Time of day at time zero."""
    variables = (Variable("day_cos", "1"), Variable("day_sin", "1"))
    is_scaled = False

    def at(self, frames: Frames) -> np.ndarray:
        """Returns them for the hours of the frames."""
        return cycle((self.hour + frames.times) / 24)[:, None]


@dataclass(frozen=True)
class YearCycle(AbstractForcing):
    """Cosine and sine of the time of year, whose length is that of the calendar."""

    origin: TimeOrigin
    variables = (Variable("year_cos", "1"), Variable("year_sin", "1"))
    is_scaled = False

    def at(self, frames: Frames) -> np.ndarray:
        """Returns them for the dates of the frames."""
        return cycle(self.origin.year_fraction(frames.times))[:, None]


@dataclass(frozen=True)
class SolarZenith(AbstractForcing):
    """Cosine of the solar zenith angle at every site; 0 at night."""

    origin: TimeOrigin
    variables = (Variable("solar_zenith_cos", "1"),)
    is_scaled = False

    def at(self, frames: Frames) -> np.ndarray:
        """Returns it for the dates of the frames."""
        degrees = frames.geometry.true_degrees()
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
    """Fields that do not change in time, such as an orography."""

    variables: tuple[Variable, ...]
    values: tuple[np.ndarray, ...]
    """Points by variables, for all trajectories or for each."""
    note: str = ""
    is_constant = True

    def at(self, frames: Frames) -> np.ndarray:
        """Returns the fields once, for all times."""
        return self.values[frames.trajectory if len(self.values) > 1 else 0][None]

    def on(self, transform: SiteTransform) -> "StaticFields":
        """Returns the fields at other sites."""
        moved = (transform(number, part[None])[0] for number, part in enumerate(self.values))
        return replace(self, values=tuple(moved))


@dataclass(frozen=True)
class Parameters(AbstractForcing):
    """Constants of every trajectory, such as a viscosity."""

    variables: tuple[Variable, ...]
    values: np.ndarray
    """Trajectories by variables."""
    is_constant = True

    def at(self, frames: Frames) -> np.ndarray:
        """Returns the numbers once, for all times and sites."""
        return self.values[frames.trajectory][None, None]


@dataclass(frozen=True)
class SeriesForcing(AbstractForcing):
    """One number per time, such as the inflow into a channel."""

    variables: tuple[Variable, ...]
    values: np.ndarray
    """Trajectories by frames by variables; one trajectory stands for all."""

    def num_frames(self) -> int | None:
        """Returns how many frames there are."""
        return self.values.shape[1]

    def at(self, frames: Frames) -> np.ndarray:
        """Returns the numbers once, for all sites."""
        own = self.values[frames.trajectory if len(self.values) > 1 else 0]
        return own[frames.numbers][:, None]


@dataclass(frozen=True)
class FieldForcing(AbstractForcing):
    """Fields that are prescribed at every time, such as a sea surface temperature."""

    variables: tuple[Variable, ...]
    read: Callable[[int, np.ndarray], np.ndarray]
    """Reads frames of a trajectory by their numbers: times by points by variables."""
    length: int
    """Frames of the file."""
    transforms: tuple[SiteTransform, ...] = ()
    note: str = ""

    def num_frames(self) -> int | None:
        """Returns how many frames there are."""
        return self.length

    def at(self, frames: Frames) -> np.ndarray:
        """Returns the fields."""
        values = self.read(frames.trajectory, frames.numbers)
        for transform in self.transforms:
            values = transform(frames.trajectory, values)
        return values

    def on(self, transform: SiteTransform) -> "FieldForcing":
        """Returns the fields at other sites."""
        return replace(self, transforms=(*self.transforms, transform))


def stack_forcings(forcings: Sequence[AbstractForcing], frames: Frames) -> np.ndarray:
    """Returns all forcings side by side: times by points by variables."""
    shape = (len(frames.numbers), frames.geometry.num_points)
    parts = (forcing.at(frames) for forcing in forcings)
    return np.concatenate([np.broadcast_to(p, (*shape, p.shape[-1])) for p in parts], -1)


def cycle(fractions: np.ndarray) -> np.ndarray:
    """Returns cosine and sine of an angle that goes round once as a fraction goes from 0 to 1."""
    angles = 2 * math.pi * fractions
    return np.stack([np.cos(angles), np.sin(angles)], -1)


def solar_zenith_cosine(
    latitude: np.ndarray, longitude: np.ndarray, year_fraction: np.ndarray, hours: np.ndarray
) -> np.ndarray:
    r"""Returns $\max(0, \sin\varphi\sin\delta + \cos\varphi\cos\delta\cos h)$, the height of the sun.

    Declination $\delta$ and the equation of time, which is part of the hour angle $h$, are
    Spencer's Fourier series (1971) in the time of year; of other calendars, of the same fraction.

    Args:
        latitude: $\varphi$ in radians.
        longitude: In radians, to the east.
        year_fraction: Part of the year that is over.
        hours: Time of day in universal time.
    """
    angle = 2 * math.pi * year_fraction
    declination = (
        0.006918 - 0.399912 * np.cos(angle) + 0.070257 * np.sin(angle)
        - 0.006758 * np.cos(2 * angle) + 0.000907 * np.sin(2 * angle)
        - 0.002697 * np.cos(3 * angle) + 0.00148 * np.sin(3 * angle)
    )  # fmt: skip
    # In radians: the sun is up to a quarter of an hour early or late.
    equation = (
        0.000075 + 0.001868 * np.cos(angle) - 0.032077 * np.sin(angle)
        - 0.014615 * np.cos(2 * angle) - 0.040849 * np.sin(2 * angle)
    )  # fmt: skip
    hour_angle = 2 * math.pi * (hours - 12) / 24 + longitude + equation
    height = np.sin(latitude) * np.sin(declination)
    height = height + np.cos(latitude) * np.cos(declination) * np.cos(hour_angle)
    return np.maximum(height, 0.0)
