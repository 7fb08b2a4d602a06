"""Twelve faults of runs and qrels: aptool prints the value computed by hand, or refuses the input."""

from pathlib import Path

import pytest

from aptool.errors import InputError
from bench.faults import FAULTS, by_aptool, by_pytrec_eval, outcome


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
def test_tables_of_the_docs_are_current(fault):
    """The docs have RR, and AP where it differs."""
    page = Path(__file__).parents[2] / "docs" / "results" / "faults.md"
    expected = [[outcome(fault, tool, index) for tool in (by_aptool, by_pytrec_eval)] for index in (1, 0)]

    lines = (line.split(" | ") for line in page.read_text(encoding="utf-8").splitlines())
    shown = [row[2:4] for row in lines if row[0] == f"| {fault.name}"]
    assert shown == (expected if len(shown) == 2 else expected[:1])
    assert len(shown) == 2 or expected[0] == expected[1]
