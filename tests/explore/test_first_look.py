"""What the page shows at first, and what of it an address keeps, in a real browser."""

import re
from dataclasses import replace

import numpy as np
import pytest
from playwright import sync_api as playwright

from gpo.data.dates import TimeOrigin
from tests.explore.pages import (
    NEEDS_BROWSER,
    address_of,
    click_in,
    colours_in,
    module_page,
    opened_at,
    pixels,
    settle,
    text,
)
from tests.explore.sessions import make_session

pytestmark = NEEDS_BROWSER
PICTURES = ("field", "field-truth", "field-error")
FIRST, SECOND = 0xFF9D1F, 0x19D3DA
"""Colours of the outlines of windows."""


def dated(kind):
    """A run whose frames have dates."""
    session = make_session(kind)
    return replace(session, data=replace(session.data, origin=TimeOrigin("2019-03-01 00:00:00")))


def until(page, canvas, pattern):
    """Waits until what a picture shows is told so."""
    playwright.expect(page.locator(f"#{canvas}")).to_have_attribute("aria-label", re.compile(pattern))  # fmt: skip


def test_prediction_truth_and_error_stand_side_by_side_without_windows(page):
    assert [page.locator(f"#{name}").is_visible() for name in PICTURES] == [True] * 3
    tops = {round(page.locator(f"#{name}").bounding_box()["y"]) for name in PICTURES}
    assert len(tops) == 1
    assert not {FIRST, SECOND} & colours_in(page, "field")
    box = page.locator("#field-truth").bounding_box()
    page.mouse.move(box["x"] + 100, box["y"] + 100)
    told = re.search(r"predicted (\S+), truth (\S+), error (\S+)", text(page, "hover"))
    numbers = [float(re.sub(r"×10⁻.*", "e-4", part)) for part in told.groups()]
    assert numbers[0] - numbers[1] == pytest.approx(numbers[2], abs=2e-3)


def test_one_field_alone_is_larger_and_as_large_as_the_screen_allows(page):
    def area():
        box = page.locator("#field").bounding_box()
        return box["width"] * box["height"], box["y"] + box["height"]

    small, _ = area()
    page.click("#shown [data-value=predicted]")
    settle(page)
    large, bottom = area()
    assert large > 1.25 * small
    assert bottom <= 800
    assert page.locator("#field-truth").is_hidden()


def test_colours_fit_the_field_until_one_scale_for_all_times_is_wanted(page):
    before = pixels(page, "field")
    page.uncheck("#fit-colours")
    settle(page)
    assert pixels(page, "field") != before


def test_the_error_by_step_has_references_and_the_model_without_what_is_off(page):
    until(page, "curve", r"model [\d.]+.*persistence [\d.]+.*climatology [\d.]+")
    assert text(page, "curve-legend").split("\n")[:3] == ["model", "persistence", "climatology"]
    page.click("#off-layer")
    until(page, "curve", r"ablated model .*, full model .*, persistence")


def test_a_window_is_shown_also_where_windows_are_hidden(page):
    page.click("#shown [data-value=window]")
    until(page, "field", r"^window, window: from -[\d.]+ to 1 cosine")
    assert not page.is_checked("#show-windows")
    assert page.get_attribute("#shown [data-value=window]", "aria-checked") == "true"
    assert FIRST not in colours_in(page, "field")
    page.check("#show-windows")
    settle(page)
    assert FIRST in colours_in(page, "field")
    assert "zeros of the cosine" in text(page, "legend")


def test_keys_in_the_map_of_modes_start_at_the_chosen_wave(page):
    click_in(page, "modes", 0.4, 0.3)
    chosen = re.findall(r"wave \((-?\d+), (-?\d+)\)", page.get_attribute("#modes", "aria-label"))
    page.focus("#modes")
    page.keyboard.press("ArrowRight")
    moved = re.findall(r"wave \((-?\d+), (-?\d+)\)", page.get_attribute("#modes", "aria-label"))
    assert int(moved[0][0]) == int(chosen[0][0]) + 1
    assert moved[0][1] == chosen[0][1]
    # Another wave is chosen elsewhere: keys start there then.
    click_in(page, "coupling", 0.3, 0.5)
    assert text(page, "chosen").split(":")[0] in page.get_attribute("#modes", "aria-label")


def test_a_value_between_sites_is_told_beside_the_interpolated_prediction(page):
    click_in(page, "field", 0.4, 0.4)
    assert "interpolated from the prediction at the sites" in text(page, "point")
    assert "evaluates its layers at the point" in text(page, "point")


def test_interpolation_is_exact_for_what_is_linear_and_goes_around_periodic_axes(tab):
    with address_of(make_session("grid")) as address:
        found = opened_at(tab, address).evaluate(
            """async () => {
            const { interpolatedAt } = await import('/static/interpolation.js');
            const { Geometry } = await import('/static/geometry.js');
            const { post } = await import('/static/requests.js');
            const geometry = new Geometry(await post('sites', { example: 0 }));
            const at = (n, axis) => geometry.positions[2 * n + axis];
            const values = Float32Array.from(geometry.active, (_, n) => 2 * at(n, 0) + at(n, 1));
            return [[0.31, 0.47], [1 - 0.5 / 8, 0.5]].map((point) => interpolatedAt(geometry, values, point)); }"""
        )
    # Half way from the last line of sites, at 7/8, to the first, which comes again at one.
    np.testing.assert_allclose(found, [1.09, 7 / 8 + 0.5], atol=1e-5)


def test_a_contour_crosses_a_square_where_the_level_is(tab, served):
    pieces = module_page(tab, served).evaluate(
        """import('/static/contours.js').then(({ crossings }) => [
        crossings([0, 1, 1, 0], 0.25), crossings([0, 0, 0, 0], 0.5), crossings([0, NaN, 1, 0], 0.5),
        crossings([1, 0, 1, 0], 0.4), crossings([1, 0, 1, 0], 0.6)])"""
    )
    assert pieces[0] == [[[0.25, 0], [0.25, 1]]]
    assert pieces[1] == pieces[2] == []
    # At a saddle the larger corners hang together where the middle is above the level.
    np.testing.assert_allclose(pieces[3], [[[0.6, 0], [1, 0.4]], [[0.4, 1], [0, 0.6]]])
    np.testing.assert_allclose(pieces[4], [[[0, 0.4], [0.4, 0]], [[1, 0.6], [0.6, 1]]])


def test_the_address_keeps_the_view_over_a_reload_and_for_others(page, browser):
    page.focus("#time")
    page.keyboard.press("ArrowRight")
    page.click("#off-mode")
    page.click("#tool [data-value=paint]")
    click_in(page, "field", 0.3, 0.3)
    page.click("#tool [data-value=ask]")
    click_in(page, "field", 0.5, 0.5)
    page.click("#zoom-in")
    page.check("#show-particles")
    page.click("#shown [data-value=error]")
    settle(page)
    playwright.expect(page).to_have_url(re.compile("shown=error"))
    page.mouse.move(5, 5)
    page.evaluate("document.activeElement.blur()")
    settle(page)
    wanted = (
        pixels(page, "field"),
        text(page, "parts"),
        text(page, "point"),
        text(page, "time-text"),
    )
    address = page.url
    page.reload()
    page.wait_for_selector("html[data-ready=true]")
    settle(page)
    assert (pixels(page, "field"), text(page, "parts"), text(page, "point"), text(page, "time-text")) == wanted  # fmt: skip
    other = browser.new_page(viewport={"width": 1280, "height": 800})
    other.goto(address)
    other.wait_for_selector("html[data-ready=true]")
    settle(other)
    assert (text(other, "parts"), text(other, "point"), text(other, "time-text")) == wanted[1:]
    assert pixels(other, "field") == wanted[0]
    other.close()


def test_an_address_that_makes_no_sense_opens_the_page_as_it_is_at_first(page, browser):
    wanted = pixels(page, "field")
    other = browser.new_page(viewport={"width": 1280, "height": 800})
    bad = "#example=-4&shown=<b>&mode=1e9&offModes=99.99,a.b&offSites=7-3,0-1e9&box=1,0,1,0&point=x"
    other.goto(page.url.split("#")[0] + bad)
    other.wait_for_selector("html[data-ready=true]")
    settle(other)
    assert pixels(other, "field") == wanted
    assert other.locator("#problem").is_hidden()
    assert text(other, "parts") == "No part is ablated."
    other.close()


def test_a_dead_server_is_told_in_words(browser):
    with address_of(make_session("globe")) as address:
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        opened = [page.goto(address), page.wait_for_selector("html[data-ready=true]")]
        assert opened[0].ok
        settle(page)
    page.click("#off-layer")
    playwright.expect(page.locator("#problem")).to_contain_text("The server does not answer")
    playwright.expect(page.locator("#problem")).to_contain_text("Start gpo explore again")
    page.check("#show-coast")
    page.locator("#flow-panel").scroll_into_view_if_needed()
    settle(page)
    playwright.expect(page.locator("#problem")).not_to_contain_text("fetch")
    page.close()


@pytest.mark.parametrize("kind", ["grid", "mesh", "patch", "cube", "line"])
def test_at_390_pixels_nothing_is_wider_than_the_screen(browser, kind):
    with address_of(dated(kind)) as address:
        page = browser.new_page(viewport={"width": 390, "height": 844})
        page.goto(address)
        page.wait_for_selector("html[data-ready=true]")
        settle(page)
        for choice in ("compare", "predicted"):
            page.click(f"#shown [data-value={choice}]")
            settle(page)
            assert page.evaluate("document.documentElement.scrollWidth") == 390
            # The slider begins where its name has ended.
            name = page.locator("#time-name").bounding_box()
            slider = page.locator("#time").bounding_box()
            assert slider["x"] >= name["x"] + name["width"]
            assert slider["width"] > 100
            assert page.locator("#field").bounding_box()["width"] > 250
        page.close()


def test_coastlines_lie_over_the_earth_and_can_be_left_out(tab):
    with address_of(dated("patch")) as address:
        page = opened_at(tab, address)
        assert page.is_checked("#show-coast")
        playwright.expect(page.locator("#time-text")).to_have_text(re.compile("2019-03-01"))
        page.evaluate(
            "import('/static/coast.js').then(async (coast) => { await coast.coastlines(); })"
        )
        settle(page)
        before = [pixels(page, name) for name in PICTURES]
        page.uncheck("#show-coast")
        settle(page)
        after = [pixels(page, name) for name in PICTURES]
        assert all(one != other for one, other in zip(before, after, strict=True))
        assert page.problems == []


@pytest.mark.parametrize(("kind", "is_offered"), [("globe", True), ("grid", False), ("mesh", False)])  # fmt: skip
def test_a_planet_without_dates_has_no_coastlines_until_they_are_wanted(tab, kind, is_offered):
    with address_of(make_session(kind)) as address:
        page = opened_at(tab, address)
        assert page.is_visible("#coast-label") == is_offered
        assert not page.is_checked("#show-coast")
        assert page.problems == []


def test_a_slice_says_where_it_cuts_and_its_slider_keeps_the_zoom(tab):
    with address_of(make_session("cube")) as address:
        page = opened_at(tab, address)
        assert text(page, "slice-text") == "z = 0.5"
        for part in ("field-caption", "field-error-caption", "step-text", "flow-seen"):
            playwright.expect(page.locator(f"#{part}")).to_contain_text("z = 0.5")
        page.click("#zoom-in")
        settle(page)
        page.wait_for_url(re.compile("box="))
        near = re.search(r"box=([^&]+)", page.url)[1]
        page.fill("#slice", "0.9")
        settle(page)
        playwright.expect(page.locator("#field-caption")).to_contain_text("z = 0.9")
        page.wait_for_url(re.compile(r"slice=2,0\.9"))
        assert re.search(r"box=([^&]+)", page.url)[1] == near
        # Another axis has another plane, all of which is shown.
        page.select_option("#slice-axis", "0")
        settle(page)
        page.wait_for_url(re.compile(r"slice=0,0\.9"))
        assert "box=" not in page.url
        page.evaluate("window.location.hash = 'slice=1,0.25'")
        playwright.expect(page.locator("#slice-text")).to_have_text("y = 0.25")
        assert (page.input_value("#slice"), page.input_value("#slice-axis")) == ("0.25", "1")
        assert page.problems == []


def test_a_browser_that_keeps_nothing_still_turns_dark(browser, served):
    with browser.new_context(color_scheme="light") as context:
        context.add_init_script(
            "Object.defineProperty(window, 'localStorage', { get() { throw new Error('denied'); } })"
        )
        page = context.new_page()
        page.goto(served[0])
        page.wait_for_selector("html[data-theme=light][data-ready=true]")
        page.click("#theme")
        assert page.get_attribute("html", "data-theme") == "dark"
        page.click("#theme")
        assert page.get_attribute("html", "data-theme") == "light"


def test_on_a_map_an_arrow_begins_at_the_longitude_of_its_center(tab, served):
    tails = module_page(tab, served).evaluate(
        """Promise.all([import('/static/particles.js'), import('/static/geometry.js')]).then(([{ ParticleCloud }, { Geometry }]) => {
        const parts = { names: ["longitude", "latitude"], lower: [-180, -90], upper: [180, 90], is_sphere: true, slice: {} };
        const geometry = Object.assign(Object.create(Geometry.prototype), parts, { numAxes: 2, kind: "points", numSites: 2,
          positions: [10, 0, 10, 60], slice: { axis: 1 } });
        const arrays = { sites: { data: [0, 1] }, centers: { data: [], shape: [2, 1, 2] }, weights: { data: [1, 1] },
          displacements: { data: [3, 1, 3, 1] } };
        const box = { left: -180, right: 180, bottom: -90, top: 90 };
        const picture = { content: { geometry, box }, toPixel: (x, y) => [x, y] };
        const cloud = new ParticleCloud({ arrays });
        return [0, 1].map((n) => cloud.arrow(picture, n, n).tail); })"""
    )
    # A degree of arc to the east at 60 degrees is two of longitude.
    np.testing.assert_allclose(tails, [[7, -1], [4, 59]])
