"""``aptool data``: printed counts and policies, and files that the commands do not overwrite."""

import pytest
from click.testing import CliRunner
from recorded import recorded

from aptool.cli.data import data
from aptool.errors import AptoolError, UsageError

HEADER = "QuestionID\tQuestion\tDocumentID\tDocumentTitle\tSentenceID\tSentence\tLabel\n"
ROWS = (
    "Q1\twhy?\tD1\tWhy\tD1-0\tso\t1\nQ1\twhy?\tD1\tWhy\tD1-1\tno\t0\nQ1\twhy?\tD1\tWhy\tD1-1\tno\t0\n"
    "Q2\twho?\tD2\tWho\tD2-0\tyou\t0\n"
)


@pytest.fixture
def wikiqa(tmp_path):
    (tmp_path / "a.tsv").write_text(HEADER + ROWS, encoding="utf-8")
    return f"train={tmp_path}/a.tsv"


def run(*arguments):
    """Run a command; ``messages`` of the result are its log messages."""
    with recorded() as log:
        result = CliRunner().invoke(data, list(map(str, arguments)), catch_exceptions=False)
    result.messages = log.messages
    return result


def test_import_prints_counts_and_applied_policies(tmp_path, wikiqa):
    result = run("import", "wikiqa", wikiqa, "--output", tmp_path / "out", "--questions", "answerable")
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["split", "questions", "candidates", "relevant", "questions", "read", "candidates", "read"],
        ["train", "1", "2", "1", "2", "4"],
    ]
    assert result.messages == [
        "train: warning: mean pool size 2.0 candidates: a random order already scores high",
        "train: duplicate candidates dropped: 1",
        "train: questions dropped not answerable: 1",
        f"collection: {tmp_path}/out",
    ]


@pytest.mark.parametrize(
    "splits", [["a.tsv"], ["train="], ["=a.tsv"], ["../x=a.tsv"], ["train=a.tsv", "train=b.tsv"]]
)
def test_wrong_splits_are_refused(tmp_path, splits):
    with pytest.raises(UsageError, match=r"expected SPLIT=PATH|given twice"):
        run("import", "wikiqa", *splits, "--output", tmp_path / "out")


def test_import_without_a_remaining_question_names_the_input(tmp_path, wikiqa):
    (tmp_path / "a.tsv").write_text(HEADER + ROWS.replace("\t1\n", "\t0\n"), encoding="utf-8")
    with pytest.raises(AptoolError) as error:
        run("import", "wikiqa", wikiqa, "--output", tmp_path / "out", "--questions", "answerable")
    expected = "2 questions; expected at least one question that is answerable"
    assert str(error.value) == f"{tmp_path}/a.tsv: {expected}"
