"""What is shown while a command works: a bar on a terminal, plain lines elsewhere, results on stdout."""

from types import SimpleNamespace

import pytest

from aptool.cli import display
from aptool.cli.display import epoch_line, progress_bar


def test_plain_lines_come_at_intervals(capsys, monkeypatch):
    clock = iter([100.0, 100.5, 100.9, 101.1, 101.1, 101.2])
    monkeypatch.setattr(display, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(display, "INTERVAL", 1.0)

    with progress_bar("score") as tick:
        for done in (1000, 2000, 3000, 4000):
            tick(done, 5000, "units")

    # Half a second and .9 after the beginning it is too early; 1.1 after it is time; then again not.
    assert capsys.readouterr() == ("", "score: 3,000 of 5,000 units\n")


def test_a_bar_on_a_terminal_leaves_nothing_behind(capsys, monkeypatch):
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    monkeypatch.setenv("TERM", "xterm")

    with progress_bar("score") as tick:
        tick(3, 5, "units of [red].parquet")

    shown = capsys.readouterr()
    assert shown.out == ""
    assert "units of [red].parquet" in shown.err
    # The bar's line is cleared at the end.
    assert "\x1b[2K" in shown.err


@pytest.mark.parametrize("terminal", [True, False])
def test_results_are_the_same_on_a_terminal(
    aptool, collection_folder, model_folder, tmp_path, monkeypatch, terminal
):
    monkeypatch.setattr("rich.console.Console.is_terminal", terminal)
    monkeypatch.chdir(tmp_path)

    finished = aptool(
        "score", collection_folder / "test.pools.parquet", "--model", model_folder, "--output", "x.run"
    )

    assert (finished.code, finished.out) == (0, ["x.run: 120 pairs"])


def test_an_epoch_in_words():
    seconds = {"train": 2.4, "mining": 2.0, "dev": 1.2}  # mining is a part of training
    entry = {"epoch": 3, "loss": 0.25, "dev": {"map": 0.5, "P_1": 1.0}, "seconds": seconds}

    assert epoch_line(entry) == "epoch 3: loss 0.2500, dev map 0.5000, P_1 1.0000, 4 s"
