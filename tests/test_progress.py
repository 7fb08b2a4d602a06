"""Progress of a library call: bars in a notebook, log lines at intervals elsewhere."""

import re
import sys

import pytest
from recorded import recorded

from aptool import progress


@pytest.fixture
def log(monkeypatch):
    """The log, with a clock that moves only by ``now[0]``."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with recorded() as recording:
        progress.INTERVAL = 10.0
        yield now, recording.lines


def test_lines_are_logged_at_intervals(log):
    now, lines = log
    with progress.progress("score", 1000, "pairs") as bar:
        for second, pairs in ((9.9, 50), (10, 50), (19, 100), (30, 100)):
            now[0] = second
            bar.update(pairs)

    assert lines == [
        "score: 100 of 1,000 pairs, 10 pairs/s, 0:01:30 left",
        "score: 300 of 1,000 pairs, 10 pairs/s, 0:01:10 left",
    ]


def test_resumed_work_does_not_count_towards_the_throughput(log):
    now, lines = log
    with progress.progress("score", 1000, "pairs", 600) as bar:
        now[0] = 20
        bar.update(40)

    assert lines == ["score: 640 of 1,000 pairs, 2.0 pairs/s, 0:03:00 left"]


def test_a_complete_task_has_no_remaining_time_and_a_detail_is_last(log):
    now, lines = log
    with progress.progress("train", 10, "pairs") as bar:
        now[0] = 20
        bar.set_postfix_str("loss 0.2500", refresh=False)
        bar.update(10)

    assert lines == ["train: 10 of 10 pairs, 0.5 pairs/s, loss 0.2500"]


def test_a_task_without_a_count_logs_no_line(log):
    now, lines = log
    with progress.progress("loading model"):
        now[0] = 60

    assert lines == []


def test_a_process_without_a_stderr_logs_lines(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    with recorded() as recording, progress.progress("score", 10, "pairs") as bar:
        bar.update(10)

    assert [update[0] for update in recording.updates["score"]] == [10]


def test_a_notebook_gets_a_bar_that_is_removed(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ipykernel", object())
    with progress.progress("score", 10, "pairs") as bar:
        bar.update(10)

    shown = capsys.readouterr()
    assert shown.out == ""
    assert re.search(r"score: +0%.* 0/10 ", shown.err)
