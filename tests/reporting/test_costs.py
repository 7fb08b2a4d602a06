"""Accuracy against costs: the table, the points of the chart, and errors."""

import xml.etree.ElementTree as ElementTree

import polars as pl
import pytest

from aptool.errors import InputError
from aptool.experiments.table import summarize, table_cells
from aptool.experiments.trial import Result
from aptool.reporting.charts import COSTS, cost_table
from aptool.reporting.runs import Runs

SVG = "{http://www.w3.org/2000/svg}"


def result(system, seed, value, costs, score=2.0):
    seconds = {"train": 3.0, "score": score}
    return Result("c", system, seed, None, {"MAP": value}, 10, seconds, "c", None, "test", None, (), costs)


def test_costs_are_means_over_seeds_if_every_seed_has_them():
    # 100 pairs in 2 s and in 4 s are 50 and 25 per second.
    summaries = summarize(
        [
            result("maxsim", 1, 0.5, {"bytes_per_answer": 100.0, "pairs": 100}),
            result("maxsim", 2, 0.7, {"bytes_per_answer": 300.0, "pairs": 100}, score=4.0),
            result("frozen", 1, 0.4, {"bytes_per_answer": 1234.4}),
            result("old", 1, 0.4, {"bytes_per_answer": 8.0, "pairs": 10}),
            result("old", 2, 0.4, {}),
            result("bm25", 1, 0.3, {}),
        ]
    )

    cells = table_cells(summaries, ["MAP"], costs=True)

    assert [row[-2:] for row in cells] == [
        ["pairs/s", "bytes/answer"],
        ["38", "200"],
        ["", "1,234"],
        ["", ""],
        ["", ""],
    ]
    assert [row[:-2] for row in cells] == table_cells(summaries, ["MAP"])


def line(collection, system, value, stored, rate):
    costs = {"bytes_per_answer": stored, "pairs_per_second": rate}
    return {
        "collection": collection,
        "system": system,
        "means": {"MAP": value},
        "train_seconds": 1.5,
        **costs,
    }


@pytest.fixture
def runs(tmp_path):
    """Runs with the costs of four systems."""
    lines = [
        line("c", "bm25", 0.3, None, None),
        line("c", "mean", 0.5, 1000.0, 50.0),
        line("c", "max_sim", 0.6, 10000.0, 40.0),
        line("c", "cross", 0.7, None, 1.0),
        line("d", "mean", 0.9, 1000.0, None),
    ]
    return Runs(tmp_path, [], ("MAP",), None, {}, lines)


def test_the_table_has_the_systems_with_costs(runs):
    table = cost_table(runs, "MAP")

    assert table.rows() == [
        ("c", "mean", 0.5, 1000.0, 50.0, 1.5),
        ("c", "max_sim", 0.6, 10000.0, 40.0, 1.5),
        ("c", "cross", 0.7, None, 1.0, 1.5),
        ("d", "mean", 0.9, 1000.0, None, 1.5),
    ]


def test_points_are_at_their_values(runs):
    pytest.importorskip("matplotlib")
    from aptool.reporting.plots import plot_costs, svg

    figure = plot_costs(cost_table(runs, "MAP").filter(collection="c"), "MAP", COSTS)
    stored, rate = figure.axes
    assert stored.get_xscale() == rate.get_xscale() == "log"
    assert {label.get_text() for label in stored.texts} == {"mean", "max_sim"}
    assert {tuple(label.xy) for label in rate.texts} == {(50, 0.5), (40, 0.6), (1, 0.7)}
    # On the page y grows downwards.
    root = ElementTree.fromstring(svg(figure))
    groups = [group for group in root.iter(f"{SVG}g") if (group.get("id") or "").startswith("series-")]
    first, second = (next(group.iter(f"{SVG}use")) for group in groups[:2])
    assert float(first.get("x")) < float(second.get("x"))
    assert float(first.get("y")) > float(second.get("y"))
    assert "max_sim" in svg(figure)


@pytest.mark.parametrize("second", [0.8273, 0.8275])
def test_labels_of_close_points_do_not_overlap(second):
    pytest.importorskip("matplotlib")
    from aptool.reporting.plots import plot_costs

    data = pl.DataFrame(
        {"system": ["mean", "codes", "far"], "MAP": [0.8275, second, 0.81], "cost": [1536.0, 1536.0, 48e3]}
    )
    figure = plot_costs(data, "MAP", {"cost": "cost"})

    figure.canvas.draw()
    names = {label.get_text(): label.get_window_extent() for label in figure.axes[0].texts}
    assert names.keys() == {"mean", "codes", "far"}
    assert not names["mean"].overlaps(names["codes"])


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        ((31.0, 66.0), ["30", "40", "50", "60", "70"]),
        ((1536.0, 48000.0), ["1k", "2k", "5k", "10k", "20k", "50k"]),
        ((50.0, 11e6), ["10", "100", "1k", "10k", "100k", "1M", "10M"]),
        ((0.4, 3.0), ["0.5", "1", "2"]),
    ],
)
def test_ticks_of_costs_are_round_numbers_in_plain_text(costs, expected):
    pytest.importorskip("matplotlib")
    from aptool.reporting.plots import plot_costs

    data = pl.DataFrame({"system": ["_a", "b$"], "MAP": [0.5, 0.6], "cost": costs})
    figure = plot_costs(data, "MAP", {"cost": "cost"})

    figure.canvas.draw()
    (axes,) = figure.axes
    low, high = axes.get_xlim()
    shown = [label.get_text() for label in axes.get_xticklabels() if low <= label.get_position()[0] <= high]
    assert shown == expected
    assert low < costs[0] < costs[1] < high


def test_costs_that_no_system_has_get_no_panel(runs):
    pytest.importorskip("matplotlib")
    from aptool.reporting.plots import plot_costs, svg

    figure = plot_costs(cost_table(runs, "MAP").filter(collection="d"), "MAP", COSTS)

    assert "pairs per second" not in svg(figure)


def test_a_damaged_table_is_refused(runs):
    with pytest.raises(InputError, match=r"table\.json: lines: .*expected the results of `aptool matrix`"):
        cost_table(runs._replace(lines=[{"collection": "c"}]), "MAP")
