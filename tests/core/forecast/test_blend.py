"""What is written is a combination of model and references that is not worse than the best of them."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from gpo.data.dates import TimeOrigin
from gpo.data.splits import split_time_slices
from gpo.evaluation.results import Results
from gpo.evaluation.score import evaluate
from gpo.forecast.blend import MIN_EXAMPLES, sentence
from gpo.forecast.blend_fit import (
    _kept,
    best_references,
    fit_blend,
    fitted_weights,
    is_steady,
    on_simplex,
    steady_references,
)
from gpo.forecast.forecaster import Forecaster
from gpo.forecast.queries import QueryForecast
from gpo.forecast.registry import REFERENCES
from gpo.forecast.rollout import rollout
from gpo.forecast.task import BlendWeights
from gpo.settings_files import CheckpointError
from gpo.training.config import RunConfig
from gpo.training.fit import train
from gpo.training.setup import new_forecaster, split_of
from tests.conftest import PlainModel
from tests.core.evaluation.test_outside import Zero
from tests.core.evaluation.test_score import Times
from tests.core.training.series import decaying_waves, equal_squares

TINY = {"data": "waves", "hidden_dim": 8, "num_layers": 1, "num_gaussians": 2}


class Advected(PlainModel):
    """Moves a periodic field by half a cell, with noise of three percent."""

    def forward(self, values, coords, *, weights=None):
        modes = torch.fft.rfft(values, dim=1)
        shift = torch.exp(-1j * torch.pi * torch.arange(modes.shape[1]) / values.shape[1])
        moved = torch.fft.irfft(modes * shift[:, None], n=values.shape[1], dim=1)
        noise = torch.sin(1e3 * values.cumsum(1)).to(moved)
        return (moved + 0.03 * noise).to(values.dtype)


def walk(num_times=200):
    """A series that the last frame predicts best: each frame adds noise."""
    steps = np.random.default_rng(0).normal(size=(1, num_times, 24, 2))
    return replace(decaying_waves(1, values=steps.cumsum(1), num_times=num_times), time_units="")


def noise(num_times=200):
    """A series that its mean predicts best."""
    values = np.random.default_rng(0).normal(size=(1, num_times, 24, 2))
    return replace(decaying_waves(1, values=values, num_times=num_times), time_units="")


def blended(data, model=None, **settings):
    config = RunConfig.of(**TINY, **settings)
    split = split_of(data, config)
    made = new_forecaster(data, split, config).eval()
    if model is not None:
        made = Forecaster(model, replace(made.task, predict="state", base="persistence"))
    return fit_blend(made, data, split.training, split.validation), split


def test_weights_on_the_simplex_minimise_the_error():
    generator = np.random.default_rng(0)
    for _ in range(20):
        errors = generator.normal(size=(4, 50)) * generator.uniform(0.2, 2, size=(4, 1))
        errors += generator.normal(size=50)
        products = errors @ errors.T
        found = on_simplex(products)
        assert found.min() >= 0
        assert found.sum() == pytest.approx(1)
        others = generator.dirichlet(np.full(4, 0.5), size=2000)
        values = np.einsum("ni,ij,nj->n", others, products, others)
        assert found @ products @ found <= values.min() * (1 + 1e-6)


def test_a_forecast_that_is_a_thousand_times_better_than_another_has_all_weight():
    products = np.diag([2.5e-7, 4e-7, 5e-5, 1.0])
    expected = 1 / np.diagonal(products) / (1 / np.diagonal(products)).sum()
    np.testing.assert_allclose(on_simplex(products), expected, rtol=1e-4)
    errors = np.array([5e-4, 2.4e-2, 7e-3, 1.0])
    np.testing.assert_allclose(on_simplex(np.outer(errors, errors)), [1, 0, 0, 0], atol=1e-4)


def test_a_forecast_whose_error_grows_with_time_has_no_weight():
    """A linear map of KS.mat is the best at the start of the validation data, and the worst after it."""
    growing, steady = 2 * np.linspace(0, 1, 18) ** 2, np.ones(18)
    products = np.zeros((18, 3, 3))
    for n, sizes in enumerate(zip(1.2 * steady, growing, steady, strict=True)):
        products[n] = np.diag(np.square(sizes))
    assert fitted_weights(products)[1] == 0


def test_a_burst_of_errors_is_not_growth():
    """A linear map of the cylinder's wake is 100 times better than a model but in three of 17 frames."""
    sizes = np.full(17, 1e-3)
    sizes[12:15] = (2.0, 0.5, 0.2)
    products = np.array([np.diag([1.0, size**2, 9.0]) for size in sizes])
    assert is_steady(products).tolist() == [True, True, True]


def test_a_forecast_that_stays_the_best_keeps_its_weight_although_its_error_grows():
    """On a shock that fades, references get better with time, and a model does not."""
    fading = np.linspace(1, 0.2, 16)
    products = np.array([np.diag([0.01**2, size**2, (1.2 * size) ** 2]) for size in fading])
    assert fitted_weights(products).tolist() == [1, 0, 0]


def test_a_reference_whose_error_grew_in_training_has_no_weight():
    """A linear map of burgers_shock.mat is as good as the trend in a short validation split."""
    growing = np.linspace(0.2, 4, 14)
    held_out = np.array([[np.diag([size**2, 1.0, 1.2])] for size in growing])
    usable = steady_references(held_out)
    assert usable.tolist() == [[False, True, True]]
    products = np.array([np.diag([9.0, 0.5, 1.0, 1.2])] * 6)
    assert fitted_weights(products).argmax() == 1
    assert fitted_weights(products, usable[0]).tolist()[1] == 0
    assert best_references(held_out, products[:2, None]).tolist() == [1]


def test_a_reference_with_the_smallest_error_is_the_best():
    held_out = np.zeros((3, 1, 2, 2)) + np.diag([1.0, 1.1])
    products = np.zeros((2, 1, 3, 3)) + np.diag([0.01, 1.0, 2.0])
    assert best_references(held_out, products).tolist() == [0]
    assert best_references(held_out, products[:, :, [0, 2, 1]][..., [0, 2, 1]]).tolist() == [1]


def test_a_much_better_model_has_all_weight_with_enough_examples():
    products = np.array([np.diag([0.0025, 1.0, 2.0])] * 8) * np.linspace(0.5, 1.5, 8)[:, None, None]
    assert fitted_weights(products)[0] > 0.98


def test_a_model_that_wins_by_chance_has_no_weight():
    sizes = np.random.default_rng(1).uniform(0.5, 1.5, size=(8, 2))
    products = np.array([np.full((2, 2), a * b) for a, b in sizes])
    products[:, 0, 0], products[:, 1, 1] = sizes[:, 0] ** 2, sizes[:, 1] ** 2
    assert fitted_weights(products).tolist() == [0, 1]


def test_a_model_without_finite_errors_has_no_weight():
    products = np.array([np.diag([np.nan, 1.0, 0.5])] * 6)
    assert fitted_weights(products).tolist() == pytest.approx([0, 1 / 3, 2 / 3], abs=1e-5)


def test_a_model_that_adds_nothing_leaves_the_weights_that_are_best_for_references():
    """Errors of references that are independent have the weights of inverse variances."""
    errors = np.random.default_rng(0).normal(size=(40, 3, 2000))
    errors[:, 1] *= 2
    errors[:, 2] += 3 * errors[:, 0]
    products = np.einsum("nip,njp->nij", errors[:, [2, 0, 1]], errors[:, [2, 0, 1]]) / 2000
    assert fitted_weights(products) == pytest.approx([0, 0.8, 0.2], abs=0.01)


def test_references_that_add_nothing_to_the_best_are_left_out():
    errors = np.random.default_rng(0).normal(size=(40, 3, 50))
    errors[:, 2] = errors[:, 1] + 0.2 * errors[:, 2]
    products = np.einsum("nip,njp->nij", errors, errors) / 50
    products[:, 0] = products[:, :, 0] = 0
    products[:, 0, 0] = 100
    assert fitted_weights(products).tolist() == [0, 1, 0]


def test_later_steps_with_few_starts_keep_the_weights_unless_a_reference_is_better():
    previous, best = np.array([[0.8, 0.2]] * 2), np.array([[0.0, 1.0]] * 2)
    products = np.zeros((2, 2, 2, 2))
    products[:, 0], products[:, 1] = np.diag([0.1, 1.0]), np.diag([np.nan, 1.0])
    assert _kept(previous, best, products).tolist() == [[0.8, 0.2], [0.0, 1.0]]


def test_a_bad_model_leaves_the_forecast_to_the_best_reference():
    for data, best in ((walk(), "persistence"), (noise(), "climatology")):
        made, split = blended(data, Times(-3.0))
        results = evaluate(made, data, split)
        errors = {name: row["rmse_over_std"] for name, row in results.one_step.items()}
        assert errors["model"] > 2 * errors[best]
        assert errors["blend"] < 1.03 * errors[best]
        assert results.comparisons[best]["outcome"] != "worse"
        assert results.comparisons_alone[best]["outcome"] == "worse"
        assert results.lost_after == {}
        assert results.blend == sentence(made.task)
        assert ("combine model and" in results.blend) == any(row[0] for row in made.task.blend.weights[0])  # fmt: skip


def test_the_exact_model_is_written_as_it_is():
    data = decaying_waves(values=10 * 0.9 ** np.arange(10)[None, :, None, None] * np.random.default_rng(0).normal(size=(8, 1, 24, 2)))  # fmt: skip
    made, _ = blended(data)
    exact = Forecaster(Times(0.9), replace(made.task, predict="state", base="persistence", input_mean=(0.0, 0.0), output_mean=(0.0, 0.0), blend=BlendWeights()))  # fmt: skip
    split = split_time_slices(data)
    found = fit_blend(exact, data, split.training, split.validation)
    errors = evaluate(found, data, split).one_step
    name = "blend" if "blend" in errors else "model"
    assert errors[name]["rmse"] < 1e-5 * errors["persistence"]["rmse"]
    whole = BlendWeights(("model",), (((1.0,),) * 2,), (9,))
    alone = Forecaster(Times(0.9), replace(exact.task, blend=whole))
    assert alone.blend is None
    assert sentence(alone.task) == (
        "Forecasts are those of the model: on 9 validation examples no reference improves them."
    )


def test_where_the_model_has_all_weight_in_one_step_it_is_called_the_model():
    errors = {"model": {"rmse": 1.0}, "blend": {"rmse": 1.0}, "persistence": {"rmse": 2.0}}
    labels = {"blend": "model", "persistence": "persistence"}
    assert Results(num_examples=9, per_variable={}, one_step=errors).labels == labels
    combined = Results(num_examples=9, per_variable={}, one_step=errors | {"blend": {"rmse": 0.9}})
    assert combined.labels == {
        "blend": "blend",
        "model": "model alone",
        "persistence": "persistence",
    }


def test_one_or_two_validation_examples_leave_the_answer_to_the_reference_and_say_so():
    data = walk(num_times=24)
    made, split = blended(data)
    assert len(split.validation) < MIN_EXAMPLES
    assert all(row[0] == 0 for step in made.task.blend.weights for row in step)
    assert "too few to weigh it" in sentence(made.task)
    assert "100% persistence" in sentence(made.task)
    results = evaluate(made, data, split)
    assert results.one_step["blend"] == pytest.approx(results.one_step["persistence"])


def test_anomalies_that_fade_are_forecast_by_damped_persistence():
    """A model that repeats the last frame is no better; the rest is an AR(1) process."""
    values = np.random.default_rng(0).normal(size=(1, 400, 24, 2))
    for step in range(1, 400):
        values[:, step] = 0.7 * values[:, step - 1] + 0.51**0.5 * values[:, step]
    data = replace(decaying_waves(1, values=values, num_times=400), time_units="")
    made, split = blended(data, Times(0.9))
    errors = {k: row["rmse_over_std"] for k, row in evaluate(made, data, split).one_step.items()}
    references = {name: error for name, error in errors.items() if name not in ("model", "blend")}
    assert min(references, key=references.get) == "damped persistence"
    assert errors["blend"] < 1.01 * errors["damped persistence"]


def test_long_rollouts_of_months_return_to_the_climatology():
    """Anomalies of a strong seasonal cycle that fade in a few months, and a model without seasons."""
    generator = np.random.default_rng(0)
    values = generator.normal(size=(360, 24, 2))
    for step in range(1, 360):
        values[step] = 0.6 * values[step - 1] + 0.8 * values[step]
    values += 10 * np.sin(np.arange(360) / 6 * np.pi)[:, None, None]
    days = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] * 30)
    data = replace(
        decaying_waves(1, values=values[None], num_times=360), time_units="h",
        time=24.0 * (days.cumsum() - days), origin=TimeOrigin("1979-01-01 00:00:00", "noleap"),
        first_hour=0.0,
    )  # fmt: skip
    made, split = blended(data, Times(0.9))
    errors = evaluate(made, data, split).rollout
    assert errors["model"][5] > 3 * errors["climatology"][5]
    assert errors["blend"][0] < 1.02 * errors["damped persistence"][0]
    assert errors["blend"][0] < 0.9 * errors["climatology"][0]
    assert all(errors["blend"][n] < 1.02 * errors["climatology"][n] for n in range(len(errors["blend"])))  # fmt: skip


def test_a_model_of_an_advected_field_keeps_its_weight():
    """A field that moves by half a cell, known to the model but for its own noise."""
    generator = np.random.default_rng(0)
    modes = np.arange(1, 9)
    sizes, phases = generator.normal(size=(2, 8, 2))
    x = np.arange(24)[:, None, None] / 24 - np.arange(200)[:, None, None, None] / 48
    values = (sizes * np.sin(2 * np.pi * modes[:, None] * x + phases)).sum(2)
    data = replace(decaying_waves(1, values=values[None], num_times=200), time_units="")
    config = RunConfig.of(**TINY)
    split = split_of(data, config)
    made = new_forecaster(data, split, config).eval()
    advected = Forecaster(Advected(), replace(made.task, predict="state", base="persistence"))
    found = fit_blend(advected, data, split.training, split.validation)
    errors = {k: row["rmse_over_std"] for k, row in evaluate(found, data, split).one_step.items()}
    assert errors["model"] < 0.1 * errors["persistence"]
    assert errors.get("blend", errors["model"]) < 1.01 * errors["model"]


def test_a_variable_that_the_model_predicts_is_the_model_s_and_noise_is_not():
    generator = np.random.default_rng(0)
    values = generator.normal(size=(1, 200, 24, 2))
    values[..., 0] = np.where(np.arange(200) % 2, 1, -1)[:, None] * generator.normal(size=24)
    values[..., 0] += 0.01 * generator.normal(size=(200, 24))
    data = replace(decaying_waves(1, values=values, num_times=200), time_units="")
    split = split_of(data, RunConfig.of(**TINY))
    made = new_forecaster(data, split, RunConfig.of(**TINY)).eval()
    task = replace(made.task, predict="state", base="persistence", input_mean=(0.0, 0.0), output_mean=(0.0, 0.0))  # fmt: skip
    flipped = Forecaster(Times(-1.0), task)
    found = fit_blend(flipped, data, split.training, split.validation)
    errors = evaluate(found, data, split).variables
    first, second = (errors[name] for name in task.outputs)
    assert first["blend"]["rmse"] < 1.01 * first["model"]["rmse"]
    assert second["blend"]["rmse"] < 1.02 * second["climatology"]["rmse"]
    assert second["model"]["rmse"] > 1.3 * second["climatology"]["rmse"]


def test_long_rollouts_of_noise_go_to_the_climatology():
    made, split = blended(noise(), Times(1.0))
    results = evaluate(made, noise(), split)
    for written, climatology in zip(results.rollout["blend"], results.rollout["climatology"], strict=True):  # fmt: skip
        assert written < 1.01 * climatology
    assert results.rollout["model"][-1] > 1.3 * results.rollout["climatology"][-1]


def test_a_blend_is_the_weighted_sum_of_rollouts_of_each_forecast():
    data = walk()
    made, split = blended(data)
    names = ("model", "persistence", "climatology")
    weights = (((0.5, 0.5, 0.0), (0.2, 0.3, 0.5)), ((0.1, 0.0, 0.9), (0.0, 1.0, 0.0)))
    references = {n: REFERENCES[n].fit(made.reference_inputs(data, split.training)) for n in names[1:]}  # fmt: skip
    task = replace(made.task, blend=BlendWeights(names, weights, (9, 9)))
    found = Forecaster(made.model, task, references=references | made.references).eval()
    frames = torch.from_numpy(data.frames(0, slice(180, 181)))[None]
    coords = torch.from_numpy(data.geometry().coords)
    parts = [rollout(one, frames, coords, 3) for one in (found.alone, *references.values())]
    expected = sum(
        torch.tensor(weights)[[0, 1, 1], :, n][:, None] * part[0] for n, part in enumerate(parts)
    )
    torch.testing.assert_close(rollout(found, frames, coords, 3)[0], expected)
    one = found(frames, coords)[0]
    torch.testing.assert_close(one, expected[0])
    queried = QueryForecast(found, frames[0], coords, torch.ones(24) / 24)
    torch.testing.assert_close(queried.at_sites, expected[0])
    torch.testing.assert_close(queried.at(coords), expected[0], rtol=1e-5, atol=1e-5)


def test_a_diverged_model_does_no_harm_where_it_has_no_weight():
    made, split = blended(walk(), Times(1.0))
    task = replace(made.task, blend=BlendWeights(("model", "persistence"), (((0.0, 1.0),) * 2,), (9,)))  # fmt: skip
    references = {"persistence": REFERENCES["persistence"].fit(made.reference_inputs(walk(), split.training))}  # fmt: skip
    found = Forecaster(Times(1e30), task, references=references)
    frames = torch.ones(1, 1, 24, 2)
    steps = rollout(found, frames, torch.linspace(0, 1, 24)[:, None], 4)
    assert (steps == 1).all()
    assert rollout(found.alone, frames, torch.linspace(0, 1, 24)[:, None], 4)[0, -1].isnan().all()


def test_static_maps_are_combined_with_their_training_mean():
    data = equal_squares(60)
    config = RunConfig.of(**TINY)
    split = split_time_slices(data)
    made = fit_blend(new_forecaster(data, split, config).eval(), data, split.training, split.validation)  # fmt: skip
    results = evaluate(made, data, split)
    errors = {name: row["rmse_over_std"] for name, row in results.one_step.items()}
    assert errors["blend"] <= 1.05 * min(errors["training mean"], errors["linear map"])


def test_a_reference_from_outside_can_be_the_forecast():
    REFERENCES.register("zero", Zero)
    try:
        values = np.random.default_rng(0).normal(size=(1, 200, 24, 2))
        # The mean of training is off, and so is the last frame.
        values[:, :120] += np.where(np.arange(120) % 2, 3.0, -3.0)[:, None, None] + 1
        made, _ = blended(decaying_waves(1, values=values, num_times=200), Times(2.0))
        step = dict(zip(made.task.blend.forecasts, made.task.blend.weights[0][0], strict=True))
        assert step["zero"] > 0.5
    finally:
        del REFERENCES["zero"]


def test_the_best_reference_is_what_the_model_adds_its_increment_to():
    data = replace(noise(), origin=TimeOrigin("2001-01-01 00:00:00", "standard"))
    split = split_time_slices(data)
    made = new_forecaster(data, split, RunConfig.of(**TINY))
    assert made.task.base in ("climatology", "damped persistence")
    assert made.task.remainder[0] < 0.8
    alone = new_forecaster(data, split, RunConfig.of(**TINY, blend=False))
    # Without dates, frames are those of simulations, whose mean is no base.
    undated = new_forecaster(noise(), split, RunConfig.of(**TINY))
    assert alone.task.base == undated.task.base == "persistence"
    assert new_forecaster(walk(), split_time_slices(walk()), RunConfig.of(**TINY)).task.base == "persistence"  # fmt: skip


@pytest.mark.parametrize("make", [noise, walk])
def test_a_saved_blend_predicts_the_same_and_a_changed_file_is_refused(tmp_path, make):
    data = make()
    made, _ = blended(data)
    made.save(tmp_path)
    again = Forecaster.load(tmp_path).eval()
    assert again.task == made.task
    frames = torch.from_numpy(data.frames(0, slice(180, 181)))[None]
    coords = torch.from_numpy(data.geometry().coords)
    assert torch.equal(rollout(again, frames, coords, 3), rollout(made, frames, coords, 3))
    stored = json.loads((tmp_path / "task.json").read_text())
    assert stored["blend"]["forecasts"] == list(made.task.blend.forecasts)
    path = tmp_path / "references.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="has changed since it was saved"):
        Forecaster.load(tmp_path)
    path.unlink()
    with pytest.raises(CheckpointError, match="references"):
        Forecaster.load(tmp_path)


def test_weights_that_do_not_add_up_to_one_are_refused():
    with pytest.raises(ValueError, match="add up to one"):
        BlendWeights(("model", "persistence"), (((0.9, 0.2),),), (9,))
    with pytest.raises(ValueError, match="not negative"):
        BlendWeights(("model", "persistence"), (((1.2, -0.2),),), (9,))


@pytest.mark.thorough
def test_a_run_stores_its_blend_and_no_blend_stores_none(tmp_path):
    data = walk()
    made = train(data, RunConfig.of(**TINY, epochs=1), tmp_path / "a", is_quiet=True)
    assert made.task.blend.forecasts
    assert Forecaster.load(tmp_path / "a" / "model").task == made.task
    alone = train(data, RunConfig.of(**TINY, epochs=1, blend=False), tmp_path / "b", is_quiet=True)
    assert not alone.task.blend.forecasts
