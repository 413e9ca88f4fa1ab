"""The page in a real browser, against a real server: what one does and what is then seen."""

import re

import netCDF4
import numpy as np
import pytest
from playwright import sync_api as playwright

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


def test_the_command_says_how_long_an_answer_takes_and_where_the_page_is(served):
    assert re.search(r"192 sites; an ablated prediction takes \d+ ms", served[1])


def test_the_page_asks_nothing_of_other_servers(page, served):
    assert len(page.asked) > 20
    assert all(url.startswith(served[0]) for url in page.asked)
    assert "gpo;" in text(page, "run-metadata")


def test_a_mode_that_is_off_changes_the_prediction_and_back_again(page):
    before = pixels(page, "field")
    page.click("#off-mode")
    settle(page)
    assert pixels(page, "field") != before
    assert "The prediction changes by" in text(page, "effect")
    assert re.search(r"answered in \d+ ms", text(page, "timing"))
    page.click("#all-on")
    settle(page)
    assert pixels(page, "field") == before
    assert "of the full model" in text(page, "effect")


def test_a_ring_of_waves_and_a_layer_can_be_off_together(page):
    page.check("#every-layer")
    page.click("#off-group")
    page.click("#off-layer")
    settle(page)
    parts = text(page, "parts")
    assert "layer 1 ×" in parts
    assert re.search(r"layer 2: \d+ modes ×", parts)
    page.click("#parts button >> nth=0")
    settle(page)
    assert "layer 1 ×" not in text(page, "parts")


def test_layers_are_a_film_that_keys_can_step_through(page):
    first = pixels(page, "layers")
    page.focus("#layer")
    page.keyboard.press("ArrowRight")
    settle(page)
    assert pixels(page, "layers") != first
    assert text(page, "layer-text") == "2 of 2"
    page.keyboard.press("Home")
    settle(page)
    assert text(page, "layer-text") == "lift"
    page.click("#play-layer")
    playwright.expect(page.locator("#layer-text")).to_have_text("1 of 2")
    page.click("#play-layer")


@pytest.mark.parametrize("variant", ["geometric", "paper"])
def test_a_cell_of_the_coupling_shows_both_windows(tab, served, paper_address, variant):
    page = opened_at(tab, served[0] if variant == "geometric" else paper_address)
    first, second = 0xFF9D1F, 0x19D3DA
    assert second not in colours_in(page, "field")
    click_in(page, "coupling", 0.35, 0.15)
    assert page.locator("#chosen .swatch").count() == 2
    assert {first, second} <= colours_in(page, "field")
    page.click("#shown [data-value=window]")
    settle(page)
    assert text(page, "field-seen").startswith("The window of the selected mode")
    page.uncheck("#show-windows")
    settle(page)
    assert not {first, second} & colours_in(page, "field")
    assert page.problems == []


def test_a_head_of_the_papers_variant_is_switched_off_as_a_whole(tab, paper_address):
    page = opened_at(tab, paper_address)
    page.select_option("#head", "1")
    page.click("#shown [data-value=change]")
    settle(page)
    before = pixels(page, "field")
    page.click("#off-group")
    settle(page)
    assert "layer 1: 4 modes ×" in text(page, "parts")
    assert pixels(page, "field") != before


def test_a_clicked_point_tells_its_value_and_on_what_it_depends(page):
    assert page.is_disabled("#shown [data-value=dependence]")
    click_in(page, "field", 0.4, 0.4)
    assert re.search(r"value -?[\d.×⁻-]+", text(page, "point"))
    assert page.locator("#contributions li").count() == 6
    before = pixels(page, "field")
    page.click("#shown [data-value=dependence]")
    settle(page)
    assert pixels(page, "field") != before
    energy = pixels(page, "modes")
    page.select_option("#modes-colour", "dependence")
    settle(page)
    assert pixels(page, "modes") != energy
    page.click("#contributions button >> nth=0")
    settle(page)
    assert "to the prediction at the queried point" in text(page, "modes-seen")


def test_a_painted_region_is_off_until_it_is_erased(page):
    before = pixels(page, "field")
    page.click("#tool [data-value=paint]")
    click_in(page, "field", 0.3, 0.3)
    assert "region of" in text(page, "parts")
    assert pixels(page, "field") != before
    page.keyboard.down("Shift")
    click_in(page, "field", 0.3, 0.3)
    page.keyboard.up("Shift")
    assert text(page, "parts") == "No part is ablated."


def test_a_rollout_is_there_on_load_beside_the_truth_step_by_step(page):
    step = page.locator("#step-text")
    playwright.expect(step).to_have_text(re.compile(r"1 of \d+: \d+"))
    first = pixels(page, "forecast"), pixels(page, "rollout-error")
    page.focus("#step")
    page.keyboard.press("ArrowRight")
    settle(page)
    playwright.expect(step).to_have_text(re.compile(r"2 of \d+"))
    assert pixels(page, "forecast") != first[0]
    assert pixels(page, "rollout-error") != first[1]
    click_in(page, "curve", 0.95, 0.5)
    playwright.expect(step).to_have_text(re.compile(r"(\d+) of \1:"))


def test_time_moves_with_the_slider_and_plays(page):
    before = pixels(page, "field")
    page.focus("#time")
    page.keyboard.press("ArrowRight")
    settle(page)
    assert pixels(page, "field") != before
    shown = text(page, "time-text")
    page.click("#play-time")
    playwright.expect(page.locator("#time-text")).not_to_have_text(shown)
    page.click("#play-time")


def test_the_wheel_zooms_in_and_a_button_resets_it(page):
    before = pixels(page, "field")
    box = page.locator("#field").bounding_box()
    page.mouse.move(box["x"] + 200, box["y"] + 200)
    page.mouse.wheel(0, -300)
    settle(page)
    assert pixels(page, "field") != before
    page.click("#zoom-home")
    page.mouse.move(5, 5)
    settle(page)
    assert pixels(page, "field") == before


def hover_over_a_particle(page):
    box = page.locator("#field").bounding_box()
    for step in range(40):
        page.mouse.move(box["x"] + 80 + 8 * step, box["y"] + 60 + 7 * step)
        if "weight" in text(page, "hover"):
            return


def test_particles_are_drawn_and_tell_their_numbers(page):
    before = pixels(page, "field")
    page.check("#show-particles")
    settle(page)
    assert pixels(page, "field") != before
    hover_over_a_particle(page)
    assert re.search(r"particle \d of site \d+: center .*, displacement .*, weight [\d.]+", text(page, "hover"))  # fmt: skip


def test_everything_can_be_done_with_keys(page):
    page.focus("#modes")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowUp")
    label = page.get_attribute("#modes", "aria-label")
    assert label.startswith("Modes: wave (")
    page.keyboard.press("Enter")
    page.keyboard.press("Space")
    settle(page)
    wave = re.search(r"wave \([-\d, ]+\)", label)[0]
    assert f"layer 1: {wave} ×" in text(page, "parts")
    page.focus("#field")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    settle(page)
    assert text(page, "point").startswith("At (")
    page.focus("#shown [aria-checked=true]")
    page.keyboard.press("ArrowRight")
    settle(page)
    assert page.get_attribute("#shown [data-value=given]", "aria-checked") == "true"


def test_the_tab_key_reaches_every_panel_and_focus_is_seen(page):
    page.focus("#save-png")
    reached = []
    for _ in range(60):
        page.keyboard.press("Tab")
        name, outline = page.evaluate(
            "[document.activeElement.id, getComputedStyle(document.activeElement).outlineStyle]"
        )
        reached.append(name)
        if name:
            assert outline != "none", name
        if name == "layer":
            break
    wanted = ["theme", "time", "field", "step", "modes", "off-mode", "coupling", "layer"]
    assert [name for name in reached if name in wanted] == wanted


def test_dark_is_as_the_system_says_and_as_the_button_says(page):
    page.emulate_media(color_scheme="dark")
    settle(page)
    background = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(background) == "rgb(15, 18, 23)"
    assert page.get_attribute("#theme", "aria-pressed") == "true"
    before = pixels(page, "coupling")
    page.click("#theme")
    settle(page)
    assert page.evaluate(background) == "rgb(242, 244, 247)"
    assert pixels(page, "coupling") != before
    page.reload()
    page.wait_for_selector("html[data-ready=true]")
    assert page.evaluate(background) == "rgb(242, 244, 247)"
    page.evaluate("localStorage.clear()")
    page.emulate_media(color_scheme="light")


def test_at_1280_by_800_no_panel_overflows_and_none_jumps(page):
    def places():
        return page.evaluate(
            "[...document.querySelectorAll('.panel, canvas[id]:not(.streaks)')]"
            ".filter((part) => part.offsetParent).map((part) => "
            "{ const { left, top, width, height } = part.getBoundingClientRect();"
            " return [left, top + scrollY, width, height]; })"
        )

    before = places()
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    page.click("#off-mode")
    page.check("#show-particles")
    click_in(page, "field", 0.4, 0.4)
    assert places() == before
    hover_over_a_particle(page)
    assert places() == before


def test_the_view_is_saved_as_png_and_the_data_as_netcdf(page, tmp_path):
    for button, name in (("save-png", "view.png"), ("save-netcdf", "view.nc")):
        with page.expect_download() as download:
            page.click(f"#{button}")
        download.value.save_as(tmp_path / name)
    assert (tmp_path / "view.png").read_bytes()[:4] == b"\x89PNG"
    with netCDF4.Dataset(tmp_path / "view.nc") as file:
        assert {"u_given", "u_truth", "u_predicted", "u_error"} <= set(file.variables)


def test_what_the_server_refuses_is_read_on_the_page(tab, served):
    page = opened_at(tab, served[0])
    page.route("**/api/prediction", lambda route: route.fulfill(status=400, json={"error": "No such mode."}))  # fmt: skip
    page.click("#off-mode")
    page.wait_for_selector("#problem:visible")
    assert text(page, "problem") == "No such mode."
    page.unroute_all()
    page.click("#all-on")
    playwright.expect(page.locator("#problem")).to_be_hidden()


def test_colours_get_lighter_in_even_steps(tab, served):
    steps = module_page(tab, served).evaluate(
        """import('/static/colours.js').then(({ SEQUENTIAL, DIVERGING }) => {
        const light = (word) => { const [r, g, b] = [word, word >> 8, word >> 16].map((part) => {
            const v = (part & 255) / 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
          return 116 * Math.cbrt(0.2126 * r + 0.7152 * g + 0.0722 * b) - 16; };
        return [SEQUENTIAL, DIVERGING].map((table) => Array.from(table, light)); })"""
    )
    sequential, diverging = (np.array(lightness) for lightness in steps)
    # Eight bits per colour: over 16 steps the rounding is small.
    rise = sequential[16:] - sequential[:-16]
    assert rise.min() > 0.5 * rise.mean()
    assert rise.max() < 1.7 * rise.mean()
    np.testing.assert_allclose(diverging, diverging[::-1], atol=4)
    assert (np.diff(diverging[::16])[:7] > 0).all()


def test_the_nearest_point_is_found_across_periodic_seams(tab, served):
    wrong = module_page(tab, served).evaluate(
        """import('/static/nearest.js').then(({ Nearest }) => {
        let wrong = 0;
        for (const periods of [[0, 0, 0], [1, 0, 1], [1, 1, 1]]) {
          const coords = Float32Array.from({ length: 600 }, () => Math.random());
          const nearest = new Nearest(coords, 3, [0, 0, 0], periods);
          for (let n = 0; n < 300; n++) {
            const point = [0, 1, 2].map((axis) => (periods[axis] ? 1 : 1.4) * Math.random());
            const all = Array.from({ length: 200 }, (_, n) => nearest.squared(point, n));
            if (nearest.squared(point, nearest.find(point)) > Math.min(...all)) wrong++;
          }
        }
        return wrong; })"""
    )
    assert wrong == 0


@pytest.mark.parametrize("kind", ["line", "mesh", "sites on the globe", "cube", "cloud"])  # fmt: skip
def test_every_geometry_is_drawn(tab, kind):
    with address_of(make_session(kind)) as address:
        page = opened_at(tab, address)
        before = pixels(page, "field")
        assert len(colours_in(page, "field")) > 10
        if kind in ("cube", "cloud"):
            page.select_option("#slice-axis", "0")
            settle(page)
            assert pixels(page, "field") != before
        click_in(page, "field", 0.4, 0.4)
        assert text(page, "point").startswith("At (")
        assert page.problems == []
