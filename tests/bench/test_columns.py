"""Columns of real data, where their files lie beside the project."""

import numpy as np
import pytest

from gpo import RunConfig
from gpo.runs import read_data
from gpo.training.setup import split_of
from gpo_bench.columns import COLUMNS, NoDataError
from tests.core.data.files import SHARED, real_file


def test_a_column_without_its_file_says_so(tmp_path):
    with pytest.raises(
        NoDataError, match=r"no radar_knmi/knmi_radar_20100826_8km\.nc in the folder"
    ):
        COLUMNS["radar"].source("radar", tmp_path, "quick")


def test_the_radar_column_is_rain_at_the_cells_of_the_image_split_by_time():
    column = COLUMNS["radar"]
    real_file(*column.file.split("/"))
    config = RunConfig.of(**column.source("radar", SHARED, "quick"))
    data = read_data(config)
    geometry, frames = data.geometry(), data.frames(0)
    assert [(part.name, part.units) for part in data.variables] == [("rain_rate", "mm h-1")]
    assert (geometry.grid_shape, geometry.axis_units) == ((95, 87), ("km", "km"))
    np.testing.assert_allclose(np.diff(data.time), 1 / 12)
    assert not any(geometry.domain.periodic)
    # The mask is that of the image, which does not change, and weights are equal inside.
    assert (~geometry.is_masked).sum() == 2055
    np.testing.assert_array_equal(np.isfinite(frames).all((0, 2)), ~geometry.is_masked)
    np.testing.assert_array_equal(np.isfinite(frames).any((0, 2)), ~geometry.is_masked)
    assert np.ptp(geometry.weights[~geometry.is_masked]) < 1e-12
    seen = frames[:, ~geometry.is_masked]
    # Means of 64 radar cells of 0.01 mm in 5 minutes, in mm/h.
    steps = seen / (12 * 0.01 / 64)
    np.testing.assert_allclose(steps, steps.round(), atol=0.01)
    split = split_of(data, config)
    assert [len(part) for part in (split.training, split.validation, split.test)] == [51, 11, 23]
    assert split.training[-1].target < split.validation[0].first
    assert split.validation[-1].target < split.test[0].first
