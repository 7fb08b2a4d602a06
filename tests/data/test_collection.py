"""Collections: writing with all policies, and reading."""

import hashlib
import re

import pytest

from aptool.data.collection import Collection
from aptool.data.pools import list_units, read_answers, read_pools
from aptool.data.trec import read_qrels
from aptool.data.writing import LabelledPool, SplitPools, write_collection
from aptool.errors import InputError, UsageError


def pool(question_id="q1", answer_ids=("a1", "a2"), texts=("x", "y"), relevance=None):
    relevance = {"a1": 1, "a2": 0} if relevance is None else relevance
    return LabelledPool(
        question_id, "where?", list(answer_ids), list(texts) if texts is not None else None, relevance
    )


def write(path, splits, **arguments):
    write_collection(path, splits, **{"name": "mine", "source": "made by hand", **arguments})
    return Collection(path)


def test_collection_has_the_files_of_its_manifest(tmp_path):
    collection = write(
        tmp_path / "c",
        {"train": [pool("q1"), pool("q2", ["a3", "a1"], None, {"a1": 2})], "test": [pool("q9")]},
        answers=[("a1", "x"), ("a3", "z")],
    )

    files = ["answers.parquet", "test.pools.parquet", "test.qrels", "train.pools.parquet", "train.qrels"]
    assert {path.name for path in (tmp_path / "c").iterdir()} == {*files, "collection.json"}
    assert collection.manifest["files"] == {
        name: hashlib.sha256((tmp_path / "c" / name).read_bytes()).hexdigest() for name in files
    }
    assert (collection.name, collection.splits) == ("mine", ["train", "test"])
    assert collection.manifest["splits"]["train"] == {"questions": 2, "candidates": 4, "positives": 2}
    assert collection.manifest["splits"]["test"] == {"questions": 1, "candidates": 2, "positives": 1}
    assert read_qrels(collection.qrels_file("train")).rows() == [
        ("q1", "a1", 1),
        ("q1", "a2", 0),
        ("q2", "a1", 2),
    ]
    pools = read_pools(list_units([collection.pools_file("train")])[0], read_answers(collection.answers))
    assert pools.answer_ids.to_pylist() == ["a1", "a2", "a3", "a1"]
    assert [pools.answers[i].as_py() for i in pools.pair_answer] == ["x", "y", "z", "x"]


def test_equal_contents_have_equal_bytes_and_fingerprints(tmp_path):
    first, second = (write(tmp_path / name, {"train": [pool("q1"), pool("q2")]}) for name in ("one", "two"))
    other = write(tmp_path / "other", {"train": [pool("q1"), pool("q3")]})

    for file in first.path.iterdir():
        assert file.read_bytes() == (second.path / file.name).read_bytes()
    assert first.fingerprint == second.fingerprint != other.fingerprint


def test_policies_and_details_of_an_importer_are_in_the_manifest(tmp_path):
    """A duplicate candidate is dropped, a relevant answer that is missing from its pool is kept."""
    repeated = pool("q1", ["a2", "a1", "a2", "a2"], ["first", "x", "again", "again"])
    train = [repeated, pool("q2", relevance={"a1": 1, "a7": 1, "a8": 0})]
    splits = {"train": SplitPools(train, counts={"lines_skipped": 5}), "test": [pool("q3")]}

    collection = write(tmp_path / "c", splits, details={"torch": "2.13"})

    pools = read_pools(list_units([collection.pools_file("train")])[0])
    assert pools.answer_ids.to_pylist() == ["a2", "a1", "a1", "a2"]
    assert [pools.answers[i].as_py() for i in pools.pair_answer] == ["first", "x", "x", "y"]
    assert collection.qrels("train").to_dict()["q2"] == {"a1": 1, "a7": 1, "a8": 0}
    assert collection.manifest["details"] == {"torch": "2.13"}
    assert collection.manifest["policies"] == {
        "duplicate_candidates_dropped": {"train": 2, "test": 0},
        "lines_skipped": {"train": 5},
        "relevant_missing_from_pool_kept": {"train": 1, "test": 0},
    }


QUESTIONS = [
    pool("both"),
    pool("right-only", relevance={"a1": 1, "a2": 3}),
    pool("wrong-only", relevance={"a1": 0}),
    pool("not-judged", relevance={}),
    pool("right-elsewhere", relevance={"a9": 1}),
]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("all", ["both", "right-only", "wrong-only", "not-judged", "right-elsewhere"]),
        # The published subset of WikiQA requires a relevant answer, clean TREC-QA also another answer.
        ("answerable", ["both", "right-only", "right-elsewhere"]),
        ("both-labels", ["both"]),
    ],
)
def test_questions_policies(tmp_path, policy, expected):
    collection = write(tmp_path / "c", {"dev": QUESTIONS}, questions=policy)

    assert read_pools(list_units([collection.pools_file("dev")])[0]).question_ids.to_pylist() == expected
    dropped = collection.manifest["policies"].get(f"questions_dropped_not_{policy}", {"dev": 0})
    assert dropped == {"dev": 5 - len(expected)}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (pool("q 1"), ": column 'question_id': 'q 1': expected an id without white space"),
        (pool(relevance={"a 9": 1}), ", question 'q1': column 'answer_id': 'a 9': expected an id"),
    ],
)
def test_invalid_pool_leaves_no_folder(tmp_path, wrong, message):
    with pytest.raises(InputError) as error:
        write(tmp_path / "c", {"train": [pool("q0"), wrong]})

    assert str(error.value).startswith(f"{tmp_path / 'c'}: split 'train'{message}")
    assert list(tmp_path.iterdir()) == []


def test_split_without_questions_is_not_written(tmp_path):
    with pytest.raises(InputError, match="c: 1 question; expected at least one question that is answerable"):
        write(tmp_path / "c", {"dev": [pool(relevance={})]}, questions="answerable")

    assert list(tmp_path.iterdir()) == []


def test_name_must_be_one_word(tmp_path):
    with pytest.raises(UsageError, match="--name 'two words': expected one word"):
        write(tmp_path / "c", {"train": [pool()]}, name="two words")


def test_error_for_an_unknown_split_lists_the_splits(tmp_path):
    collection = write(tmp_path / "c", {"train": [pool()], "test1": [pool()]})

    for open_split in (collection.pools, collection.qrels):
        with pytest.raises(InputError, match=re.escape("c: split 'test'; expected one of train, test1")):
            open_split("test")


def test_folder_that_is_not_a_collection_is_refused(tmp_path):
    with pytest.raises(InputError, match="folder not found; expected the folder of a collection"):
        Collection(tmp_path / "none")
