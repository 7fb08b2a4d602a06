"""Measures by group of questions, by hand."""

import json

import pytest

from aptool.data.writing import LabelledPool, write_collection

POOLS = [
    LabelledPool("q1", "Who is it?", ["a", "b"], ["me", "you and me"], {"a": 1}),
    LabelledPool("q2", "In which year, and why?", ["c", "d"], ["x " * 15, "no"], {"c": 1, "d": 0}),
    LabelledPool("q3", "who was it that came with all the others in the end?", ["e"], ["Ann"], {"e": 0}),
    LabelledPool("q4", "name it", ["f", "g"], ["y " * 100, "z"], {"f": 1}),
]


@pytest.fixture
def folder(tmp_path):
    write_collection(tmp_path / "c", {"dev": POOLS}, name="mine", source="tests")
    # Ranks of the relevant answers: 1, 2, none and 1.
    lines = ["q1 Q0 a 1 2 x", "q1 Q0 b 2 1 x", "q2 Q0 d 1 2 x", "q2 Q0 c 2 1 x", "q3 Q0 e 1 1 x"]
    lines += ["q4 Q0 f 1 2 x", "q4 Q0 g 2 1 x"]
    (tmp_path / "c" / "dev.run").write_text("".join(f"{line}\n" for line in lines))
    return tmp_path / "c"


def test_groups_by_hand(aptool, folder):
    finished = aptool("eval", folder / "dev.run", "--measures", "RR", "--by", "length")
    _, out, _ = aptool("eval", folder / "dev.run", "--measures", "RR", "--by", "length", "--json")

    assert finished.code == 0, finished.err
    shown = [line.rsplit(maxsplit=2) for line in finished.out if line.startswith("  ")]
    # The relevant answers have 1, 15 and 100 words; q3 has none.
    assert [(name.strip(), int(count), value) for name, count, value in shown] == [
        ("up to 10 words (few)", 1, "1.0000"),
        *((f"up to {most} words (few)", 2, "0.7500") for most in range(20, 100, 10)),
        ("up to 100 words (few)", 3, "0.8333"),
    ]
    assert "--by length: questions in no group: 1 (q3)" in finished.err
    assert "--by length: groups with under 10 questions, marked (few): 10" in finished.err
    document = json.loads("\n".join(out))
    assert document["by"] == "length"
    assert document["runs"][0]["groups"][0] == {
        "name": "up to 10 words",
        "questions": 1,
        "few": True,
        "means": {"MRR": 1.0},
    }


def test_pools_without_the_questions_or_no_pools_are_one_line(aptool, folder):
    qrels, pools = folder / "dev.qrels", folder / "dev.pools.parquet"
    command = ("eval", folder / "dev.run", "--measures", "RR", "--by", "length")
    pool = LabelledPool("q9", "Who is it?", ["a"], ["me"], {"a": 1})
    write_collection(folder.parent / "other", {"test": [pool]}, name="other", source="tests")
    other = folder.parent / "other" / "test.pools.parquet"

    refused = aptool(*command, "--pools", other)
    pools.unlink()
    missing = aptool(*command)

    assert (refused.code, missing.code) == (2, 2)
    assert refused.err[-1] == f"aptool: --by length: no relevant answer of {qrels} is in the pools"
    assert missing.err[-1].endswith("no dev.pools.parquet in the folder of the qrels; pass --pools")
