"""Charts and their data by hand, contrast on any background, and errors."""

import json
import math
import sys
import xml.etree.ElementTree as ElementTree

import numpy as np
import polars as pl
import pytest
from tiny import row, write_pools

from aptool.data.pools import read_answers, write_answers
from aptool.errors import AptoolError, InputError
from aptool.evaluation.texts import groups_by_length, length_thresholds, relevant_lengths
from aptool.reporting.charts import (
    accuracy_by_length,
    read_history,
    score_distribution,
    training_curves,
)

LENGTHS = pl.DataFrame({"question_id": ["q1", "q2", "q3", "q4"], "tokens": [3, 12, 12, 40]})
P_1 = pl.DataFrame({"question_id": ["q4", "q3", "q2", "q1", "q9"], "P@1": [1.0, 0.0, 1.0, 1.0, 0.0]})
SVG = "{http://www.w3.org/2000/svg}"


def frame(*rows, columns=("question_id", "answer_id", "relevance")):
    return pl.DataFrame(rows, schema=columns, orient="row")


@pytest.fixture
def plots():
    pytest.importorskip("matplotlib")
    from aptool.reporting import plots

    return plots


def at_lengths(points, *lengths):
    return points.filter(pl.col("length").is_in(lengths))


# Data


def test_length_of_the_shortest_relevant_answer(tmp_path):
    pools = write_pools(
        tmp_path / "pools.parquet",
        # Words and punctuation: "It", "'", "s", "here", "." are five.
        [row("q1", "?", [("a", "It's here."), ("b", "one two three four five six"), ("c", "no")])],
        [row("q2", "?", [("a", None), ("b", "x y")]), row("q3", "?", [("a", "x")])],
    )
    write_answers(tmp_path / "answers.parquet", [("a", "shared by all"), ("z", "in no pool")])
    qrels = frame(("q1", "b", 1), ("q1", "a", 2), ("q1", "c", 0), ("q2", "a", 1), ("q3", "gone", 1))

    result = relevant_lengths([pools], qrels, read_answers(tmp_path / "answers.parquet"))

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


def test_the_intervals_of_a_curve_are_those_of_the_questions_of_a_point():
    generator = np.random.default_rng(1)
    ids = [f"q{number}" for number in range(500)]
    lengths = pl.DataFrame({"question_id": ids, "tokens": generator.geometric(0.02, 500)})
    right = pl.DataFrame({"question_id": ids, "P@1": generator.integers(0, 2, 500).astype(float)})

    result = accuracy_by_length({"s": right}, groups_by_length(lengths))

    assert result["questions"].is_sorted()
    assert result.row(-1)[:4] == ("s", lengths["tokens"].max(), 500, pytest.approx(right["P@1"].mean()))
    for _, length, questions, accuracy, low, high in result.rows():
        values = right.join(lengths.filter(pl.col("tokens") <= length), on="question_id")["P@1"]
        # Of a share of many questions, the interval is nearly that of the normal distribution.
        width = 1.96 * (accuracy * (1 - accuracy) / questions) ** 0.5
        assert (questions, accuracy) == (len(values), pytest.approx(values.mean()))
        assert (low, high) == pytest.approx(
            (accuracy - width, accuracy + width), abs=0.02 if questions > 99 else 0.2
        )


def test_no_lengths_give_no_points():
    assert accuracy_by_length({"s": P_1}, groups_by_length(LENGTHS.clear())).is_empty()


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


def test_shares_of_scores_by_hand():
    run = frame(
        ("q1", "a", 4.0), ("q1", "b", 0.0), ("q1", "c", 1.0), ("q1", "new", 1.5), ("other", "a", 99.0),
        columns=("question_id", "answer_id", "score"),
    )  # fmt: skip
    qrels = frame(("q1", "a", 1), ("q1", "b", 0), ("q1", "c", 0))

    result = score_distribution({"s": run}, qrels, bins=2)

    # Two bins, 0 to 2 and 2 to 4: three non-relevant candidates in the first, the relevant one in the second.
    assert result.rows() == [("s", 0.0, 2.0, 0.0, 1.0), ("s", 2.0, 4.0, 1.0, 0.0)]


@pytest.mark.parametrize("scores", [(1e16, 1e16 + 2), (-1e308, 1e308)])
def test_scores_that_no_bins_divide_are_refused(scores):
    run = pl.DataFrame({"question_id": ["q", "q"], "answer_id": ["a", "b"], "score": scores})

    with pytest.raises(AptoolError, match=r"^s: scores from .* to .*; expected a range that 10 bins divide"):
        score_distribution({"s": run}, frame(("q", "a", 1)))


def test_equal_scores_have_a_distribution():
    run = frame(("q1", "a", 3.0), ("q1", "b", 3.0), columns=("question_id", "answer_id", "score"))

    result = score_distribution({"s": run}, frame(("q1", "a", 1)))

    assert (result["relevant"].sum(), result["others"].sum()) == (1, 1)
    assert result["low"].min() < 3 < result["high"].max()


def history(folder, *entries):
    (folder / "training").mkdir(parents=True)
    lines = [entry if isinstance(entry, str) else json.dumps(entry) for entry in entries]
    (folder / "training" / "history.jsonl").write_text("".join(line + "\n" for line in lines))
    return folder


def epoch(number, loss, score):
    dev = {"MAP": score, "P@1": score / 2}
    return {"epoch": number, "loss": loss, "dev": dev, "seconds": {"train": 1.5, "dev": 0.5}}


def test_history_of_a_model(tmp_path):
    first = read_history(history(tmp_path / "a", epoch(1, 2.0, 0.25), epoch(2, 1.0, 0.5)))
    second = read_history(history(tmp_path / "b", {"epoch": 1, "loss": 3}))

    columns = ["epoch", "loss", "dev_MAP", "dev_P@1", "seconds_train", "seconds_dev"]
    assert first.columns == columns
    assert first.rows() == [(1, 2.0, 0.25, 0.125, 1.5, 0.5), (2, 1.0, 0.5, 0.25, 1.5, 0.5)]
    both = training_curves({"a": first, "b": second})
    assert both.select("system", *columns[:3]).rows()[1:] == [("a", 2, 1.0, 0.5), ("b", 1, 3.0, None)]


def test_history_of_a_trained_model(model_folder):
    curves = read_history(model_folder)

    assert curves["epoch"].to_list() == [1, 2, 3, 4]
    assert {"loss", "dev_MAP", "seconds_train"} <= set(curves.columns)


@pytest.mark.parametrize("lines", [["{"], ["[]"], ['{"loss": 1}'], ['{"epoch": 1}'], []])
def test_invalid_history_is_refused(tmp_path, lines):
    with pytest.raises(InputError, match=r"history\.jsonl: .*expected"):
        read_history(history(tmp_path / "m", *lines))
    with pytest.raises(InputError, match="file not found"):
        read_history(tmp_path / "none")


@pytest.mark.parametrize(
    ("values", "column"),
    [
        ({"dev": {"MAP": {}}}, "dev_MAP"),
        ({"dev": {"MRR": {"a": 1}}}, "dev_MRR"),
        ({"dev": {"MAP": "high"}}, "dev_MAP"),
        ({"dev": {"MAP": None}}, "dev_MAP"),
        ({"loss": math.nan}, "loss"),
        ({"loss": math.inf}, "loss"),
        ({"loss": "0.5"}, "loss"),
        ({"loss": None}, "loss"),
        ({"seconds": {"train": []}}, "seconds_train"),
        ({"epoch": "first"}, "epoch"),
        ({"epoch": 1e308}, "epoch"),
        ({"epoch": 2**63}, "epoch"),
        ({"dev": {"MAP": -1.7e308}}, "dev_MAP"),
    ],
)
def test_history_with_a_value_that_axes_cannot_show_is_refused(tmp_path, values, column):
    history(tmp_path / "m", epoch(1, 2.0, 0.25), {"epoch": 2, "loss": 1.0, **values})
    bounds = "-1e+09 to 1e+09" if column == "epoch" else "-1e+38 to 1e+38"

    with pytest.raises(InputError) as refused:
        read_history(tmp_path / "m")

    assert f"history.jsonl: line 2: column '{column}': " in str(refused.value)
    assert str(refused.value).endswith(f"expected a number from {bounds}")


# Charts


def test_lines_have_the_values_of_the_data(plots):
    data = at_lengths(by_length({"s": P_1, "t": P_1}), 10, 20, 40)

    (axes,) = plots.plot_accuracy_by_length(data).axes
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


def test_best_epoch_is_circled(plots, tmp_path):
    entries = [epoch(1, 2.0, 0.25), epoch(2, 1.0, 0.75), epoch(3, 0.5, 0.5)]
    data = training_curves({"s": read_history(history(tmp_path / "m", *entries))})

    figure = plots.plot_training(data, ["loss", "dev_MAP"])

    loss, dev = figure.axes
    assert loss.get_lines()[0].get_ydata().tolist() == [2.0, 1.0, 0.5]
    assert dev.get_lines()[0].get_ydata().tolist() == [0.25, 0.75, 0.5]
    assert dev.collections[0].get_offsets().tolist() == [[2.0, 0.75]]
    assert dev.get_ylabel() == "MAP on dev"


def test_every_axis_has_a_label_and_every_name_is_shown(plots):
    run = frame(("q1", "a", 1.0), ("q1", "b", 0.0), columns=("question_id", "answer_id", "score"))
    # Names that matplotlib would leave out of a legend, or typeset as a formula.
    names = ["_a", "$x_1$", "<b>&amp;"]
    lengths = by_length(dict.fromkeys(names, P_1))
    scores = score_distribution(dict.fromkeys(names, run), frame(("q1", "a", 1)))

    for figure in (plots.plot_accuracy_by_length(lengths), plots.plot_scores(scores)):
        for axes in figure.axes:
            assert axes.get_ylabel()
            assert axes.get_xlabel()
        words = [text.text for text in ElementTree.fromstring(plots.svg(figure)).iter(f"{SVG}text")]
        assert all(any(name in word for word in words) for name in names)


def test_svg_is_deterministic(plots):
    data = by_length({"s": P_1})

    first, second = (plots.svg(plots.plot_accuracy_by_length(data)) for _ in range(2))

    assert first == second
    assert first.startswith("<svg")
    assert "date" not in first


def luminance(colour):
    """Relative luminance as WCAG 2 defines it."""
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("page", ["#FFFFFF", "#000000"])
def test_contrast_on_white_and_on_black(plots, page):
    def contrast(colour):
        low, high = sorted((luminance(colour), luminance(page)))
        return (high + 0.05) / (low + 0.05)

    # The minimum contrast of graphics and of text in WCAG 2.2.
    assert min(map(contrast, plots.COLOURS)) >= 3
    assert contrast(plots.TEXT) >= 4.5


def test_missing_matplotlib_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    from aptool.reporting import plots

    run = frame(("q", "a", 1.0), columns=("question_id", "answer_id", "score"))
    with pytest.raises(AptoolError, match=r"a chart needs matplotlib: .*pip install"):
        plots.plot_scores(score_distribution({"s": run}, frame(("q", "a", 1))))
