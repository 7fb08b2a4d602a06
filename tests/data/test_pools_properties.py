"""Pools with random faults: read as plain Python reads their rows, or refused with a faulty row.

The files come from several writers: with other types of strings and lists, and other names of list elements.
"""

import re
import unicodedata

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aptool.data.pools import list_units, read_pools
from aptool.errors import InputError

IDS = ["q1", "q2", "é", "中", "a#1", "7", "x,y"]
BAD_IDS = ["", "#1", "\ufeffq", "a b", "a\u2003b", "a\n", "a\x7f", None]
TEXTS = st.sampled_from(["", "where?", "é\n", "\0", "中" * 50, "here", "there"])
STRINGS = [pa.string(), pa.large_string(), pa.dictionary(pa.int16(), pa.string())]


ELEMENTS = st.sampled_from(["item", "element", "entry"])


@st.composite
def candidates(draw):
    names = draw(st.lists(st.sampled_from(IDS), min_size=1, max_size=4, unique=True))
    return [{"answer_id": name, "text": draw(TEXTS)} for name in names]


@st.composite
def row_groups(draw):
    """Row groups of pools, valid or with a few faults. No question is in two row groups."""
    groups = []
    for number in range(draw(st.integers(0, 3))):
        is_unique = draw(st.integers(0, 4)) > 0
        names = draw(st.lists(st.sampled_from(IDS), min_size=1, max_size=3, unique=is_unique))
        group = [
            {"question_id": f"{name}-{number}", "question": draw(TEXTS), "candidates": draw(candidates())}
            for name in names
        ]
        groups.append(group)
    rows = [row for group in groups for row in group]
    for row in draw(st.permutations(rows))[: draw(st.integers(0, 2))]:
        change = draw(st.sampled_from(["id", "text", "candidates", "answer id", "answer", "repeat"]))
        pool = row["candidates"]
        entry = draw(st.sampled_from(pool)) if pool else None
        if change == "id":
            row["question_id"] = draw(st.sampled_from(BAD_IDS))
        elif change == "text":
            row["question"] = None
        elif change == "candidates" or entry is None:
            row["candidates"] = draw(st.sampled_from([None, []]))
        elif change == "answer id":
            entry["answer_id"] = draw(st.sampled_from(BAD_IDS + IDS))
        elif change == "answer":
            entry["text"] = None
        else:
            pool.append(dict(entry))
    return groups


def is_legal(name, first=""):
    is_one_word = not any(c.isspace() or unicodedata.category(c) == "Cc" for c in name or "")
    return bool(name) and is_one_word and name[0] not in first


def is_faulty(row):
    pool = row["candidates"]
    return (
        not is_legal(row["question_id"], "#\ufeff")
        or row["question"] is None
        or not pool
        or any(not is_legal(entry["answer_id"]) or entry["text"] is None for entry in pool)
        or len({entry["answer_id"] for entry in pool}) < len(pool)
    )


def faulty_rows(groups):
    """The faulty rows, by row group and row from 0; a question that is repeated is a faulty row."""
    faulty, seen = set(), set()
    for number, group in enumerate(groups):
        for n, row in enumerate(group):
            if row["question_id"] in seen or is_faulty(row):
                faulty.add((number, n))
            seen.add(row["question_id"])
    return faulty


def write(path, groups, draw):
    """Write the row groups as one of many writers would."""
    answer_id, text, question_id, question = (draw(st.sampled_from(STRINGS)) for _ in range(4))
    entry = pa.struct([("answer_id", answer_id), ("text", text)])
    pools = draw(st.sampled_from([pa.list_, pa.large_list]))(pa.field(draw(ELEMENTS), entry))
    fields = [("question_id", question_id), ("question", question), ("candidates", pools)]
    schema = pa.schema([*draw(st.permutations(fields)), ("other", pa.int8())])
    with pq.ParquetWriter(path, schema) as writer:
        for group in groups:
            writer.write_table(pa.Table.from_pylist([{**row, "other": 1} for row in group], schema=schema))


def read(path):
    for unit in list_units([path]):
        for pool in read_pools(unit).records():
            pairs = zip(pool.answer_ids, pool.texts, strict=True)
            entries = [{"answer_id": name, "text": text} for name, text in pairs]
            yield {"question_id": pool.question_id, "question": pool.question, "candidates": entries}


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(groups=row_groups(), draws=st.data())
def test_pools_are_read_as_written_or_a_faulty_row_is_named(tmp_path, groups, draws):
    path = tmp_path / "x.pools.parquet"
    write(path, groups, draws.draw)
    faulty = faulty_rows(groups)

    if groups and not faulty:
        assert list(read(path)) == [row for group in groups for row in group]
        return
    with pytest.raises(InputError) as refused:
        list(read(path))
    message = str(refused.value)
    assert message.isprintable()  # so it is one line
    named = re.match(
        rf"{re.escape(str(path))}: (row group (\d+): row (\d+): column|no row; expected)", message
    )
    assert named, message
    assert (int(named[2]), int(named[3])) in faulty if faulty else named[2] is None, message
