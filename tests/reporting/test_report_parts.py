"""Parts of the report: intervals, ticks and charts."""

from xml.etree import ElementTree

import polars as pl
import pytest

from aptool.reporting.plots import plot_costs, plot_scores, plot_training, svg
from aptool.reporting.report import interval_bar, scale_ticks


def test_a_histogram_is_as_high_as_its_shares():
    bins = {"low": [0, 1], "high": [1, 2], "relevant": [0.25, 0.75], "others": [1.0, 0.0]}
    figure = plot_scores(pl.DataFrame({"system": ["s", "s"], **bins}))
    (axes,) = figure.axes
    outlines = [patch.get_data() for patch in axes.patches if not patch.get_fill()]

    assert [outline.values.tolist() for outline in outlines] == [[1.0, 0.0], [0.25, 0.75]]
    assert [outline.edges.tolist() for outline in outlines] == [[0, 1, 2]] * 2
    # The hatching is transparent between its lines.
    (hatching,) = ElementTree.fromstring(svg(figure)).iter("{http://www.w3.org/2000/svg}pattern")
    assert [rectangle.get("fill") for rectangle in hatching] == ["none", None]


def test_interval_is_placed_on_the_scale():
    bar = interval_bar((0.4, 0.6), 0.5, (0.4, 0.8), 0.6)

    assert bar == pytest.approx((0, 50, 25, 50))


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.6, 0.65, [0.6, 0.62, 0.64, 0.66]),
        (0.21, 0.84, [0.2, 0.4, 0.6, 0.8, 1.0]),
        (0.2, 0.8, [0.2, 0.4, 0.6, 0.8]),
        (0.5, 0.5, [0.5, 0.5001, 0.5002]),
        (-0.3, 0.1, [-0.3, -0.2, -0.1, 0.0, 0.1]),
    ],
)
def test_the_scale_has_few_round_ticks_around_all_intervals(low, high, ticks):
    assert scale_ticks(low, high) == ticks


def test_a_small_difference_does_not_fill_the_height():
    points = pl.DataFrame({"system": ["s", "s"], "epoch": [1, 2], "dev_MAP": [0.6, 0.6003]})

    low, high = plot_training(points, ["dev_MAP"]).axes[0].get_ylim()

    assert high - low == pytest.approx(0.05)
    assert (low + high) / 2 == pytest.approx(0.60015)


def test_lines_of_twelve_systems_differ_without_colours():
    points = pl.DataFrame({"system": [f"s{number}" for number in range(12)], "epoch": 1, "loss": 0.5})
    lines = plot_training(points, ["loss"]).axes[0].get_lines()

    assert len({line.get_marker() for line in lines}) == 12
    assert len({(line.get_color(), str(line._unscaled_dash_pattern)) for line in lines}) == 12


def test_points_of_costs_are_labelled_instead_of_joined():
    data = pl.DataFrame({"system": ["a", "b"], "cost": [10.0, 1000.0], "MAP": [0.5, 0.25]})
    figure = plot_costs(data, "MAP", {"cost": "cost"})
    (axes,) = figure.axes

    assert [line.get_linestyle() for line in axes.lines] == ["None", "None"]
    assert {label.get_text(): label.xy for label in axes.texts} == {"a": (10, 0.5), "b": (1000, 0.25)}
    assert all(label.get_window_extent().x1 <= axes.bbox.x1 + 1 for label in axes.texts)
