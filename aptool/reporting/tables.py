"""The tables of the report: results, significance tests, runs, and results by kind of question."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import polars as pl

from aptool.evaluation.evaluation import Group, group_figures
from aptool.formats.location import PathOrUrl
from aptool.formats.pools import Answers, list_units, read_pools
from aptool.reporting.curves import relevant_lengths
from aptool.reporting.runs import CollectionResults, SystemResults
from aptool.text.tokenizer import WordTokenizer

MINUS = "\u2212"
TEST_TITLES = (
    "System",
    "Measure",
    "Δ",
    "95% interval",
    "p",
    "p, Holm",
    "t-test p, Holm",
    "d",
    "Wins",
    "Ties",
    "Losses",
)


class IntervalBar(NamedTuple):
    """A confidence interval drawn on a scale, as percentages of its width."""

    begin: float
    end: float
    value: float
    reference: float  # the baseline's value
    beyond: str  # ``left`` or ``right`` if the value is outside the scale, else empty


def result_row(system: SystemResults, results: CollectionResults) -> dict[str, Any]:
    """A row of the table of results."""
    main = results.measures[0]
    reference = next(other for other in results.systems if other.name == results.baseline)
    # Systems that are significantly worse, such as a random order, would compress the scale of the others.
    near = [other.intervals[main] for other in results.systems if _mark(other, main) != "▼"]
    scale = (min(low for low, _ in near), max(high for _, high in near))
    bar = interval_bar(system.intervals[main], system.means[main], scale, reference.means[main])
    comparison = system.comparisons.get(main)
    seeds = len(system.entries)
    preset = f"{system.preset}, " if system.preset not in (None, system.name) else ""
    role = (
        "baseline" if system.name == results.baseline else f"{preset}{seeds} seed{'s' if seeds > 1 else ''}"
    )
    return {
        "name": system.name,
        "note": role,
        "cells": [_cell(system, measure, results) for measure in results.measures],
        "bar": bar,
        "better": _mark(system, main) == "▲",
        "difference": _signed(comparison.difference) if comparison else "",
        "p": probability(comparison.permutation_holm) if comparison else "",
    }


def plain_results(results: CollectionResults) -> list[list[str]]:
    """The table of results as text, column titles first: figures with their intervals, Δ and p."""
    titles = list(results.measures)
    rows = [["System", *titles, f"Δ {titles[0]}", "p"]]
    for system in results.systems:
        row = result_row(system, results)
        cells = [
            f"{cell['value']} [{cell['interval']}]" + (f" ± {cell['deviation']}" if cell["deviation"] else "")
            for cell in row["cells"]
        ]
        rows.append([system.name, *cells, row["difference"], row["p"]])
    return rows


def interval_bar(
    interval: tuple[float, float], value: float, scale: tuple[float, float], reference: float
) -> IntervalBar:
    """Places an interval on a scale.

    Args:
        interval: the bounds of the interval.
        value: the mean.
        scale: the values at the left and the right end, the same for all rows of a table.
        reference: the baseline's mean.
    """
    low, high = scale
    begin, end, dot, line = (
        100 * (min(max(x, low), high) - low) / ((high - low) or 1.0) for x in (*interval, value, reference)
    )
    beyond = "left" if value < low else "right" if value > high else ""
    return IntervalBar(begin, end, dot, line, beyond)


def _cell(system: SystemResults, measure: str, results: CollectionResults) -> dict[str, Any]:
    low, high = system.intervals[measure]
    return {
        "value": f"{system.means[measure]:.4f}",
        "deviation": f"{system.deviations[measure]:.4f}" if system.deviations[measure] else "",
        "interval": f"{low:.3f} – {high:.3f}",
        "mark": _mark(system, measure),
        "best": system.means[measure] == max(other.means[measure] for other in results.systems),
    }


def _mark(system: SystemResults, measure: str) -> str:
    comparison = system.comparisons.get(measure)
    if comparison is None or not comparison.significant():
        return ""
    return "▲" if comparison.difference > 0 else "▼"


def significance_rows(system: SystemResults) -> list[list[str]]:
    """Rows of the table of all tests."""
    lines = []
    for measure, comparison in system.comparisons.items():
        one = comparison.paired
        low, high = one.interval
        lines.append(
            [
                system.name,
                measure,
                _signed(one.difference),
                f"{_signed(low)} to {_signed(high)}",
                probability(one.permutation.p),
                probability(comparison.permutation_holm),
                probability(comparison.t_holm),
                _signed(one.effect, 2),
                *(f"{count:,}" for count in (one.wins, one.ties, one.losses)),
            ]
        )
    return lines


def run_rows(system: SystemResults) -> list[list[str]]:
    """One row per seed."""
    lines = []
    for entry in system.entries:
        config = entry.config
        trained = config["training"] if config else None
        lines.append(
            [
                system.name,
                str(entry.seed),
                str(config["recipe"]["preset"]) if config else "",
                str(trained["best_epoch"]) if trained else "",
                f"{trained['collection']} {trained['fingerprint']}" if trained else "",
                _seconds(entry.seconds.get("train", 0.0)) if trained else "",
                _seconds(entry.seconds.get("score", 0.0)),
            ]
        )
    return lines


def probability(p: float) -> str:
    """A p-value as text."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _signed(value: float, digits: int = 4) -> str:
    text = f"{abs(value):.{digits}f}"
    if float(text) == 0:
        return text
    return f"{'+' if value > 0 else MINUS}{text}"


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value < 100 else f"{value / 60:,.1f} min"


Kind: TypeAlias = Literal["question-length", "answer-length", "type"]
KINDS: tuple[Kind, ...] = get_args(Kind)

# Highest lengths of the groups, in words and punctuation marks; longer ones are a group of their own.
QUESTION_LENGTHS = (5, 8, 12, 20)
ANSWER_LENGTHS = (10, 20, 40, 80)
# A question's type is the first of these words in it.
QUESTION_WORDS = ("who", "whom", "whose", "what", "which", "when", "where", "why", "how")
OTHER = "other"
WITHOUT = "no relevant answer in the pool"


def question_groups(
    pools: Iterable[PathOrUrl], qrels: pl.DataFrame, kind: Kind, answers: Answers | None = None
) -> pl.DataFrame:
    """The kind of every question.

    Args:
        pools: pools files.
        qrels: question_id, answer_id, relevance.
        kind: what questions are grouped by; an answer's length is that of the shortest relevant one.
        answers: shared answers of the pools.

    Returns:
        question_id (str), group (str), position (i64: the order of the groups).

    Raises:
        InputError: a file is not a pools file.
    """
    files = [str(path) for path in pools]
    tokenizer = WordTokenizer.from_words([])
    texts: dict[str, list[str]] = {}
    for unit in list_units(files):
        read = read_pools(unit, answers)
        texts |= {
            name: tokenizer.split(text)
            for name, text in zip(read.question_ids.to_pylist(), read.questions.to_pylist(), strict=True)
        }
    if kind == "type":
        found = {name: _type(words) for name, words in texts.items()}
    elif kind == "question-length":
        found = {name: _length(len(words), QUESTION_LENGTHS) for name, words in texts.items()}
    else:
        lengths = dict(relevant_lengths(files, qrels, answers).iter_rows())
        last = (WITHOUT, len(ANSWER_LENGTHS) + 1)
        found = {n: _length(lengths[n], ANSWER_LENGTHS) if n in lengths else last for n in texts}
    rows = [(name, group, place) for name, (group, place) in found.items()]
    schema = {"question_id": pl.String, "group": pl.String, "position": pl.Int64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def figures_by_kind(
    pools: Iterable[PathOrUrl],
    relevant: pl.DataFrame,
    tables: Mapping[str, pl.DataFrame],
    answers: Answers | None = None,
) -> dict[Kind, dict[str, dict[str, Group]]]:
    """The figures of each run by every kind of question: kind -> run -> name of the group -> figures.

    Args:
        pools: pools files.
        relevant: question_id, answer_id, relevance.
        tables: question_id and one column per measure of each run.
        answers: shared answers of the pools.
    """
    files = list(pools)
    figures: dict[Kind, dict[str, dict[str, Group]]] = {}
    for kind in KINDS:
        groups = question_groups(files, relevant, kind, answers)
        figures[kind] = {run: group_figures(table, groups) for run, table in tables.items()}
    return figures


def _type(words: Sequence[str]) -> tuple[str, int]:
    lowered = [word.lower() for word in words]
    for word in lowered:
        if word in QUESTION_WORDS:
            return word, QUESTION_WORDS.index(word)
    return OTHER, len(QUESTION_WORDS)


def _length(tokens: int, highest: Sequence[int]) -> tuple[str, int]:
    low = 1
    for place, high in enumerate(highest):
        if tokens <= high:
            return f"{low}-{high} tokens", place
        low = high + 1
    return f"{low} tokens and more", len(highest)
