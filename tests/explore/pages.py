"""A page in a real browser: how it is opened, waited for, clicked and read."""

import re
import shutil
import threading
from contextlib import contextmanager

import pytest
import uvicorn
from playwright import sync_api as playwright

from gpo_explore.app import make_app
from gpo_explore.server import listen
from tests.processes import LIMIT

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)  # fmt: skip
NEEDS_BROWSER = [
    pytest.mark.thorough,
    # What servers compute has its types checked where it is asked without a browser.
    pytest.mark.usefixtures("untyped"),
    pytest.mark.skipif(CHROMIUM is None, reason="no browser found: needs Chromium on the PATH"),
]
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync"]  # fmt: skip
ADDRESS = re.compile(r"^explore: (http://127\.0\.0\.1:\d+/) .*\n", re.MULTILINE)
PATIENCE = 1000 * LIMIT
"""Milliseconds after which an element that is waited for is called missing; ends hangs only."""
playwright.expect.set_options(timeout=PATIENCE)


@contextmanager
def address_of(session):
    """Serves a session in a thread of this process, until the block ends however it may."""
    listener = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(make_app(session), log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def opened_at(tab, address):
    # What the last page still waited for, of a server that has ended, is no problem of this one.
    tab.goto("about:blank")
    tab.problems.clear()
    tab.asked.clear()
    tab.goto(address)
    tab.wait_for_selector("html[data-ready=true]")
    settle(tab)
    return tab


def settle(page):
    """Waits until no answer is under way and all is drawn."""
    page.evaluate(
        """async () => { for (let calm = 0; calm < 3; calm++) {
        await new Promise(requestAnimationFrame);
        if (document.body.getAttribute("aria-busy") === "true") calm = -1; } }"""
    )


def module_page(tab, served):
    """A page whose modules can be called; in what state it is does not matter."""
    return tab if tab.url.startswith(served[0]) else opened_at(tab, served[0])


def pixels(page, canvas):
    return page.evaluate(f"document.getElementById('{canvas}').toDataURL()")


def text(page, name):
    return page.inner_text(f"#{name}")


def click_in(page, canvas, right, down, **how):
    page.locator(f"#{canvas}").scroll_into_view_if_needed()
    box = page.locator(f"#{canvas}").bounding_box()
    page.mouse.click(box["x"] + right * box["width"], box["y"] + down * box["height"], **how)
    settle(page)


def colours_in(page, canvas):
    """The colours of a canvas, each as one number."""
    found = page.evaluate(
        f"""(() => {{ const c = document.getElementById('{canvas}');
        const bytes = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        const seen = new Set(); for (let n = 0; n < bytes.length; n += 4)
        seen.add(bytes[n] * 65536 + bytes[n + 1] * 256 + bytes[n + 2]); return [...seen]; }})()"""
    )
    return set(found)
