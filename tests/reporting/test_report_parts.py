"""What the report is made of: packed weights, places of words, charts, the paper's figures."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_runs import decoded

from aptool.evaluation.paper import paper_figures
from aptool.reporting.charts import Line, histogram, interval_mark, line_chart, ticks
from aptool.reporting.heatmap import Side, Window
from aptool.reporting.packing import packed_spans, packed_weights


@given(st.lists(st.floats(1e-6, 1), min_size=1, max_size=300))
def test_packed_weights_are_within_a_hair_and_sum_to_one_exactly(values):
    weights = np.array(values) / np.sum(values)
    packed = packed_weights(weights)

    assert len(packed) == 4 * len(weights)
    assert np.abs(decoded(packed) - weights).max() <= 6e-8
    assert round(decoded(packed).sum() * ((1 << 24) - 1)) == (1 << 24) - 1


def test_places_of_words_count_as_javascript_counts():
    # "😀" is two UTF-16 units, of which Python makes one character.
    text = "a 😀😀 b"
    side = Side(text, ((0, 1), (2, 4), (5, 6)), np.full(3, 1 / 3), frozenset(), Window(0, 0))

    assert packed_spans(side) == [0, 1, 1, 4, 1, 1]


def test_ticks_are_round_and_span_the_values():
    assert ticks(0.107, 0.43, 5) == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])
    assert ticks(14, 78, 7, whole=True) == [10, 20, 30, 40, 50, 60, 70, 80]
    assert ticks(3, 3, 5, whole=True)[0] == 3
    assert ticks(0.5, 0.5, 5)[0] < 0.5 < ticks(0.5, 0.5, 5)[-1]


def test_lines_go_through_their_points_and_names_are_escaped():
    # Two ticks a side: x from 1 to 3, y from 0 to 1, so the middle point is half-way across and down.
    line = Line("<b>", 0, [(1, 0.0), (2, 0.5), (3, 1.0)], ["a & b"] * 3)
    svg = line_chart([line], label='"chart"', x_label="x", whole_x=True)
    (begin, middle, end) = (
        tuple(map(float, point.split(","))) for point in re.search(r'points="([^"]*)"', svg)[1].split()
    )

    assert middle == pytest.approx(((begin[0] + end[0]) / 2, (begin[1] + end[1]) / 2), abs=0.1)
    assert begin[0] < end[0]
    assert begin[1] > end[1]  # up the page
    assert "<b>" not in svg
    assert "a &amp; b" in svg


def test_an_interval_beyond_the_scale_is_an_arrow_to_its_side():
    inside = interval_mark((0.4, 0.6), 0.5, (0.4, 0.8), 0.6)
    below = interval_mark((0.0, 0.1), 0.05, (0.4, 0.8), 0.6)

    assert "circle" in inside
    assert "polygon" not in inside
    assert "circle" not in below
    assert 'points="1,10' in below


def test_a_histogram_is_as_high_as_its_shares():
    svg = histogram([0, 1, 2], [0.25, 0.75], [1.0, 0.0], "scores")
    heights = [
        [float(point.split(",")[1]) for point in shape.split()]
        for shape in re.findall(r'points="([^"]*)"', svg)
    ]
    base = heights[0][0]
    negative, positive = ([base - y for y in shape] for shape in heights)

    assert max(positive) == pytest.approx(0.75 * max(negative))
    assert positive[1] == pytest.approx(max(positive) / 3)


def test_figures_of_the_paper_are_given_for_its_collections_and_splits_only():
    assert paper_figures("insuranceqa-v1", "test2").systems["ap-bilstm"] == (0.664,)
    assert paper_figures("insuranceqa-v1", "dev").systems["qa-cnn"] == (0.616,)
    assert paper_figures("trecqa-clean", "test").systems["ap-cnn"] == (0.7530, 0.8511)
    assert paper_figures("trecqa-clean", "test").questions == 68
    assert paper_figures("trecqa-raw", "test") is None
    assert paper_figures("wikiqa", "dev") is None
    assert paper_figures("functions", "test") is None
