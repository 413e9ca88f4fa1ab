"""Fine-tuning: what fits of a trained run is taken, what does not is said."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from gpo import CheckpointError
from gpo.data.geometry import Geometry
from gpo.training.config import RunConfig
from gpo.training.fit import train
from gpo.training.initial import initialise_from
from gpo.training.run_folder import Run
from gpo.training.setup import new_forecaster, split_of
from tests.core.training.series import decaying_waves

TINY = {"data": "waves", "hidden_dim": 8, "num_layers": 1, "num_gaussians": 2}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    return folder, train(decaying_waves(), RunConfig.of(**TINY, epochs=1), folder, is_quiet=True)


def new(data, **settings):
    config = RunConfig.of(**{**TINY, "seed": 5, **settings})
    return new_forecaster(data, split_of(data, config), config)


def with_more(data):
    """The same waves with a variable of another name before them."""
    variables = (replace(data.variables[0], name="c"), *data.variables)

    def fetch(number, times):
        frames = data.fetch(number, times)
        return np.concatenate([frames[..., :1] ** 2, frames], -1)

    return replace(data, variables=variables, fetch=fetch)


def test_a_model_of_the_same_kind_begins_where_the_other_ended(trained):
    folder, origin = trained
    model = new(decaying_waves())
    told = initialise_from(model, folder)
    assert "initialised" in told
    assert "are new" not in told
    for name, value in origin.state_dict().items():
        assert torch.equal(model.state_dict()[name], value)


def test_other_sites_take_the_waves_that_both_have(trained):
    folder, origin = trained
    for num_points in (12, 48):
        model = new(decaying_waves(num_points=num_points))
        assert "in part" in initialise_from(model, folder)
        name = "model.layers.0.filter.packets"
        mine, theirs = model.state_dict()[name], origin.state_dict()[name]
        count = min(mine.shape[2], theirs.shape[2])
        assert mine.shape != theirs.shape
        assert torch.equal(mine[..., :count], theirs[..., :count])
        assert (mine[..., count:] == 0).all()


def test_an_axis_that_closes_keeps_features_without_a_seam(tmp_path):
    closed = decaying_waves()
    x = np.arange(24) / 24
    line = replace(closed, geometries=(Geometry.rectilinear([x], bounds=[(0.0, 1.0)]),))
    train(line, RunConfig.of(**TINY, epochs=1), tmp_path, is_quiet=True)
    model = new(closed)
    assert "features.frequencies" in initialise_from(model, tmp_path).split("are new")[1]
    ends = torch.tensor([[0.0], [1.0]])
    first, last = model.model.lift.features(ends)
    torch.testing.assert_close(first, last, atol=1e-4, rtol=0)


def test_variables_are_matched_by_name_and_frames_by_age(trained):
    folder, origin = trained
    model = new(with_more(decaying_waves()), history=2)
    told = initialise_from(model, folder)
    assert "lift.linear.weight" in told
    mine, theirs = (f.state_dict()["model.lift.linear.weight"] for f in (model, origin))
    # Older frame: c, a, b; newer frame: c, a, b; then features of the position.
    assert torch.equal(mine[:, 4:6], theirs[:, :2])
    assert torch.equal(mine[:, 6:], theirs[:, 2:])
    for name in ("weight", "bias"):
        name = next(k for k in origin.state_dict() if k.startswith("model.decoder.layers.2") and k.endswith(name))  # fmt: skip
        assert torch.equal(model.state_dict()[name][1:], origin.state_dict()[name])


def test_what_is_trained_begins_there_at_a_third_of_the_rate(trained, tmp_path, capsys):
    folder, _ = trained
    config = RunConfig.of(**TINY, init=str(folder), epochs=1)
    assert config.learning_rate == pytest.approx(2e-3)
    train(decaying_waves(), config, tmp_path, is_quiet=True)
    assert "initialised" in capsys.readouterr().out
    assert "initialised" in Run(tmp_path).record().events[0]


def test_a_run_of_which_nothing_fits_is_refused(trained):
    folder, _ = trained
    data, config = decaying_waves(), RunConfig.of(data="waves", model="fno")
    other = new_forecaster(data, split_of(data, config), config)
    with pytest.raises(
        CheckpointError, match=r"no parameter of its .* matches the new .*same --model"
    ):
        initialise_from(other, folder)
