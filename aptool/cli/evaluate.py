"""``aptool eval``: trec_eval's measures of one or more runs."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aptool.cli.evaluations import RunResult, limits_line, rows_of
from aptool.cli.evaluations import as_json as to_json
from aptool.cli.review import Judged, parse_review, print_answers, review_options
from aptool.cli.review import review as answer
from aptool.cli.runs import (
    Confidence,
    found_pools,
    level_option,
    location_of_pools,
    measures_option,
    pools_option,
    qrels_beside,
    qrels_option,
    report_gaps,
    split_measures,
)
from aptool.cli.tables import print_table
from aptool.errors import InputError, UsageError, first_few, printable

if TYPE_CHECKING:
    import polars as pl

    from aptool.evaluation.evaluation import Evaluation
    from aptool.evaluation.limits import Limits
    from aptool.evaluation.names import Naming

logger = logging.getLogger(__name__)

_PER_QUESTION_SUFFIXES = (".parquet", ".csv", ".jsonl")


@click.command("eval")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@qrels_option
@measures_option
@level_option
@click.option(
    "--limits",
    is_flag=True,
    help="Add the upper bounds: the figures of a perfect re-ranking of each run's candidates, their recall.",
)
@click.option(
    "--intervals",
    is_flag=True,
    help="Add a bootstrap confidence interval to each mean (BCa, 10,000 resamples).",
)
@click.option(
    "--confidence",
    type=Confidence(),
    help="Confidence of the intervals, below 1; implies --intervals.  [default: 0.95]",
)
@click.option(
    "--by",
    metavar="COLUMN",
    help="Add the figures of each group of questions: by question-length, answer-length (of the relevant "
    "answer) or type (question word), or by a column of --groups, else of the pools.",
)
@click.option(
    "--groups",
    metavar="FILE",
    help="TSV, CSV or Parquet file with the columns question_id and that of --by.",
)
@pools_option
@review_options
@click.option(
    "--per-question",
    metavar="FILE",
    help="Write the measures of each question to a .parquet, .csv or .jsonl file.",
)
@click.option(
    "--names",
    type=click.Choice(["common", "trec_eval", "ir_measures"]),
    default="common",
    show_default=True,
    help="Names of the measures in the output: MAP, map or AP; P@1, P_1 or P@1.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, in full precision.")
@click.option("--markdown", is_flag=True, help="Print a Markdown table.")
@click.option("--latex", is_flag=True, help="Print a LaTeX table (with the package booktabs).")
def evaluate(
    runs: tuple[str, ...],
    qrels: str | None,
    measures: str | None,
    level: int,
    limits: bool,
    intervals: bool,
    confidence: float | None,
    by: str | None,
    groups: str | None,
    pools: tuple[str, ...],
    review: bool,
    dev: tuple[str, ...],
    dev_qrels: str | None,
    per_question: str | None,
    names: Naming,
    as_json: bool,
    markdown: bool,
    latex: bool,
) -> None:
    """Evaluate runs as trec_eval does.

    A question of the qrels that is missing from a run counts 0 (trec_eval -c), a question of the run that is
    not in the qrels is left out, and a candidate without a judgement counts as not relevant; the number of
    each is printed on stderr. Num* measures are sums over the questions, GMAP and gm_bpref geometric means,
    all others means. --limits shows the upper bound of each measure, the figures of a perfect re-ranking.
    """
    from aptool.datasets.pool_warnings import warn_of_runs
    from aptool.evaluation.limits import candidate_limits
    from aptool.evaluation.measures import evaluate as measure
    from aptool.evaluation.measures import relevant_from
    from aptool.evaluation.names import measure_names, name_in
    from aptool.evaluation.significance import CONFIDENCE
    from aptool.formats.trec import read_qrels, read_run
    from aptool.reporting.markup import latex_table, markdown_table

    if as_json + markdown + latex > 1:
        raise UsageError("--json, --markdown and --latex: expected at most one of them")
    asked = measure_names(split_measures(measures))
    reviewing = parse_review(review, runs, dev, dev_qrels, pools)
    if groups is not None and by is None:
        raise UsageError("--groups: requires --by COLUMN")
    if pools and by is None and reviewing is None:
        raise UsageError("--pools: requires --by or --review")
    if per_question is not None:
        _check_per_question(per_question)
    read = {run: read_run(run) for run in runs}
    qrels = qrels or qrels_beside(runs)
    if per_question is not None:
        _check_apart(per_question, runs, qrels, pools)
    judgements = read_qrels(qrels)
    evaluations = {
        run: measure(judgements, content.frame, asked, level=level, run_name=run, qrels_name=qrels)
        for run, content in read.items()
    }
    for run, evaluation in evaluations.items():
        report_gaps(run, evaluation)
    warn_of_runs({run: content.frame for run, content in read.items()}, judgements)
    if intervals and confidence is None:
        confidence = CONFIDENCE
    reachable: dict[str, Limits] = {}
    if limits:
        reachable = {
            run: candidate_limits(judgements, content.frame, asked, level=level)
            for run, content in read.items()
        }
    reviewed = None
    if reviewing is not None:
        frames = {run: content.frame for run, content in read.items()}
        level_of_tests = CONFIDENCE if confidence is None else confidence
        judged = Judged(frames, evaluations, judgements, qrels, asked, level, level_of_tests)
        reviewed = answer(judged, reviewing)
    if by is not None:
        table = _groups(by, groups, pools, qrels, relevant_from(judgements, level), evaluations)
        evaluations = {run: evaluation.grouped(table) for run, evaluation in evaluations.items()}
        _report_groups(by, next(iter(evaluations.values())))
    results = {
        run: RunResult(content.tag, evaluations[run].named(names), confidence, reachable.get(run))
        for run, content in read.items()
    }
    shown = tuple(name_in(names, name) for name in asked)
    if per_question is not None:
        _write_per_question(per_question, results)
    if as_json:
        facts = {"qrels": qrels, "measures": shown, **({"level": level} if level > 1 else {})}
        facts |= {"confidence": confidence} if confidence is not None else {}
        facts |= {"by": by} if by is not None else {}
        facts |= {"review": reviewed.figures} if reviewed is not None else {}
        click.echo(to_json(facts, results))
        return
    rows = rows_of(shown, results)
    # With a table for a paper, all else goes to stderr, as messages do.
    err = markdown or latex
    if err:
        click.echo((latex_table if latex else markdown_table)(rows), nl=False)
    else:
        print_table(rows)
    for run, one in reachable.items():
        click.echo(limits_line(run, one), err=err)
    if reviewed is not None:
        print_answers(reviewed.answers, err=err)


def _groups(
    by: str,
    groups: str | None,
    pools: tuple[str, ...],
    qrels: str,
    relevant: pl.DataFrame,
    evaluations: dict[str, Evaluation],
) -> pl.DataFrame:
    """The group of each question: question_id, group, position.

    Args:
        by: a kind of `breakdown.KINDS`, or a column.
        groups: file with the column; None for the pools.
        pools: pools files; empty for those beside the qrels.
        qrels: path of the qrels.
        relevant: the judgements that count as relevant.
        evaluations: of all runs, over the same questions.
    """
    from aptool.evaluation.groups import read_groups
    from aptool.reporting.breakdown import KINDS, question_groups

    if groups is not None:
        sources, table = [groups], read_groups(groups, by)
    else:
        found = found_pools(pools, qrels)
        if found is None:
            name = location_of_pools(qrels).name
            raise UsageError(f"--by {by}: no {name} beside the qrels; pass --groups FILE or --pools FILE")
        sources = found.files
        kind = next((kind for kind in KINDS if kind == by), None)
        if kind is None:
            table = _column(by, sources)
        else:
            table = question_groups(sources, relevant, kind, found.answers)
    judged = next(iter(evaluations.values())).per_question
    if judged.join(table, on="question_id", how="semi").is_empty():
        raise UsageError(f"--by {by}: no question of {qrels} is in {', '.join(sources)}")
    return table


def _column(by: str, pools: list[str]) -> pl.DataFrame:
    """The group of each question by a column of pools files."""
    from aptool.evaluation.groups import groups_of_files
    from aptool.reporting.breakdown import KINDS

    try:
        return groups_of_files(pools, by)
    except InputError as error:
        expected = f"{', '.join(KINDS)}, or a column of --groups FILE or of the pools"
        raise UsageError(f"--by {by}: expected {expected} ({error})") from error


def _report_groups(by: str, evaluation: Evaluation) -> None:
    """Logs how many questions are in no group, and that groups of a few questions say little."""
    from aptool.evaluation.evaluation import FEW_QUESTIONS

    without = evaluation.ungrouped
    if without:
        logger.info(f"--by {by}: questions in no group: {len(without)} ({first_few(without)})")
    few = sum(group.is_small for group in evaluation.groups.values())
    if few:
        logger.info(f"--by {by}: groups with under {FEW_QUESTIONS} questions, marked (few): {few}")


def _check_per_question(path: str) -> None:
    from aptool.formats.atomic import check_writable

    if Path(path).suffix not in _PER_QUESTION_SUFFIXES:
        wanted = ", ".join(_PER_QUESTION_SUFFIXES)
        raise UsageError(f"--per-question {path}: expected a name ending in one of {wanted}")
    check_writable(path)


def _check_apart(path: str, runs: tuple[str, ...], qrels: str, pools: tuple[str, ...]) -> None:
    from aptool.formats.atomic import check_apart, files_of

    check_apart(path, files_of(*runs, qrels, *(pools or (str(location_of_pools(qrels)),))))


def _write_per_question(path: str, results: dict[str, RunResult]) -> None:
    import polars as pl

    from aptool.formats.atomic import atomic_file

    frame = pl.concat(
        result.evaluation.per_question.select(pl.lit(printable(run)).alias("run"), pl.all())
        for run, result in results.items()
    )
    with atomic_file(path) as temporary:
        if path.endswith(".parquet"):
            frame.write_parquet(temporary)
        elif path.endswith(".csv"):
            frame.write_csv(temporary)
        else:
            frame.write_ndjson(temporary)
