"""Progress of long work: to whom it is reported, and what is shown."""

import logging
import sys

import pytest
from recorded import recorded

from aptool import progress
from aptool.progress import BarProgress, LineProgress, Progress, get_progress, use_progress


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test advances."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_the_innermost_progress_is_current():
    outer, inner = Progress(), Progress()
    with use_progress(outer):
        with use_progress(inner):
            assert get_progress() is inner
        assert get_progress() is outer
        with pytest.raises(ZeroDivisionError), use_progress(inner):
            1 / 0  # noqa: B018
        assert get_progress() is outer
    assert get_progress() not in (outer, inner)


def test_by_default_a_notebook_shows_bars_and_a_script_nothing(monkeypatch):
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    assert type(get_progress()) is Progress
    monkeypatch.setitem(sys.modules, "ipykernel", object())
    assert type(get_progress()) is BarProgress


def test_an_epoch_is_logged_as_one_line():
    entry = {
        "epoch": 3,
        "loss": 0.25,
        "dev": {"MAP": 0.5, "P@1": 1.0},
        "seconds": {"train": 3.0, "dev": 1.0, "mining": 2.0},
    }
    with recorded() as told:
        Progress().epoch(entry)

    assert told.messages == ["epoch 3: loss 0.2500, dev MAP 0.5000, P@1 1.0000, 4 s"]


def test_lines_come_at_intervals(clock):
    with recorded() as told, LineProgress().task("score") as update:
        for second, done in ((1, 500), (10, 1000), (11, 1100), (19.9, 1990), (20, 2000)):
            clock[0] = 100 + second
            update(done, 3000, "row groups")

    assert told.messages == [
        "score: 1,000 of 3,000 row groups, about 20 s left",
        "score: 2,000 of 3,000 row groups, about 10 s left",
    ]


def test_a_bar_is_drawn_on_stderr_and_removed(capsys):
    with BarProgress().task("score") as update:
        update(3, 10, "row groups")
        update(10, 10, "row groups")

    shown = capsys.readouterr()
    assert shown.out == ""
    assert "score" in shown.err
    assert shown.err.rstrip(" ").endswith("\r")


def test_messages_are_logged_below_aptool():
    assert progress.logger.parent is logging.getLogger("aptool")
