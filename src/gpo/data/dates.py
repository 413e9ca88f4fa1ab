"""Dates of frames in the calendar of their file: how far the year and the day have gone."""

from dataclasses import dataclass

import numpy as np

from gpo.files import require


@dataclass(frozen=True)
class FirstDate:
    """The date of the first frame; those of later frames follow from the hours since."""

    text: str
    """Such as 2019-03-01 00:00:00, in universal time."""
    calendar: str = "standard"
    """A calendar of the CF conventions, such as 360_day or noleap."""

    def year_fraction(self, hours: np.ndarray) -> np.ndarray:
        """Returns which part of its year is over at some times, from 0 to 1.

        Args:
            hours: Hours since the first frame.
        """
        cftime = require("cftime", "data", "Reading dates")
        units = f"hours since {self.text}"
        dates = np.atleast_1d(cftime.num2date(hours, units, self.calendar))
        starts = {}
        for year in {date.year for date in dates.tolist()}:
            first, last = (
                cftime.datetime(number, 1, 1, calendar=self.calendar) for number in (year, year + 1)
            )
            starts[year] = (first, (last - first).total_seconds())
        return np.array(
            [
                (date - starts[date.year][0]).total_seconds() / starts[date.year][1]
                for date in dates.tolist()
            ]
        )

    def day_hours(self, hours: np.ndarray) -> np.ndarray:
        """Returns the time of day at some times, in hours since a midnight.

        Args:
            hours: Hours since the first frame.
        """
        clock = self.text.split(" ")[1].split(":")
        first = sum(float(part) / 60**power for power, part in enumerate(clock))
        return (first + hours) % 24
