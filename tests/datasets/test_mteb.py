"""Reranking tasks of MTEB in several files: one file per split and shard."""

import json

import pytest
from imported import candidates_of

from aptool.datasets.mteb import import_mteb
from aptool.errors import InputError
from aptool.formats.trec import read_qrels


def lines(path, *rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def judged(query, document, score=1):
    return {"query-id": query, "corpus-id": document, "score": score}


@pytest.fixture
def task(tmp_path):
    """Two splits in shards, as the hub has them: q1 and q2 of test, q3 of train."""
    root = tmp_path / "task"
    for number, document in enumerate(("d1", "d2", "d3")):
        name = f"test-0000{number}-of-00003.jsonl"
        lines(root / "corpus" / name, {"_id": document, "text": f"text of {document}"})
    for split, queries in (("test", ("q1", "q2")), ("train", ("q3",))):
        for number, query in enumerate(queries):
            name = f"{split}-0000{number}-of-0000{len(queries)}.jsonl"
            lines(root / "queries" / name, {"_id": query, "text": f"text of {query}"})
            lines(root / "qrels" / name, judged(query, f"d{query[1]}"))
            lines(root / "top_ranked" / name, {"query-id": query, "corpus-ids": ["d1", "d2", "d3"]})
    return root


@pytest.mark.parametrize(("split", "queries"), [("test", ["q1", "q2"]), ("train", ["q3"])])
def test_all_files_of_a_split_and_no_others_are_read(task, tmp_path, split, queries):
    collection = import_mteb(tmp_path / "out", task, split=split)

    assert list(candidates_of(collection, split)) == queries
    rows = read_qrels(collection.qrels(split)).rows()
    assert sorted(rows) == [(query, f"d{query[1]}", 1) for query in queries]


def test_a_missing_split_is_refused(task, tmp_path):
    with pytest.raises(InputError, match=r"top_ranked: no file of split 'validation'; .* train, test"):
        import_mteb(tmp_path / "out", task, split="validation")

    older = tmp_path / "older"
    for split in ("train", "validation"):
        lines(older / f"{split}.jsonl", {"query": split, "positive": ["so"], "negative": ["no"]})
    with pytest.raises(
        InputError, match=r"older: no file of split 'test'; expected one of train, validation"
    ):
        import_mteb(tmp_path / "out", older)


def test_judged_queries_without_candidates_are_counted(task, tmp_path):
    (task / "top_ranked" / "test-00001-of-00002.jsonl").unlink()

    collection = import_mteb(tmp_path / "out", task)

    assert collection.manifest["policies"]["questions_without_candidates_dropped"] == {"test": 1}
    assert collection.manifest["details"]["first_stage"]["test"]["relevant"] == 2


def test_judged_queries_without_a_text_are_refused(task, tmp_path):
    (task / "queries" / "test-00001-of-00002.jsonl").unlink()

    with pytest.raises(InputError, match="1 judged query without a text, such as 'q2'"):
        import_mteb(tmp_path / "out", task)


@pytest.mark.parametrize("score", [0.9, float("nan"), 1e400, 1e30, None, [1]])
def test_a_label_that_is_not_an_integer_is_refused(task, tmp_path, score):
    lines(task / "qrels" / "test-00000-of-00002.jsonl", judged("q1", "d1", score))

    with pytest.raises(InputError, match=r"test-00000-of-00002\.jsonl: line 1: column 'score'"):
        import_mteb(tmp_path / "out", task)
