"""What the server answers, on every kind of geometry and for both variants."""

import json
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
import xarray as xr
from starlette.testclient import TestClient

from gpo import Ablation
from gpo.data.dataset import Variable
from gpo.data.dates import TimeOrigin
from gpo.model.taps import active_taps
from gpo_explore.app import make_app
from gpo_explore.arrays import Packet, pack, unpack
from gpo_explore.metadata import run_metadata
from gpo_explore.session import RecentCache
from tests.core.evaluation.test_references import climatology_of, means_at
from tests.explore.sessions import KINDS, make_map_session, make_session

VARIANTS = ("geometric", "paper")


def client_of(session):
    return TestClient(make_app(session), base_url="http://127.0.0.1:8760")


def ask(client, what, **body):
    response = client.post(f"/api/{what}", json=body)
    assert response.status_code == 200, response.text
    return unpack(response.content)


def complaint(client, what, **body):
    response = client.post(f"/api/{what}", json=body)
    assert response.status_code == 400, response.text
    return response.json()["error"]


@pytest.fixture(scope="module", params=VARIANTS)
def grid(request):
    session = make_session("grid", request.param)
    return session, client_of(session)


def predicted(session, number=0, ablation=Ablation(), **settings):
    example = session.example(number)
    with torch.no_grad(), ablation.applied(session.forecaster.model.operator):
        return session.forecaster(
            example.frames, example.coords, weights=example.weights, **settings
        )[0].numpy()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_part_of_the_page_is_answered_on_every_geometry(kind, variant):
    session = make_session(kind, variant)
    client = client_of(session)
    run = client.get("/api/run").json()
    points, modes = run["num_sites"], run["operator"]["num_modes"]
    places = ask(client, "sites", example=1)
    known = places.arrays["known"] == 1
    axes = len(places.metadata["names"])
    assert places.arrays["positions"].shape == (points, axes)
    assert np.array_equal(known, ~session.plane(1).geometry.is_masked)
    shapes = {"given": (2, points, 2), "truth": (points, 2), "whole": (points, 2)}
    frames = ask(client, "frames", example=1)
    assert {name: part.shape for name, part in frames.arrays.items()} == shapes
    np.testing.assert_allclose(frames.arrays["whole"], predicted(session, 1), rtol=1e-5, atol=1e-5)
    internals = ask(client, "internals", example=1).arrays
    assert internals["activation"].shape == (3, points)
    assert internals["tokens"].shape == (2, modes)
    held = ask(client, "particles", example=1).arrays
    assert held["centers"].shape == (known.sum(), 4, axes)
    assert held["states"].shape == (3, known.sum(), 4)
    if variant == "paper":
        assert (held["scales"] > 0).all()
    else:
        assert held["displacements"].shape == (known.sum(), 4, axes)
        assert (held["displacements"] != 0).any()
    window = ask(client, "window", example=1, layer=1, mode=modes - 1).arrays["window"]
    assert window.shape == ((1 if variant == "paper" else 2), points)
    middle = places.arrays["positions"][known][3].tolist()
    found = ask(client, "dependence", example=1, point=middle, variable=1)
    assert found.arrays["modes"].shape == (2, modes)
    assert found.metadata["site"] == np.flatnonzero(known)[3]
    value = ask(client, "value", example=1, point=middle).metadata["values"]
    # The point went through float32 on its way to the page and back.
    np.testing.assert_allclose(value, predicted(session, 1)[found.metadata["site"]], rtol=1e-3)
    rollout = ask(client, "rollout", example=1, steps=4)
    assert rollout.arrays["forecast"].shape == rollout.arrays["truth"].shape
    np.testing.assert_allclose(
        rollout.arrays["forecast"][0], frames.arrays["whole"], rtol=1e-4, atol=1e-5
    )
    for packet in (internals, held, found.arrays):
        assert all(np.isfinite(part).all() for part in packet.values())


@pytest.mark.parametrize("variant", VARIANTS)
def test_static_maps_have_sites_of_their_own_and_no_next_step(variant):
    client = client_of(make_map_session(variant))
    run = client.get("/api/run").json()
    assert run["sites_vary"]
    moves = {} if variant == "geometric" else {"flow": "The particles of gpo-paper do not move."}
    assert run["reasons"] == {"rollout": "Static maps have no time steps.", **moves}
    sites = len(ask(client, "sites", example=1).arrays["known"])
    assert ask(client, "frames", example=1).arrays["truth"].shape == (sites, 2)
    assert sites != len(ask(client, "sites", example=0).arrays["known"])
    assert "A rollout needs a model that forecasts" in complaint(client, "rollout", example=0)
    assert ask(client, "dependence", point=[0.5, 0.5]).metadata["of"] == "value"


def test_an_ablation_changes_the_prediction_as_the_forecaster_says(grid):
    session, client = grid
    ablation = {"modes": [[0, 3], [1, 2]], "layers": [], "sites": [4, 5, 6]}
    answer = ask(client, "prediction", ablation=ablation)
    off = Ablation(frozenset({(0, 3), (1, 2)}), frozenset(), frozenset({4, 5, 6}))
    expected = predicted(session, ablation=off)
    np.testing.assert_allclose(answer.arrays["predicted"], expected, rtol=1e-5, atol=1e-5)
    change = np.sqrt(((expected - predicted(session)) ** 2).mean(0))
    np.testing.assert_allclose(answer.metadata["changes"]["rms"], change, rtol=1e-3)
    assert change.min() > 0
    assert answer.metadata["errors"]["relative_l2"] > 0


def test_nothing_off_changes_nothing(grid):
    _, client = grid
    answer = ask(client, "prediction")
    assert max(answer.metadata["changes"]["rms"]) < 1e-12
    ablated = ask(client, "internals", ablation={"layers": [0]}).arrays["activation"]
    np.testing.assert_array_equal(ablated[0], ablated[1])


def test_windows_of_a_head_share_every_site():
    client = client_of(make_session("scattered", "paper"))
    windows = [ask(client, "window", layer=0, mode=4 + m).arrays["window"][0] for m in range(4)]
    np.testing.assert_allclose(np.sum(windows, axis=0), 1, rtol=1e-5)
    coupling = ask(client, "internals").arrays["coupling"]
    assert coupling.shape == (2, 2, 4, 4)
    np.testing.assert_allclose(coupling.sum(-1), 1, rtol=1e-5)


def test_a_wave_is_shown_by_its_cosine_and_sine():
    client = client_of(make_session("grid", "geometric"))
    waves = ask(client, "internals").arrays["waves"]
    mode = int(np.flatnonzero((waves == [1, 2]).all(1))[0])
    cosine, sine = ask(client, "window", layer=0, mode=mode).arrays["window"]
    positions = ask(client, "sites").arrays["positions"]
    angle = 2 * np.pi * (positions[:, 0] + 2 * positions[:, 1])
    np.testing.assert_allclose(cosine, np.cos(angle), atol=1e-5)
    np.testing.assert_allclose(sine, np.sin(angle), atol=1e-5)


def test_drawn_particles_make_the_basis_of_their_sites():
    client = client_of(make_session("scattered", "paper"))
    held = ask(client, "particles").arrays
    sites = ask(client, "sites").arrays["positions"][held["sites"]]
    offset = (sites[:, None] - held["centers"]) / held["scales"]
    basis = held["weights"] * np.exp(-0.5 * (offset**2).sum(-1))
    np.testing.assert_allclose(basis, held["states"][0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["grid", "scattered", "cube"])
def test_arrows_of_particles_lead_from_their_centers_to_their_sites(kind):
    session = make_session(kind)
    client, domain = client_of(session), session.plane(0).geometry.domain
    held = ask(client, "particles").arrays
    sites = ask(client, "sites").arrays["positions"][held["sites"]]
    tails = domain.wrap(torch.from_numpy(sites[:, None] - held["displacements"]))
    centers = torch.from_numpy(held["centers"].copy())
    np.testing.assert_allclose(domain.offset(tails, centers), 0, atol=1e-5)


def test_a_rollout_is_fed_with_itself_under_ablation(grid):
    session, client = grid
    frames = session.example(0).frames
    first, second = ask(client, "rollout", steps=2, ablation={"layers": [1]}).arrays["forecast"]
    off = Ablation(layers=frozenset({1}))
    np.testing.assert_allclose(first, predicted(session, ablation=off), rtol=1e-4, atol=1e-4)
    fed = torch.cat([frames[:, 1:], torch.tensor(first)[None, None]], 1)
    example = session.example(0)
    with torch.no_grad(), off.applied(session.forecaster.operator):
        after = session.forecaster(fed, example.coords, weights=example.weights)[0]
    np.testing.assert_allclose(second, after.numpy(), rtol=1e-4, atol=1e-4)


def test_the_data_of_the_view_is_a_netcdf_file():
    session = make_session("masked", "geometric")
    client = client_of(session)
    body = {"example": 1, "ablation": {"layers": [0]}}
    content = client.post("/api/netcdf", json=body).content
    with _opened(content) as file:
        truth = file["t2m_truth"].values.ravel()
        np.testing.assert_allclose(
            file["t2m_predicted"].values.ravel() - truth,
            file["t2m_error"].values.ravel(),
            atol=1e-4,
        )
        assert file["t2m_truth"].attrs["units"] == "K"
        assert {"t2m_given", "t2m_ablated", "b_error"} <= set(file.data_vars)
        masked = session.plane(1).geometry.is_masked
        np.testing.assert_array_equal(np.isnan(truth), masked)
        assert file.attrs["run"] == "waves"
        assert file.attrs["example"] == "1 of the test split of waves.nc"


def test_variables_with_names_that_netcdf_refuses_are_saved():
    session = make_session("grid")
    names = ("u (m/s)", "x")
    task = replace(session.forecaster.task, inputs=names, outputs=names)
    session.forecaster.task = task
    variables = tuple(Variable(name) for name in names)
    session = replace(session, data=replace(session.data, variables=variables))
    answer = client_of(session).post("/api/netcdf", json={})
    assert answer.status_code == 200
    with _opened(answer.content) as file:
        assert {"u (m_s)_truth", "x_predicted", "u (m_s)_given"} <= set(file.data_vars)
        assert file["u (m_s)_truth"].attrs["long_name"] == "u (m/s)_truth"


@pytest.mark.parametrize(
    ("variant", "mode", "name"), [("geometric", 1, "wave ("), ("paper", 5, "head 2, mode 2")]
)
def test_a_saved_file_says_which_parts_were_off(variant, mode, name):
    client = client_of(make_session("grid", variant))
    ablation = {"modes": [[1, mode]], "layers": [0], "sites": [3, 7]}
    content = client.post("/api/netcdf", json={"ablation": ablation}).content
    with _opened(content) as file:
        words = file.attrs["ablation"]
        assert "layer 1;" in words
        assert f"layer 2: {name}" in words
        assert words.endswith("2 sites, where is_off is 1")
        np.testing.assert_array_equal(np.flatnonzero(file["is_off"].values), [3, 7])
        stored = json.loads(file.attrs["ablation_json"])
        assert stored == {"modes": [[1, mode]], "layers": [0], "num_sites": 2}
    with _opened(client.post("/api/netcdf", json={}).content) as file:
        assert file.attrs["ablation"] == "none"
        assert "is_off" not in file


def test_a_rollout_comes_with_the_errors_of_persistence_and_climatology():
    session = make_session("grid")
    answer = ask(client_of(session), "rollout", example=0, steps=3)
    truth, example = answer.arrays["truth"], session.example(0)
    weights = example.weights[0, :, None].numpy()
    climatology = climatology_of(session.data, session.training)
    last = session.samples[0].last
    guesses = {
        "persistence": example.fields[0, -1].expand(3, -1, -1).numpy(),
        "climatology": means_at(climatology, session.data, range(last + 1, last + 4)).numpy(),
    }
    for name, guess in guesses.items():
        told = answer.metadata["references"][name]
        assert len(told) == len(truth)
        for step, frame in enumerate(truth):
            squares = weights * (guess[step] - frame) ** 2
            expected = np.sqrt(squares.sum(0) / weights.sum())
            np.testing.assert_allclose(told[step]["rms"], expected, rtol=1e-4)


def test_a_rollout_without_training_frames_says_why_there_is_persistence_only():
    session = replace(make_session("grid"), training=())
    metadata = ask(client_of(session), "rollout", example=0, steps=2).metadata
    assert list(metadata["references"]) == ["persistence"]
    assert metadata["no_references"].startswith("Persistence only")


def test_a_kept_prediction_tells_how_long_the_model_took_when_it_ran():
    client = client_of(make_session("grid"))
    first = ask(client, "prediction", example=0).metadata["seconds"]
    assert ask(client, "prediction", example=0).metadata["seconds"] == first > 1e-4


def test_a_baseline_is_called_by_its_name_and_units_as_people_write_them():
    run = run_metadata(make_session("grid", model="fno"))
    assert run["model"] == "fno"
    assert run["reasons"]["modes"] == "fno has no modes to inspect."
    assert [output["units"] for output in run["outputs"]] == ["K", ""]


def test_a_sphere_with_dates_is_the_earth_and_one_without_is_any_planet():
    plain = make_session("patch")
    dated = replace(plain, data=replace(plain.data, origin=TimeOrigin("2019-03-01 00:00:00")))
    flat = make_session("grid")
    flat = replace(flat, data=replace(flat.data, origin=TimeOrigin("2019-03-01 00:00:00")))
    assert [run_metadata(session)["is_earth"] for session in (plain, dated, flat)] == [False, True, False]  # fmt: skip


def test_the_page_shows_dates_of_the_calendar_of_the_file():
    plain = make_session("grid", "geometric")
    origin = TimeOrigin("1987-02-30 22:00:00", "360_day")
    session = replace(plain, data=replace(plain.data, origin=origin))
    # Two frames are given: hours 0 and 1 predict hour 2.
    assert run_metadata(session)["examples"][0]["label"] == "1987-02-30 23:00 → 1987-03-01 00:00"
    assert run_metadata(plain)["examples"][0]["label"] == "1 h → 2 h"
    metadata = ask(client_of(session), "rollout", example=0, steps=2).metadata
    assert metadata["labels"] == ["1987-03-01 00:00", "1987-03-01 01:00"]
    content = client_of(session).post("/api/netcdf", json={"example": 0}).content
    with _opened(content) as file:
        assert str(file["time"].values[0]) == "1987-03-01 00:00:00"


def _opened(content):
    import netCDF4

    dataset = netCDF4.Dataset("view", memory=content)
    return xr.open_dataset(xr.backends.NetCDF4DataStore(dataset))


@pytest.mark.parametrize(
    ("what", "body", "message"),
    [
        ("frames", {"example": 99}, "`example` must be from 0 to"),
        ("frames", {"example": -1}, "`example` must be a non-negative integer, got -1"),
        ("frames", {"example": True}, "`example` must be a non-negative integer"),
        ("frames", {"example": 1e99}, "`example` must be a non-negative integer"),
        ("frames", {"exampel": 1}, "The request may have example, got `exampel`"),
        ("prediction", {"ablation": {"modes": [[0, 10**6]]}}, "`ablation.modes` must be from 0 to"),
        ("prediction", {"ablation": {"layers": [2]}}, "`ablation.layers` must be from 0 to 1, got 2"),
        ("prediction", {"ablation": {"sites": [80]}}, "`ablation.sites` must be from 0 to 79, got 80"),
        ("prediction", {"ablation": {"heads": [0]}}, "`ablation` may have modes, layers, sites"),
        ("prediction", {"ablation": {"modes": [3]}}, "must be a list of pairs [layer, mode]"),
        ("prediction", {"ablation": {"layers": 3}}, "must be a list of integers"),
        ("prediction", {"ablation": []}, "`ablation` may have modes, layers, sites"),
        ("window", {"layer": 0}, "The request must have `mode`"),
        ("window", {"layer": 9, "mode": 0}, "`layer` must be from 0 to 1, got 9"),
        ("window", {"layer": 0, "mode": 10**6}, "`mode` must be from 0 to"),
        ("value", {"point": [0.1]}, "`point` must have 2 coordinates, got 1"),
        ("value", {"point": ["here"]}, "`point` must be one to three finite numbers"),
        ("value", {"point": [1e300, 0]}, "`point` must be one to three finite numbers"),
        ("dependence", {"point": [0, 0], "variable": 2}, "`variable` must be from 0 to 1, got 2"),
        ("rollout", {"steps": 0}, "`steps` must be from 1 to 50, got 0"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_in_words(grid, what, body, message):
    _, client = grid
    assert message in complaint(client, what, **body)


def test_a_point_of_the_sphere_has_a_latitude():
    client = client_of(make_session("globe"))
    assert "latitude from -90 to 90, got 95" in complaint(client, "value", point=[10, 95])


def test_a_baseline_shows_fields_and_says_why_there_is_nothing_inside():
    client = client_of(make_session("grid", model="fno"))
    run = client.get("/api/run").json()
    assert run["operator"] is None
    assert "has no modes to inspect" in run["reasons"]["modes"]
    assert "has no ablations" in complaint(client, "internals")
    assert "no parts to switch off" in complaint(client, "prediction", ablation={"layers": [0]})
    ask(client, "prediction")
    found = ask(client, "dependence", point=[0.5, 0.5])
    assert set(found.arrays) == {"regions"}
    assert ask(client, "rollout", steps=2).arrays["forecast"].shape[0] == 2


def test_a_field_that_is_only_reconstructed_shows_its_particles():
    client = client_of(make_session("grid", "paper", phase="field", history=1))
    run = client.get("/api/run").json()
    assert run["reasons"]["rollout"] == "This run reconstructs fields and does not forecast."
    assert ask(client, "particles").arrays["centers"].shape == (80, 4, 2)
    frames = ask(client, "frames").arrays
    np.testing.assert_array_equal(frames["given"][0], frames["truth"])


@pytest.mark.parametrize(
    ("variant", "changes"),
    [("geometric", {"num_transports": 0}), ("paper", {"has_gaussian_field": False})],
)
def test_without_particles_the_page_says_so(variant, changes):
    client = client_of(make_session("grid", variant, **changes))
    run = client.get("/api/run").json()
    assert run["reasons"]["particles"] == "The model of this run has no particles."
    assert "has no particles" in complaint(client, "particles")
    assert ask(client, "internals").arrays["activation"].shape == (3, 80)


def test_files_are_served_while_the_model_computes(grid):
    session, client = grid
    answered = threading.Event()

    def wait():
        ask(client, "frames", example=2)
        answered.set()

    with session.lock:
        thread = threading.Thread(target=wait)
        thread.start()
        assert client.get("/").status_code == 200
        assert client.get("/static/main.js").status_code == 200
        assert not answered.is_set()
    thread.join()
    assert answered.is_set()


def test_a_prediction_does_not_wait_for_a_rollout(grid):
    session, client = grid
    with session.rollout_lock:
        ask(client, "prediction", example=1)


def test_the_same_question_is_computed_once(monkeypatch):
    session = make_session("grid")
    client = client_of(session)
    ask(client, "dependence", point=[0.5, 0.5])
    monkeypatch.setattr(type(session.forecaster.model), "trace", None)
    ask(client, "dependence", point=[0.5, 0.5])


def test_only_the_last_few_results_are_kept():
    made = []
    recent = RecentCache[int](2, is_small=lambda number: number < 9)

    def number(key):
        return recent.get(key, lambda: made.append(key) or key)

    assert [number(key) for key in (1, 2, 1, 3, 1, 2, 9, 9)] == [1, 2, 1, 3, 1, 2, 9, 9]
    assert made == [1, 2, 3, 2, 9, 9]


def test_arrays_arrive_as_they_were_sent():
    arrays = {"a": np.array([[1.5, np.nan]]), "n": np.arange(3), "none": np.zeros((0, 4))}
    content = pack(Packet(arrays, {"é": [1.0, float("nan")]}))
    again = unpack(content)
    np.testing.assert_array_equal(again.arrays["a"], arrays["a"])
    assert again.arrays["n"].dtype == np.int32
    assert again.arrays["none"].shape == (0, 4)
    assert again.metadata == {"é": [1.0, None]}
    assert len(content) % 4 == 0


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_ablation_costs_one_forward_pass_and_the_intact_one_is_kept(variant, monkeypatch):
    session = make_session(variant=variant)
    client = client_of(session)
    ask(client, "frames")
    passes, trace = [], type(session.forecaster.model).trace

    def counted(model, *fields, **settings):
        passes.append(active_taps())
        return trace(model, *fields, **settings)

    monkeypatch.setattr(type(session.forecaster.model), "trace", counted)
    for mode in range(4):
        ask(client, "prediction", ablation={"modes": [[0, mode]]})
        ask(client, "internals", ablation={"modes": [[0, mode]]})
    assert [[tap.name for tap in taps.taps] for taps in passes] == 4 * [["modes"]]
