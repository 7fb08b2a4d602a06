"""Charts and their data by hand, contrast on any background, and errors."""

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tiny import row, write_pools

from aptool.data.pools import Pools, write_answers
from aptool.data.runs import Qrels
from aptool.errors import InputError
from aptool.evaluation.significance import bootstrap_interval
from aptool.evaluation.texts import groups_by_length, length_thresholds, relevant_lengths
from aptool.reporting import charts
from aptool.reporting.charts import accuracy_by_length, read_history

LENGTHS = pl.DataFrame({"question_id": ["q1", "q2", "q3", "q4"], "tokens": [3, 12, 12, 40]})
P_1 = pl.DataFrame({"question_id": ["q4", "q3", "q2", "q1", "q9"], "P@1": [1.0, 0.0, 1.0, 1.0, 0.0]})
SVG = "{http://www.w3.org/2000/svg}"


def at_lengths(points, *lengths):
    return points.filter(pl.col("length").is_in(lengths))


def test_length_of_the_shortest_relevant_answer(tmp_path):
    pools = write_pools(
        tmp_path / "pools.parquet",
        # Words and punctuation: "It", "'", "s", "here", "." are five.
        [row("q1", "?", [("a", "It's here."), ("b", "one two three four five six"), ("c", "no")])],
        [row("q2", "?", [("a", None), ("b", "x y")]), row("q3", "?", [("a", "x")])],
    )
    write_answers(tmp_path / "answers.parquet", [("a", "shared by all"), ("z", "in no pool")])
    qrels = {"q1": {"b": 1, "a": 2, "c": 0}, "q2": {"a": 1}, "q3": {"gone": 1}}

    result = relevant_lengths(Pools.load(pools), Qrels(qrels))

    assert result.rows() == [("q1", 5), ("q2", 3)]


def by_length(accuracy):
    return accuracy_by_length(accuracy, groups_by_length(LENGTHS))


def test_accuracy_by_hand():
    points = by_length({"s": P_1})

    # Right answers: q1 of one question up to 5 words, two of three up to 15, three of the four with a
    # relevant candidate up to 40. q9 has none.
    assert points.columns == ["system", "length", "questions", "accuracy", "low", "high"]
    assert points["length"].to_list() == [5, 10, 15, 20, 25, 30, 35, 40]
    assert at_lengths(points, 5, 15, 40).drop("low", "high").rows() == [
        ("s", 5, 1, 1.0),
        ("s", 15, 3, pytest.approx(2 / 3)),
        ("s", 40, 4, 0.75),
    ]
    # The intervals are those of the questions of a point: all right, or three of four.
    assert at_lengths(points, 5, 40).select("low", "high").rows() == [
        (1.0, 1.0),
        bootstrap_interval([1.0, 1.0, 0.0, 1.0]),
    ]


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([7], [7]),
        ([1, 4], [1, 2, 3, 4]),
        # Steps of 20: at most 12 of them reach 200.
        ([23, 200], [*range(40, 200, 20), 200]),
        # One long answer among a thousand does not stretch the steps.
        ([*range(11, 21)] * 100 + [4000], [12, 14, 16, 18, 20, 4000]),
    ],
)
def test_lengths_are_round_numbers(tokens, expected):
    assert length_thresholds(np.array(tokens)) == expected


def test_lines_have_the_values_of_the_data():
    data = at_lengths(by_length({"s": P_1, "t": P_1}), 10, 20, 40)

    (axes,) = charts.plot_accuracy_by_length(data).axes
    first, second = axes.get_lines()
    assert (
        first.get_xydata().tolist()
        == data.filter(system="s").select("length", "accuracy").to_numpy().tolist()
    )
    assert first.get_color() != second.get_color()
    assert first.get_marker() != second.get_marker()
    for band, system in zip(axes.collections, ("s", "t"), strict=True):
        corners = {tuple(corner) for path in band.get_paths() for corner in path.vertices}
        rows = data.filter(system=system).select("length", "low", "high").rows()
        assert corners >= {(length, bound) for length, *bounds in rows for bound in bounds}


@pytest.mark.parametrize(("short", "drawn"), [(4, [10]), (5, [5, 10])])
def test_lengths_with_few_questions_are_not_drawn(short, drawn):
    # At least 5% of 100 questions.
    ids = [f"q{number}" for number in range(100)]
    lengths = pl.DataFrame({"question_id": ids, "tokens": [5] * short + [10] * (100 - short)})
    right = pl.DataFrame({"question_id": ids, "P@1": 1.0})

    points = accuracy_by_length({"s": right}, groups_by_length(lengths))

    assert points.filter(pl.col("length").is_in([5, 10]))["length"].to_list() == drawn


def history(folder, *lines):
    path = folder / "history.jsonl"
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return path


def test_history_of_a_model(tmp_path, model_folder):
    epochs = [{"epoch": n, "loss": 2.0, "dev": {"MAP": n / 4, "P@1": 0.0}} for n in (1, 2)]

    assert read_history(history(tmp_path, *epochs), "MAP").rows() == [(1, 0.25), (2, 0.5)]
    assert read_history(history(tmp_path, *epochs, {"epoch": 3, "loss": 1.0}), "MAP").height == 2
    assert read_history(history(tmp_path), "MAP").is_empty()  # of no epoch
    assert read_history(Path(model_folder, charts.HISTORY), "MAP")["epoch"].to_list() == [1, 2, 3, 4]


@pytest.mark.parametrize("line", ["{", '{"epoch": 1, "dev": 3}', '{"epoch": 1, "dev": {"MAP": {}}}'])
def test_invalid_history_is_refused(tmp_path, line):
    with pytest.raises(InputError, match=r"history\.jsonl: .*expected one JSON object per epoch"):
        read_history(history(tmp_path, line), "MAP")


def test_best_epoch_is_circled_and_small_differences_do_not_fill_the_height():
    data = pl.DataFrame({"system": ["s"] * 3, "epoch": [1, 2, 3], "MAP": [0.6, 0.6004, 0.6002]})

    (axes,) = charts.plot_training(data, "MAP").axes

    assert axes.get_lines()[0].get_ydata().tolist() == [0.6, 0.6004, 0.6002]
    assert axes.collections[0].get_offsets().tolist() == [[2.0, 0.6004]]
    low, high = axes.get_ylim()
    assert (high - low, (low + high) / 2) == pytest.approx((0.05, 0.6002))


def test_lines_of_twelve_systems_differ_without_colours():
    points = pl.DataFrame({"system": [f"s{number}" for number in range(12)], "epoch": 1, "MAP": 0.5})
    lines = charts.plot_training(points, "MAP").axes[0].get_lines()

    assert len({line.get_marker() for line in lines}) == 12
    assert len({(line.get_color(), str(line._unscaled_dash_pattern)) for line in lines}) == 12


def test_names_are_shown_as_they_are():
    # Names that matplotlib would leave out of a legend, or typeset as a formula.
    names = ["_a", "$x_1$", "<b>&amp;"]

    figure = charts.plot_accuracy_by_length(by_length(dict.fromkeys(names, P_1)))

    image = charts.svg(figure)
    words = [text.text for text in ElementTree.fromstring(image).iter(f"{SVG}text")]
    assert set(names) <= set(words)
    again = charts.plot_accuracy_by_length(by_length(dict.fromkeys(names, P_1)))
    assert charts.svg(again) == image
