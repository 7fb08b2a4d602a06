"""Parts become the run whose lines are sorted by question, in any form and with little memory."""

import random
from pathlib import Path

import polars as pl
import pytest

from aptool.errors import InputError
from aptool.formats import runs
from aptool.formats.pools import Unit
from aptool.formats.runs import read_run, write_run
from aptool.scoring import merge as merging
from aptool.scoring import parts as part_files
from aptool.scoring.merge import merge, write_shard
from aptool.scoring.parts import Part, parts_folder, write_part


def frame_of(questions):
    pairs = [(question, f"a{n}", float(n % 3)) for question in questions for n in range(5)]
    return pl.DataFrame(pairs, schema=["question_id", "answer_id", "score"], orient="row")


def split(questions, order, parts):
    """Questions of each part: in order, interleaved, or at random."""
    if order == "numbers":
        return [questions[start::parts] for start in range(parts)]
    if order == "random":
        random.Random(0).shuffle(questions)
    else:
        questions = sorted(questions)
    size = -(-len(questions) // parts)
    return [questions[start : start + size] for start in range(0, len(questions), size)]


def made(output, groups):
    """Write the parts of groups of questions."""
    folder = parts_folder(output)
    folder.mkdir()
    parts = []
    for number, questions in enumerate(groups):
        path = folder / f"{number:024x}.part"
        parts.append(Part(Unit("x.parquet", number), path, 5 * len(questions), "t"))
        write_part(parts[-1], frame_of(questions), 1)
    return parts


def merged(output, groups):
    return merge(made(output, groups), output, lambda: None, lambda tasks: [*map(write_shard, tasks)])


@pytest.fixture
def small(monkeypatch):
    """Chunks of one or two questions, memory for few of them, several shards."""
    monkeypatch.setattr(part_files, "LEAST_CHUNK", 100)
    monkeypatch.setattr(part_files, "MOST_CHUNK", 150)
    monkeypatch.setattr(merging, "MEMORY_BYTES", 2000)
    monkeypatch.setattr(merging, "SHARD_BYTES", 2000)
    monkeypatch.setattr(runs, "TABLE_ROWS", 64)


@pytest.mark.parametrize("order", ["in order", "numbers", "random"])
@pytest.mark.parametrize("parts", [1, 2, 30])
@pytest.mark.parametrize("name", ["out.run", "out/", "out.parquet", "out.parquet/"])
def test_merge_is_the_sorted_run(tmp_path, small, order, parts, name):
    questions = [f"q{number}" for number in range(120)]
    write_run(tmp_path / "expected.run", frame_of(questions), "t")

    result = merged(f"{tmp_path}/{name}", split(questions, order, parts))

    assert result == (600, parts)
    frame, tag = read_run(f"{tmp_path}/{name}")
    write_run(tmp_path / "again.run", frame, tag)
    assert (tmp_path / "again.run").read_bytes() == (tmp_path / "expected.run").read_bytes()
    assert not parts_folder(f"{tmp_path}/{name}").exists()
    files = sorted((tmp_path / "out").glob("part-*"))
    assert len(files) > 3 or name != "out/"
    if files:
        lines = b"".join(file.read_bytes() for file in files)
        assert lines == (tmp_path / "expected.run").read_bytes()


def test_few_chunks_are_open_at_the_same_time(tmp_path, small, monkeypatch):
    """Thirty parts that overlap are merged in levels, whose files are in the folder of parts."""
    opened = set()
    most = 0
    read, take = merging.read_chunk, merging._Cursor.take

    def counted(cursor, bound):
        nonlocal most
        result = take(cursor, bound)
        (opened.add if cursor._questions is not None else opened.discard)(cursor)
        most = max(most, len(opened))
        return result

    files = set()

    def noted(store, key, chunk):
        files.add(Path(key).name)
        return read(store, key, chunk)

    monkeypatch.setattr(merging._Cursor, "take", counted)
    monkeypatch.setattr(merging, "read_chunk", noted)

    merged(tmp_path / "out.run", split([f"q{number}" for number in range(240)], "numbers", 30))

    assert 1 < most <= 8
    assert sum(".merged-" in name for name in files) > 4


def test_parts_in_order_are_read_chunk_by_chunk(tmp_path, small, monkeypatch):
    opened = []
    take = merging._Cursor.take
    monkeypatch.setattr(
        merging._Cursor, "take", lambda cursor, bound: opened.append(take(cursor, bound)) or opened[-1]
    )

    merged(tmp_path / "out.run", split([f"q{number}" for number in range(120)], "in order", 30))

    assert all(questions[3:] == (0, len(questions.ids)) for questions in opened)


@pytest.mark.parametrize("name", ["out.run", "out/"])
@pytest.mark.parametrize("repeated", ["q0", "q50", "q99"])
def test_a_question_in_two_parts_is_named(tmp_path, small, name, repeated):
    groups = split([f"q{number}" for number in range(120)], "numbers", 30)
    groups[7 if repeated not in groups[7] else 8].append(repeated)

    with pytest.raises(InputError, match=f"x.parquet: row group .*: column 'question_id': '{repeated}'"):
        merged(f"{tmp_path}/{name}", groups)

    assert not [*tmp_path.glob("out.run.parts/*.merged-*"), *tmp_path.glob("out/_run.json")]
    assert len([*parts_folder(f"{tmp_path}/{name}").glob("*.part")]) == 30
