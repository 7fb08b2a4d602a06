"""Units of work: the names of their parts, invalid scores, and parts that several workers write."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tiny import row, write_pools

from aptool.data.pools import list_units, write_answers
from aptool.errors import AptoolError
from aptool.files import Input
from aptool.scoring.run import (
    missing_parts,
    parts_folder,
    plan,
    read,
    read_records,
    scored_rows,
    shared_answers,
    write,
)
from aptool.scoring.systems import RandomScorer, RandomScores


@pytest.fixture
def units(tmp_path, monkeypatch):
    """Three row groups of two pools, in the current folder; each is a unit."""
    monkeypatch.setattr("aptool.data.pools.UNIT_PAIRS", 4)
    monkeypatch.chdir(tmp_path)
    groups = [[row(f"q{2 * group + position}") for position in range(2)] for group in range(3)]
    return list_units([write_pools("test.pools.parquet", *groups)])


def names(units, system=None, tag="x", answers=None, output="out.run"):
    scorer = (system or RandomScores(0)).open()
    return [part.path.name for part in plan(units, scorer, output, tag, shared_answers(units, answers))]


def test_each_unit_has_a_part(units):
    parts = plan(units, RandomScores(0).open(), "out.run", "x", shared_answers(units))

    assert [part.unit for part in parts] == units
    assert [part.number for part in parts] == [0, 1, 2]
    assert [part.path.name[:7] for part in parts] == ["000000-", "000001-", "000002-"]
    assert [part.record for part in parts] == [part.path.with_suffix(".json") for part in parts]
    assert {part.path.parent for part in parts} == {parts_folder("out.run")}
    assert len({part.path.name for part in parts}) == 3


def test_the_name_of_a_part_depends_on_everything_that_decides_its_lines(units, monkeypatch):
    for texts in ("one", "two"):
        write_answers(f"{texts}.parquet", [("a1", texts)])
    before = names(units)

    other_names = [
        names(units, tag="y"),
        names(units, RandomScores(1)),
        names(units, answers=Input("one.parquet", None)),
        names(units, answers=Input("two.parquet", None)),
        names(units, output="out.run.gz"),
        names([unit._replace(rows=(0, 1)) for unit in units]),
    ]
    groups = [
        [row(f"q{2 * group + position}", "where was it") for position in range(2)] for group in range(3)
    ]
    write_pools("test.pools.parquet", *groups)
    other_names.append(names(list_units(["test.pools.parquet"])))

    monkeypatch.setattr("aptool.scoring.run.__version__", "9.9")
    other_names.append(names(units))

    assert len({*before, *(name for other in other_names for name in other)}) == 3 * 9


def test_the_same_input_in_another_folder_has_the_same_parts(units, tmp_path):
    moved = [unit._replace(path=str(tmp_path / unit.path)) for unit in units]

    assert names(moved) == names(units)


class Constant(RandomScorer):
    def __init__(self, value):
        super().__init__(RandomScores())
        self.value = value

    def score(self, pools, count=None):
        return np.full(len(pools.answer_ids), self.value, dtype=np.float32)


def scored(unit, scorer):
    """A unit and its scores."""
    prepared = read(unit, scorer, None)
    return prepared, prepared.work.score()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_score_that_is_not_finite_is_an_error(units, value):
    location = r"^test.pools.parquet: row group 1: question 'q2', answer 'a1': "
    with pytest.raises(AptoolError, match=rf"{location}score {value}: expected a finite number$"):
        scored_rows(*scored(units[1], Constant(value)))


@pytest.mark.parametrize("output", ["out.run", "out.run.gz", "out.parquet", "out/"])
def test_a_part_is_missing_until_it_and_its_record_exist(units, output):
    scorer = RandomScores().open()
    parts = plan(units, scorer, output, "x", shared_answers(units))
    assert missing_parts(parts) == parts

    records = [write(part, *scored(part.unit, scorer)) for part in parts]

    assert missing_parts(parts) == []
    for record, again in zip(records, read_records(parts), strict=True):
        assert (record[:3], record.questions.to_list()) == (again[:3], again.questions.to_list())
    assert (records[1][:3], records[1].questions.to_list()) == ((4, 0, 0), ["q2", "q3"])
    assert len({*parts[0].path.parent.iterdir(), *parts[0].record.parent.iterdir()}) == 6
    parts[1].record.unlink()
    parts[2].path.unlink()
    assert missing_parts(parts) == parts[1:]


def test_workers_write_the_same_part_at_the_same_time(units):
    scorer = RandomScores().open()
    part = plan(units, scorer, "out.run", "x", shared_answers(units))[0]
    unit = scored(part.unit, scorer)

    with ThreadPoolExecutor(8) as threads:
        records = list(threads.map(lambda _: write(part, *unit), range(40)))

    assert {record[:3] for record in records} == {(4, 0, 0)}
    assert sorted(part.path.parent.iterdir()) == sorted([part.path, part.record])
    assert len(part.path.read_text().splitlines()) == 4
