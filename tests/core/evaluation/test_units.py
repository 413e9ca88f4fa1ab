"""Results do not depend on units and origins of values and coordinates.

Scores, forecasts, losses and gradients are those of the same fields in plain units, up to rounding:
on grids, unstructured points and meshes, for models that are not trained (which take no time).
"""

from pathlib import Path

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from scipy.spatial import Delaunay

from gpo.data.dataset import FieldData, Variable
from gpo.data.geometry import Geometry
from gpo.data.splits import split_time_slices
from gpo.evaluation.rollout import make_rollouts
from gpo.evaluation.score import evaluate
from gpo.forecast.examples import TimeSliceExamples, collate
from gpo.training.config import RunConfig
from gpo.training.objective import training_losses
from gpo.training.setup import new_forecaster

KINDS = ("grid", "scattered", "mesh")
CHANGES = {
    "values x 1e30": {"factor": 1e30},
    "values x 1e-30": {"factor": 1e-30},
    "values x 1e100": {"factor": 1e100},
    "values on 1e6 spreads": {"shift": 1e6},
    "a small signal on 1e6 spreads": {"factor": 1e-12, "shift": 1e6},
    "coordinates 1e7 boxes away": {"move": 1e7},
    "a box of 1e-30": {"size": 1e-30},
    "a box of 1e26, far away": {"size": 1e26, "move": 1e7},
    "all of it": {"factor": 1e-30, "shift": 1e6, "size": 10.0, "move": -1e7},
}


def sites(kind, *, size=1.0, move=0.0):
    """Returns unit coordinates, and the geometry: a box of some size, `move` sizes from zero."""
    if kind == "grid":
        # On the numbers that a box far away can hold, so that all boxes are the same.
        axes = [np.arange(12) / 16, np.arange(10) / 16]
        unit = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)
        return unit, Geometry.rectilinear([size * (axis + move) for axis in axes])
    unit = np.round(np.random.default_rng(3).random((90, 2)) * 2**20) / 2**20
    cells = Delaunay(unit).simplices if kind == "mesh" else None
    return unit, Geometry.unstructured(size * (unit + move), cells)


def series(kind, *, factor=1.0, shift=0.0, **places):
    """Returns waves that travel, times `factor`, around `shift` spreads."""
    unit, geometry = sites(kind, **places)
    # Ever faster: a linear map would forecast waves of one speed without an error.
    t = np.arange(24.0)[:, None] + 0.02 * np.arange(24.0)[:, None] ** 2
    x, y = unit.T
    waves = [np.sin(5 * x + 3 * y - 0.3 * t), np.cos(4 * y - 0.2 * t) * np.sin(3 * x)]
    values = factor * (np.stack(waves, -1) + shift)
    variables = (Variable("a", "K"), Variable("b"))
    return FieldData(
        "waves", Path("waves"), variables, (geometry,), np.arange(24.0), "h", 1,
        lambda _, times: values[times],
    )  # fmt: skip


def untrained(data, split, model="gpo"):
    """Returns a model whose parameters are random, all of them."""
    sizes = {} if model in ("fno", "transolver") else {"hidden_dim": 16, "num_layers": 2}
    sizes |= {"num_heads": 2} if model == "gpo-paper" else {}
    torch.manual_seed(0)
    forecaster = new_forecaster(data, split, RunConfig.of(data="waves", model=model, **sizes))
    with torch.no_grad():
        for parameter in forecaster.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    return forecaster.eval()


def scores(data, model="gpo"):
    split = split_time_slices(data)
    return evaluate(untrained(data, split, model), data, split, num_steps=4)


@pytest.fixture(scope="module")
def plain():
    """Scores in plain units."""
    return {kind: scores(series(kind)) for kind in KINDS}


def numbers(part):
    """Returns all numbers of nested scores by their names."""
    if isinstance(part, dict):
        return {(key, *rest): n for key, inner in part.items() for rest, n in numbers(inner).items()}  # fmt: skip
    if isinstance(part, list):
        return numbers(dict(enumerate(part)))
    return {(): part} if isinstance(part, float) else {}


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", CHANGES)
def test_scores_do_not_depend_on_units_and_origins(kind, change, plain):
    settings, expected = CHANGES[change], plain[kind]
    results = scores(series(kind, **settings))
    factor = settings.get("factor", 1.0)
    for name in ("a", "b"):
        for forecast, errors in results.variables[name].items():
            plain_errors = expected.variables[name][forecast]
            assert errors["rmse_over_std"] == pytest.approx(plain_errors["rmse_over_std"], rel=1e-4)
            assert errors["rmse"] == pytest.approx(factor * plain_errors["rmse"], rel=1e-4)
    for forecast, errors in results.one_step.items():
        plain_errors = expected.one_step[forecast]
        assert errors["vrmse"] == pytest.approx(plain_errors["vrmse"], rel=1e-4)
        assert errors["mae"] == pytest.approx(factor * plain_errors["mae"], rel=1e-4)
        assert errors["linf"] == pytest.approx(factor * plain_errors["linf"], rel=1e-4)
    if "shift" not in settings:
        # Errors relative to the size of a field know where its zero is.
        for part in ("one_step", "per_variable", "rollout", "resolution", "between_sites"):
            errors, plain_errors = (numbers(getattr(r, part)) for r in (results, expected))
            errors = {key: n for key, n in errors.items() if key[-1] not in ("rmse", "mae", "linf")}
            assert errors == pytest.approx({key: plain_errors[key] for key in errors}, rel=1e-3)
    assert results.comparisons.keys() == expected.comparisons.keys()
    for name, entry in results.comparisons.items():
        assert entry["ratio"] == pytest.approx(expected.comparisons[name]["ratio"], rel=1e-4)


UNITS = {
    "factor": st.floats(-30, 30).map(lambda power: 10**power),
    "shift": st.floats(-1e6, 1e6),
    "move": st.floats(-1e7, 1e7),
}
"""Units and origins up to the limits that hold; the shift is in spreads, the move in box lengths."""


def trained(data, num_steps=8):
    """Returns a model after some steps, the losses on the way, and a rollout of it."""
    split = split_time_slices(data)
    forecaster = untrained(data, split)
    optimizer = torch.optim.AdamW(forecaster.parameters(), 0.01)
    examples, losses = TimeSliceExamples(data, split.training), []
    batch = collate([examples[n] for n in range(len(examples))])
    for _ in range(num_steps):
        loss = training_losses(forecaster, batch)["total"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    ends = make_rollouts(forecaster, data, split.test, 4, None).forecast
    scored = evaluate(forecaster, data, split, scope="one-step").variables["a"]
    return losses, {name: part["rmse_over_std"] for name, part in scored.items()}, np.stack(ends)


@pytest.fixture(scope="module")
def plainly_trained():
    return {kind: trained(series(kind)) for kind in KINDS}


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
@hypothesis.settings(
    max_examples=6, deadline=None, derandomize=True, phases=[hypothesis.Phase.generate]
)
@hypothesis.given(st.fixed_dictionaries(UNITS))
def test_training_scores_and_forecasts_hold_for_any_units_and_origins(kind, plainly_trained, units):
    losses, scored, ends = trained(series(kind, **units))
    expected = plainly_trained[kind]
    assert expected[0][-1] < 0.95 * expected[0][0]
    assert losses == pytest.approx(expected[0], rel=1e-5)
    assert scored == pytest.approx(expected[1], rel=1e-5)
    np.testing.assert_allclose(ends / units["factor"] - units["shift"], expected[2], atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", CHANGES)
def test_forecasts_losses_and_gradients_do_not_depend_on_units_and_origins(kind, change):
    runs = []
    for settings in ({}, CHANGES[change]):
        data = series(kind, **settings)
        split = split_time_slices(data)
        forecaster = untrained(data, split)
        examples = TimeSliceExamples(data, split.training)
        batch = collate([examples[n] for n in range(3)])
        loss = training_losses(forecaster, batch)["total"]
        loss.backward()
        slopes = torch.cat(
            [p.grad.flatten() for p in forecaster.parameters() if p.grad is not None]
        )
        ends = make_rollouts(forecaster, data, split.test, 4, None).forecast
        back = np.stack(ends) / settings.get("factor", 1.0) - settings.get("shift", 0.0)
        runs.append((loss.item(), slopes.detach(), back))
    assert runs[1][0] == pytest.approx(runs[0][0], rel=1e-5)
    # Rounding of the inputs is amplified on the way to the first layers.
    torch.testing.assert_close(runs[1][1], runs[0][1], rtol=1e-2, atol=1e-4)
    np.testing.assert_allclose(runs[1][2], runs[0][2], atol=1e-4)


@pytest.mark.thorough
@pytest.mark.parametrize("model", ["gpo-paper", "fno", "transolver"])
def test_other_models_do_not_depend_on_units_and_origins(model):
    expected = scores(series("grid"), model)
    results = scores(series("grid", **CHANGES["all of it"]), model)
    for name in ("a", "b"):
        for forecast, errors in results.variables[name].items():
            plain_error = expected.variables[name][forecast]["rmse_over_std"]
            assert errors["rmse_over_std"] == pytest.approx(plain_error, rel=1e-3)


@pytest.mark.parametrize("change", ["values x 1e-30", "values on 1e6 spreads", "all of it"])
def test_static_maps_do_not_depend_on_units_and_origins(change):
    errors = []
    for settings in ({}, CHANGES[change]):
        places = {key: settings[key] for key in settings.keys() & {"size", "move"}}
        unit, geometry = sites("scattered", **places)
        factor, shift = settings.get("factor", 1.0), settings.get("shift", 0.0)
        phases = np.random.default_rng(0).random(12)

        def read(number, unit=unit, phases=phases, factor=factor, shift=shift):
            wave = np.sin(4 * unit[:, :1] + phases[number])
            return factor * (wave + shift), factor * (wave**2 + shift)

        data = FieldData.of_maps(
            layout="maps", source=Path("maps"), inputs=(Variable("a"),), outputs=(Variable("s"),),
            geometries=(geometry,), num_samples=12, fetch=read,
        )  # fmt: skip
        split = split_time_slices(data)
        results = evaluate(untrained(data, split), data, split, scope="one-step")
        errors.append(
            {name: part["rmse_over_std"] for name, part in results.variables["s"].items()}
        )
    assert errors[1] == pytest.approx(errors[0], rel=1e-4)


@pytest.mark.parametrize("factor", [1e200, 1e-152, 1e-158, 1e-164, 1e-200])
def test_numbers_that_no_precision_can_square_are_refused(factor):
    data = series("grid", factor=factor)
    with pytest.raises(ValueError, match=r"^a must be between 1e-150 and 1e150"):
        scores(data)
