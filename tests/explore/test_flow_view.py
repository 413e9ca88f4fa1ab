"""Streaks and tracers on the page, in a real browser."""

import re

import pytest
from playwright import sync_api as playwright

from tests.explore.flows import ADVECTOR, flowing
from tests.explore.pages import NEEDS_BROWSER, address_of, click_in, opened_at, pixels, settle, text
from tests.explore.sessions import make_session

pytestmark = NEEDS_BROWSER
SHEET = "flow-streaks"


def shown(page):
    """Brings the panel into view and waits until all is loaded."""
    page.locator("#flow-panel").scroll_into_view_if_needed()
    playwright.expect(page.locator("#advectors button[aria-pressed=true]")).to_have_count(1)
    settle(page)
    return page


def moves(page, sheet=SHEET):
    """Waits until streaks are somewhere else."""
    page.evaluate(
        """async (name) => { const sheet = document.getElementById(name), before = sheet.toDataURL();
        while (sheet.toDataURL() === before) await new Promise(requestAnimationFrame); }""",
        sheet,
    )
    return True


def stands(page, sheet=SHEET):
    before = pixels(page, sheet)
    settle(page)
    settle(page)
    return pixels(page, sheet) == before


def inked(page, sheet, left, right):
    """How many pixels of a sheet are drawn on between two fractions of its width."""
    return page.evaluate(
        """([name, left, right]) => { const { width, height } = document.getElementById(name);
        const context = document.getElementById(name).getContext("2d");
        const bytes = context.getImageData(Math.round(left * width), 0, Math.round((right - left) * width), height).data;
        let count = 0; for (let n = 3; n < bytes.length; n += 4) count += bytes[n] > 0; return count; }""",
        [sheet, left, right],
    )


@pytest.fixture(scope="module")
def grid_address():
    with address_of(flowing("grid")) as address:
        yield address


@pytest.mark.parametrize("place", ["grid", "mesh", "globe", "cube"])
def test_streaks_move_on_both_sides_on_every_kind_of_geometry(tab, place):
    with address_of(flowing(place)) as address:
        page = shown(opened_at(tab, f"{address}#advector={ADVECTOR}"))
        assert moves(page, "flow-streaks")
        assert moves(page, "flow-true-streaks")
        assert "projected onto the slice" in text(page, "flow-seen") or place != "cube"
        assert re.search(r"true velocity: −?(1\.00|0\.9\d)", text(page, "flow-words"))
        assert re.search(r"with the velocity of \d other examples", text(page, "flow-words"))
        click_in(page, "flow", 0.5, 0.4)
        playwright.expect(page.locator("#tracer-words")).to_contain_text("after 5 steps")
        assert page.problems == []


def test_keys_pause_speed_up_drop_and_take_back(tab, grid_address):
    page = shown(opened_at(tab, grid_address))
    page.focus("#flow")
    page.keyboard.press("Space")
    assert page.get_attribute("#flow-stream", "aria-pressed") == "false"
    assert stands(page)
    page.keyboard.press("Space")
    assert moves(page)
    page.keyboard.press(">")
    assert text(page, "flow-speed-text") == "2 ×"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    playwright.expect(page.locator("#tracer-words")).to_contain_text("The model's tracer is")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    playwright.expect(page.locator("#tracer-words")).to_contain_text("2 tracers")
    page.keyboard.press("Backspace")
    page.keyboard.press("Backspace")
    playwright.expect(page.locator("#tracer-words")).to_have_text("")
    assert page.is_disabled("#drop-none")
    assert page.problems == []


def test_the_rollout_plays_with_its_tracers_and_the_slider_chooses_a_step(tab, grid_address):
    page = shown(opened_at(tab, grid_address))
    page.click("#flow-stream")
    page.click("#drop-grid")
    playwright.expect(page.locator("#tracer-words")).to_contain_text("9 tracers")
    settle(page)
    first = pixels(page, SHEET)
    page.focus("#flow-step")
    page.keyboard.press("ArrowRight")
    playwright.expect(page.locator("#flow-step-text")).to_have_text(re.compile("2 of 5: 1 → 2"))
    settle(page)
    assert pixels(page, SHEET) != first
    # The panel of the rollout shows the same step.
    playwright.expect(page.locator("#step-text")).to_have_text(re.compile("^2 of 5"))
    page.click("#play-flow")
    playwright.expect(page.locator("#flow-step-text")).to_have_text(re.compile("^4 of 5"))
    page.click("#play-flow")
    assert page.problems == []


def test_another_particle_is_streamed_when_its_row_is_chosen(tab, grid_address):
    page = shown(opened_at(tab, grid_address))
    assert page.get_attribute(f"#advectors [data-advector='{ADVECTOR}']", "aria-pressed") == "true"
    page.click("#advectors [data-advector='0']")
    playwright.expect(page.locator("#flow-words")).to_have_text(
        "This particle has zero displacement here."
    )
    playwright.expect(page.locator("#flow-caption")).to_contain_text("particle 1")
    assert page.problems == []


def test_the_address_keeps_particle_speed_and_tracers(tab, grid_address):
    page = shown(opened_at(tab, grid_address))
    page.click("#advectors [data-advector='2']")
    page.click("#drop-grid")
    page.focus("#flow-speed")
    page.keyboard.press("ArrowRight")
    playwright.expect(page).to_have_url(re.compile(r"advector=2&flowSpeed=3&tracers=[\d.,;-]+"))
    page.reload()
    page.wait_for_selector("html[data-ready=true]")
    shown(page)
    assert page.get_attribute("#advectors [data-advector='2']", "aria-pressed") == "true"
    assert text(page, "flow-speed-text") == "2 ×"
    playwright.expect(page.locator("#tracer-words")).to_contain_text("9 tracers")


def test_tracers_of_another_number_of_dimensions_are_left_out(tab, grid_address):
    page = shown(opened_at(tab, f"{grid_address}#tracers=0.5,0.5,0.5;0.1,0.1,0.1&advector=99"))
    assert text(page, "tracer-words") == ""
    assert page.locator("#problem").is_hidden()


def test_little_motion_is_respected_until_one_asks_for_it(browser, grid_address):
    page = browser.new_page(reduced_motion="reduce", viewport={"width": 1280, "height": 800})
    page.goto(grid_address)
    page.wait_for_selector("html[data-ready=true]")
    shown(page)
    assert page.get_attribute("#flow-stream", "aria-pressed") == "false"
    # Streaks are drawn, and stand.
    assert inked(page, SHEET, 0, 1) > 1000
    assert stands(page)
    page.click("#flow-stream")
    assert moves(page)
    page.close()


def test_nothing_runs_while_the_panel_is_out_of_sight(tab, grid_address):
    page = shown(opened_at(tab, grid_address))
    assert moves(page)
    page.evaluate("window.scrollTo(0, 0)")
    page.wait_for_function("document.getElementById('flow-panel').getBoundingClientRect().top > innerHeight + 200")  # fmt: skip
    settle(page)
    assert stands(page)


def test_masked_sites_carry_no_streaks(tab):
    with address_of(make_session("masked")) as address:
        page = shown(opened_at(tab, address))
        assert moves(page)
        # Sites left of 0.3 hold nothing; their cells end half a cell before the first that do.
        assert inked(page, SHEET, 0, 0.32) == 0
        assert inked(page, SHEET, 0.45, 1) > 500
        assert page.locator("#flow-true").is_hidden()
        assert "--velocity U V" in text(page, "advectors-note")
        assert page.problems == []


def test_a_line_is_drawn_in_time_and_says_that_nothing_streams(tab):
    with address_of(make_session("line")) as address:
        page = shown(opened_at(tab, address))
        assert "there are no streaks" in text(page, "flow-seen")
        playwright.expect(page.locator("#flow-legend")).to_contain_text("tracers of the model")
        settle(page)
        orange = page.evaluate(
            """(() => { const c = document.getElementById("flow");
            const bytes = c.getContext("2d").getImageData(0, 0, c.width, c.height).data; let count = 0;
            for (let n = 0; n < bytes.length; n += 4) count += bytes[n] === 255 && bytes[n + 1] === 157 && bytes[n + 2] === 31;
            return count; })()"""
        )
        assert orange > 200
        assert page.is_hidden("#flow-stream")
        assert page.problems == []


def test_a_model_whose_particles_do_not_move_says_so(tab, paper_address):
    page = opened_at(tab, paper_address)
    assert "do not move" in text(page, "flow-seen")
    assert page.locator("#flow").is_hidden()
    assert page.problems == []


@pytest.mark.parametrize("place", ["grid", "globe"])
def test_at_390_pixels_the_flow_fits_and_its_labels_lie_beside_the_sliders(browser, place):
    with address_of(flowing(place)) as address:
        page = browser.new_page(viewport={"width": 390, "height": 844})
        page.goto(address)
        page.wait_for_selector("html[data-ready=true]")
        shown(page)
        page.click("#drop-grid")
        settle(page)
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        for name in ("flow-step", "flow-speed"):
            slider = page.locator(f"#{name}").bounding_box()
            label = page.locator(f"label:has(#{name})").bounding_box()
            assert slider["x"] > label["x"] + 30
            assert slider["x"] + slider["width"] <= 390
        assert page.locator("#flow").bounding_box()["width"] > 300
        page.close()


def test_a_streak_goes_around_a_periodic_end_and_ends_where_nothing_is_known(tab, grid_address):
    found = opened_at(tab, grid_address).evaluate(
        """import('/static/streaks.js').then(({ Streaks }) => {
        const raster = (periodic, right) => ({ key: "", geometry: 0, width: 90, height: 30, columns: 3, rows: 1, periodic,
          right: Float32Array.of(...right), down: new Float32Array(3), valid: Int32Array.of(0, 1),
          cellAt: (x, y) => (x >= 0 && x < 90 && y >= 0 && y < 30 ? Math.floor(x / 30) : -1) });
        return [[[true, true], [9, 9, 9]], [[false, false], [9, 9, 9]], [[true, true], [9, 9, NaN]]].map((how) => {
          const streaks = new Streaks(); streaks.follow(raster(...how));
          streaks.left.fill(100);
          for (let n = 0; n < 40; n++) streaks.advance(0.045, 10);
          return [Math.max(...streaks.x), streaks.left.filter((left) => left > 0).length === streaks.count]; }); })"""
    )
    # A move is four pixels long: nothing ends where the axis closes, all end at the first step beyond.
    (around, all_live), (left, _), (blocked, _) = found
    assert all_live
    assert around < 90
    assert 85 < left < 95
    assert 55 < blocked < 65
