from dataclasses import replace

import numpy as np
import pytest
import torch

from gpo.data.splits import Split, split_time_slices
from gpo.forecast.examples import TimeSliceExamples, collate
from gpo.forecast.linear_map import LinearMap, chosen_rank
from tests.core.evaluation.fitted import inputs_of
from tests.core.evaluation.test_score import TASK
from tests.core.training.series import decaying_waves, equal_squares, squares


def built(series, split, history=1):
    """The linear map for some data, and the test examples as a batch."""
    reference = LinearMap.fit(inputs_of(series, split.training, history=history))
    batch = collate([TimeSliceExamples(series, split.test)[n] for n in range(len(split.test))])
    return reference, batch


def predicted(reference, batch):
    return reference(batch.frames, batch.coords, weights=batch.site_weights)


def fitted_map(features, targets):
    none = torch.zeros(0, 0, dtype=torch.double)
    return LinearMap(TASK, none, none, none, none)._fitted(features, targets)


def error(reference, batch):
    difference = (predicted(reference, batch) - batch.target) * (batch.weights[..., None] > 0)
    return difference.abs().max().item()


def test_a_linear_system_is_recovered_to_rounding():
    data = decaying_waves()
    reference, batch = built(data, split_time_slices(data))
    assert (batch.target - batch.fields[:, -1]).abs().max() > 0.1
    assert error(reference, batch) < 1e-10


def test_a_standing_wave_is_recovered_from_two_frames_and_not_from_one():
    data = decaying_waves()
    phases = np.random.default_rng(0).uniform(0, 6, (8, 1, 1, 1))
    swings = np.cos(phases + 0.5 * np.arange(10)[:, None, None])
    series = swings * np.sin(2 * np.pi * np.arange(24) / 24)[:, None] * [1, 5]
    swinging = replace(data, fetch=lambda number, times: series[number, times])
    for history, is_exact in ((1, False), (2, True)):
        split = split_time_slices(swinging, history=history)
        assert (error(*built(swinging, split, history)) < 1e-8) == is_exact


def test_masked_sites_and_gaps_do_not_disturb_the_others():
    # Masked at two sites, where weights are zero, and missing at another one in a single frame.
    data = decaying_waves(missing=[3, 5])
    geometry = data.geometry()
    weights = np.where(np.isin(np.arange(24), [3, 5]), 0.0, 1 / 22)
    masked = replace(data, geometries=(replace(geometry, weights=weights),))
    reference, batch = built(masked, split_time_slices(masked))
    assert error(reference, batch) < 1e-10
    assert predicted(reference, batch).isfinite().all()


def test_errors_are_those_of_the_map_of_each_rank():
    generator = torch.Generator().manual_seed(0)
    features, targets = (torch.randn(20, n, generator=generator).double() for n in (30, 7))
    others, truth = (torch.randn(9, n, generator=generator).double() for n in (30, 7))
    weights = torch.rand(7, generator=generator).double()
    fitted = fitted_map(features, targets)
    errors = fitted.errors(others, truth, weights)
    assert errors.shape == (9, 11)
    for rank in range(11):
        difference = fitted.truncated(rank).predicted(others) - truth
        torch.testing.assert_close(errors[:, rank], (difference.square() @ weights).sqrt())


def test_the_rank_is_the_smallest_that_is_worse_than_the_best_by_at_most_one_standard_error():
    # All ranks have the same hard example; rank 2 also has differences of its own, by 0.5 +- 1.
    hard = torch.tensor([0.0, 0.0, 0.0, 100.0])[:, None]
    own = torch.tensor([1.5, -0.5, 1.5, -0.5])
    errors = torch.tensor([9.0, 6.5, 5.0, 5.0, 6.0]) + hard
    errors[:, 2] += own
    assert chosen_rank(errors) == 2
    errors[:, 2] += 0.1
    assert chosen_rank(errors) == 3


def test_the_map_of_a_rank_is_least_squares_on_principal_components():
    generator = torch.Generator().manual_seed(0)
    features, targets = (torch.randn(20, n, generator=generator).double() for n in (6, 3))
    fitted = fitted_map(features, targets)
    assert fitted.inputs.shape == (6, 6)
    components = torch.linalg.svd(features, full_matrices=False)[2][:4]
    reduced = torch.linalg.lstsq(features @ components.mT, targets).solution
    torch.testing.assert_close(
        fitted.truncated(4).predicted(features), features @ components.mT @ reduced
    )


def test_noise_is_left_to_persistence():
    data, values = decaying_waves(), np.random.default_rng(1).normal(size=(8, 10, 24, 2))
    # A random walk: the change does not depend on the frame.
    walks = 100 + values.cumsum(1)
    noisy = replace(data, fetch=lambda number, times: walks[number, times])
    reference, batch = built(noisy, split_time_slices(noisy))
    prediction = predicted(reference, batch)
    size = (batch.target - batch.fields[:, -1]).std()
    assert (prediction - batch.fields[:, -1]).std() < 0.5 * size


def test_static_maps_have_a_linear_map_of_their_fields():
    data = equal_squares(40)

    def fetch(number, times):
        given = data.fetch(number, times)[..., :1]
        return np.concatenate([given, 3 * given.cumsum(1) + 2], -1)

    linear = replace(data, fetch=fetch)
    assert error(*built(linear, split_time_slices(linear))) < 1e-8


def test_there_is_none_where_sites_do_not_correspond_or_examples_are_too_few():
    maps, data = squares(), decaying_waves()
    assert built(maps, split_time_slices(maps))[0] is None
    split = split_time_slices(data)
    few = Split(split.training[:7], split.validation, split.test, "time")
    assert built(data, few)[0] is None
    reference, _ = built(data, split)
    assert reference.applies_to(24)
    assert not reference.applies_to(12)


@pytest.mark.parametrize("limit", ["MAX_EXAMPLES", "MAX_NUMBERS"])
def test_a_limited_number_of_examples_is_used(limit, monkeypatch):
    data = decaying_waves()
    monkeypatch.setattr(
        f"gpo.forecast.linear_map.{limit}", {"MAX_EXAMPLES": 9, "MAX_NUMBERS": 9 * 48}[limit]
    )
    counts, fit = [], LinearMap._fitted
    monkeypatch.setattr(
        LinearMap, "_fitted", lambda self, x, y: counts.append(len(x)) or fit(self, x, y)
    )
    built(data, split_time_slices(data))
    # The last two of nine decide how many components there are.
    assert counts == [7, 9]
