"""Reports on all kinds of sites: valid HTML, self-contained, described in words, with an animation."""

import base64
import hashlib
import io
import re

import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb
from PIL import Image

from gpo.data.geometry import Geometry
from gpo.evaluation.rollout import Rollout
from gpo.report import animation
from gpo.report.animation import draw_animations
from gpo.report.appearance import darken, readable_units
from gpo.report.page import Section, make_page, table
from tests.core.report.pages import Page, report_of
from tests.explore.sessions import KINDS

LARGEST = 6_000_000


def checked(path):
    """Reads a page and checks what all pages have in common."""
    text = path.read_text(encoding="utf-8")
    page = Page.read(text)
    assert len(text) < LARGEST
    assert all(address.startswith(("data:image/", "#")) for address in page.addresses())
    assert "http" not in re.sub(r"http-equiv", "", re.sub(r'base64,[^"]*', "", text))
    assert page.all("img"), "there are pictures"
    assert all(picture.get("alt") for picture in page.all("img"))
    assert not any("style" in part or any(name.startswith("on") for name in part) for _, part in page.elements)  # fmt: skip
    anchors = {part["id"] for part in page.all("section")}
    assert {part["href"] for part in page.all("a")} == {f"#{anchor}" for anchor in anchors}
    return page, text


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_all_kinds_of_sites_have_a_page_with_an_animation(kind, grid_report, tmp_path):
    path, results = grid_report if kind == "grid" else report_of(kind, tmp_path)
    page, text = checked(path)
    assert text.index(results.verdict.replace("'", "&#x27;")) < text.index("<section")
    (player,) = page.all("figure", "player")
    assert player["tabindex"] == "0"
    frames, num_steps = page.all("img", "frame"), len(results.rollout["model"])
    assert len(frames) == 2 * num_steps, "of both variables"
    assert [("hidden" in frame) for frame in frames[:num_steps]] == [True] * (num_steps - 1) + [False]  # fmt: skip
    assert frames[0]["data-label"].startswith(f"step 1 of {num_steps}, ")
    assert "relative L2" in frames[0]["data-label"]


@pytest.mark.thorough
def test_the_page_of_a_grid_has_an_animation_and_titles(grid_report):
    page, _ = checked(grid_report[0])
    assert page.texts["title"] == ["gpo: tiny <run>"]
    assert page.texts["h1"] == ["tiny <run>"]
    assert len(page.all("img", "frame")) > 0
    (controls,) = page.all("div", "controls")
    assert "hidden" in controls, "controls need JavaScript"
    assert len(page.all("figure")) == len(page.texts["figcaption"]) > 5
    sizes = {(picture["width"], picture["height"]) for picture in page.all("img", "frame")}
    assert len(sizes) == 1


def test_the_policy_allows_the_script_and_the_style_of_the_page_and_nothing_else():
    text = make_page("a", "<h1>a</h1>", [Section("One", "<p>b</p>"), Section("Two", "")])
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    for tag, name in (("style", "style-src"), ("script", "script-src")):
        (content,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{name} 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert "Two" not in text
    Page.read(text)


def test_a_table_escapes_names_and_shows_reasons():
    page = Page.read(table({"<a>": {"x": 1.0}, "b": {"reason": "a mesh & more"}}, "who"))
    assert page.texts["td"] == ["1", "- (a mesh & more)"]
    assert page.texts["th"][-2:] == ["<a>", "b"]


def travelling(geometry, num_steps=5, error=0.0):
    x = torch.from_numpy(geometry.coords[:, :1]).float()
    truth = torch.stack([torch.sin(6 * x - n) for n in range(num_steps)])
    weights = torch.from_numpy(geometry.weights).float()
    forecasts = {"persistence": truth[:1].expand_as(truth), "model": truth + error}
    return Rollout(range(3, 3 + num_steps), truth, forecasts, weights, geometry)


def square(size=6):
    return Geometry.rectilinear([np.linspace(0, 1, size)] * 2)


def opened(content):
    return np.asarray(Image.open(io.BytesIO(content)).convert("RGBA")).astype(int)


@pytest.mark.thorough
def test_frames_are_transparent_and_differ_from_step_to_step():
    (drawn,) = draw_animations(travelling(square()), ("t",), ("K",))
    assert (drawn.variable, drawn.steps) == ("t", [1, 2, 3, 4, 5])
    first, last = opened(drawn.frames[0]), opened(drawn.frames[-1])
    assert (first[0, 0, 3], first[..., 3].max()) == (0, 255), "transparent around the fields"
    is_both = (first[..., 3] == 255) & (last[..., 3] == 255)
    assert np.abs(first - last)[is_both].max() > 60
    light, dark = opened(drawn.light), opened(drawn.dark)
    # Text is dark on light paper and light on dark paper.
    assert light[..., :3][light[..., 3] > 200].min() < 60
    assert dark[..., :3][dark[..., 3] > 200].max() > 200
    assert not plt.get_fignums()


@pytest.mark.thorough
def test_a_perfect_forecast_has_no_error_and_that_of_a_diverged_one_is_bounded():
    geometry = square()
    panels = [opened(draw_animations(travelling(geometry, error=e), ("t",), ("K",))[0].frames[0]) for e in (0.0, 1e9)]  # fmt: skip
    width = panels[0].shape[1]
    error = [panel[:, 2 * width // 3 :] for panel in panels]
    middle = [part[part.shape[0] // 2, part.shape[1] // 3, :3] for part in error]
    assert middle[0].min() > 230, "white"
    assert middle[1][0] > middle[1][2] + 60, "as red as the scale goes"


@pytest.mark.thorough
def test_many_steps_are_thinned_and_frames_stay_within_the_limit_of_bytes(monkeypatch):
    monkeypatch.setattr(animation, "MAX_BYTES", 20_000)
    (drawn,) = draw_animations(travelling(square(), num_steps=40), ("t",), ("",))
    assert len(drawn.frames) == animation.MAX_FRAMES
    assert (drawn.steps[0], drawn.steps[-1]) == (1, 40)
    coarse, fine = opened(drawn.frames[0]).shape[1], opened(drawn.light).shape[1]
    assert coarse < fine / 2


@pytest.mark.parametrize(
    ("units", "shown"),
    [("m s**-1", "m s⁻¹"), ("kg m-3", "kg m⁻³"), ("1/s", "s⁻¹"), ("K", "K"), ("degrees_north", "°"),
     ("1", ""), ("m2 s-2", "m² s⁻²"), ("", "")],
)  # fmt: skip
def test_units_are_written_in_common_notation(units, shown):
    assert readable_units(units) == shown


def test_dark_paper_keeps_colours_and_inverts_greys():
    figure, axes = plt.subplots()
    (black,) = axes.plot([0, 1], color="black")
    (blue,) = axes.plot([0, 1], color="#2a78c2")
    axes.set_title("a")
    axes.set_facecolor("0.8")
    figure.draw_without_rendering()
    darken(figure)
    assert min(to_rgb(axes.get_xticklabels()[0].get_color())) > 0.75
    assert min(to_rgb(black.get_color())) > 0.85
    assert blue.get_color() == "#2a78c2"
    assert min(to_rgb(axes.title.get_color())) > 0.85
    assert max(to_rgb(axes.get_facecolor())) < 0.4
    plt.close(figure)
