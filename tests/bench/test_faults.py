"""Twelve faults of runs and qrels: aptool prints the value computed by hand, or refuses the input."""

from pathlib import Path

import pytest

from aptool.errors import InputError
from bench.faults import FAULTS, by_aptool, by_pytrec_eval, outcome


def test_there_are_twelve_faults():
    assert len({fault.name for fault in FAULTS}) == 12


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_aptool_is_right_or_refuses(fault):
    if fault.truth is None:
        with pytest.raises(InputError, match=r"x\.run: line \d+"):
            by_aptool(fault)
        assert outcome(fault, by_aptool, 0) == "refused"
    else:
        assert by_aptool(fault) == pytest.approx(fault.truth, abs=1e-9)


def test_outcomes_of_other_tools_are_distinguished():
    faults = {fault.name: fault for fault in FAULTS}

    # One of four questions is missing: the mean over three questions is a third too high.
    assert outcome(faults["missing question"], by_pytrec_eval, 1) == "0.6111 (+0.1528)"
    assert outcome(faults["duplicate candidate"], by_pytrec_eval, 1) == "0.8750, silent"
    assert outcome(faults["ties"], by_pytrec_eval, 1) == "0.5833"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_tables_of_readme_and_docs_are_current(fault):
    """The docs have RR, and AP where it differs; the README has RR of some faults."""
    root = Path(__file__).parents[2]
    pages = ("README.md", "docs/results/faults.md")
    readme, docs = ([line.split(" | ") for line in (root / page).read_text().splitlines()] for page in pages)
    expected = {
        index: [outcome(fault, tool, index) for tool in (by_aptool, by_pytrec_eval)] for index in (1, 0)
    }

    assert [row[2:4] for row in readme if row[0] == f"| {fault.name}"] in ([], [expected[1]])
    found = [row[2:4] for row in docs if row[0] == f"| {fault.name}"]
    assert found == [expected[1], expected[0]] or (found == [expected[1]] and expected[0] == expected[1])
