"""Progress: throughput, remaining time, displays, and relaying from other processes."""

import logging
import re
import sys
import threading

import pytest
from recorded import recorded

from aptool import progress
from aptool.progress import (
    BarProgress,
    LineProgress,
    Pace,
    Progress,
    RelayedTasks,
    get_progress,
    relayed_to,
    use_progress,
)
from aptool.scoring.pipeline import PairMeter


def pace(*reports, total=1000, unit="pairs"):
    """The state of a task after reports of (second, done)."""
    state = Pace()
    for second, done in reports:
        state.report(second, done, total, unit)
    return state


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


def test_default_is_bars_in_a_notebook_and_nothing_in_a_script(monkeypatch):
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    assert type(get_progress()) is Progress
    monkeypatch.setitem(sys.modules, "ipykernel", object())
    assert type(get_progress()) is BarProgress


def test_epoch_is_one_log_line():
    entry = {
        "epoch": 3,
        "loss": 0.25,
        "dev": {"MAP": 0.5, "P@1": 1.0},
        "seconds": {"train": 3.0, "dev": 1.0, "mining": 2.0},
    }
    with recorded() as recording:
        Progress().epoch(entry)

    assert recording.messages == ["epoch 3: loss 0.2500, dev MAP 0.5000, P@1 1.0000, 4 s"]


def test_start_up_does_not_count_towards_the_throughput():
    """After a minute of loading, 10 pairs per second."""
    state = pace((0, 0), (60, 10), (70, 110))

    assert state.per_second == 10
    assert state.seconds_left == (1000 - 110) / 10
    assert state.line("score", 70) == "score: 110 of 1,000 pairs, 10 pairs/s, 1:29 left"


def test_resumed_work_does_not_count_towards_the_throughput():
    state = pace((0, 600), (5, 610), (15, 630))

    assert state.per_second == 2
    assert state.seconds_left == (1000 - 630) / 2


@pytest.mark.parametrize(
    ("second", "done", "is_forecast"),
    [(9.9, 40, False), (10, 20, True), (2, 61, True), (2, 59, False), (0.9, 500, False)],
)
def test_remaining_time_needs_five_percent_of_the_work_or_ten_seconds(second, done, is_forecast):
    """Work begins at 30 s with 10 of 1,000 pairs; there is no forecast in the first second."""
    assert (pace((0, 0), (30, 10), (30 + second, done)).seconds_left is not None) == is_forecast


def test_no_throughput_before_work():
    assert pace((0, 0)).line("score", 5) == "score: 0 of 1,000 pairs"
    assert pace((0, 0), (30, 10)).line("score", 30) == "score: 10 of 1,000 pairs"
    assert Pace().line("loading model", 12.4) == "loading model: 12 s"


def test_progress_never_decreases_and_never_exceeds_the_total():
    state, shown = Pace(), []
    for second, done in enumerate((0, 100, 40, 300, 250, 1200, 900)):
        state.report(second, done, 1000, "pairs")
        shown.append(state.done)

    assert shown == [0, 100, 100, 300, 300, 1000, 1000]


def test_finished_task_has_no_remaining_time():
    assert pace((0, 0), (1, 500), (21, 1000)).remarks == "25 pairs/s"


def test_slow_throughput_has_a_decimal():
    state = Pace()
    for second, done in ((0, 0), (10, 1), (30, 11)):
        state.report(second, done, 20, "trials", "running qa-cnn")

    assert state.remarks == "0.5 trials/s, 0:18 left, running qa-cnn"


def test_the_count_of_pairs_is_thread_safe():
    seen = []
    meter = PairMeter(lambda done, total, unit, detail="": seen.append((done, total, unit)), [400])
    threads = [threading.Thread(target=lambda: [meter.add([0], 1) for _ in range(100)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert seen == [(done, 400, "pairs") for done in range(401)]


def test_lines_are_logged_at_intervals_without_reports(monkeypatch):
    """A line is logged about the innermost task, even if it reports nothing."""
    monkeypatch.setattr(progress, "INTERVAL", 0.01)
    shown = LineProgress()
    with recorded() as recording, shown.task("train") as update:
        update(3, 10, "pairs")
        with shown.task("dev"):
            wait_for(lambda: recording.messages.count("dev: 0 s") > 2)
            inner = list(recording.messages)
        wait_for(lambda: recording.messages[-1] == "train: 3 of 10 pairs")

    assert set(inner[inner.index("dev: 0 s") :]) == {"dev: 0 s"}


def test_a_line_is_logged_only_if_the_task_moved(monkeypatch):
    monkeypatch.setattr(progress, "INTERVAL", 0.01)
    with recorded() as recording, LineProgress().task("train") as update:
        update(3, 10, "pairs")
        wait_for(lambda: recording.messages)
        threading.Event().wait(0.1)
        update(4, 10, "pairs")
        wait_for(lambda: len(recording.messages) > 1)

    assert [line.split(" of ")[0] for line in recording.messages] == ["train: 3", "train: 4"]


def wait_for(condition):
    for _ in range(6000):
        if condition():
            return
        threading.Event().wait(0.01)
    pytest.fail("the condition was not met in time")


def test_short_task_logs_no_line():
    with recorded() as recording, LineProgress().task("score") as update:
        update(0, 10, "pairs")
        update(10, 10, "pairs")

    assert recording.messages == []


def test_tasks_of_another_process_are_shown_one_at_a_time():
    posted = []
    with relayed_to(lambda kind, value: posted.append((kind, value))):
        with get_progress().task("loading model"):
            pass
        with get_progress().task("dev") as update:
            update(0, 6, "pairs")
            update(6, 6, "pairs")

    with recorded() as recording, RelayedTasks() as tasks:
        for kind, value in posted:
            assert kind == "progress"
            tasks.show(value)

    assert recording.tasks == ["loading model", "dev"]
    assert recording.updates[-1][:3] == (6, 6, "pairs")


def test_bar_is_drawn_on_stderr_and_removed(capsys):
    with BarProgress().task("score") as update:
        update(0, 10, "row groups")
        update(3, 10, "row groups")
        update(10, 10, "row groups")

    shown = capsys.readouterr()
    assert shown.out == ""
    assert re.search(r"score: +0%.* 0/10 row groups", shown.err)
    assert re.search(r"score: 100%.* 10/10 row groups", shown.err)
    assert "it/s" not in shown.err
    assert shown.err.rstrip(" ").endswith("\r")


def test_messages_have_loggers_of_aptool():
    assert progress.logger.parent is logging.getLogger("aptool")
