"""Measures by group of questions, by hand."""

import pytest

from aptool.data.writing import CollectionWriter, LabelledPool

POOLS = [
    LabelledPool("q1", "Who is it?", ["a", "b"], ["me", "you and me"], {"a": 1}),
    LabelledPool("q2", "In which year, and why?", ["c", "d"], ["x " * 15, "no"], {"c": 1, "d": 0}),
    LabelledPool("q3", "who was it that came with all the others in the end?", ["e"], ["Ann"], {"e": 0}),
    LabelledPool("q4", "name it", ["f", "g"], ["y " * 100, "z"], {"f": 1}),
]


@pytest.fixture
def folder(tmp_path):
    with CollectionWriter(tmp_path / "c", name="mine", source="tests") as writer:
        writer.add_split("dev", POOLS)
    # Ranks of the relevant answers: 1, 2, none and 1.
    lines = ["q1 Q0 a 1 2 x", "q1 Q0 b 2 1 x", "q2 Q0 d 1 2 x", "q2 Q0 c 2 1 x", "q3 Q0 e 1 1 x"]
    lines += ["q4 Q0 f 1 2 x", "q4 Q0 g 2 1 x"]
    (tmp_path / "c" / "dev.run").write_text("".join(f"{line}\n" for line in lines))
    return tmp_path / "c"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("type", [("who", 2, "0.5000"), ("which", 1, "0.5000"), ("other", 1, "1.0000")]),
        (
            "question-length",
            [("1-5 tokens", 2, "1.0000"), ("6-8 tokens", 1, "0.5000"), ("13-20 tokens", 1, "0.0000")],
        ),
        # The relevant answers have 1, 15 and 100 words; q3 has none.
        (
            "length",
            [
                ("up to 10 words", 1, "1.0000"),
                *((f"up to {most} words", 2, "0.7500") for most in range(20, 100, 10)),
                ("up to 100 words", 3, "0.8333"),
            ],
        ),
    ],
)
def test_groups_by_hand(aptool, folder, kind, expected):
    finished = aptool("eval", folder / "dev.run", "--measures", "RR", "--by", kind)

    assert finished.code == 0, finished.err
    shown = [line.rsplit(maxsplit=2) for line in finished.out if line.startswith("  ")]
    assert [
        (name.strip().removesuffix(" (few)"), int(count), value) for name, count, value in shown
    ] == expected
    assert ("--by length: questions in no group: 1 (q3)" in finished.err) == (kind == "length")


def test_missing_pools_are_refused(aptool, folder):
    (folder / "dev.pools.parquet").unlink()

    finished = aptool("eval", folder / "dev.run", "--by", "type")

    assert finished.code == 2
    assert (
        "--by type: no dev.pools.parquet in the folder of the qrels; pass --groups or --pools"
        in finished.err[-1]
    )
