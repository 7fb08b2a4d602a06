"""Evaluation and comparison of several runs, shared by the public functions and the commands."""

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import polars as pl
from typing_extensions import override

from aptool.errors import AptoolError, InputError, UsageError
from aptool.evaluation import compare as comparing
from aptool.evaluation import measures as measuring
from aptool.evaluation.compare import (
    TITLES,
    Comparison,
    Deltas,
    check_comparable,
    check_same_questions,
    differing_candidates,
    html_of,
    largest_deltas,
    table_row,
)
from aptool.evaluation.evaluation import (
    Evaluation,
    groups_of_column,
    groups_of_files,
    groups_of_mapping,
    read_groups,
)
from aptool.evaluation.measures import Limits, candidate_limits, relevant_from
from aptool.evaluation.names import parse_measures
from aptool.evaluation.texts import KINDS, PoolTexts, find_texts, question_groups
from aptool.formats.trec import count_ties, log_ties
from aptool.library.arguments import PathLike, check_path, is_path
from aptool.library.frames import TABLE, Table, read_columns
from aptool.library.pools import Pools
from aptool.library.run import Qrels, Run
from aptool.version import Tabular

AnyGroups: TypeAlias = PathLike | Pools | Table


@dataclass(frozen=True)
class EvaluatedRuns:
    """Evaluations of runs with the same qrels, by the names of the runs."""

    qrels: Qrels
    runs: dict[str, Run]
    level: int  # the lowest relevance that counts as relevant
    evaluations: dict[str, Evaluation]
    limits: dict[str, Limits]  # upper bounds; empty unless requested


class Comparisons(list[Comparison], Tabular):
    """Comparisons with one baseline; a table when printed."""

    @override
    def to_polars(self) -> pl.DataFrame:
        """Return one row per comparison: means, difference with its interval, tests, wins, ties, losses."""
        means = ("system", "measure", "questions", "baseline", "mean", "difference", "low", "high")
        tests = ("p", "p_holm", "t_test_p", "t_test_p_holm", "effect", "wins", "ties", "losses")
        rows = []
        for comparison in self:
            paired = comparison.paired
            values = (paired.questions, paired.baseline, paired.system, paired.difference, *paired.interval)
            permutation = (paired.permutation.p, comparison.permutation_holm)
            p_values = (*permutation, paired.t_test.p, comparison.t_holm)
            counts = (paired.wins, paired.ties, paired.losses)
            rows.append((comparison.system, comparison.measure, *values, *p_values, paired.effect, *counts))
        return pl.DataFrame(rows, schema=[*means, *tests], orient="row")

    @override
    def __repr__(self) -> str:
        rows = [TITLES, *map(table_row, self)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if number < 2 else cell.rjust(width)
                for number, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in rows
        )

    @override
    def _repr_html_(self) -> str:
        return html_of(self)


@dataclass(frozen=True)
class ComparedRuns:
    """Comparisons of systems with a baseline."""

    evaluated: EvaluatedRuns  # the baseline first
    questions: int  # number of questions of the qrels, including those left out by ``on_common``
    comparisons: Comparisons  # ordered by measure
    deltas: list[Deltas]  # questions with the largest differences per system; empty unless requested
    texts: PoolTexts | None  # texts of these questions; None without pools

    def differing(self, run: str) -> list[str]:
        """The sorted ids of the judged questions whose candidates differ from those of the baseline."""
        runs = self.evaluated.runs
        baseline = next(iter(runs))
        return differing_candidates(runs[baseline].frame, runs[run].frame, self.evaluated.qrels.frame)


def evaluate_runs(
    qrels: Qrels,
    runs: Mapping[str, Run],
    measures: tuple[str, ...],
    *,
    level: int = 1,
    limits: bool = False,
    by: object = None,
    groups: object = None,
    options: bool = False,
) -> EvaluatedRuns:
    """Evaluate runs by name, as ``evaluate`` does, by the printed names of the measures.

    ``limits`` adds the upper bounds of each run. ``options`` is whether errors name options of a command
    instead of arguments.
    """
    qrels_name = qrels.path or "qrels"
    evaluations = {
        name: measuring.evaluate(
            qrels.frame, run.frame, measures, level=level, run_name=_label(name, run), qrels_name=qrels_name
        )
        for name, run in runs.items()
    }
    for name, run in runs.items():
        log_ties(_label(name, run), *count_ties(run.frame))
    if by is not None or groups is not None:
        table = _question_groups(by, groups, qrels, level, options=options)
        evaluations = {name: evaluation.grouped(table) for name, evaluation in evaluations.items()}
    bounds = {
        name: candidate_limits(qrels.frame, run.frame, measures, level=level)
        for name, run in (runs.items() if limits else ())
    }
    return EvaluatedRuns(qrels, dict(runs), level, evaluations, bounds)


def compare_runs(
    qrels: Qrels,
    runs: Mapping[str, Run],
    measures: tuple[str, ...],
    *,
    level: int,
    on_common: bool,
    confidence: float,
    permutations: int,
    seed: int,
    top: int = 0,
    by: str | None = None,
    pools: Pools | None = None,
    options: bool = False,
) -> ComparedRuns:
    """Compare runs with the first run, as ``compare`` does, by the printed names of the measures.

    ``top`` questions with the largest gains by the measure ``by`` (default: the first measure), and as many
    with the largest losses, are described with the texts of ``pools``. ``options`` is whether errors name
    options of a command instead of arguments.
    """
    by = measures[0] if by is None else by
    needed = tuple(dict.fromkeys([*measures, by]))
    check_comparable(needed)
    questions = qrels.frame["question_id"].n_unique()
    if on_common:
        qrels, runs = _on_common(qrels, runs)
    evaluated = evaluate_runs(qrels, runs, needed, level=level)
    evaluations = evaluated.evaluations
    baseline, *systems = runs
    remedy = "--on-common" if options else "on_common=True"
    for name in systems:
        check_same_questions(
            _label(baseline, runs[baseline]),
            evaluations[baseline].missing,
            _label(name, runs[name]),
            evaluations[name].missing,
            remedy=f", or {remedy}",
        )
    tables = {name: evaluation.per_question for name, evaluation in evaluations.items()}
    comparisons = comparing.compare(
        tables[baseline],
        {name: tables[name] for name in systems},
        measures,
        confidence=confidence,
        permutations=permutations,
        seed=seed,
    )
    deltas = []
    if top:
        relevant = relevant_from(qrels.frame, parse_measures([by])[0].level or level)
        deltas = [
            largest_deltas(
                name,
                by,
                top,
                (tables[baseline], tables[name]),
                (runs[baseline].frame, runs[name].frame),
                relevant,
            )
            for name in systems
        ]
    return ComparedRuns(
        evaluated,
        questions,
        Comparisons(comparisons),
        deltas,
        _texts(pools, deltas) if top and pools is not None else None,
    )


def _question_groups(by: object, groups: object, qrels: Qrels, level: int, *, options: bool) -> pl.DataFrame:
    """The group of each question, from arguments of ``evaluate``: question_id, group, position."""
    source = "a group"
    name = f"--by {by}" if options else "by"
    if isinstance(by, Mapping):
        if groups is not None:
            raise InputError(
                "groups", problem="not allowed if by is a dict", expected="the name of a column as by"
            )
        table = groups_of_mapping("by", by)
    elif not isinstance(by, str):
        raise InputError("by", value=by, expected="a dict {question id: group}, or the name of a column")
    elif isinstance(groups, Pools):
        with groups.files() as (files, answers):
            source = ", ".join(files)
            if by in KINDS:
                kind: Any = by
                table = question_groups(files, relevant_from(qrels.frame, level), kind, answers)
            else:
                try:
                    table = groups_of_files(files, by)
                except InputError as error:
                    sources = "--groups FILE or of the pools" if options else "the pools"
                    expected = f"{', '.join(KINDS)}, or a column of {sources}"
                    raise UsageError(f"{name}: expected {expected} ({error})") from error
    elif is_path(groups):
        source = check_path("groups", groups)
        table = read_groups(source, by)
    else:
        table = groups_of_column("groups", _groups_frame(groups), by)
    if qrels.frame.join(table, on="question_id", how="semi").is_empty():
        raise UsageError(f"{name}: no question of {qrels.path or 'the qrels'} is in {source}")
    return table


def _groups_frame(groups: object) -> pl.DataFrame:
    expected = f"{TABLE}, a TSV, CSV or Parquet file, or Pools, with the column of by"
    return pl.DataFrame(dict(read_columns("groups", groups, expected)), strict=False)


def _on_common(qrels: Qrels, runs: Mapping[str, Run]) -> tuple[Qrels, dict[str, Run]]:
    """Restrict qrels and runs to the judged questions that every run ranks."""
    judged = qrels.frame.select("question_id").unique()
    common = judged
    for run in runs.values():
        common = common.join(run.frame, on="question_id", how="semi")
    if common.is_empty():
        labels = ", ".join(_label(name, run) for name, run in runs.items())
        raise AptoolError(f"{labels}: no question of the qrels is in all of these runs")
    left_out = judged.join(common, on="question_id", how="anti")
    remaining = {name: copy.copy(run) for name, run in runs.items()}
    for run in remaining.values():
        run.frame = run.frame.join(left_out, on="question_id", how="anti")
    qrels = copy.copy(qrels)
    qrels.frame = qrels.frame.join(common, on="question_id", how="semi")
    return qrels, remaining


def _texts(pools: Pools, deltas: Iterable[Deltas]) -> PoolTexts:
    """The texts of the questions with the largest differences."""
    pairs = {
        (delta.question_id, answer)
        for largest in deltas
        for delta in (*largest.gained, *largest.lost)
        for answer in (delta.relevant, delta.first_before, delta.first_after)
        if answer is not None
    }
    schema = {"question_id": pl.String, "answer_id": pl.String}
    with pools.files() as (files, answers):
        return find_texts(files, pl.DataFrame(sorted(pairs), schema=schema, orient="row"), answers)


def _label(name: str, run: Run) -> str:
    """The name of a run in errors."""
    return run.path or f"run {name!r}"
