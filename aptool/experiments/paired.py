"""Paired tests between the systems of a matrix, over all questions of its folds."""

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import polars as pl

from aptool.evaluation.measures import evaluate
from aptool.evaluation.significance import Paired, compare_paired, holm
from aptool.experiments.trial import Result, by_system
from aptool.formats.collection import Collection
from aptool.formats.trec import read_qrels, read_run

# Fewer than for one comparison: there are as many tests as pairs of systems.
PERMUTATIONS = 10_000


class SystemPair(NamedTuple):
    """Two systems on the folds of a collection by one measure.

    Attributes:
        collection: the name of the folds in the results.
        system: the one with the higher mean.
        other: the other one.
        measure: its name.
        paired: the tests; a question's value is its mean over seeds, and ``other`` is the baseline.
        holm: the p-value of the permutation test, corrected for all pairs of the collection.
    """

    collection: str
    system: str
    other: str
    measure: str
    paired: Paired
    holm: float


def paired_tests(results: Sequence[Result], measure: str) -> list[SystemPair]:
    """Every pair of systems on the folds of each collection, the systems from the highest mean to the lowest.

    Raises:
        InputError: a run or the qrels cannot be read.
    """
    groups = [group for group in by_system(results) if group[0].folds]
    tests = []
    for collection in dict.fromkeys(group[0].collection for group in groups):
        values = {
            group[0].system: _per_question(group, measure)
            for group in groups
            if group[0].collection == collection
        }
        order = sorted(values, key=lambda system: -float(values[system].sum()))
        pairs = list(combinations(order, 2))
        found = [
            compare_paired(values[other].to_numpy(), values[system].to_numpy(), permutations=PERMUTATIONS)
            for system, other in pairs
        ]
        corrected = holm([one.permutation.p for one in found])
        tests += [
            SystemPair(collection, *pair, measure, paired, p)
            for pair, paired, p in zip(pairs, found, corrected, strict=True)
        ]
    return tests


def paired_cells(tests: Sequence[SystemPair]) -> list[list[str]]:
    """The tests as rows of text, headings first."""
    head = ["collection", "system", "against", "measure", "difference", "95% interval", "p", "p (Holm)"]
    return [head, *map(_cells, tests)]


def _cells(one: SystemPair) -> list[str]:
    paired = one.paired
    interval = f"{paired.interval.low:+.4f} to {paired.interval.high:+.4f}"
    figures = [f"{paired.difference:+.4f}", interval, f"{paired.permutation.p:.4f}", f"{one.holm:.4f}"]
    return [one.collection, one.system, one.other, one.measure, *figures]


def _per_question(group: Sequence[Result], measure: str) -> pl.Series:
    """The measure of each question, the mean over the seeds of a system, in the order of the qrels."""
    first = group[0]
    qrels = read_qrels(Collection(first.folder).qrels(first.split))
    frames = [evaluate(qrels, read_run(one.run).frame, [measure]).per_question for one in group]
    by_question = pl.concat(frames).group_by("question_id", maintain_order=True)
    return by_question.agg(pl.col(measure).mean())[measure]
