"""A report that several test files share, because drawing it takes seconds."""

import pytest

from tests.core.report.pages import report_of


@pytest.fixture(scope="session")
def grid_report(tmp_path_factory):
    """The page of a run on a grid, and its results."""
    return report_of("grid", tmp_path_factory.mktemp("report"))
