"""Twelve faults of runs and qrels: aptool prints the figure worked out by hand, or refuses."""

from pathlib import Path

import pytest

from aptool.errors import InputError
from bench.faults import FAULTS, by_aptool, by_pytrec_eval, outcome


def test_there_are_twelve():
    assert len({fault.name for fault in FAULTS}) == 12


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_aptool_is_right_or_refuses(fault):
    if fault.truth is None:
        with pytest.raises(InputError, match=r"x\.run: line \d+"):
            by_aptool(fault)
        assert outcome(fault, by_aptool, 0) == "refused"
    else:
        assert by_aptool(fault) == pytest.approx(fault.truth, abs=1e-9)


def test_what_others_print_is_told_apart():
    faults = {fault.name: fault for fault in FAULTS}

    # Of four questions one is lacking: the mean over three is a third too high.
    assert outcome(faults["missing question"], by_pytrec_eval, 1) == "0.6111 (+0.1528)"
    assert outcome(faults["duplicate candidate"], by_pytrec_eval, 1) == "0.8750, silent"
    assert outcome(faults["ties"], by_pytrec_eval, 1) == "0.5833"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_tables_of_readme_and_docs_have_it(fault):
    """RR and AP in the docs, RR of some faults in the README; columns: the truth, aptool, pytrec_eval, ..."""
    root = Path(__file__).parents[2]
    pages = ("README.md", "docs/evaluation.md")
    readme, docs = ([line.split(" | ") for line in (root / page).read_text().splitlines()] for page in pages)
    expected = {
        place: [outcome(fault, tool, place) for tool in (by_aptool, by_pytrec_eval)] for place in (1, 0)
    }

    assert [row[2:4] for row in readme if row[0] == f"| {fault.name}"] in ([], [expected[1]])
    assert [row[2:4] for row in docs if row[0] == f"| {fault.name}"] == [expected[1], expected[0]]
