"""What the page tells about motion is what the model does and what the data say."""

from dataclasses import replace

import numpy as np
import pytest
from starlette.testclient import TestClient

from gpo_explore.app import make_app
from gpo_explore.arrays import unpack
from gpo_explore.motion import describe_correlation, describe_tracers
from gpo_explore.plane import Plane
from tests.explore.flows import ADVECTOR, FRAMES, PLACES, displacement, flowing, velocity
from tests.explore.sessions import make_map_session, make_session


def client_of(session):
    return TestClient(make_app(session), base_url="http://127.0.0.1:8000")


def ask(session, what, **body):
    answer = client_of(session).post(f"/api/{what}", json=body)
    assert answer.status_code == 200, answer.text
    return unpack(answer.content)


def refused(session, what, **body):
    answer = client_of(session).post(f"/api/{what}", json=body)
    assert answer.status_code == 400
    return answer.json()["error"]


@pytest.mark.parametrize("place", PLACES)
def test_the_learned_motion_and_the_true_one_are_told_in_lengths_per_step(place):
    session = flowing(place)
    found = ask(session, "flow", advector=ADVECTOR)
    degrees = np.rad2deg(1) if place == "globe" else 1
    np.testing.assert_allclose(
        found.arrays["model"], degrees * displacement(place), atol=1e-4 * degrees
    )
    sign = 1 if session.samples[0].sample % 2 == 0 else -1
    np.testing.assert_allclose(
        found.arrays["true"], sign * degrees * velocity(place), rtol=1e-5, atol=1e-7
    )
    assert found.metadata["own"] == pytest.approx(sign, abs=0.02)
    assert found.metadata["num_steps"] == FRAMES - 1
    assert found.metadata["rms"]["model"] == pytest.approx(found.metadata["rms"]["true"], rel=0.02)


def test_the_control_is_the_velocity_of_other_series():
    session = flowing("grid")
    assert len({one.sample for one in session.samples}) == 2
    even = next(n for n, one in enumerate(session.samples) if one.sample % 2 == 0)
    found = ask(session, "flow", example=even, advector=ADVECTOR).metadata
    assert found["own"] == pytest.approx(1, abs=0.02)
    # All others are of the series in which everything flows the other way.
    assert found["others"] == pytest.approx([-1] * len(found["others"]), abs=0.02)
    assert "Higher than for any other example: the displacement follows" in found["words"]
    odd = next(n for n, one in enumerate(session.samples) if one.sample % 2 == 1)
    assert "the displacement opposes the velocity" in ask(session, "flow", example=odd, advector=ADVECTOR).metadata["words"]  # fmt: skip


def test_a_particle_that_stands_still_is_not_the_motion_of_the_field():
    found = ask(flowing("grid"), "flow", advector=0).metadata
    assert found["rms"]["model"] < 1e-6
    assert found["words"] == "This particle has zero displacement here."


@pytest.mark.parametrize(("own", "others", "verdict"), [
    (0.9, [0.1, 0.5], "follows the velocity of this field"),
    (0.5, [0.1, 0.6], "no evidence"),
    (-0.46, [-0.47, -0.47], "no evidence"),
    (-0.9, [-0.2, 0.3], "opposes the velocity of this field"),
    (0.501, [0.499], "no evidence"),
    (0.1, [0.07, 0.09], "Higher than for any other example, but weak"),
    (-0.1, [0.07, 0.09], "More negative than for any other example, but weak"),
    (0.9, [], "There is no other example"),
])  # fmt: skip
def test_words_claim_only_what_other_examples_do_not_show_as_well(own, others, verdict):
    assert verdict in describe_correlation(own, others)


@pytest.mark.parametrize("place", ["grid", "globe", "mesh"])
def test_tracers_go_with_the_displacement_and_with_the_true_flow(place):
    session = flowing(place)
    even = next(n for n, one in enumerate(session.samples) if one.sample % 2 == 0)
    start = {"grid": [0.3, 0.6], "globe": [170.0, 30.0], "mesh": [0.8, 0.5]}[place]
    found = ask(session, "tracers", example=even, advector=ADVECTOR, points=[start])
    for path in found.arrays.values():
        assert path.shape == (1, FRAMES, 2)
        np.testing.assert_allclose(path[0, 0], start, atol=1e-4)
    rows = found.metadata["separation"]
    assert rows["stay"][-1] > 0.1
    assert rows["model"][-1] < 0.03 * rows["stay"][-1]
    # The planted displacement is the same in all examples, so its control is as good.
    assert rows["other"] == pytest.approx(rows["model"])
    assert "from the true one after 5 steps" in found.metadata["words"]
    if place == "globe":
        # Around the pole on its circle of latitude, beyond 180 degrees and on.
        east = np.rad2deg(0.08) * np.arange(FRAMES)
        np.testing.assert_allclose((found.arrays["true"][0, :, 0] - 170) % 360, east, atol=0.5)
        np.testing.assert_allclose(found.arrays["true"][0, :, 1], 30, atol=0.2)


def test_a_tracer_goes_on_beyond_a_periodic_end_without_a_jump():
    session = flowing("grid")
    even = next(n for n, one in enumerate(session.samples) if one.sample % 2 == 0)
    path = ask(session, "tracers", example=even, advector=ADVECTOR, points=[[0.95, 0.25]]).arrays["model"][0]  # fmt: skip
    assert path[-1, 0] > 1.05
    assert np.abs(np.diff(path, axis=0)).max() < 0.1


def test_the_rows_are_those_of_interpret_for_every_particle_of_every_transport():
    session = flowing("grid")
    found = ask(session, "motion").metadata
    assert [row["particle"] for row in found["rows"]] == list(range(4))
    assert found["rows"][ADVECTOR]["rms_displacement"] == pytest.approx(0.05, rel=0.05)
    assert found["rows"][0]["rms_displacement"] < 1e-6
    # Half of the examples flow the other way.
    assert found["rows"][ADVECTOR]["velocity_correlation"] == pytest.approx(0, abs=0.3)
    assert found["best"] == ADVECTOR
    assert found["known_by"] == "u, v (name)"


def test_without_a_velocity_the_motion_is_told_alone():
    session = make_session("grid")
    found = ask(session, "flow", advector=1)
    assert set(found.arrays) == {"model"}
    assert "--velocity U V names its variables" in found.metadata["reason"]
    traced = ask(session, "tracers", points=[[0.5, 0.5]])
    assert set(traced.arrays) == {"model"}
    assert "words" not in traced.metadata


def test_a_velocity_that_is_named_is_the_true_flow():
    session = replace(make_session("grid"), velocity=("t2m", "b"))
    assert ask(session, "flow").metadata["known_by"] == "t2m, b (--velocity)"
    # Kelvin are no lengths per time.
    assert "The units do not determine" in ask(session, "flow").metadata["scaled"]


def test_what_is_off_changes_the_motion_of_later_steps():
    session = make_session("grid")
    whole = ask(session, "flow", step=2).arrays["model"]
    ablated = ask(session, "flow", step=2, ablation={"layers": [0]}).arrays["model"]
    assert not np.allclose(whole, ablated)


def test_the_motion_of_a_step_is_that_of_the_forecast_before_it():
    session = make_session("grid")
    first, second = (ask(session, "flow", step=step).arrays["model"] for step in (1, 2))
    assert not np.allclose(first, second)
    again = ask(make_session("grid"), "flow", step=2).arrays["model"]
    np.testing.assert_array_equal(second, again)


def test_maps_without_time_have_one_step():
    found = ask(make_map_session(), "flow")
    assert found.metadata["num_steps"] == 1
    assert found.arrays["model"].shape[1] == 2


@pytest.mark.parametrize(("what", "body", "message"), [
    ("flow", {"advector": 4}, "`advector` must be from 0 to 3, got 4"),
    ("flow", {"step": 0}, "`step` must be from 1 to 5, got 0"),
    ("flow", {"step": 6}, "`step` must be from 1 to 5, got 6"),
    ("tracers", {"points": []}, "`points` must be a list of 1 to 64 points"),
    ("tracers", {"points": [[0, 0]] * 65}, "`points` must be a list of 1 to 64 points"),
    ("tracers", {"points": [[0, 0, 0]]}, "`point` must have 2 coordinates, got 3"),
    ("tracers", {}, "must have `points`"),
])  # fmt: skip
def test_what_cannot_be_answered_says_what_must_hold(what, body, message):
    assert message in refused(flowing("grid"), what, **body)


def test_particles_of_the_papers_variant_do_not_move():
    session = make_session("grid", "paper")
    assert "do not move" in refused(session, "flow")
    assert "do not move" in client_of(session).get("/api/run").json()["reasons"]["flow"]


def test_words_of_tracers_name_the_last_step_at_which_they_are_still_inside():
    plane = Plane(PLACES["grid"])
    rows = {"model": [0.0, 0.1, None], "other": [0.0, 0.3, None], "stay": [0.0, 0.2, None]}
    said = describe_tracers(rows, 1, plane)
    assert "0.1 from the true one after 1 step;" in said
    assert "another example: 0.3" in said
