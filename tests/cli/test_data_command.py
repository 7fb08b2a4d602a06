"""``aptool data``: printed counts and policies, and files that the commands do not overwrite."""

import pytest
from click.testing import CliRunner
from recorded import recorded

from aptool.cli.data import data
from aptool.errors import AptoolError, InputError, UsageError

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
        f"written: {tmp_path}/out",
    ]


def test_only_the_same_collection_is_written_again(tmp_path, wikiqa):
    out = tmp_path / "out"
    out.mkdir()
    run("import", "wikiqa", wikiqa, "--output", out)
    before = (out / "collection.json").read_text(encoding="utf-8")
    run("import", "wikiqa", wikiqa, "--output", out)
    answerable = ("import", "wikiqa", wikiqa, "--output", out, "--questions", "answerable")
    with pytest.raises(InputError, match="out: it exists; expected another path, or --overwrite"):
        run(*answerable)
    assert (out / "collection.json").read_text(encoding="utf-8") == before
    run(*answerable, "--overwrite")
    assert (out / "collection.json").read_text(encoding="utf-8") != before

    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("dear to someone", encoding="utf-8")
    for command in (
        ["import", "wikiqa", wikiqa, "--output", other],
        ["functions", "--output", other],
    ):
        with pytest.raises(InputError, match="other: it exists; expected another path"):
            run(*command)
    assert [file.name for file in other.iterdir()] == ["thesis.txt"]


def test_a_failed_import_leaves_the_old_collection(tmp_path, wikiqa):
    run("import", "wikiqa", wikiqa, "--output", tmp_path / "out")
    before = (tmp_path / "out/collection.json").read_bytes()
    (tmp_path / "a.tsv").write_text(HEADER + ROWS + "Q3\n", encoding="utf-8")
    with pytest.raises(InputError, match="line 6"):
        run("import", "wikiqa", wikiqa, "--output", tmp_path / "out")
    assert (tmp_path / "out/collection.json").read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"a.tsv", "out"}


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
