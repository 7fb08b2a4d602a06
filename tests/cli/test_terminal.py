"""Text from elsewhere reaches a terminal without control and bidirectional characters."""

import pytest

from aptool.errors import AptoolError, InputError, printable

HOSTILE = "a\x1b[31m\x07\x9b2J\u202eb\u2066\u200fc\u2028d\x7f"
ESCAPED = r"a\x1b[31m\x07\x9b2J\u202eb\u2066\u200fc\u2028d\x7f"


def test_control_and_bidirectional_characters_are_escaped_and_other_text_is_kept():
    assert printable(HOSTILE) == ESCAPED
    assert printable("Straße 東京 नमस्ते שלום\tx\n") == "Straße 東京 नमस्ते שלום\tx\n"


@pytest.mark.parametrize(
    "error", [AptoolError(HOSTILE), InputError("x", problem=HOSTILE.replace("\u2028", ""), expected="text")]
)
def test_errors_are_escaped(error):
    assert not set(str(error)) & set("\x1b\x07\x9b\u202e\u2066\u200f\u2028\x7f")


def test_results_and_messages_of_a_command_are_escaped(aptool, tmp_path):
    run, qrels = tmp_path / "a\u202e\x1b[2J.run", tmp_path / "x.qrels"
    run.write_text("q1 Q0 a1 1 1.0 t\n", encoding="utf-8")
    qrels.write_text("q1 0 a1 1\n", encoding="utf-8")

    shown = aptool("eval", run, "--qrels", qrels)
    missing = aptool("eval", tmp_path / "none\u202e\x1b[2J", "--qrels", qrels)

    assert (shown.code, missing.code) == (0, 1)
    lines = "".join([*shown.out, *shown.err, *missing.err])
    assert r"\u202e\x1b[2J" in lines
    assert not set(lines) & set("\u202e\x1b")


def test_a_pickle_that_would_run_a_command_is_named_and_not_run(aptool, tmp_path):
    file = tmp_path / "x.run"
    file.write_bytes(f"cos\nsystem\n(S'touch {tmp_path}/ran'\ntR.".encode())

    finished = aptool("eval", file, "--qrels", file)

    assert finished.code == 1
    assert len(finished.err) == 1
    assert not (tmp_path / "ran").exists()
