"""Downloads of observations, against a server on this machine with small files in the same layout."""

import json
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import numpy as np
import pytest
import xarray as xr

from gpo.cli import main
from gpo.data import fetch
from gpo.data.benchmarks import DATA_SETS
from gpo.data.readers.registry import open_data
from gpo.runs import read_data
from gpo.training.config import RunConfig
from tests.core.test_cli import failure

LATITUDE, LONGITUDE = np.linspace(90, -90, 7), np.arange(0.0, 360, 30)
FLAGS = ["--start", "2020-01-02", "--days", "2"]


def hours(first, count, step=1):
    return np.datetime64(first, "ns") + step * np.arange(count) * np.timedelta64(1, "h")


def field(count, *shape):
    return np.random.default_rng(0).normal(280, 1, (count, *shape)).astype(np.float32)


@pytest.fixture(autouse=True)
def _no_key(monkeypatch, tmp_path):
    monkeypatch.setattr(fetch, "WAIT", 0.0)
    for name in ("CDSAPI_URL", "CDSAPI_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CDSAPI_RC", str(tmp_path / "cdsapirc"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def serve():
    servers = []

    def start(handler):
        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), handler))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def era5_file(path):
    """What the Climate Data Store sends: valid_time, and scalar coordinates beside."""
    times = hours("2020-01-02", 48)
    coords = {"valid_time": times, "latitude": LATITUDE, "longitude": LONGITUDE, "number": 0}
    values = field(48, 7, 12)
    dims = ("valid_time", "latitude", "longitude")
    dataset = xr.Dataset({"t2m": (dims, values, {"units": "K"})}, coords)
    dataset = dataset.assign_coords(expver=("valid_time", ["0001"] * 48))
    dataset.to_netcdf(path)
    return values


class Store(BaseHTTPRequestHandler):
    """A job that is accepted, runs, and has one file."""

    file, asked, states = b"", [], ["accepted", "running", "successful"]

    def log_message(self, *arguments):
        pass

    def answer(self, content):
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append((self.path, body, self.headers["PRIVATE-TOKEN"]))
        self.answer({"jobID": "7", "status": "accepted"})

    def do_GET(self):
        host = self.headers["Host"]
        if self.path.endswith("/results"):
            self.answer({"asset": {"value": {"href": f"http://{host}/file"}}})
        elif self.path == "/file":
            self.answer(self.file)
        else:
            state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
            self.answer({"jobID": "7", "status": state})


def test_the_store_is_asked_for_the_exact_request_and_its_file_becomes_the_benchmarks(
    serve, tmp_path, monkeypatch, capsys
):
    values = era5_file(tmp_path / "sent.nc")
    sent = {"file": (tmp_path / "sent.nc").read_bytes(), "asked": [], "states": ["accepted", "running", "successful"]}  # fmt: skip
    handler = type("Handler", (Store,), sent)
    monkeypatch.setenv("CDSAPI_URL", serve(handler) + "/api")
    monkeypatch.setenv("CDSAPI_KEY", "a key")
    main(["data", "fetch", "era5-temp", *FLAGS])
    ((path, body, key),) = handler.asked
    assert (path, key) == ("/api/retrieve/v1/processes/reanalysis-era5-single-levels/execution", "a key")  # fmt: skip
    assert body["inputs"] == {
        "product_type": ["reanalysis"], "variable": ["2m_temperature"], "year": ["2020"],
        "month": ["01"], "day": ["02", "03"], "time": [f"{hour:02d}:00" for hour in range(24)],
        "data_format": "netcdf", "download_format": "unarchived",
    }  # fmt: skip
    stored = json.loads((tmp_path / "era5-temp.request.json").read_text())
    assert stored["request"] == body["inputs"]
    data = open_data(tmp_path / "era5-temp.nc")
    assert [part.name for part in data.variables] == ["t2m"]
    assert data.geometry().domain.is_sphere
    np.testing.assert_array_equal(data.frames(0).reshape(values.shape), values)
    printed = " ".join(capsys.readouterr().out.split())
    assert "gpo run era5-temp --data era5-temp.nc --preset paper --validation-from 2020-01-03 --test-from 2020-01-04" in printed  # fmt: skip
    assert not (tmp_path / "era5-temp.download.job").exists()


def test_a_refused_job_says_so_and_what_to_type(serve, monkeypatch, capsys):
    handler = type("Handler", (Store,), {"states": ["failed"]})
    monkeypatch.setenv("CDSAPI_URL", serve(handler) + "/api")
    monkeypatch.setenv("CDSAPI_KEY", "a key")
    code, printed = failure(capsys, "data", "fetch", "carra", *FLAGS)
    assert code != 0
    assert "job 7 of reanalysis-carra-single-levels is failed" in printed
    assert "gpo data fetch carra --start 2020-01-02 --days 2 --out carra.nc --received carra.download" in printed  # fmt: skip


@pytest.fixture
def arco(tmp_path):
    """A store in the layout of ARCO-ERA5: hours since 1900, a chunk for every hour."""
    folder, values = tmp_path / "arco", field(96, 7, 12)
    coords = {"time": hours("2020-01-01", 96), "latitude": LATITUDE, "longitude": LONGITUDE}
    dims = ("time", "latitude", "longitude")
    names = ("2m_temperature", "10m_u_component_of_wind")
    dataset = xr.Dataset({name: (dims, values, {"units": "K"}) for name in names}, coords)
    chunks = {name: {"chunks": (1, 7, 12)} for name in names}
    encoding = {**chunks, "time": {"units": "hours since 1900-01-01", "dtype": "int64"}}
    dataset.to_zarr(folder, zarr_format=2, encoding=encoding, consolidated=False)
    return folder, values


class Quiet(SimpleHTTPRequestHandler):
    asked: ClassVar[list[str]] = []

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        self.asked.append(self.path)
        super().do_GET()


def test_only_the_chunks_of_the_days_are_copied_from_arco_and_none_twice(serve, tmp_path, arco):
    folder, values = arco
    handler = type("Handler", (Quiet,), {"asked": []})
    address = serve(partial(handler, directory=str(folder)))
    command = ["data", "fetch", "era5-wind", *FLAGS, "--source", "arco", "--address", address]
    main([*command, "--out", "a.nc"])
    chunks = [name for name in handler.asked if "wind/" in name and not name.endswith((".zarray", ".zattrs"))]  # fmt: skip
    assert chunks == [f"/10m_u_component_of_wind/{hour}.0.0" for hour in range(24, 72)]
    data = open_data(tmp_path / "a.nc")
    assert [part.name for part in data.variables] == ["u10"]
    np.testing.assert_array_equal(data.frames(0).reshape(48, 7, 12), values[24:72])
    asked = len(handler.asked)
    (tmp_path / "a.nc").unlink()
    main([*command, "--out", "a.nc"])
    assert len(handler.asked) == asked


def test_without_key_and_network_it_says_what_to_type_and_writes_the_request(tmp_path, capsys):
    code, printed = failure(capsys, "data", "fetch", "era5-temp", *FLAGS, "--address", "http://127.0.0.1:9/x")  # fmt: skip
    assert code != 0
    for text in ("cannot be reached", "cdsapi.Client().retrieve(**json.load(open('era5-temp.request.json')))", "--source arco", "--received era5-temp.download"):  # fmt: skip
        assert text in printed
    assert (tmp_path / "era5-temp.request.json").exists()
    code, printed = failure(capsys, "data", "fetch", "carra", *FLAGS)
    assert "There is no key of the Climate Data Store" in printed


def carra_file(path, frames=16):
    y, x = np.arange(6), np.arange(5)
    latitude = 70 + 0.5 * y[:, None] + 0.01 * x
    longitude = 20 + 1.5 * x + 0.02 * y[:, None]
    dims = ("time", "y", "x")
    land = np.broadcast_to((x > 2).astype(np.float32), (frames, 6, 5))
    variables = {"v10": (dims, field(frames, 6, 5), {"units": "m s**-1"}), "lsm": (dims, land), "siconc": (dims, np.random.default_rng(1).uniform(size=(frames, 6, 5)).astype(np.float32))}  # fmt: skip
    coords = {"time": hours("2020-01-02", frames, 3), "latitude": (("y", "x"), latitude), "longitude": (("y", "x"), longitude)}  # fmt: skip
    xr.Dataset(variables, coords).to_netcdf(path)


def test_carra_comes_with_its_masks_which_mask_it(tmp_path):
    carra_file(tmp_path / "sent.nc")
    main(["data", "fetch", "carra", *FLAGS, "--received", "sent.nc"])
    request = json.loads((tmp_path / "carra.request.json").read_text())["request"]
    assert request["domain"] == "east_domain"
    assert request["variable"] == ["10m_v_component_of_wind", "land_sea_mask", "sea_ice_area_fraction"]  # fmt: skip
    for mask, is_land in (("lsm<0.5", True), ("siconc<0.15", False)):
        config = RunConfig.of(benchmark="carra", data="carra.nc", mask=mask)
        data = read_data(config)
        assert [part.name for part in data.variables] == ["v10"]
        masked = data.geometry().is_masked.reshape(6, 5)
        assert (masked == (np.arange(5) > 2)).all() == is_land
        assert np.isnan(data.frames(0)).any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ns2d",), "`name` must be one of era5-temp, era5-wind, carra, got 'ns2d'"),
        (("carra", "--start", "tomorrow"), "--start must be a date"),
        (("carra", "--days", "40"), "--start and --days must lie in one month"),
        (
            ("carra", *FLAGS, "--received", "short.nc"),
            "`time` must have 16 frames from 2020-01-02 on, got 5",
        ),
        (
            ("era5-temp", *FLAGS, "--received", "short.nc"),
            "`t2m` is not in the file, which has v10, lsm",
        ),
    ],
)
def test_impossible_downloads_are_refused(tmp_path, capsys, arguments, message):
    carra_file(tmp_path / "short.nc", frames=5)
    code, printed = failure(capsys, "data", "fetch", *arguments)
    assert code != 0
    assert message in printed


def test_every_download_is_of_a_benchmark_that_reads_its_variable():
    found = {name: part for name, part in DATA_SETS.items() if part.download}
    assert list(found) == ["era5-temp", "era5-wind", "carra"]
    assert all(part.download.names[0] in part.variables for part in found.values())
