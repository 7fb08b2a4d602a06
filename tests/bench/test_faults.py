"""Twelve faults of runs and qrels: aptool prints the figure worked out by hand, or refuses."""

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
