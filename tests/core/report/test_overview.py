import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt

from gpo import Domain
from gpo.report.overview import draw_prediction
from tests.conftest import make_model, random_points
from tests.processes import finish

VARIANTS = ["geometric", "paper"]
DOMAINS = [
    Domain.unit_box(2),
    Domain.unit_box(2, periodic=True),
    Domain.sphere(),
    Domain.unit_box(1),
]


@pytest.mark.thorough
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("domain", DOMAINS, ids=["square", "torus", "sphere", "line"])
def test_a_prediction_is_drawn_on(domain, variant, tmp_path):
    model = make_model(domain, variant=variant, in_channels=1, out_channels=1)
    coords = random_points(domain, 80)
    values = torch.randn(1, 80, 1).double()
    path = draw_prediction(tmp_path / "deep" / "picture.png", model, values, coords, values)
    picture = plt.imread(path)
    assert picture.shape[0] > 500
    assert np.unique(picture.reshape(-1, picture.shape[2]), axis=0).shape[0] > 100
    assert not plt.get_fignums()


@pytest.mark.thorough
def test_the_demo_runs(tmp_path):
    script = Path(__file__).parents[3] / "examples" / "plot_first_operator.py"
    command = [sys.executable, str(script), "--out", str(tmp_path / "demo.png"), "--num-steps", "4"]
    assert "unseen fields" in finish(command)
    assert (tmp_path / "demo.png").stat().st_size > 10_000
