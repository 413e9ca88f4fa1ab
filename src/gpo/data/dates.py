"""Dates of frames in a CF calendar such as standard, noleap or 360_day."""

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np

from gpo.optional import require

if TYPE_CHECKING:
    import cftime


@dataclass(frozen=True)
class TimeOrigin:
    """The reference date of times in hours."""

    date: str
    """A date such as 1987-05-01 12:00:00."""
    calendar: str = "standard"
    """A calendar of the CF conventions, such as 360_day."""

    @property
    def units(self) -> str:
        """CF units of the times."""
        return f"hours since {self.date}"

    def labels(self, hours: np.ndarray) -> list[str]:
        """Returns dates as text, without a time of day if all of them are at midnight."""
        dates = [_to_minute(date) for date in self._dates(hours)]
        is_daily = all((date.hour, date.minute) == (0, 0) for date in dates)
        return [date.strftime("%Y-%m-%d" if is_daily else "%Y-%m-%d %H:%M") for date in dates]

    def texts(self, hours: np.ndarray) -> list[str]:
        """Returns dates as text with seconds, such as 1987-02-30T12:00:00."""
        # Round to the nearest second: hours in floating point are not exact.
        dates = [date + timedelta(milliseconds=500) for date in self._dates(hours)]
        return [date.strftime("%Y-%m-%dT%H:%M:%S") for date in dates]

    def hours(self, text: str) -> float:
        """Returns the time of a date; raises a `ValueError` if the calendar does not have it.

        Args:
            text: A date such as 1987-05-30, 1987-05-30T06:00 or 1987-05-30 06:00:00.
        """
        cftime = require("cftime", "data", "Reading dates")
        day, _, clock = text.strip().replace("T", " ").rstrip("Z").partition(" ")
        try:
            parts = [int(part) for part in (*day.split("-"), *clock.split(":")) if part]
            if day.count("-") != 2 or len(parts) > 6:
                raise ValueError("a date is year-month-day")
            date = cftime.datetime(*parts, calendar=self.calendar)
        except ValueError as error:
            raise ValueError(
                f"must be a date of the {self.calendar} calendar, such as "
                f"{self.labels(np.zeros(1))[0]}, got {text!r}: {error}."
            ) from error
        return float(cftime.date2num(date, self.units, self.calendar))

    def months_later(self, hours: float, counts: np.ndarray) -> np.ndarray:
        """Returns times that are whole months later; the last day of a month stays the last."""
        cftime = require("cftime", "data", "Counting months")
        date = _to_minute(self._dates(np.array([hours]))[0])
        is_last, later = date.day == date.daysinmonth, []
        for count in np.asarray(counts).tolist():
            year, month = divmod(12 * date.year + date.month - 1 + int(count), 12)
            length = cftime.datetime(year, month + 1, 1, calendar=self.calendar).daysinmonth
            day = length if is_last else min(date.day, length)
            later.append(date.replace(year=year, month=month + 1, day=day))
        return np.atleast_1d(cftime.date2num(later, self.units, self.calendar)).astype(float)

    def months(self, hours: np.ndarray) -> np.ndarray:
        """Returns the month of each time, from 0 to 11."""
        return np.array([date.month - 1 for date in self._dates(hours)])

    def year_fraction(self, hours: np.ndarray) -> np.ndarray:
        """Returns the elapsed fraction of the year at each time, from 0 to 1."""
        cftime = require("cftime", "data", "Reading dates")
        dates, starts = self._dates(hours), {}
        for year in {date.year for date in dates}:
            first, last = (
                cftime.datetime(start, 1, 1, calendar=self.calendar) for start in (year, year + 1)
            )
            starts[year] = (first, (last - first).total_seconds())
        return np.array(
            [(date - starts[date.year][0]).total_seconds() / starts[date.year][1] for date in dates]
        )

    def day_hours(self, hours: np.ndarray) -> np.ndarray:
        """Returns the time of day at each time, in hours since midnight."""
        clock = self.date.split(" ")[1].split(":")
        first = sum(float(part) / 60**power for power, part in enumerate(clock))
        return (first + hours) % 24

    def _dates(self, hours: np.ndarray) -> "list[cftime.datetime]":
        cftime = require("cftime", "data", "Writing dates")
        return list(cftime.num2date(np.atleast_1d(hours), self.units, self.calendar))


def _to_minute(date: "cftime.datetime") -> "cftime.datetime":
    """Rounds to the nearest minute: hours in floating point are not exact."""
    later = date + timedelta(seconds=30)
    return later.replace(second=0, microsecond=0)
