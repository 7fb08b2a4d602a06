"""Progress of a command: a bar on a terminal, else plain lines; results are on stdout."""

import contextlib
import logging
import os
import pty
import re
import sys
import termios

import forked

from aptool import progress
from aptool.cli.main import messages_on_stderr
from aptool.cli.tables import print_table

ROWS = [["run", "MAP", "MRR"], ["[red]a[/red].run", "0.5", "0.25"], ["b.run", "0.125", "1"]]


def test_a_bar_on_a_terminal_leaves_nothing_behind(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    detail = "of [red]%s{x}.parquet"
    with messages_on_stderr(), progress.progress("score", 5, "row groups") as bar:
        bar.update(1)
        bar.set_postfix_str(detail, refresh=True)
        logging.getLogger("aptool.scoring").info("2 answers were truncated")
        bar.update(4)

    shown = capsys.readouterr()
    assert shown.out == ""
    assert "1/5" in shown.err
    assert detail in shown.err  # not parsed as markup or as a format string
    assert "2 answers were truncated" in on_screen(shown.err)
    # The bar is erased; only the message stays on the screen.
    assert [line for line in on_screen(shown.err) if line] == ["2 answers were truncated"]


def on_screen(text):
    """The lines that a terminal shows at the end; a carriage return overwrites a line from its start."""
    lines = []
    for line in re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text).split("\n"):
        shown = ""
        for part in line.split("\r"):
            shown = part + shown[len(part) :]
        lines.append(shown.rstrip())
    return lines


def test_messages_end_with_the_block(capsys):
    logger = logging.getLogger("aptool")
    before = (list(logger.handlers), logger.level, logger.propagate)

    with messages_on_stderr():
        logger.info("shown")
        logger.debug("not shown")
    logger.info("not shown either")

    assert capsys.readouterr() == ("", "shown\n")
    assert (list(logger.handlers), logger.level, logger.propagate) == before


def aptool_on_terminal(terminal, folder, arguments):
    """Run a command in a folder, with a terminal as its stderr."""
    from aptool.__main__ import main

    os.dup2(os.open(terminal, os.O_WRONLY | os.O_NOCTTY), 2)
    os.chdir(folder)
    sys.argv = ["aptool", *arguments]
    main()


def test_results_are_the_same_on_a_terminal(collection_folder, model_folder, tmp_path):
    command = ["score", f"{collection_folder}/test.pools.parquet", "--model", str(model_folder)]
    reader, writer = pty.openpty()
    termios.tcsetwinsize(writer, (24, 100))

    arguments = os.ttyname(writer), tmp_path, [*command, "--output", "x.run"]
    finished = forked.run(tmp_path / "process", aptool_on_terminal, *arguments)
    os.close(writer)

    assert (finished.code, finished.out) == (0, "x.run: 120 pairs\n")
    shown = "".join(chunks(reader))
    os.close(reader)
    assert "score: " in shown
    assert not any(on_screen(shown))


def chunks(reader):
    """Read everything from a pipe or pseudo-terminal whose writing end is closed."""
    with contextlib.suppress(OSError):
        while chunk := os.read(reader, 4096):
            yield chunk.decode()


def test_table_is_plain_aligned_columns_without_a_terminal(capsys):
    print_table(ROWS)

    assert capsys.readouterr().out.splitlines() == [
        "run                 MAP   MRR",
        "[red]a[/red].run    0.5  0.25",
        "b.run             0.125     1",
    ]
