"""Texts of several pools are stored once, and ids do not change."""

import pyarrow.parquet as pq

from aptool.data.collection import Collection
from aptool.data.pools import list_units, read_pools
from aptool.data.writing import LabelledPool, write_collection

TEXT, ID = "text", "text_id"


def write(path, **splits):
    """A collection of pools ``{question id: {answer id: text}}``."""
    labelled = {
        split: [LabelledPool(q, "where?", list(p), list(p.values()), {}) for q, p in pools.items()]
        for split, pools in splits.items()
    }
    write_collection(path, labelled, name="mine", source="made by hand")
    return Collection(path)


def answers(collection):
    table = pq.read_table(collection.answers)
    return list(zip(*(table[name].to_pylist() for name in ("answer_id", "text")), strict=True))


def stored(collection, split="test"):
    """The candidates of a file as stored: (answer id, text, text id)."""
    rows = pq.read_table(collection.pools_file(split))["candidates"].to_pylist()
    return [[(c["answer_id"], c[TEXT], c.get(ID)) for c in pool] for pool in rows]


def texts(collection, split="test"):
    """``{question id: {answer id: text}}``, as read for scoring."""
    texts = {}
    for unit in list_units([collection.pools_file(split)]):
        pools = read_pools(unit)
        pairs = zip(pools.pair_question, pools.answer_ids.to_pylist(), pools.pair_answer, strict=True)
        for question, answer_id, text in pairs:
            pool = texts.setdefault(pools.question_ids[int(question)].as_py(), {})
            pool[answer_id] = pools.answers[int(text)].as_py()
    return texts


def test_text_of_two_pools_is_stored_once_with_the_id_of_its_first_candidate(tmp_path):
    pools = {"q1": {"q1-0": "by day", "q1-1": "never"}, "q2": {"q2-0": "always", "q2-1": "by day"}}

    collection = write(tmp_path / "c", train={"t1": {"t1-0": "never"}}, test=pools)

    assert answers(collection) == [("t1-0", "never"), ("q1-0", "by day")]
    assert stored(collection, "train") == [[("t1-0", None, None)]]
    assert stored(collection) == [
        [("q1-0", None, None), ("q1-1", None, "t1-0")],
        [("q2-0", "always", None), ("q2-1", None, "q1-0")],
    ]
    assert texts(collection) == pools


def test_ids_are_preserved_and_equal_texts_of_two_ids_are_stored_once(tmp_path):
    pools = {"q1": {"d1": "see above", "d2": "by day"}, "q2": {"d2": "by day", "d3": "see above"}}

    collection = write(tmp_path / "c", test=pools)

    assert answers(collection) == [("d1", "see above"), ("d2", "by day")]
    assert stored(collection)[1] == [("d2", None, None), ("d3", None, "d1")]
    assert texts(collection) == pools


def test_equal_ids_of_different_texts_are_distinguished(tmp_path):
    # The first id of "b" is c1, which is already the id of "a"; the first id of "c" is c2.
    pools = {
        "q1": {"c1": "a", "c2": "only here"},
        "q2": {"c1": "b", "c2": "a"},
        "q3": {"c2": "b", "c1": "c"},
        "q4": {"c1": "c", "c3": "b"},
    }

    collection = write(tmp_path / "c", test=pools)

    assert answers(collection) == [("c1", "a"), ("c1-2", "b"), ("c1-3", "c")]
    assert texts(collection) == pools


def test_text_of_one_pool_is_not_moved(tmp_path):
    pools = {"q1": {"a1": "twice", "a2": "twice"}, "q2": {"a3": "once"}}

    collection = write(tmp_path / "c", test=pools)

    assert collection.answers is None
    assert stored(collection) == [[("a1", "twice", None), ("a2", "twice", None)], [("a3", "once", None)]]


def test_small_row_groups_are_joined_after_moving_texts(tmp_path):
    # 40 pools of the same 20 texts of 10,000 characters: 8 MB, or 200 kB without duplicates.
    shared = [f"{number} " * 5000 for number in range(20)]
    pools = {f"q{q}": {f"q{q}-{n}": text for n, text in enumerate(shared)} for q in range(40)}

    collection = write(tmp_path / "c", test=pools)

    assert len(list_units([collection.pools_file("test")])) == 1
    assert [text for _, text in answers(collection)] == shared
    assert texts(collection) == pools


def test_each_collection_is_read_with_its_own_answers(tmp_path):
    first, second = ({"q1": {"d1": text}, "q2": {"d1": text}} for text in ("by day", "by night"))
    collections = [write(tmp_path / "one", test=first), write(tmp_path / "two", test=second)]

    units = list_units([collection.pools_file("test") for collection in collections])

    assert [read_pools(unit).answers.to_pylist() for unit in units] == [["by day"], ["by night"]]
