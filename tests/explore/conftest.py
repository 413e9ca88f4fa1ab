"""Runs behind real servers, and a tab of a real browser."""

import os
import sys

import numpy as np
import pytest
from playwright import sync_api as playwright

from gpo.data.readers.base import ReadOptions
from gpo.data.readers.registry import open_data
from gpo.runs import Run, split_of
from gpo.training.config import RunConfig
from gpo.training.fit import new_forecaster
from gpo_explore import mixtures, ranking
from tests.explore.pages import ADDRESS, CHROMIUM, FLAGS, PATIENCE, address_of, opened_at
from tests.explore.sessions import SIZES, lively, make_session
from tests.processes import LIMIT, Running


@pytest.fixture(scope="session", autouse=True)
def _patient_server():
    """Lets fits and rankings take as long as they need: a busy machine must not cut them short."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (mixtures, ranking):
            patch.setattr(module, "MAX_SECONDS", float(LIMIT))
        yield


def make_run(folder):
    """An untrained run of a wave that travels over a square."""
    x, y, t = np.arange(16) / 16, np.arange(12) / 12, np.arange(40.0)
    angle = 2 * np.pi * (x[:, None] + 2 * y - 0.05 * t[:, None, None])
    np.savez(folder / "wave.npz", x=x, y=y, time=t, u=np.sin(angle) + np.cos(2 * angle))  # fmt: skip
    config = RunConfig.of(data=str(folder / "wave.npz"), **SIZES)
    data = open_data(folder / "wave.npz", ReadOptions())
    run = Run(folder / "run")
    run.claim(config)
    lively(new_forecaster(data, split_of(data, config), config)).save(run.model_folder)
    return run.folder


@pytest.fixture(scope="session")
def served(tmp_path_factory):
    """The command itself, from its first line to Ctrl-C."""
    folder = make_run(tmp_path_factory.mktemp("explore"))
    command = [sys.executable, "-m", "gpo", "explore", str(folder), "--port", "0", "--no-browser"]
    with Running(command, env={**os.environ, "PYTHONUNBUFFERED": "1"}) as running:
        running.wait_until(lambda: ADDRESS.search(running.said))
        printed = running.said
        yield ADDRESS.search(printed)[1], printed
        running.interrupt()
        assert running.end() == 0, running.said
        assert running.said.removeprefix(printed).strip() == "stopped"


@pytest.fixture(scope="module")
def paper_address():
    """The other variant."""
    with address_of(make_session("grid", "paper")) as address:
        yield address


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def tab(browser):
    """One tab for all tests; it remembers what went wrong and what was asked for."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, accept_downloads=True)
    context.set_default_timeout(PATIENCE)
    opened = context.new_page()
    opened.problems, opened.asked = [], []
    opened.on("console", lambda line: opened.problems.append(line.text) if line.type == "error" else None)  # fmt: skip
    opened.on("pageerror", lambda error: opened.problems.append(str(error)))
    opened.on("request", lambda request: opened.asked.append(request.url))
    yield opened
    context.close()


@pytest.fixture
def page(tab, served):
    yield opened_at(tab, served[0])
    assert tab.problems == []
    assert tab.locator("#problem").is_hidden()
