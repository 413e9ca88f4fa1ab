"""A panel of another package: one registration gives it an endpoint, a file and a place on the page."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from playwright import sync_api as playwright
from starlette.testclient import TestClient

from gpo_explore.app import make_app
from gpo_explore.arrays import Packet, unpack
from gpo_explore.panels import PANELS, Panel
from gpo_explore.requests import ExampleRequest, VariableRequest
from gpo_explore.security import HEADERS
from tests.explore.pages import NEEDS_BROWSER, address_of, opened_at, text
from tests.explore.sessions import make_session


@dataclass(frozen=True, kw_only=True)
class ExtremeRequest(VariableRequest):
    side: Literal["smallest", "largest"] = "largest"


def extreme(session, request):
    request.check(len(session.forecaster.task.outputs))
    values = session.example(request.example).target[0, :, request.variable]
    value = values.min() if request.side == "smallest" else values.max()
    return Packet({}, {"value": float(value)})


PANEL = Panel(
    ExtremeRequest, extreme, title="Extremes", module=Path(__file__).with_name("extremes.js")
)


def needs_browser(test):
    for mark in NEEDS_BROWSER:
        test = mark(test)
    return test


@pytest.fixture
def register():
    """Registers panels, and removes them after the test."""
    names = []

    def add(name, panel):
        PANELS.register(name, panel)
        names.append(name)

    yield add
    for name in names:
        del PANELS[name]


@pytest.fixture
def session(register):
    """A run on a page with the panel, whose module is imported when it is used."""
    register("extremes", f"{__name__}:PANEL")
    return make_session("grid")


def client_of(session, **settings):
    return TestClient(make_app(session, **settings), base_url="http://127.0.0.1:8760")


def test_its_endpoint_answers_through_the_app(session):
    client = client_of(session)
    target = session.example(1).target[0]
    for variable in (0, 1):
        for side, value in (("largest", target.max(0)), ("smallest", target.min(0))):
            body = {"example": 1, "variable": variable, "side": side}
            response = client.post("/api/extremes", json=body)
            assert response.status_code == 200
            found = unpack(response.content).metadata["value"]
            assert found == pytest.approx(float(value.values[variable]))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"side": "middle"}, '`side` must be one of smallest, largest, got "middle"'),
        ({"side": 1}, "`side` must be one of smallest, largest, got 1"),
        ({"variable": 2}, "`variable` must be from 0 to 1, got 2"),
        ({"other": 1}, "The request may have example, ablation, variable, side, got `other`"),
    ],
)
def test_its_own_fields_are_validated(session, body, message):
    response = client_of(session).post("/api/extremes", json=body)
    assert response.status_code == 400
    assert message in response.json()["error"]


def test_a_field_without_a_reader_is_an_error_of_its_author(register):
    @dataclass(frozen=True, kw_only=True)
    class FreeRequest(ExampleRequest):
        name: str = ""

    register("free", Panel(FreeRequest, extreme))
    with pytest.raises(TypeError, match="`name` must be a Literal or of a type in READERS"):
        client_of(make_session("grid")).post("/api/free", json={"name": "x"})


def test_only_its_module_is_served_and_with_all_headers(session, register):
    register("hidden", Panel(ExampleRequest, extreme))
    client = client_of(session)
    response = client.get("/static/panel-extremes.js")
    assert response.content == PANEL.module.read_bytes()
    assert response.headers["content-type"].startswith("text/javascript")
    assert {name: response.headers[name] for name in HEADERS} == HEADERS
    for name in ("extremes.js", "panel-hidden.js", "panel-frames.js", "panel-test_outside_panel.py",
                 "panel-..%2fextremes.js", "panel-extremes.js%00", "panel-.js"):  # fmt: skip
        assert client.get(f"/static/{name}").status_code == 404
    assert client.get("/api/run").json()["panels"] == [{"name": "extremes", "title": "Extremes"}]


def test_host_and_token_are_checked_for_it_as_for_all_files(session):
    for path in ("/static/panel-extremes.js", "/api/extremes"):
        foreign = client_of(session).get(path, headers={"host": "evil.example"})
        assert foreign.status_code == 421
        assert client_of(session, token="secret").get(path).status_code == 401
    cross = {"sec-fetch-site": "cross-site", "sec-fetch-dest": "script"}
    assert client_of(session).get("/static/panel-extremes.js", headers=cross).status_code == 403


def test_a_panel_with_its_own_queue_learns_whether_anybody_waits(register):
    def wait(session, request, is_abandoned):
        assert not session.lock.locked()
        return Packet({}, {"is_abandoned": is_abandoned()})

    register("waiting", Panel(ExampleRequest, wait, "own"))
    response = client_of(make_session("grid")).post("/api/waiting", json={})
    assert unpack(response.content).metadata == {"is_abandoned": False}


def test_a_name_is_taken_once(session, register):
    for name in ("extremes", "frames"):
        with pytest.raises(ValueError, match=f"The panel '{name}' is already registered"):
            register(name, PANEL)


def test_a_plug_in_that_registers_a_panel_does_not_load_torch():
    code = "import sys; from gpo_explore.panels import PANELS; print('torch' in sys.modules)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    assert printed.strip() == b"False"


@needs_browser
def test_it_is_drawn_on_the_page_and_follows_the_settings(tab, session):
    target = session.example(0).target[0]
    with address_of(session) as address:
        page = opened_at(tab, address)
        line = page.locator("#panel-extremes #extremes-text")
        playwright.expect(line).to_have_text(f"Largest: {target[:, 0].max():.3f}")
        assert text(page, "panel-extremes-title") == "Extremes"
        page.select_option("#variable", "1")
        playwright.expect(line).to_have_text(f"Largest: {target[:, 1].max():.3f}")
        line.scroll_into_view_if_needed()
        assert line.is_visible()
        assert page.problems == []
        assert page.locator("#problem").is_hidden()


@needs_browser
def test_a_module_that_fails_is_reported_and_the_page_goes_on(tab, register, tmp_path):
    module = tmp_path / "broken.js"
    module.write_text('export function draw() { throw new Error("The panel is broken."); }')
    register("broken", Panel(ExampleRequest, extreme, title="Broken", module=module))
    with address_of(make_session("grid")) as address:
        page = opened_at(tab, address)
        playwright.expect(page.locator("#problem")).to_have_text("The panel is broken.")
        playwright.expect(page.locator("#spectrum-seen")).to_contain_text("wave")
        assert page.problems == []
