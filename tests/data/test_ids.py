"""Legal ids: the same rule for all readers and writers."""

import contextlib

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from aptool.data import frames
from aptool.data.collection import Collection
from aptool.data.parquet import arrow_schema
from aptool.data.pools import list_units, read_answers, read_pools
from aptool.data.runs import Qrels, Run, read_run
from aptool.data.table import pools_of
from aptool.data.trec import read_qrels
from aptool.data.writing import LabelledPool, write_collection
from aptool.documents import load_schema
from aptool.errors import InputError

# All characters that a tool treats as white space or as control characters, and a few others.
SEPARATORS = [chr(code) for code in (*range(0x21), *range(0x7F, 0xA1), 0x1680, *range(0x2000, 0x200B))]
SEPARATORS += ["\u2028", "\u2029", "\u202f", "\u205f", "\u3000"]
HARMLESS = ["a", "#", "é", "中", "\u200b", "\u180e", "\ufeff", "\U0001f600", '"', "\\", ",", "\u0301"]
characters = st.sampled_from(SEPARATORS + HARMLESS) | st.characters()
words = st.text(characters, max_size=4)
with_random_ids = settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def test_patterns_equal_those_of_the_schemas():
    pools, answers = load_schema("pools")["properties"], load_schema("answers")["properties"]

    assert pools["question_id"]["pattern"] == frames.QUESTION_ID
    assert pools["candidates"]["items"]["properties"]["answer_id"]["pattern"] == frames.ANSWER_ID
    assert answers["answer_id"]["pattern"] == frames.ANSWER_ID


def test_white_space_and_control_characters_are_illegal():
    spaces = {chr(code) for code in range(0x110000) if chr(code).isspace()}
    assert spaces <= set(SEPARATORS)
    for character in SEPARATORS:
        for value in (character, f"a{character}", f"{character}a", f"a{character}a"):
            assert not frames.is_answer_id(value)
            assert not frames.is_question_id(value)


def test_first_character_of_a_question_id():
    for value, legal in {"#1": False, "\ufeffq": False, "q#1": True, "q\ufeff": True, "": False}.items():
        assert frames.is_question_id(value) is legal
        assert frames.is_answer_id(value) is (value != "")
    for value in (None, 7, 1.5, b"q", ["q"], "\ud800"):
        assert not frames.is_question_id(value)
        assert not frames.is_answer_id(value)


def passes(action) -> bool:
    """Whether a reader or writer accepts an id; it may raise only a one-line InputError."""
    refused = None
    try:
        action()
    except InputError as error:
        refused = str(error)
    assert refused is None or len(refused.splitlines()) == 1
    return refused is None


@with_random_ids
@given(question=words, answer=words)
@example(question="q\x01", answer="a")
@example(question="\ufeffq", answer="a")
@example(question="#", answer="#\ufeff")
@example(question="q", answer="a\x85")
@example(question="q", answer="a\n")
@example(question="\ud800", answer="a")
def test_all_readers_and_writers_agree(tmp_path, question, answer):
    """All readers and writers accept the same ids."""
    legal = frames.is_question_id(question) and frames.is_answer_id(answer)
    folder = tmp_path / "c"

    def write():
        splits = {"dev": [LabelledPool(question, "?", [answer], None, {answer: 1})]}
        answers = [(answer, "text")]
        write_collection(folder, splits, name="c", source="here", answers=answers, overwrite=True)

    frame = None
    with contextlib.suppress(UnicodeError):  # frames cannot contain lone surrogates
        frame = pl.DataFrame({"question_id": [question], "answer_id": [answer]})

    assert passes(write) is legal
    if frame is not None:
        pair = {"position": "line 1", "question": "?", "answer": "text", "relevance": 1}
        pairs = frame.with_columns(**{name: pl.lit(value) for name, value in pair.items()})
        assert passes(lambda: list(pools_of("x", pairs))) is legal
        scores, labels = frame.with_columns(score=pl.lit(1.0)), frame.with_columns(relevance=pl.lit(1))
        assert passes(lambda: Run(scores).save(tmp_path / "x.run", overwrite=True)) is legal
        assert passes(lambda: Qrels(labels).save(tmp_path / "x.qrels", overwrite=True)) is legal
        assert passes(lambda: read_by_hand(tmp_path / "y.parquet", question, answer)) is legal
    if not legal:
        return
    collection = Collection(folder)
    pools = read_pools(list_units([collection.pools_file("dev")])[0], read_answers(collection.answers))
    assert (pools.question_ids.to_pylist(), pools.answer_ids.to_pylist()) == ([question], [answer])
    assert read_run(tmp_path / "x.run").frame.drop("score").rows() == [(question, answer)]
    for qrels in (collection.qrels_file("dev"), tmp_path / "x.qrels"):
        assert read_qrels(qrels).rows() == [(question, answer, 1)]


def read_by_hand(path, question, answer):
    row = {"question_id": question, "question": "?", "candidates": [{"answer_id": answer, "text": "t"}]}
    pq.write_table(pa.Table.from_pylist([row], schema=arrow_schema("pools")), path)
    read_pools(list_units([path])[0])


def test_tag_must_be_one_word(tmp_path):
    for tag in ("", "a b", "a\x01"):
        with pytest.raises(InputError, match=r"column 'tag'.*expected one word without white space"):
            Run({"q": {"a": 1.0}}, tag).save(tmp_path / "x.run")
