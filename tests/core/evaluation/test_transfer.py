from pathlib import Path

import numpy as np
import pytest
import torch

from gpo import Domain, evaluate, relative_l2
from gpo.data.coarsen import coarsen, sampled
from gpo.data.dataset import FieldData, Variable
from gpo.data.geometry import Geometry
from gpo.data.splits import split_time_slices
from gpo.evaluation.transfer import between_sites, refined, resolution_transfer
from gpo.forecast.forecaster import Forecaster, Task
from gpo.numerics.neighbours import NeighbourSearch
from gpo.training.config import RunConfig
from gpo.training.fit import new_forecaster
from tests.conftest import PlainModel
from tests.core.training.series import decaying_waves

NONE, ONE = (0.0, 0.0), (1.0, 1.0)
TASK = Task(("a", "b"), ("a", "b"), ("", ""), 1, 1, "state", NONE, ONE, NONE, ONE, ONE)


class Same(PlainModel):
    """Returns its input, and records the numbers of sites."""

    def __init__(self):
        super().__init__()
        self.sizes = set()

    def forward(self, values, coords, *, weights=None):
        self.sizes.add(values.shape[1])
        return values


def test_a_grid_is_thinned_with_its_weights_and_values():
    geometry = Geometry.rectilinear(
        [np.arange(8) / 8, np.linspace(0, 1, 7)], periodic=[True, False]
    )
    coarse, numbers = geometry.coarsen(2)
    assert coarse.grid_shape == (4, 4)
    np.testing.assert_array_equal(coarse.coords, geometry.coords[numbers])
    assert coarse.weights.sum() == pytest.approx(1)
    # The ends of the open axis stand for half a cell, at any resolution.
    np.testing.assert_allclose(coarse.weights.reshape(4, 4)[0], np.array([0.5, 1, 1, 0.5]) / 12)
    assert coarse.domain == geometry.domain


def test_a_sphere_is_thinned_with_the_areas_of_its_cells():
    latitude, longitude = np.linspace(-60, 60, 7), np.arange(0, 360, 30.0)
    coarse, _ = Geometry.latitude_longitude(latitude, longitude).coarsen(2)
    expected = Geometry.latitude_longitude(latitude[::2], longitude[::2])
    np.testing.assert_allclose(coarse.weights, expected.weights)


def test_a_grid_that_cannot_be_thinned_gives_the_reason():
    with pytest.raises(ValueError, match="an axis of 9 sites cannot be coarsened by 2"):
        Geometry.rectilinear([np.arange(9) / 9], periodic=True).coarsen(2)
    cloud = Geometry.unstructured(np.random.default_rng(0).random((9, 2)))
    kept = cloud.coarsen(2)[1]
    with pytest.raises(ValueError, match="all 3 remaining sites are masked"):
        cloud.masked(np.isin(np.arange(9), kept)).coarsen(2)


def test_unstructured_points_are_thinned_evenly_and_keep_their_density_and_weight():
    random = np.random.default_rng(0)
    dense, sparse = random.random((1200, 2)), random.uniform((1, 0), (2, 1), (400, 2))
    cloud = Geometry.unstructured(np.concatenate([dense, sparse]))
    coarse, numbers = cloud.coarsen(2)
    assert coarse.num_points == 400
    np.testing.assert_array_equal(coarse.coords, cloud.coords[numbers])
    in_dense = coarse.coords[:, 0] < 1
    assert abs(in_dense.sum() - 300) <= 2, "dense where it was dense"
    np.testing.assert_allclose(coarse.weights[in_dense].sum(), 0.75, rtol=0.02)
    np.testing.assert_allclose(coarse.weights.sum(), 1)
    gaps = np.sort(np.linalg.norm(dense[:, None] - coarse.coords[None], axis=-1).min(1))
    by_chance = random.permutation(1200)[:300]
    chance = np.linalg.norm(dense[:, None] - dense[None, by_chance], axis=-1).min(1)
    assert np.sqrt((gaps**2).mean()) < 0.9 * np.sqrt((chance**2).mean()), "no holes"


def test_masked_points_get_no_weight():
    points = Geometry.on_sphere(
        np.random.default_rng(0).uniform(0, 360, 800), np.linspace(-80, 80, 800)
    )
    points = points.masked(points.coords[:, 2] > 0.5)
    coarse, numbers = points.coarsen(2)
    assert coarse.num_points == 200
    np.testing.assert_array_equal(coarse.is_masked, points.is_masked[numbers])
    np.testing.assert_allclose(coarse.weights.sum(), 1)


def test_thinned_data_is_every_second_value():
    data = decaying_waves(missing=[2])
    coarse = coarsen(data, 2)
    np.testing.assert_array_equal(coarse.frames(1), data.frames(1)[:, ::2])
    np.testing.assert_array_equal(coarsen(data, 1).frames(0), data.frames(0))


def test_refined_data_interpolate_the_values_and_are_exact_for_waves():
    data = decaying_waves(num_points=16)
    fine, exact = refined(data), decaying_waves(num_points=32)
    np.testing.assert_allclose(fine.frames(2)[:, ::2], data.frames(2), atol=1e-12)
    np.testing.assert_allclose(fine.frames(2), exact.frames(2), atol=1e-12)
    assert fine.geometry().domain == data.geometry().domain


def test_resolutions_are_scored_each_on_its_own_sites():
    data, model = decaying_waves(num_points=24), Same()
    rows = resolution_transfer(Forecaster(model, TASK), data, split_time_slices(data).test)
    assert list(rows) == ["0.5x", "1x", "2x, interpolated", "random 70% of the sites"]
    assert model.sizes == {12, 24, 48, 17}
    # The input of the model is rounded to single precision; the last frame is not.
    assert all(row["model"] == pytest.approx(row["last frame"], rel=1e-6) for row in rows.values())
    finer = decaying_waves(num_points=48)
    rows = resolution_transfer(Forecaster(model, TASK), data, split_time_slices(data).test, finer)
    assert list(rows) == ["0.5x", "1x", "2x", "random 70% of the sites"]


def test_a_random_subset_of_the_sites_keeps_their_values_and_weights():
    data = decaying_waves(num_points=40)
    part = sampled(data, 0.7)
    geometry, whole = part.geometry(), data.geometry()
    assert geometry.num_points == 28
    numbers = [int(np.abs(whole.coords - site).sum(-1).argmin()) for site in geometry.coords]
    assert len(set(numbers)) == 28
    np.testing.assert_array_equal(geometry.coords, whole.coords[numbers])
    assert geometry.weights.sum() == pytest.approx(1)
    np.testing.assert_array_equal(part.frames(0, slice(0, 2)), data.frames(0, slice(0, 2))[:, numbers])  # fmt: skip
    np.testing.assert_array_equal(sampled(data, 0.7).geometry().coords, geometry.coords)


def test_a_resolution_that_is_not_available_gives_the_reason():
    data = decaying_waves(num_points=9)
    rows = resolution_transfer(Forecaster(Same(), TASK), data, split_time_slices(data).test)
    assert "an axis of 9 sites" in rows["0.5x"]["reason"]


def test_fields_with_missing_values_are_not_refined():
    data = decaying_waves(missing=[3])
    split = split_time_slices(data)
    config = RunConfig.of(data="x", hidden_dim=16, num_layers=1, num_gaussians=4)
    rows = resolution_transfer(new_forecaster(data, split, config).eval(), data, split.test)
    assert rows["2x, interpolated"] == {"reason": "missing values have no Fourier series"}
    assert np.isfinite(rows["1x"]["model"])


@pytest.mark.parametrize(
    ("model", "size", "reason"), [("fno", 64, None), ("m2no", 16, "one resolution")]
)
def test_grid_baselines_are_moved_to_the_other_grid_where_they_can(model, size, reason):
    x = np.arange(size) / size
    values = np.random.default_rng(0).normal(size=(3, 3, size**2, 1))
    data = FieldData(
        "noise", Path("noise"), (Variable("a"),), (Geometry.rectilinear([x, x], periodic=True),),
        np.arange(3.0), "", 3, lambda number, times: values[number, times],
    )  # fmt: skip
    split = split_time_slices(data)
    forecaster = new_forecaster(data, split, RunConfig.of(data="x", model=model)).eval()
    rows = resolution_transfer(forecaster, data, split.test)
    assert np.isfinite(rows["1x"]["model"])
    assert "grid" in rows["random 70% of the sites"]["reason"]
    if reason is None:
        assert np.isfinite(rows["0.5x"]["model"])
    else:
        assert reason in rows["0.5x"]["reason"]


@pytest.mark.parametrize("points", [24, 25])
def test_between_sites_the_prediction_is_compared_with_the_truth_there(points):
    data = decaying_waves(num_points=points)
    split = split_time_slices(data)
    config = RunConfig.of(data="x", hidden_dim=16, num_layers=0, num_gaussians=4)
    forecaster = new_forecaster(data, split, config).eval()
    # With an increment of zero, the prediction is the interpolated input.
    for parameter in forecaster.model.decoder.parameters():
        parameter.data.zero_()
    scores = between_sites(forecaster, data, split.test)
    assert scores["model"] == pytest.approx(scores["last frame"], abs=0.02)
    assert scores["model"] != scores["last frame"]
    if points == 24:
        withheld = [relative_l2(*(torch.from_numpy(data.frames(w.sample)[n][1::2]).float()[None] for n in (w.last, w.target))).item() for w in split.test]  # fmt: skip
        assert scores["last frame"] == pytest.approx(np.mean(withheld), rel=1e-4)


def test_a_reconstruction_between_sites_is_compared_with_interpolated_values():
    data = decaying_waves(num_points=24)
    split = split_time_slices(data)
    config = RunConfig.of(data="x", model="gpo-paper", phase="field", hidden_dim=16, num_gaussians=4)  # fmt: skip
    forecaster = new_forecaster(data, split, config).eval()
    coords = torch.from_numpy(data.geometry().coords).float()
    model, errors = forecaster.model, {"model": [], "interpolated values": []}
    search = NeighbourSearch(data.geometry().domain, model.config.query_neighbours)
    for part in split.test:
        frame = torch.from_numpy(data.frames(part.sample)[part.last]).float()
        values, truth = forecaster.normalised(frame[None, ::2]), frame[None, 1::2]
        with torch.no_grad():
            decoded = model(values, coords[::2], queries=coords[1::2])
        neighbours = search(
            coords[None, 1::2], coords[None, ::2], torch.ones(1, 12, dtype=torch.bool)
        )
        blended = neighbours.blend(neighbours.gather(values))
        for name, output in (("model", decoded), ("interpolated values", blended)):
            prediction = forecaster.denormalised(output)
            errors[name].append(relative_l2(prediction, truth.double()).item())
    scores = between_sites(forecaster, data, split.test)
    assert scores == pytest.approx({name: np.mean(part) for name, part in errors.items()}, rel=1e-4)
    assert scores == evaluate(forecaster, data, split).between_sites


def test_a_model_that_cannot_be_queried_gives_the_reason():
    data = decaying_waves()
    scores = between_sites(Forecaster(Same(), TASK), data, split_time_slices(data).test)
    assert scores == {"reason": "the model predicts at its input sites only"}


def test_masked_sites_are_neither_inputs_nor_queries():
    data = decaying_waves(missing=[0, 1, 5])
    split = split_time_slices(data)
    config = RunConfig.of(data="x", hidden_dim=16, num_layers=1, num_gaussians=4)
    scores = between_sites(new_forecaster(data, split, config).eval(), data, split.test)
    assert np.isfinite(list(scores.values())).all()
    assert data.geometry().domain == Domain.unit_box(1, periodic=True)


def test_resolutions_that_a_curvilinear_mesh_does_not_have_give_the_reason():
    up, along = np.meshgrid(np.linspace(50, 60, 8), np.linspace(0, 12, 8), indexing="ij")
    mesh = Geometry.curvilinear_sphere(up + along / 8, along)
    frames = np.random.default_rng(0).normal(size=(30, 64, 1)).astype(np.float32)
    data = FieldData(
        "test", Path("a.nc"), (Variable("u"),), (mesh,), np.arange(30.0), "", 1,
        lambda _, times: frames[times],
    )  # fmt: skip
    config = RunConfig.of(data="a.nc", hidden_dim=8, num_layers=1, num_gaussians=2)
    split = split_time_slices(data)
    forecaster = new_forecaster(data, split, config).eval()
    rows = resolution_transfer(forecaster, data, split.test)
    reason = {"reason": "the model takes only the 8 x 8 nodes of its mesh"}
    assert rows["0.5x"] == rows["random 70% of the sites"] == reason
    assert rows["1x"].keys() == {"model", "last frame"}
    assert between_sites(forecaster, data, split.test) == {
        "reason": "the model needs all 8 x 8 nodes of its mesh"
    }
