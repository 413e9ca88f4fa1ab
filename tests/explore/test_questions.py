"""Questions to a whole run: Gaussians of a field, particles of a point, ranking, typical, spectra, two runs."""

import json
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient

from gpo import Ablation
from gpo.evaluation.spectrum import spectral_errors
from gpo.interpretation.ablations import component_effects
from gpo.interpretation.batches import Effects, make_batches
from gpo.interpretation.modes import make_components
from gpo.interpretation.results import Interpretation
from gpo_explore import mixtures, typical
from gpo_explore import ranking as rankings
from gpo_explore.app import make_app
from gpo_explore.arrays import unpack
from gpo_explore.comparison import compare
from gpo_explore.mixtures import mixture
from gpo_explore.ranking import ranking
from gpo_explore.requests import ExampleRequest, MixtureRequest, RankingRequest
from gpo_explore.session import AbandonedError
from gpo_mixture import GaussianMixture, fit
from gpo_mixture.lattice import fit_lattice
from tests.explore.sessions import KINDS, make_map_session, make_session
from tests.processes import LIMIT

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


@pytest.mark.parametrize("kind", KINDS)
def test_a_field_on_any_sites_is_written_as_gaussians_beside_a_lattice(kind):
    session = make_session(kind)
    found = ask(client_of(session), "mixture", field="truth", variable=1, count=6)
    axes = session.plane(0).num_axes
    assert found.arrays["centers"].shape == (6, axes)
    assert found.arrays["covariances"].shape == (6, axes, axes)
    assert (np.linalg.eigvalsh(found.arrays["covariances"]) > 0).all()
    fitted, lattice = found.metadata["fitted"], found.metadata["lattice"]
    assert fitted["count"] == 6
    assert lattice["count"] <= 6
    # A fit that can move and stretch its Gaussians is no worse than one that cannot.
    assert fitted["relative_l2"] < lattice["relative_l2"]
    assert not found.metadata["is_cut"]


def test_what_is_drawn_is_the_fit_and_its_errors_are_those_of_the_field():
    session = make_session("grid")
    found = ask(client_of(session), "mixture", field="given", frame=1, variable=0, count=5)
    example, domain = session.example(0), session.plane(0).geometry.domain
    values, coords, weights = example.fields[0, 1, :, 0], example.coords[0], example.weights[0]
    fitted = fit(values, coords, weights, 5, domain=domain)
    np.testing.assert_allclose(found.arrays["centers"], fitted.centers, rtol=1e-5)
    np.testing.assert_allclose(found.arrays["covariances"], fitted.covariances, rtol=1e-5)
    np.testing.assert_allclose(found.arrays["amplitudes"], fitted.amplitudes[:, 0], rtol=1e-5)
    error = fitted.error(values, coords, weights)
    assert found.metadata["fitted"]["relative_l2"] == pytest.approx(error)
    lattice = fit_lattice(values, coords, weights, 5, domain)
    expected = float((lattice(coords)[:, 0] - values).square().mean().sqrt())
    assert found.metadata["lattice"]["rms"] == pytest.approx(expected)


def test_ellipses_on_a_sphere_are_in_degrees_and_wider_where_meridians_meet():
    session = make_session("globe")
    domain = session.plane(0).geometry.domain
    angle = torch.deg2rad(torch.tensor([0.0, 60.0]))
    centers = torch.stack([angle.cos(), 0 * angle, angle.sin()], -1).double()
    # Round on the surface: 0.1 radii in every direction.
    factors = 0.1 * torch.eye(3, dtype=torch.float64).expand(2, 3, 3)
    ones = torch.ones(2, 1, dtype=torch.float64)
    found = GaussianMixture(centers, factors, ones, ones[0], torch.arange(2), domain)
    drawn = mixtures.drawn_covariances(found, domain, session.plane(0).flat(centers.numpy()))
    degrees = np.sqrt(drawn[:, [0, 1], [0, 1]])
    np.testing.assert_allclose(degrees, np.rad2deg(0.1) * np.array([[1, 1], [2, 1]]))


def test_a_prediction_without_what_is_off_is_what_is_fitted():
    session = make_session("grid")
    client = client_of(session)
    whole = ask(client, "mixture", count=4)
    ablated = ask(client, "mixture", count=4, ablation={"layers": [0, 1]})
    assert not np.allclose(whole.arrays["amplitudes"], ablated.arrays["amplitudes"])


def test_a_fit_that_nobody_waits_for_ends_and_keeps_nothing(monkeypatch):
    session, asked = make_session("grid"), []

    def is_abandoned():
        asked.append(1)
        return len(asked) > 3

    with pytest.raises(AbandonedError):
        mixture(session, MixtureRequest(count=8), is_abandoned)
    assert len(asked) == 4
    fits = []
    monkeypatch.setattr(mixtures, "fit", lambda *a, **k: fits.append(1) or fit(*a, **k))
    first, second = (mixture(session, MixtureRequest(count=8)) for _ in range(2))
    assert first is second
    assert len(fits) == 1


def test_a_fit_that_takes_too_long_ends_with_what_it_has_and_says_so(monkeypatch):
    session = make_session("grid")
    whole = mixture(session, MixtureRequest(count=8))
    monkeypatch.setattr(mixtures, "MAX_SECONDS", -1.0)
    cut = mixture(replace(session), MixtureRequest(count=8))
    assert cut.metadata["is_cut"]
    assert cut.metadata["fitted"]["count"] == 8
    assert cut.metadata["fitted"]["rms"] >= whole.metadata["fitted"]["rms"]


def test_what_cannot_be_fitted_is_refused_with_what_can():
    client = client_of(make_session("line"))
    assert complaint(client, "mixture", count=17) == "`count` must be from 1 to 16, got 17."
    assert "`count` must be from 1 to 16" in complaint(client, "mixture", count=0)
    assert "given, predicted, truth" in complaint(client, "mixture", field="error")
    assert "`frame` must be from 0 to 1" in complaint(client, "mixture", field="given", frame=2)
    assert "`variable` must be from 0 to 1" in complaint(client, "mixture", variable=2)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_particles_of_a_point_are_those_that_are_drawn_at_its_site(kind, variant):
    session = make_session(kind, variant)
    client = client_of(session)
    all_of = ask(client, "particles", example=1)
    sites = all_of.arrays["sites"].tolist()
    point = session.plane(1).positions[sites[2]].tolist()
    found = ask(client, "nearby", example=1, point=point)
    assert found.metadata["site"] == sites[2]
    names = ["centers", "weights", "scales" if variant == "paper" else "displacements"]
    assert sorted(found.arrays) == sorted(names)
    for name in names:
        np.testing.assert_allclose(
            found.arrays[name][-1], all_of.arrays[name][2], rtol=1e-4, atol=1e-5
        )
    if variant == "paper":
        assert found.metadata["no_scale"] is None
        assert (found.arrays["scales"] > 0).all()
    else:
        assert "the same at every site" in found.metadata["no_scale"]
        assert found.metadata["layers"] == [1]


def test_a_run_without_particles_says_so_at_a_point_too():
    client = client_of(make_session("grid", num_transports=0))
    assert "has no particles" in complaint(client, "nearby", point=[0.5, 0.5])


def test_spectra_of_the_page_are_those_of_the_scores():
    session = make_session("grid")
    found = ask(client_of(session), "spectrum", variable=1)
    example, whole = session.example(0), session.prediction(0)
    geometry = session.plane(0).geometry
    pair = [part[None, :, 1].double().numpy() for part in (example.target[0], whole)]
    expected = spectral_errors(*pair, geometry)
    assert found.metadata["bands"] == pytest.approx(expected)
    assert found.metadata["label"] == "wave number"
    # Parseval: all scales together are the variance of the truth.
    assert found.arrays["truth"].sum() == pytest.approx(pair[0].var(), rel=1e-5)
    still = (example.fields[0, -1, :, 1] - example.target[0, :, 1]).numpy()
    assert found.arrays["persistence"].sum() == pytest.approx(still.var(), rel=1e-5)
    off = ask(client_of(session), "spectrum", variable=1, ablation={"layers": [0]})
    np.testing.assert_allclose(off.arrays["whole"], found.arrays["error"], rtol=1e-5)


@pytest.mark.parametrize(("kind", "reason"), [("mesh", "mesh"), ("masked", "masked sites")])
def test_sites_without_a_spectrum_say_why(kind, reason):
    assert ask(client_of(make_session(kind)), "spectrum").metadata == {"reason": reason}


@pytest.mark.parametrize("make", [make_session, make_map_session])
def test_errors_of_all_test_examples_are_those_that_each_example_shows(make):
    session = make()
    client = client_of(session)
    found = ask(client, "typical").arrays
    assert found["numbers"].tolist() == list(range(len(session.samples)))
    for number in (0, len(session.samples) - 1):
        errors = ask(client, "frames", example=number).metadata["errors"]["rms"]
        np.testing.assert_allclose(found["model"][number], errors, rtol=1e-4)
    assert ("persistence" in found) == (make is make_session)
    assert client.get("/api/progress").json()["typical"][1] == len(session.samples)


def test_errors_of_examples_are_given_up_when_nobody_waits():
    session = make_session("grid")
    with pytest.raises(AbandonedError):
        typical.typical(session, ExampleRequest(), lambda: session.progress.get("typical", [0])[0] > 0)  # fmt: skip
    assert session.scores is None


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_ranking_is_computed_on_request_and_names_what_can_be_switched_off(variant):
    # The paper's signed readout divides by sums near zero, which amplifies rounding a thousandfold.
    session = make_session("grid", variant, **{"paper": {"readout": "softplus"}}.get(variant, {}))
    client = client_of(session)
    assert ask(client, "ranking").metadata == {"reason": "Not computed yet.", "can_compute": True}
    found = ask(client, "ranking", computes=True).metadata
    assert found["source"] == "computed here"
    assert found["num_read"] == found["num_examples"] == len(session.samples)
    rows = found["rows"]
    assert [row["change"] for row in rows] == sorted((r["change"] for r in rows), reverse=True)
    kinds = {"layer", "particle", "mode", "head" if variant == "paper" else "ring"}
    assert {row["kind"] for row in rows} == kinds
    # What a row switches off changes predictions by what the row says.
    for kind in kinds - {"particle"}:
        row = next(row for row in rows if row["kind"] == kind)
        changes = []
        for number in range(len(session.samples)):
            whole = session.prediction(number)
            off = Ablation(
                frozenset(map(tuple, row["off"].get("modes", []))),
                frozenset(row["off"].get("layers", [])),
            )
            change = session.prediction(number, off) - whole
            changes.append(float(change.norm() / whole.norm()))
        assert row["change"] == pytest.approx(np.mean(changes), rel=1e-3)
    # It is remembered: nothing has to be computed again.
    assert ask(client, "ranking").metadata["source"] == "computed here"


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_gpo_interpret_wrote_is_shown_and_equals_what_the_page_computes(variant, tmp_path):
    session = make_session("grid", variant)
    batches = make_batches(session.data, session.samples)
    components = make_components(session.forecaster, batches)
    effects = Effects.of(session.forecaster, batches)
    parts = component_effects(effects, components, lambda items, _: items)
    Interpretation(variant, len(session.samples), {}, {}, parts).save(tmp_path)
    stored = ranking(replace(session, folder=tmp_path), RankingRequest()).metadata
    computed = ranking(session, RankingRequest(computes=True)).metadata
    assert stored["source"] == "interpret.json"
    assert [row["name"] for row in stored["rows"]] == [row["name"] for row in computed["rows"]]
    for one, other in zip(stored["rows"], computed["rows"], strict=True):
        assert one["off"] == other["off"]
        assert one["change"] == pytest.approx(other["change"], rel=1e-5)


def test_a_ranking_is_given_up_between_two_ablations():
    session = make_session("grid")
    with pytest.raises(AbandonedError):
        ranking(session, RankingRequest(computes=True), lambda: "ranking" in session.progress)
    total = len(session.samples)
    assert session.progress["ranking"] == (0, total, "ablating particles, 1 of 5; test examples")
    assert ranking(session, RankingRequest()).metadata["reason"] == "Not computed yet."


def test_a_ranking_of_a_part_says_so_and_goes_on_to_the_whole_split(monkeypatch):
    session, at_once = make_session("grid"), make_session("grid")
    total = len(session.samples)
    assert total > 3
    whole = ranking(at_once, RankingRequest(computes=True)).metadata
    assert whole["num_read"] == whole["num_examples"] == total
    monkeypatch.setattr(rankings, "GROUP_SIZE", 2)
    monkeypatch.setattr(rankings, "MAX_SECONDS", 0.0)
    part = ranking(session, RankingRequest(computes=True)).metadata
    assert (part["num_read"], part["num_examples"]) == (2, total)
    # What is read before nobody waits any more stays known.
    with pytest.raises(AbandonedError):
        ranking(
            session, RankingRequest(computes=True, is_whole=True),
            lambda: session.progress["ranking"][0] == 4,
        )  # fmt: skip
    assert ranking(session, RankingRequest()).metadata["num_read"] == 4
    rest = ranking(session, RankingRequest(computes=True, is_whole=True)).metadata
    assert rest["num_read"] == total
    assert rest["error"] == pytest.approx(whole["error"], rel=1e-5)
    one, other = ({row["name"]: row["change"] for row in some["rows"]} for some in (rest, whole))
    assert one == pytest.approx(other, rel=1e-4)


@pytest.mark.parametrize("count", [1, 2, 7, 64])
def test_the_order_of_reading_has_every_example_once_and_spreads_its_beginning(count):
    order = rankings.bit_reversed_order(count)
    assert sorted(order) == list(range(count))
    if count == 64:
        for size in (2, 4, 8, 16):
            assert sorted(order[:size]) == list(range(0, 64, 64 // size))


def test_a_baseline_has_no_parts_to_rank():
    found = ask(client_of(make_session("grid", model="fno")), "ranking", computes=True).metadata
    assert found["reason"].startswith("fno: the model has no layers")
    assert not found["can_compute"]


def test_two_runs_answer_about_the_same_example():
    session, other = make_session("grid"), make_session("grid", model="fno", history=1)
    compare(session, other)
    client = client_of(session)
    assert client.get("/api/run").json()["compared"]["model"] == "fno"
    found = ask(client, "other", example=1)
    number = session.other_numbers[1]
    np.testing.assert_allclose(
        found.arrays["predicted"], other.prediction(number).numpy(), rtol=1e-5
    )
    np.testing.assert_array_equal(session.example(1).target, other.example(number).target)
    rollout = ask(client, "other-rollout", example=1, steps=3)
    np.testing.assert_allclose(
        rollout.arrays["forecast"][0], found.arrays["predicted"], rtol=1e-4, atol=1e-5
    )
    rows = ask(client, "typical").arrays
    np.testing.assert_allclose(rows["other"][1], found.metadata["errors"]["rms"], rtol=1e-4)


def test_examples_that_only_one_run_tests_are_told():
    session, other = make_session("grid", history=1), make_session("grid", history=3)
    compare(session, other)
    missing = sorted(set(range(len(session.samples))) - set(session.other_numbers))
    client = client_of(session)
    assert "not in the test split of waves" in complaint(client, "other", example=missing[0])
    assert np.isnan(ask(client, "typical").arrays["other"][missing]).all()
    assert "no second run" in complaint(client_of(make_session("grid")), "other")


def other_data(session):
    """The same task on other numbers."""
    data = session.data
    return replace(session, data=replace(data, fetch=lambda n, t: 2 * data.fetch(n, t)))


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (lambda: make_session("grid", lead=2), "has lead 1 step, waves has 2 steps"),
        (lambda: make_session("masked"), "has sites 80, waves has 64"),
        (make_map_session, "has variables t2m (K), b, maps has s (m²), c"),
        (lambda: other_data(make_session("grid")), "a run of the same data"),
    ],
)
def test_runs_of_other_tasks_are_refused_with_what_differs(other, sentence):
    session = make_session("grid")
    with pytest.raises(ValueError, match="--compare must name a run of the same") as refusal:
        compare(session, other())
    assert sentence in str(refusal.value)
    assert session.other is None


def test_a_saved_file_says_in_words_and_as_json_which_parts_were_off():
    xr = pytest.importorskip("xarray")
    client = client_of(make_session("grid", "paper"))
    ablation = {"modes": [[1, 5]], "layers": [0], "sites": [3]}
    content = client.post("/api/netcdf", json={"ablation": ablation}).content
    with xr.open_dataset(content) as file:
        said = file.attrs
        assert said["ablation"].endswith(
            "layer 1; layer 2: head 2, mode 2; 1 sites, where is_off is 1"
        )
        parts = json.loads(said["ablation_json"])
        assert parts == {"modes": [[1, 5]], "layers": [0], "num_sites": 1}
        assert float(file["is_off"].sum()) == 1


def test_what_takes_long_waits_for_its_own_kind_alone(monkeypatch):
    session, goes_on = make_session("grid"), threading.Event()
    client = client_of(session)
    begun = threading.Event()

    def endless(*args, **kwargs):
        begun.set()
        assert goes_on.wait(LIMIT)
        raise AbandonedError

    monkeypatch.setattr(mixtures, "fit", endless)
    thread = threading.Thread(target=lambda: client.post("/api/mixture", json={}))
    thread.start()
    assert begun.wait(LIMIT)
    assert client.post("/api/rollout", json={"steps": 1}).status_code == 200
    assert client.post("/api/frames", json={}).status_code == 200
    goes_on.set()
    thread.join()
