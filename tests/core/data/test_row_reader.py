import numpy as np
import pytest

from gpo.data.dataset import RowReader

NUM_ROWS, ROW_SIZE = 6, 4


@pytest.mark.parametrize(
    ("sites", "rows"),
    [
        (slice(0, 4), slice(0, 1)),
        (slice(5, 7), slice(1, 2)),
        (slice(3, 9), slice(0, 3)),
        (slice(20, 24), slice(5, 6)),
        (slice(8, 8), slice(2, 2)),
    ],
)
def test_only_the_rows_of_the_requested_sites_are_read(sites, rows):
    requested = []

    def read(trajectory, times, selection):
        requested.append(selection)
        frame = np.arange(NUM_ROWS * ROW_SIZE).reshape(1, NUM_ROWS, ROW_SIZE)
        return frame[:, selection].reshape(1, -1, 1)

    part = RowReader(read, ROW_SIZE)(0, slice(None), sites)
    assert part.ravel().tolist() == list(range(sites.start, sites.stop))
    assert requested == [rows]
