"""``--review`` of eval and compare: the questions of a reviewer, with answers by hand."""

import json

import pytest

from aptool.formats.collection import CollectionWriter, LabelledPool

TEXTS = {"q1": "who is the king of the hill", "q2": "what is it", "q3": "why not ask him"}


def pool(name, text, answers="ab"):
    texts = [f"{text} {answer}" for answer in answers]
    return LabelledPool(name, text, list(answers), texts, {"a": 1, "b": 0})


def run(**orders):
    lines = [
        f"{q} Q0 {answer} 1 {-rank} t\n" for q, order in orders.items() for rank, answer in enumerate(order)
    ]
    return "".join(lines)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A collection whose dev has a question of train; run `one` is right on all of dev, `two` only on q1."""
    monkeypatch.chdir(tmp_path)
    with CollectionWriter(tmp_path / "c", name="mine", source="tests") as writer:
        writer.add_split("train", [pool("t1", "Who is the king of the hill?"), pool("t2", "something else")])
        writer.add_split("dev", [pool(name, text) for name, text in TEXTS.items()])
        writer.add_split("test", [pool("e1", "one two"), pool("e2", "three four")])
    (tmp_path / "c" / "dev.one.run").write_text(run(q1="ab", q2="ab", q3="ab"))
    (tmp_path / "c" / "dev.two.run").write_text(run(q1="ab", q2="ba", q3="ba"))
    (tmp_path / "c" / "test.one.run").write_text(run(e1="ab", e2="ba"))
    (tmp_path / "c" / "test.two.run").write_text(run(e1="ba", e2="ba"))
    return tmp_path / "c"


def sections(lines):
    """The lines of each answer, by question."""
    answers = {}
    for before, line in zip(["", *lines], lines, strict=False):
        if (before == "" and line.endswith("?")) or line.startswith("For which"):
            answers[line] = []
        elif answers:
            answers[list(answers)[-1]].append(line)
    return answers


def test_every_question_is_answered(aptool):
    finished = aptool("eval", "c/dev.one.run", "c/dev.two.run", "--measures", "P@1,RR", "--review")

    assert finished.code == 0, finished.err
    answers = sections(finished.out)
    assert list(answers) == [
        "How large a difference could these questions show?",
        "Is the first stage the limit?",
        "For which questions? P@1 by length of the question",
        "For which questions? P@1 by length of the shortest relevant answer",
        "For which questions? P@1 by question word",
        "Do the runs agree?",
        "Does dev leak from what was trained on?",
    ]
    # A paired t-test of three pairs has power 0.8 for an effect of 3.26 standard deviations.
    assert "3.26 standard deviations" in " ".join(
        answers["How large a difference could these questions show?"]
    )
    assert "No: every relevant answer is a candidate." in answers["Is the first stage the limit?"][0]
    few = "  There are not two groups of 20 questions."
    assert answers["For which questions? P@1 by question word"][0] == few
    # The runs order q1 equally and q2 and q3 in reverse: tau is (1 - 1 - 1) / 3.
    assert answers["Do the runs agree?"][-2].split()[-4:] == ["1", "-0.333", "0.933", "none"]
    leaks = answers["Does dev leak from what was trained on?"]
    assert "Questions such as q1 of dev and t1 of train." in " ".join(leaks)
    assert leaks[-1].split() == ["train", "1", "of", "3", "1", "1", "of", "3", "1"]


def test_review_has_the_detectable_difference(aptool):
    command = ["compare", "c/test.one.run", "c/test.two.run", "--measures", "P@1", "--top", 0, "--review"]

    finished = aptool(*command)
    answers = sections(finished.out)
    review = json.loads("\n".join(aptool(*command, "--json").out))["review"]

    assert finished.code == 0, finished.err
    power = answers["How large a difference could these questions show?"][-2].split()
    assert power[:3] == ["two", "P@1", "-0.5000"]
    assert review["agreement"][0]["runs"] == ["c/test.one.run", "c/test.two.run"]
    assert review["agreement"][0]["tau"] == 0
    assert review["limits"]["c/test.one.run"]["recall"] == 1
    assert [leak["earlier"] for leak in review["leaks"]] == ["train", "dev"]
    assert review["groups"]["type"]["c/test.one.run"] == [
        {"name": "other", "questions": 2, "few": True, "means": {"P@1": 0.5}}
    ]


def test_review_says_unknown_without_the_required_files(aptool, folder, tmp_path):
    (tmp_path / "alone.run").write_text(run(q1="ab", q2="ab"))
    (tmp_path / "alone.qrels").write_text("q1 0 a 1\nq2 0 z 1\nq3 0 a 1\n")

    finished = aptool("eval", "alone.run", "--review")

    answers = sections(finished.out)
    assert "2 of 3 relevant answers are not among the candidates" in " ".join(
        answers["Is the first stage the limit?"]
    )
    unknown = [lines[0].strip() for lines in answers.values() if "Unknown" in lines[0]]
    assert unknown == [
        "Unknown: there are no pools next to the qrels; pass --pools.",
        "Unknown: there is only one run.",
        "Unknown: the qrels are in no collection.",
    ]


def test_markdown_table_is_alone_on_stdout(aptool):
    finished = aptool("eval", "c/dev.one.run", "--review", "--markdown")

    assert all(line.startswith("|") for line in finished.out)
    assert "Is the first stage the limit?" in finished.err
