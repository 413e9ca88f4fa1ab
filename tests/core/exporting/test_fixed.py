from dataclasses import replace

import pytest
import torch

from gpo.forecast.climatology import DampedPersistence
from gpo.forecast.fixed import FixedForecaster
from gpo.forecast.forecaster import Forecaster
from gpo.model.model import build_model
from gpo.model.problem import Problem
from tests.conftest import DOMAINS
from tests.core.exporting.cases import SITES, VARIANTS, make_case


@pytest.mark.parametrize("predict", ["increment", "state"])
@pytest.mark.parametrize("has_queries", [False, True], ids=["sites", "queries"])
@pytest.mark.parametrize("sites", SITES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_fixed_sites_give_the_same_prediction(variant, sites, has_queries, predict):
    case = make_case(variant, sites, has_queries=has_queries, predict=predict)
    fixed = case.fixed()
    for batch_size in (1, 3):
        frames = case.frames(batch_size)
        assert torch.equal(fixed(frames).nan_to_num(), case.predict(frames))


@pytest.mark.parametrize(
    "changes",
    [{"has_gaussian_field": False}, {"centers": "displacement", "features": "none"}, {"num_layers": 0}],
    ids=["plain", "no features", "no layers"],
)  # fmt: skip
@pytest.mark.parametrize("variant", VARIANTS)
def test_so_do_models_with_parts_left_out(variant, changes):
    case = make_case(variant, "masked", has_queries=True, **changes)
    frames = case.frames(2)
    assert torch.equal(case.fixed()(frames).nan_to_num(), case.predict(frames))


def test_waves_on_the_indices_of_a_mesh_are_fixed_too():
    case = make_case("waves", "unstructured", has_queries=True, mesh_shape=(8, 5))
    frames = case.frames(2)
    assert torch.equal(case.fixed()(frames), case.predict(frames))


def test_the_geometry_of_the_sites_moves_and_converts_with_the_module():
    case = make_case("waves", "masked", has_queries=True)
    fixed = case.fixed()
    # Coordinates, weights, queries, two of neighbours, two matrices at sites and at queries, two of
    # the stencil, two axes of nodes, and two numbers along each axis for sites and for queries; for
    # every axis two of the fluxes and five of the matrices that smooth along it.
    assert len(dict(fixed.named_buffers(recurse=False))) == 21 + 14
    frames = case.frames(2)
    expected = case.predict(frames)
    doubled = fixed.double()(frames.double())
    assert doubled.dtype == torch.double
    torch.testing.assert_close(doubled.float().nan_to_num(), expected)


def test_training_goes_on_through_fixed_sites():
    case = make_case("waves", "torus")
    case.fixed()(case.frames(2)).square().sum().backward()
    assert all(part.grad is not None for part in case.forecaster.model.parameters())


def test_a_baseline_is_refused():
    model = build_model("fno", Problem(4, 2, DOMAINS["torus"], (6, 5)))
    case = make_case("waves", "torus")
    with pytest.raises(ValueError, match=r"must be gpo or gpo-paper, got fno.*--model gpo"):
        FixedForecaster(Forecaster(model, case.forecaster.task), case.coords)


def test_sites_outside_the_domain_are_refused_before_anything_is_fixed():
    case = make_case("waves", "masked")
    with pytest.raises(ValueError, match="`coords` must lie near the domain"):
        FixedForecaster(case.forecaster, 1000 * case.coords)


def with_climatology(case, num_times):
    """Returns the case with increments to a damped anomaly, of a climatology by time of day."""
    task = replace(case.forecaster.task, base="damped persistence")
    reference = DampedPersistence(
        task,
        coords=case.coords.double(),
        means=10 + torch.randn(num_times, len(case.coords), 2, dtype=torch.double),
        cycle=torch.tensor([num_times, num_times, 0, 1], dtype=torch.double),
        factor=torch.tensor([0.4, -0.7], dtype=torch.double),
    )
    forecaster = Forecaster(case.forecaster.model, task, None, {task.base: reference})
    return replace(case, forecaster=forecaster)


@pytest.mark.parametrize("has_queries", [False, True], ids=["sites", "queries"])
def test_a_climatology_without_dates_is_fixed_too(has_queries):
    case = with_climatology(make_case("waves", "masked grid", has_queries=has_queries), 1)
    frames = case.frames(3)
    program = torch.export.export(case.fixed(), (frames,)).module()
    assert torch.equal(case.fixed()(frames).nan_to_num(), case.predict(frames))
    # A program multiplies in another order.
    torch.testing.assert_close(program(frames).nan_to_num(), case.predict(frames))


def test_a_climatology_of_times_of_day_is_refused():
    case = with_climatology(make_case("waves", "torus"), 2)
    with pytest.raises(ValueError, match=r"damped persistence of a date.*--no-blend"):
        case.fixed()
