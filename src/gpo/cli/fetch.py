"""The command `gpo data fetch`.

Heavy modules are imported inside functions, so that `--help` is fast.
"""

import json
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg

from gpo.cli.console import say

if TYPE_CHECKING:
    from gpo.data.downloads import Download


@dataclass(frozen=True)
class DataFetch:
    """Downloads the observations of a benchmark: era5-temp, era5-wind or carra.

    Without a key or a network, it prints what to type elsewhere.
    """

    name: Annotated[Positional[str], arg(metavar="NAME", help_behavior_hint="")]
    """Name of the benchmark."""
    start: str = "2020-01-01"
    """First day."""
    days: int = 20
    """Number of days, in one month."""
    source: Annotated[Literal["cds", "arco"] | None, arg(metavar="NAME", help_behavior_hint="(default: cds with a key, else arco)")] = None  # fmt: skip
    """Where from: cds (Climate Data Store) or arco (ARCO-ERA5, without a key)."""
    received: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """File that you downloaded elsewhere, to convert."""
    out: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="(default: ./NAME.nc)")] = (
        None
    )
    """File to write."""
    address: Annotated[str | None, arg(metavar="URL", help_behavior_hint="")] = None
    """Address of a copy of ARCO-ERA5."""

    def run(self) -> None:
        """Writes the request, transfers the data and converts them."""
        from gpo.data.benchmarks import DATA_SETS
        from gpo.data.fetch import FetchError, convert, key_of_store

        download = DATA_SETS[self.name].download if self.name in DATA_SETS else None
        if download is None:
            names = ", ".join(name for name, part in DATA_SETS.items() if part.download)
            raise ValueError(f"`name` must be one of {names}, got {self.name!r}.")
        try:
            start = date.fromisoformat(self.start)
        except ValueError:
            raise ValueError(f"--start must be a date, such as 2020-01-01, got {self.start!r}.") from None  # fmt: skip
        out = self.out or Path(f"{self.name}.nc")
        request = self._write_request(download, start, out)
        if out.exists():
            raise ValueError(f"{out} exists already. Choose another --out, or delete it.")
        received = self.received
        if received is None:
            source = self.source or ("cds" if key_of_store() or not download.is_in_arco else "arco")
            try:
                received = self._transfer(source, download, start, out)
            except FetchError as error:
                raise ValueError(f"{error}\n{self._elsewhere(download, request, out)}") from error
        convert(received, download, start, self.days, out)
        say(f"written: {out}")
        say(self._next(start, out))

    def _write_request(self, download: "Download", start: date, out: Path) -> Path:
        """Writes the request, as arguments of `cdsapi.Client().retrieve`."""
        from gpo.atomic_files import write_text

        path = out.with_suffix(".request.json")
        content = {
            "name": download.dataset,
            "request": download.request(start, self.days),
            "target": str(out.with_suffix(".download")),
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(content, indent=2) + "\n")
        say(f"request: {path}")
        return path

    def _transfer(
        self, source: Literal["cds", "arco"], download: "Download", start: date, out: Path
    ) -> Path:
        """Returns the downloaded file or store."""
        from gpo.data.downloads import ARCO
        from gpo.data.fetch import FetchError, fetch_from_arco, fetch_from_store, key_of_store

        if source == "arco":
            if not download.is_in_arco:
                raise FetchError(f"ARCO-ERA5 does not have {self.name}.")
            store = out.with_suffix(".arco.zarr")
            say(f"copying chunks of {self.address or ARCO}")
            fetch_from_arco(download, start, self.days, store, (self.address or ARCO).rstrip("/"))
            return store
        found = key_of_store()
        if found is None:
            raise FetchError("There is no key of the Climate Data Store.")
        target = out.with_suffix(".download")
        request = download.request(start, self.days)
        if not target.exists():
            fetch_from_store(
                download.dataset, request, target, *found,
                lambda state: say(f"the Climate Data Store says: {state}"),
            )  # fmt: skip
        return target

    def _elsewhere(self, download: "Download", request: Path, out: Path) -> str:
        """Returns what to type where there is a network and a key."""
        from gpo.data.downloads import ARCO

        flags = f"--start {self.start} --days {self.days}"
        target = out.with_suffix(".download")
        lines = [
            "Register at https://cds.climate.copernicus.eu, accept the licence of "
            f"{download.dataset}, put the key into ~/.cdsapirc or CDSAPI_KEY, and type this again; "
            "or, on another machine:",
            "  pip install cdsapi",
            f"  python -c \"import cdsapi, json; cdsapi.Client().retrieve(**json.load(open('{request}')))\"",
            "then here:",
            f"  gpo data fetch {self.name} {flags} --out {out} --received {target}",
        ]
        if download.is_in_arco:
            lines += [
                f"or, without a key, where there is a network ({ARCO}):",
                f"  gpo data fetch {self.name} {flags} --out {out} --source arco",
            ]
        return "\n".join(lines)

    def _next(self, start: date, out: Path) -> str:
        """Returns the command that trains on the file; days are split 12 / 4 / 4 of 20."""
        validation, test = (start + timedelta(days=round(part * self.days)) for part in (0.6, 0.8))
        flags = f"--validation-from {validation} --test-from {test}"
        return f"train: gpo run {self.name} --data {out} --preset paper {flags}"
