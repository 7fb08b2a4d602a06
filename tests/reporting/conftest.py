"""Runs and their report, shared by the tests of reports."""

import pytest
from report_runs import make_report, make_runs


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    return make_runs(tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="session")
def report(made):
    return make_report(made, made.runs.parent / "report.html")
