"""Units of scoring: the names of their parts, and invalid scores."""

import numpy as np
import pytest
from tiny import row, write_pools

from aptool.errors import AptoolError
from aptool.formats.inputs import Input
from aptool.formats.pools import list_units, read_pools, write_answers
from aptool.scoring.parts import parts_folder, plan
from aptool.scoring.pipeline import prepare, score
from aptool.scoring.systems import RandomScorer, RandomScores


@pytest.fixture
def units(tmp_path, monkeypatch):
    """Three row groups of two pools, in the current folder."""
    monkeypatch.chdir(tmp_path)
    groups = [[row(f"q{2 * group + position}") for position in range(2)] for group in range(3)]
    return list_units([write_pools("test.pools.parquet", *groups)])


def names(units, system=None, tag="x", answers=None):
    scorer = (system or RandomScores(0)).open()
    return [part.path.name for part in plan(units, scorer, "out.run", tag, answers)]


def test_each_unit_has_a_part_with_its_number_of_pairs(units):
    parts = plan(units, RandomScores(0).open(), "out.run", "x")

    assert [part.unit for part in parts] == units
    assert [part.pairs for part in parts] == [4, 4, 4]
    assert {part.path.parent for part in parts} == {parts_folder("out.run")}
    assert len({part.path.name for part in parts}) == 3


def test_the_name_of_a_part_depends_on_everything_that_decides_its_lines(units):
    for texts in ("one", "two"):
        write_answers(f"{texts}.parquet", [("a1", texts)])
    before = names(units)

    other_names = [
        names(units, tag="y"),
        names(units, RandomScores(1)),
        names(units, answers=Input("one.parquet", None)),
        names(units, answers=Input("two.parquet", None)),
    ]
    groups = [
        [row(f"q{2 * group + position}", "where was it") for position in range(2)] for group in range(3)
    ]
    write_pools("test.pools.parquet", *groups)
    other_names.append(names(list_units(["test.pools.parquet"])))

    assert len({*before, *(name for other in other_names for name in other)}) == 3 * 6


def test_the_same_input_in_another_folder_has_the_same_parts(units, tmp_path):
    moved = [unit._replace(path=str(tmp_path / unit.path)) for unit in units]

    assert names(moved) == names(units)


class Constant(RandomScorer):
    def __init__(self, value):
        super().__init__(RandomScores())
        self.value = value

    def score(self, inputs, progress):
        return np.full(len(inputs.answer_ids), self.value, dtype=np.float32)


def scored(unit, scorer):
    (frame,) = score([prepare(unit, read_pools(unit), scorer)], scorer)
    return frame


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_score_that_is_not_finite_is_an_error(units, value):
    location = r"^test.pools.parquet: row group 1: question 'q2', answer 'a1': "
    with pytest.raises(AptoolError, match=rf"{location}score {value}: expected a finite number$"):
        scored(units[1], Constant(value))


def test_scores_keep_the_order_of_the_pools(units):
    frame = scored(units[2], Constant(0.5))

    assert frame.rows() == [(q, a, 0.5) for q in ("q4", "q5") for a in ("a1", "a2")]
