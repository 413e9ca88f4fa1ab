"""Requests for observations: what to ask the Climate Data Store for, and where ARCO-ERA5 has it.

Nothing here imports more than dates; `fetch.py` transfers and converts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

CDS = "https://cds.climate.copernicus.eu/api"
"""Root of the interface of the Climate Data Store."""
ARCO = (
    "https://storage.googleapis.com/gcp-public-data-arco-era5/ar/full_37-1h-0p25deg-chunk-1.zarr-v3"
)
"""Zarr store of ERA5 that needs no key; gs://gcp-public-data-arco-era5/ar/... in Google's notation."""


@dataclass(frozen=True, kw_only=True)
class Download:
    """A data set of the Climate Data Store, and the file made of it."""

    dataset: str
    """Name of the data set in the store."""
    variable: str
    """Name of the variable in requests and in ARCO-ERA5."""
    names: tuple[str, ...]
    """Names of the variable in files; the first one is that of the benchmark."""
    masks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Further variables by their name in requests, with their names in files."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of a request."""
    step: int = 1
    """Hours between frames."""
    is_in_arco: bool = False
    """Whether ARCO-ERA5 has the variable."""

    def request(self, start: date, days: int) -> dict[str, Any]:
        """Returns the request for some days of one month."""
        last = start + timedelta(days=days - 1)
        if days < 1 or (last.year, last.month) != (start.year, start.month):
            raise ValueError(
                f"--start and --days must lie in one month, as a request of the store does, got "
                f"{start} and {days} days."
            )
        return {
            **self.settings,
            "variable": [self.variable, *self.masks],
            "year": [f"{start.year}"],
            "month": [f"{start.month:02d}"],
            "day": [f"{start.day + number:02d}" for number in range(days)],
            "time": [f"{hour:02d}:00" for hour in range(0, 24, self.step)],
            "data_format": "netcdf",
        }

    def fields(self) -> dict[str, tuple[str, ...]]:
        """Returns the variables of the file, with the names that they may have in a download."""
        return {self.names[0]: self.names, **{names[0]: names for names in self.masks.values()}}
