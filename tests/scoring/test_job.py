"""Units of scoring: a run that was stopped goes on from its parts, and takes up none but its own."""

from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from aptool.scoring.local import score_pools
from tiny import labelled_pools, row, write_pools

from aptool.errors import AptoolError, InputError
from aptool.formats.pools import list_units, read_answers
from aptool.formats.schemas import arrow_schema
from aptool.models.model import load_model, save_model
from aptool.scoring.job import System, plan, read_task, score_task
from aptool.scoring.parts import Part
from aptool.scoring.systems import ModelSystem, RandomSystem

GROUPS = 4  # row groups of three pools, eighteen candidates each


def rows(texts=True):
    return [
        row(
            pool.question_id,
            pool.question,
            list(zip(pool.answer_ids, pool.texts if texts else [None] * 6, strict=True)),
        )
        for pool in labelled_pools("test", 12)
    ]


def write(path, rows, **more):
    return write_pools(path, *(rows[start : start + 3] for start in range(0, 12, 3)), **more)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Twelve pools in four row groups, in a folder that is the current one."""
    write(tmp_path / "test.pools.parquet", rows())
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Counting(System):
    """A system that counts the row groups it scores, and can be stopped after so many."""

    def __init__(self, system, stop_after=None):
        self.fingerprint = system.fingerprint
        self.scored = 0
        self._system = system
        self._stop_after = stop_after

    def prepare(self, pools):
        return self._system.prepare(pools)

    def score(self, prepared):
        if self.scored == self._stop_after:
            raise RuntimeError("the power went out")
        self.scored += 1
        return self._system.score(prepared)


@pytest.fixture
def system(folder, model_folder):
    return ModelSystem(load_model(model_folder))


def score(system, output="out.run", pools="test.pools.parquet", answers=None, stop_after=None):
    """Scores into a run file; returns how many row groups were scored, and the file's bytes."""
    counting = Counting(system, stop_after)
    units = list_units([pools])
    if stop_after is None:
        merged = score_pools(units, counting, output, tag="x", answers=answers)
        assert merged == (72, 0)
        assert not Path(f"{output}.parts").exists()
        return counting.scored, Path(output).read_bytes()
    with pytest.raises(RuntimeError, match="the power went out"):
        score_pools(units, counting, output, tag="x", answers=answers)
    assert not Path(output).exists()
    return counting.scored, b""


def parts():
    return sorted(Path("out.run.parts").glob("*"))


@pytest.mark.parametrize("done", [0, 1, 3])
def test_an_interrupted_run_goes_on_from_its_parts(system, done):
    _, whole = score(system, "whole.run")

    score(system, stop_after=done)

    assert len(parts()) == done
    assert score(system) == (GROUPS - done, whole)


def test_progress_is_told_unit_by_unit(system, folder):
    told = []

    score_pools(
        list_units(["test.pools.parquet"]),
        system,
        "out.run",
        tag="x",
        report=lambda *state: told.append(state),
    )

    assert told == [(1, 18), (2, 18), (3, 18), (4, 18)]


def emptied(part):
    part.write_bytes(b"")


def cut(part):
    part.write_bytes(part.read_bytes()[:-20])


def garbled(part):
    part.write_bytes(b"\x00\xff" * (part.stat().st_size // 2))


def garbled_inside(part):
    data = bytearray(part.read_bytes())
    middle = len(data) // 3
    data[middle : middle + 200] = b"\xff" * 200
    part.write_bytes(data)


@pytest.mark.parametrize("damage", [emptied, cut, garbled, garbled_inside])
def test_a_damaged_part_is_scored_again(system, damage):
    _, whole = score(system, "whole.run")
    score(system, stop_after=GROUPS - 1)

    damage(parts()[1])

    assert score(system) == (2, whole)


def test_parts_of_another_model_are_not_taken_up(system, model_folder, folder):
    # The model with all of its embeddings the other way round.
    model = load_model(model_folder)
    model.ranker.encoder.embedding.weight.data.neg_()
    save_model("other", model.ranker, model.tokenizer, model.recipe, model.config["training"], [])
    other = ModelSystem(load_model("other"))
    _, whole = score(other, "whole.run")
    score(system, stop_after=3)

    assert score(other) == (GROUPS, whole)


def test_parts_of_another_tag_are_not_taken_up(folder):
    units = list_units(["test.pools.parquet"])
    names = {part.path.name for tag in "xy" for part in plan(units, RandomSystem(0), "out.run", tag)}

    assert len(names) == 2 * GROUPS


def test_parts_of_another_input_are_not_taken_up(system):
    score(system, stop_after=3)
    # The same ids with other questions, in a file of the same name.
    write("test.pools.parquet", [{**line, "question": line["question"] + "?"} for line in rows()])
    _, whole = score(system, "whole.run")

    assert score(system) == (GROUPS, whole)


def test_parts_of_other_answers_are_not_taken_up(system, folder):
    write("test.pools.parquet", rows(texts=False))
    texts = {one["answer_id"]: one["text"] for line in rows() for one in line["candidates"]}
    right = pl.DataFrame({"answer_id": list(texts), "text": list(texts.values())})
    right.write_parquet("right.parquet")
    right.with_columns(text=pl.col("text").str.reverse()).write_parquet("wrong.parquet")
    answers = {name: read_answers(f"{name}.parquet") for name in ("right", "wrong")}
    _, whole = score(system, "whole.run", answers=answers["right"])
    score(system, stop_after=3, answers=answers["wrong"])

    assert score(system, answers=answers["right"]) == (GROUPS, whole)


def test_failure_while_writing_leaves_no_half_file(system, folder, monkeypatch):
    monkeypatch.setattr("aptool.formats.trec.rank_candidates", lambda frame: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        score(system)

    assert [path.name for path in folder.iterdir()] == ["test.pools.parquet"]


def test_columns_beyond_those_of_the_format_are_let_be(system):
    # One of them looks like the candidates.
    _, whole = score(system, "whole.run")
    extra = pa.field("seen", pa.list_(pa.struct([("answer_id", pa.string())])))
    schema = pa.schema([extra, *arrow_schema("pools")])
    write("more.parquet", [{**line, "seen": []} for line in rows()], schema=schema)

    assert score(system, pools="more.parquet") == (GROUPS, whole)


@pytest.mark.parametrize("files", [1, 2])
def test_a_question_in_two_row_groups_is_named(system, files):
    write_pools("b.parquet", *[[row("q2"), row("q1")]] * (3 - files))
    if files == 2:
        write_pools("a.parquet", [row("q1")])
    units = list_units(["b.parquet"] if files == 1 else ["a.parquet", "b.parquet"])

    with pytest.raises(InputError) as error:
        score_pools(units, system, "out.run", tag="x")

    place = f"b.parquet: row group {2 - files}: column 'question_id': "
    assert str(error.value).startswith(place)
    first = "a.parquet" if files == 2 else "b.parquet"
    assert ": expected one pool a question: it also stands in " in str(error.value)
    assert str(error.value).endswith(f"{first}, row group 0")
    assert not Path("out.run").exists()


class Constant(System):
    fingerprint = "constant"

    def __init__(self, value):
        self.value = value

    def score(self, pools):
        return np.full(len(pools.answer_ids), self.value, dtype=np.float32)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_score_that_is_not_finite_is_named(folder, value):
    part = Part(list_units(["test.pools.parquet"])[1], Path("x"), 18, "x")

    place = r"^test.pools.parquet: row group 1: question 'test-q3', answer 'test-a\d+': "
    with pytest.raises(AptoolError, match=rf"{place}score {value}: expected"):
        score_task(read_task(part, Constant(value), None), Constant(value))
