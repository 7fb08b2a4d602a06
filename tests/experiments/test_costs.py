"""Costs in the table of a matrix."""

from aptool.experiments.table import summarize, table_cells
from aptool.experiments.trial import Result


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
