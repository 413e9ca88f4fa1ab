"""The animation of a report in a browser: play, pause, steps, print, without JavaScript."""

import shutil

import pytest
from playwright import sync_api as playwright

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)  # fmt: skip
pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(CHROMIUM is None, reason="no browser found: needs Chromium on the PATH"),
]
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update"]  # fmt: skip


@pytest.fixture(scope="module")
def address(grid_report):
    return grid_report[0].as_uri()


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture
def tab(browser, address):
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.problems, page.requests = [], []
    page.on("console", lambda line: page.problems.append(line.text) if line.type == "error" else None)  # fmt: skip
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on("request", lambda request: page.requests.append(request.url))
    page.goto(address)
    page.wait_for_selector(".player[data-ready=true]")
    yield page
    assert page.problems == []
    assert [url for url in page.requests if not url.startswith(("data:", "file:"))] == []
    context.close()


def step(page):
    return int(page.get_attribute(".player", "data-step"))


def last(page):
    return int(page.get_attribute(".position", "max"))


def shown_frames(page):
    return page.eval_on_selector_all(".stage:not([hidden]) .frame", "all => all.map((f, n) => f.hidden ? -1 : n).filter(n => n >= 0)")  # fmt: skip


def test_play_advances_and_pause_stops(tab):
    assert step(tab) == last(tab)
    tab.select_option(".speed", "16")
    tab.click(".play")
    assert tab.inner_text(".play") == "Pause"
    steps = {step(tab)}
    for _ in range(3):
        before = step(tab)
        tab.wait_for_selector(f'.player:not([data-step="{before}"])')
        steps.add(step(tab))
    assert len(steps) > 1
    tab.click(".play")
    assert tab.inner_text(".play") == "Play"
    assert tab.get_attribute(".player", "data-playing") == "false"
    assert shown_frames(tab) == [step(tab)]


def test_keys_play_pause_and_move_by_one_step(tab):
    tab.focus(".player")
    tab.keyboard.press("Home")
    assert step(tab) == 0
    assert tab.inner_text(".step").startswith("step 1 of ")
    tab.keyboard.press("ArrowRight")
    assert (step(tab), shown_frames(tab)) == (min(1, last(tab)), [min(1, last(tab))])
    tab.keyboard.press("ArrowLeft")
    tab.keyboard.press("ArrowLeft")
    assert step(tab) == 0
    tab.keyboard.press("End")
    assert step(tab) == last(tab)
    tab.keyboard.press("+")
    assert tab.input_value(".speed") == "8"
    tab.keyboard.press("-")
    assert tab.input_value(".speed") == "4"
    tab.keyboard.press(" ")
    assert tab.get_attribute(".player", "data-playing") == "true"
    tab.keyboard.press(" ")
    assert tab.get_attribute(".player", "data-playing") == "false"


def test_another_variable_is_shown_at_the_same_step(tab):
    tab.focus(".player")
    tab.keyboard.press("Home")
    tab.select_option(".variable", "1")
    assert shown_frames(tab) == [0]
    visible = tab.eval_on_selector_all(".stage", "all => all.map(stage => !stage.hidden)")
    assert visible == [False, True]


def test_all_images_are_decoded(tab):
    widths = tab.eval_on_selector_all("img", "all => Promise.all(all.map(i => i.decode().then(() => i.naturalWidth)))")  # fmt: skip
    assert min(widths) > 100


@pytest.mark.parametrize("width", [390, 768, 1600])
def test_the_page_is_never_wider_than_the_screen(tab, width):
    tab.set_viewport_size({"width": width, "height": 800})
    assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_a_printed_page_shows_one_frame_and_no_controls(tab):
    tab.emulate_media(media="print")
    assert not tab.is_visible(".controls")
    assert not tab.is_visible("nav")
    assert len(shown_frames(tab)) == 1


def test_figures_follow_the_colour_scheme_except_in_print(tab):
    picture = tab.locator("main picture img").first
    light = picture.evaluate("picture => picture.currentSrc")
    tab.emulate_media(color_scheme="dark")
    playwright.expect(picture).not_to_have_js_property("currentSrc", light)
    tab.emulate_media(color_scheme="dark", media="print")
    playwright.expect(picture).to_have_js_property("currentSrc", light)


def test_without_javascript_the_last_step_is_shown(browser, address):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    assert not page.is_visible(".controls")
    assert page.locator(".stage >> nth=0 >> .frame:visible").count() == 1
    assert page.inner_text(".step").startswith("step ")
    context.close()
