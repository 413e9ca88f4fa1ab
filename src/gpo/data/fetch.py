"""Transfers observations and converts them to the file of a benchmark.

The Climate Data Store works on a request until its file is ready; the number of the job is kept, so
that an interrupted command waits for the same one. Chunks of ARCO-ERA5 are copied one by one into a
Zarr store beside the file, so that an interrupted copy goes on.
"""

import json
import math
import os
import shutil
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from http.client import HTTPResponse
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from gpo.atomic_files import atomic_file, write_text
from gpo.data.dataset import DataError
from gpo.data.downloads import CDS, Download
from gpo.optional import require

WAIT = 10.0
"""Seconds between questions whether a file is ready."""
AXES = ("time", "latitude", "longitude")
"""Coordinates of ARCO-ERA5."""
TIMES = ("time", "valid_time")
"""Names of the time axis in downloads."""
SCALARS = ("number", "expver", "step", "surface", "heightAboveGround")
"""Coordinates of downloads that the file leaves out."""


class FetchError(ValueError):
    """A transfer failed; the message says why."""


def key_of_store() -> tuple[str, str] | None:
    """Returns address and key of the Climate Data Store, as `cdsapi` finds them; None without a key."""
    address, key = os.environ.get("CDSAPI_URL"), os.environ.get("CDSAPI_KEY")
    path = Path(os.environ.get("CDSAPI_RC", Path.home() / ".cdsapirc"))
    if key is None and path.is_file():
        lines = (line.split(":", 1) for line in path.read_text(encoding="utf-8").splitlines() if ":" in line)  # fmt: skip
        stored = {name.strip(): value.strip() for name, value in lines}
        address, key = address or stored.get("url"), stored.get("key")
    return None if not key else ((address or CDS).rstrip("/"), key)


def fetch_from_store(
    dataset: str, request: dict[str, Any], target: Path, address: str, key: str,
    on_wait: Callable[[str], None] = lambda _: None,
) -> None:  # fmt: skip
    """Has the Climate Data Store make a file, and downloads it.

    Args:
        dataset: Name of the data set in the store.
        request: The request.
        target: The file to write.
        address: Root of the store's interface.
        key: The user's key.
        on_wait: Called with the state of the job.
    """
    root, note = f"{address}/retrieve/v1", target.with_name(f"{target.name}.job")
    if not note.exists():
        job = _json(f"{root}/processes/{dataset}/execution", key, {"inputs": request})
        write_text(note, str(job["jobID"]))
    number = note.read_text(encoding="utf-8")
    while (state := _json(f"{root}/jobs/{number}", key)["status"]) != "successful":
        on_wait(state)
        if state not in ("accepted", "running"):
            note.unlink()
            raise FetchError(f"job {number} of {dataset} is {state}: see {address.removesuffix('/api')}/requests.")  # fmt: skip
        time.sleep(WAIT)
    asset = _json(f"{root}/jobs/{number}/results", key)["asset"]["value"]
    _save(asset["href"], target)
    note.unlink()


def fetch_from_arco(
    download: Download, start: date, days: int, store: Path, address: str,
    on_chunk: Callable[[int, int], None] = lambda *_: None,
) -> None:  # fmt: skip
    """Copies the chunks of some days of ARCO-ERA5 into a Zarr store of the same layout.

    Args:
        download: The variable.
        start: The first day.
        days: Number of days.
        store: The store to write, which may have chunks already.
        address: Address of ARCO-ERA5.
        on_chunk: Called with the numbers of copied and of all chunks of the variable.
    """
    names = [".zgroup", *(f"{name}/{part}" for name in (*AXES, download.variable) for part in (".zarray", ".zattrs"))]  # fmt: skip
    for name in names:
        _copy(address, store, name)
    for axis in AXES:
        for name in _chunks(store, axis, None):
            _copy(address, store, name)
    require("zarr", "data", "Reading Zarr")
    with xr.open_zarr(store, consolidated=False, chunks=None) as opened:
        times = opened["time"].to_index()
    ends = np.array([start, start + timedelta(days=days)], dtype="datetime64[ns]")
    first, end = np.searchsorted(times.values.astype("datetime64[ns]"), ends)
    chunks = _chunks(store, download.variable, range(int(first), int(end)))
    for number, name in enumerate(chunks, 1):
        _copy(address, store, name)
        on_chunk(number, len(chunks))


def convert(source: Path, download: Download, start: date, days: int, out: Path) -> None:
    """Writes the file of a benchmark: some days of a variable, and its masks where they are there.

    Args:
        source: A download: NetCDF, GRIB, Zarr, or a zip archive of one file.
        download: Names of the variables.
        start: The first day.
        days: Number of days.
        out: The file to write.
    """
    if zipfile.is_zipfile(source):
        with zipfile.ZipFile(source) as archive:
            (name, *others) = archive.namelist()
            if others:
                raise DataError(source, "file", f"must hold one file, got {len(others) + 1}.")
            with atomic_file(source.with_name(f"{source.name}.unpacked")) as partial:
                partial.write_bytes(archive.read(name))
        source = source.with_name(f"{source.name}.unpacked")
    with _opened(source) as opened:
        chosen = _chosen(opened, download, source)
        time_name = next((name for name in TIMES if name in chosen.dims), None)
        if time_name is None:
            raise DataError(
                source, "time", f"must be an axis, got {', '.join(map(str, chosen.dims))}."
            )
        chosen = chosen.drop_vars([name for name in SCALARS if name in chosen.coords])
        if time_name != "time":
            chosen = chosen.drop_vars("time", errors="ignore").rename({time_name: "time"})
        end = start + timedelta(days=days) - timedelta(days=1)
        chosen = chosen.sortby("time").sel(time=slice(str(start), str(end)))
        expected = days * 24 // download.step
        if chosen.sizes["time"] != expected:
            problem = f"must have {expected} frames from {start} on, got {chosen.sizes['time']}."
            raise DataError(source, "time", problem)
        out.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(out) as partial:
            # Encodings of a download, such as packing, belong to its own chunks.
            chosen.drop_encoding().to_netcdf(partial)


def _opened(source: Path) -> xr.Dataset:
    if source.is_dir():
        require("zarr", "data", "Reading Zarr")
        return xr.open_zarr(source, consolidated=False, chunks=None)
    with source.open("rb") as file:
        is_grib = file.read(4) == b"GRIB"
    require("cfgrib" if is_grib else "netCDF4", "data", "Reading a download")
    settings = {"engine": "cfgrib", "backend_kwargs": {"indexpath": ""}} if is_grib else {}
    return xr.open_dataset(source, **settings)


def _chosen(opened: xr.Dataset, download: Download, source: Path) -> xr.Dataset:
    """Returns the variables under the names of the benchmark; masks may be missing."""
    found = {}
    for name, names in download.fields().items():
        known = [other for other in (*names, download.variable) if other in opened.data_vars]
        if name == download.names[0] and not known:
            listed = ", ".join(map(str, opened.data_vars))
            raise DataError(source, name, f"is not in the file, which has {listed}.")
        own = [other for other in known if other in names or name == download.names[0]]
        if own:
            found[own[0]] = name
    return opened[list(found)].rename(found)


def _chunks(store: Path, array: str, frames: range | None) -> list[str]:
    """Returns the names of the chunks of an array, those of some frames along its first axis."""
    stored = json.loads((store / array / ".zarray").read_text(encoding="utf-8"))
    counts = [range(math.ceil(n / size)) for n, size in zip(stored["shape"], stored["chunks"], strict=True)]  # fmt: skip
    if frames is not None:
        size = stored["chunks"][0]
        if not frames:
            raise FetchError(f"{array} has no frame of these days.")
        counts[0] = range(frames.start // size, (frames.stop - 1) // size + 1)
    separator = stored.get("dimension_separator", ".")
    return [f"{array}/{separator.join(map(str, index))}" for index in product(*counts)]


def _copy(address: str, store: Path, name: str) -> None:
    target = store / name
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        _save(f"{address}/{name}", target)


def _json(address: str, key: str, content: dict[str, Any] | None = None) -> Any:
    data = None if content is None else json.dumps(content).encode()
    headers = {"PRIVATE-TOKEN": key, "Content-Type": "application/json"}
    with _response(urllib.request.Request(address, data, headers)) as response:
        return json.load(response)


def _save(address: str, target: Path) -> None:
    request = urllib.request.Request(address)
    with _response(request) as response, atomic_file(target) as partial, partial.open("wb") as file:
        shutil.copyfileobj(response, file)


@contextmanager
def _response(request: urllib.request.Request) -> Iterator[HTTPResponse]:
    """Yields the response of a server, or raises a `FetchError` that names the address."""
    address = request.full_url
    if not address.startswith(("http://", "https://")):
        raise FetchError(f"{address} must be an address of http or https.")
    try:
        with urllib.request.urlopen(request, timeout=120) as response:
            yield response
    except urllib.error.HTTPError as error:
        reason = error.read().decode(errors="replace")[:300]
        raise FetchError(f"{address}: {error.code} {error.reason} {reason}".strip()) from error
    except OSError as error:
        raise FetchError(f"{address} cannot be reached: {error}") from error
