import pytest
import torch

from gpo.forecast.fixed import FixedForecaster
from gpo.forecast.forecaster import Forecaster
from gpo.model.problem import Problem
from gpo.model.registered import RegisteredModel
from tests.conftest import DOMAINS
from tests.core.exporting.cases import PLACES, VARIANTS, make_case


@pytest.mark.parametrize("predict", ["increment", "state"])
@pytest.mark.parametrize("asks", [False, True], ids=["sites", "queries"])
@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_fixed_sites_give_the_same_answer(variant, places, asks, predict):
    case = make_case(variant, places, asks=asks, predict=predict)
    fixed = case.fixed()
    for batch_size in (1, 3):
        frames = case.frames(batch_size)
        assert torch.equal(fixed(frames).nan_to_num(), case.answer(frames))


@pytest.mark.parametrize(
    "changes",
    [{"has_gaussian_field": False}, {"centers": "displacement", "features": "none"}, {"num_layers": 0}],
    ids=["plain", "no features", "no layers"],
)  # fmt: skip
@pytest.mark.parametrize("variant", VARIANTS)
def test_so_do_models_with_parts_left_out(variant, changes):
    case = make_case(variant, "masked", asks=True, **changes)
    frames = case.frames(2)
    assert torch.equal(case.fixed()(frames).nan_to_num(), case.answer(frames))


def test_waves_on_the_indices_of_a_mesh_are_fixed_too():
    case = make_case("geometric", "scattered", asks=True, mesh_shape=(8, 5))
    frames = case.frames(2)
    assert torch.equal(case.fixed()(frames), case.answer(frames))


def test_what_is_known_of_the_sites_moves_and_converts_with_the_module():
    case = make_case("geometric", "masked", asks=True)
    fixed = case.fixed()
    # Coordinates, weights, queries, two of neighbours, two matrices at sites and at queries, two of
    # sources, two axes of nodes, and two numbers along each axis for sites and for queries.
    assert len(dict(fixed.named_buffers(recurse=False))) == 21
    frames = case.frames(2)
    expected = case.answer(frames)
    doubled = fixed.double()(frames.double())
    assert doubled.dtype == torch.double
    torch.testing.assert_close(doubled.float().nan_to_num(), expected)


def test_training_goes_on_through_fixed_sites():
    case = make_case("geometric", "torus")
    case.fixed()(case.frames(2)).square().sum().backward()
    assert all(part.grad is not None for part in case.forecaster.model.parameters())


def test_a_model_that_is_not_ours_is_refused():
    model = RegisteredModel("fno", Problem(4, 2, DOMAINS["torus"], (6, 5)))
    case = make_case("geometric", "torus")
    with pytest.raises(ValueError, match=r"for a model gpo, got RegisteredModel.*--model gpo"):
        FixedForecaster(Forecaster(model, case.forecaster.task), case.coords)


def test_sites_outside_the_domain_are_refused_before_anything_is_fixed():
    case = make_case("geometric", "masked")
    with pytest.raises(ValueError, match="`coords` must lie near the domain"):
        FixedForecaster(case.forecaster, 1000 * case.coords)
