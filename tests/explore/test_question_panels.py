"""Panels that answer questions to a run, in a real browser: what is asked, and what is then seen."""

import re
from dataclasses import replace

import numpy as np
import pytest
from playwright import sync_api as playwright

from gpo_explore.comparison import compare
from tests.explore.pages import (
    NEEDS_BROWSER,
    address_of,
    click_in,
    module_page,
    opened_at,
    pixels,
    settle,
    text,
)
from tests.explore.sessions import make_map_session, make_session

pytestmark = NEEDS_BROWSER
expect = playwright.expect


def with_gaussians(page, count=None):
    """Waits for the Gaussians of the shown field, and returns what is said of them."""
    page.check("#show-mixture")
    if count is not None:
        page.evaluate(
            f"""(() => {{ const slider = document.getElementById('mixture-size');
            slider.value = {count}; slider.dispatchEvent(new Event('input')); }})()"""
        )
    expect(page.locator("#mixture-text")).to_contain_text("control")
    settle(page)
    return text(page, "mixture-text")


def still(page):
    """Takes pointer and focus away, so that only the view is drawn."""
    page.mouse.move(5, 5)
    page.evaluate("document.activeElement.blur()")
    settle(page)


@pytest.mark.parametrize("kind", ["grid", "mesh", "globe", "cube", "line"])
def test_gaussians_lie_over_the_field_beside_their_control(tab, kind):
    with address_of(make_session(kind)) as address:
        page = opened_at(tab, address)
        before = [pixels(page, name) for name in ("field", "field-truth")]
        told = with_gaussians(page, 6 if kind == "line" else 7)
        found = re.search(
            r"(\d+) Gaussians: relative error (\S+) .*; control, (\d+) on a fixed lattice: (\S+) \(RMS",
            told,
        )
        assert found, told
        assert int(found[3]) <= int(found[1]) == (15 if kind == "line" else 20)
        assert ("that intersect the slice" in told) == (kind == "cube")
        after = [pixels(page, name) for name in ("field", "field-truth")]
        assert after[0] != before[0]
        assert after[1] == before[1]
        page.uncheck("#show-mixture")
        settle(page)
        assert pixels(page, "field") == before[0]
        assert page.problems == []


def test_other_fields_have_other_gaussians_and_an_error_has_none(page):
    with_gaussians(page, 3)
    seen = {}
    for shown in ("given", "truth", "predicted"):
        page.click(f"#shown [data-value={shown}]")
        seen[shown] = with_gaussians(page)
    assert len(set(seen.values())) == 3
    page.click("#shown [data-value=error]")
    expect(page.locator("#mixture-text")).to_contain_text("choose one of these")


def test_a_fit_can_be_stopped_and_the_next_one_ends_it(page):
    gone = []
    page.on("requestfailed", lambda request: gone.append(request.url))
    page.route("**/api/mixture", lambda route: None)
    page.check("#show-mixture")
    with page.expect_request("**/api/mixture"):
        pass
    page.click("#mixture-stop")
    expect(page.locator("#mixture-text")).to_contain_text("Stopped")
    page.focus("#mixture-size")
    with page.expect_request("**/api/mixture") as first:
        page.keyboard.press("ArrowLeft")
    with page.expect_request("**/api/mixture") as second:
        page.keyboard.press("ArrowLeft")
    counts = [request.value.post_data_json["count"] for request in (first, second)]
    assert counts[1] < counts[0]
    assert len([url for url in gone if url.endswith("mixture")]) == 2
    page.unroute_all()
    assert page.locator("#problem").is_hidden()


def test_an_ellipse_is_the_cut_of_its_ellipsoid_by_the_slice(tab, served):
    cut = module_page(tab, served).evaluate(
        """import('/static/ellipses.js').then(({ planeEllipse }) => {
        const geometry = { numAxes: 3, plane: [0, 1], slice: { axis: 2, at: 0.5 } };
        const covariance = [4, 1, 1, 1, 3, 0.5, 1, 0.5, 2];
        return [[1, 2, 0], [1, 2, 3]].map((center) => planeEllipse(geometry, center, covariance)); })"""
    )
    covariance = np.array([[4, 1, 1], [1, 3, 0.5], [1, 0.5, 2]])
    assert cut[1] is None
    ellipse = cut[0]
    shape = np.array([[ellipse["xx"], ellipse["xy"]], [ellipse["xy"], ellipse["yy"]]])
    angle = np.linspace(0, 2 * np.pi, 9)
    ring = np.linalg.cholesky(shape) @ np.stack([np.cos(angle), np.sin(angle)])
    points = np.stack([ellipse["x"] + ring[0], ellipse["y"] + ring[1], np.full(9, 0.5)])
    away = points - np.array([[1], [2], [0]])
    # All of it is one standard deviation from the center.
    np.testing.assert_allclose(np.einsum("in,in->n", away, np.linalg.solve(covariance, away)), 1)


@pytest.mark.parametrize("variant", ["geometric", "paper"])
@pytest.mark.parametrize("kind", ["grid", "mesh", "globe", "cube", "line"])
def test_the_particles_of_the_asked_point_are_listed_and_drawn(tab, kind, variant):
    with address_of(make_session(kind, variant)) as address:
        page = opened_at(tab, address)
        assert text(page, "nearby-seen").startswith("Click a point")
        click_in(page, "field", 0.45, 0.45)
        expect(page.locator("#nearby-rows tr")).to_have_count(5)
        head = page.inner_text("#nearby-rows tr >> nth=0").split("\t")
        seen = text(page, "nearby-seen")
        if variant == "paper":
            assert "scale σ" in head
            assert "the learned scale" in seen
        else:
            assert "displacement" in head
            assert "the same at every site" in seen
        weights = page.locator("#nearby-rows td.barred").all_inner_texts()
        assert sum(map(float, weights)) == pytest.approx(1, abs=2e-3)
        still(page)
        drawn = pixels(page, "field")
        page.uncheck("#show-nearby")
        still(page)
        assert pixels(page, "field") != drawn
        assert page.problems == []


@pytest.fixture
def alone(tab):
    """A page whose server nobody asked anything yet."""
    with address_of(make_session("grid")) as address:
        yield opened_at(tab, address)
        assert tab.problems == []
        tab.goto("about:blank")


def test_what_matters_is_computed_on_request_with_progress_and_can_be_stopped(alone):
    page = alone
    expect(page.locator("#ranking-seen")).to_contain_text("Not computed yet")
    page.route("**/api/ranking", lambda route: None)
    page.route("**/api/progress", lambda route: route.fulfill(json={"ranking": [3, 7, "ablating modes"]}))  # fmt: skip
    page.click("#ranking-compute")
    expect(page.locator("#ranking-seen")).to_have_text("ablating modes: 3 of 7")
    assert page.get_attribute("#ranking-progress", "value") == "3"
    page.click("#ranking-compute")
    expect(page.locator("#ranking-seen")).to_contain_text("Stopped")
    page.unroute_all()
    page.click("#ranking-compute")
    expect(page.locator("#ranking-seen")).to_contain_text("Relative change of predictions")
    values = page.locator("#ranking b").all_inner_texts()
    numbers = [float(value.split()[0]) for value in values]
    assert numbers == sorted(numbers, reverse=True)
    page.click("#ranking-kinds [data-value=layer]")
    page.click("#ranking button >> nth=0")
    settle(page)
    assert re.match(r"layer \d ×", text(page, "parts"))
    assert page.get_attribute("#ranking button >> nth=0", "aria-pressed") == "true"
    page.click("#ranking button >> nth=0")
    settle(page)
    assert text(page, "parts") == "No part is ablated."


def test_the_standing_of_an_example_is_told_and_leads_to_the_hardest(page):
    expect(page.locator("#typical-seen")).to_contain_text("larger than in")
    page.click("#typical-hardest")
    expect(page.locator("#typical-seen")).to_contain_text("among the hardest")
    hardest = float(re.search(r"RMS error ([\d.]+)", text(page, "typical-seen"))[1])
    page.click("#typical-easiest")
    expect(page.locator("#typical-seen")).to_contain_text("larger than in no other test example")
    assert float(re.search(r"RMS error ([\d.]+)", text(page, "typical-seen"))[1]) < hardest
    assert "Error of persistence:" in text(page, "typical-beside")


def test_the_standing_counts_smaller_errors_of_others(tab, served):
    found = module_page(tab, served).evaluate(
        """import('/static/typicalpanel.js').then(({ rankOf }) => [
        rankOf([1, 2, 3, 4, 5], 4), rankOf([1, 2, 3], 1), rankOf(Array.from({ length: 101 }, (_, n) => n), 25)])"""
    )
    assert found[0] == {"rank": 75, "text": "3 of 4 other test examples"}
    assert found[1] == {"rank": 0, "text": "no other test example"}
    assert found[2]["text"] == "25 % of the other test examples"


def test_the_error_by_scale_is_told_or_why_there_is_none(tab, page):
    expect(page.locator("#spectrum-seen")).to_contain_text("low, middle and high wave numbers")
    labels = text(page, "spectrum-legend").split("\n")
    assert labels == ["truth", "prediction", "error", "error of persistence"]
    page.click("#off-layer")
    expect(page.locator("#spectrum-legend")).to_contain_text("error of the full model")
    with address_of(make_session("mesh")) as address:
        other = opened_at(tab, address)
        expect(other.locator("#spectrum-seen")).to_have_text(re.compile(r"^No spectrum: mesh\."))
        assert other.locator("#spectrum").is_hidden()


@pytest.mark.parametrize("kind", ["grid", "mesh", "globe", "cube"])
def test_two_runs_stand_side_by_side(tab, kind):
    session, other = make_session(kind), make_session(kind, seed=5, history=1)
    compare(session, replace(other, name="second"))
    with address_of(session) as address:
        page = opened_at(tab, address)
        expect(page.locator("#compare-legend")).to_contain_text("second")
        assert text(page, "compare-legend").split("\n")[:3] == ["waves", "second", "persistence"]
        assert re.search(
            r"waves \(gpo\) .*, second \(gpo\) .* The errors? ", text(page, "compare-seen")
        )
        shown = [pixels(page, f"compare-{name}") for name in ("first", "second", "first-error", "second-error")]  # fmt: skip
        assert len(set(shown)) == 4
        expect(page.locator("#typical-beside")).to_contain_text("The error of second is smaller in")
        page.focus("#time")
        page.keyboard.press("ArrowRight")
        told = text(page, "compare-seen")
        expect(page.locator("#compare-seen")).not_to_have_text(told)
        assert page.problems == []


def test_a_single_run_has_no_panel_of_two(page):
    assert page.locator("#compare-panel").is_hidden()


def test_the_address_keeps_gaussians_particles_and_ranking_over_a_reload(alone):
    page = alone
    expect(page.locator("#ranking-seen")).to_contain_text("Not computed yet")
    page.click("#shown [data-value=truth]")
    with_gaussians(page, 5)
    click_in(page, "field", 0.5, 0.5)
    page.uncheck("#show-nearby")
    page.click("#ranking-compute")
    page.click("#ranking-kinds [data-value=mode]")
    still(page)
    expect(page).to_have_url(re.compile("mixtureSize=10.*rankedKind=mode"))
    names = ("mixture-text", "nearby-seen", "nearby-rows", "ranking")
    wanted = [pixels(page, "field"), *(text(page, name) for name in names)]
    page.reload()
    page.wait_for_selector("html[data-ready=true]")
    settle(page)
    with_gaussians(page)
    expect(page.locator("#ranking li").first).to_be_visible()
    still(page)
    assert [pixels(page, "field"), *(text(page, name) for name in names)] == wanted
    assert not page.is_checked("#show-nearby")


@pytest.mark.parametrize("kind", ["grid", "globe", "cube"])
def test_at_390_pixels_the_answers_are_no_wider_than_the_screen(browser, kind):
    session, other = make_session(kind), make_session(kind, seed=5)
    compare(session, replace(other, name="a-second-run-with-a-name-that-is-rather-long"))
    with address_of(session) as address:
        page = browser.new_page(viewport={"width": 390, "height": 844})
        page.goto(address)
        page.wait_for_selector("html[data-ready=true]")
        settle(page)
        expect(page.locator("#compare-legend")).to_contain_text("rather-long")
        with_gaussians(page, 3)
        click_in(page, "field", 0.5, 0.4)
        page.click("#ranking-compute")
        expect(page.locator("#ranking li").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        page.close()


def test_static_maps_and_baselines_say_what_they_lack(tab):
    with address_of(make_map_session()) as address:
        page = opened_at(tab, address)
        expect(page.locator("#typical-seen")).to_contain_text("larger than in")
        assert text(page, "typical-beside") == ""
        with_gaussians(page, 2)
        page.click("#shown [data-value=given]")
        with_gaussians(page)
        assert page.problems == []
    with address_of(make_session("grid", model="fno")) as address:
        page = opened_at(tab, address)
        assert "fno has no particles" in text(page, "nearby-seen")
        expect(page.locator("#ranking-seen")).to_contain_text("no modes to switch off")
        assert page.locator("#ranking-compute").is_hidden()
        with_gaussians(page, 2)
        assert page.problems == []
