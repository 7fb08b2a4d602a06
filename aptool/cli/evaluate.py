"""``aptool eval``: evaluate runs with the measures of trec_eval."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aptool.cli.parameters import SectionedCommand, json_option, overwrite_option
from aptool.cli.runs import (
    CONFIDENCE_RANGE,
    check_distinct,
    level_option,
    location_of_pools,
    measures_option,
    parse_measures,
    pools_given,
    pools_option,
    qrels_of,
    qrels_option,
    report_gaps,
)
from aptool.cli.tables import print_table
from aptool.errors import UsageError, first_few, printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aptool.evaluation.evaluation import Evaluation, Group
    from aptool.evaluation.measures import Limits
    from aptool.evaluation.significance import Interval

logger = logging.getLogger(__name__)

_PER_QUESTION_SUFFIXES = (".parquet", ".csv", ".jsonl")
# A table with more measures has a row per measure and a column per run; intervals are wide.
_MOST_COLUMNS, _MOST_INTERVAL_COLUMNS = 8, 4


def _check_suffix(ctx: click.Context, param: click.Parameter, path: str | None) -> str | None:
    if path is not None and Path(path).suffix not in _PER_QUESTION_SUFFIXES:
        suffixes = ", ".join(_PER_QUESTION_SUFFIXES)
        raise UsageError(f"--per-question {path}: expected a name ending in one of {suffixes}")
    return path


@click.command("eval", cls=SectionedCommand)
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@qrels_option
@measures_option
@level_option
@click.option(
    "--limits", is_flag=True, help="Show the oracle upper bound: the score of a perfect re-ranking."
)
@click.option("--intervals", is_flag=True, help="Add bootstrap confidence intervals (BCa, 10,000 resamples).")
@click.option(
    "--confidence",
    type=CONFIDENCE_RANGE,
    metavar="X",
    help="Confidence level, 0.5 to 0.999; implies --intervals.  [default: 0.95]",
)
@click.option(
    "--by",
    metavar="COLUMN",
    help="Add metrics per length (the most words of the relevant answer, figures 3 and 4 of the paper), "
    "question-length, type (question word), or a column of --groups or the pools.",
)
@click.option(
    "--groups", metavar="FILE", help="Table with columns question_id and --by: TSV, CSV or Parquet."
)
@pools_option
@click.option(
    "--per-question",
    metavar="FILE",
    callback=_check_suffix,
    help="Write measures per question to a .parquet, .csv or .jsonl file.",
)
@overwrite_option("per_question")
@json_option
@click.option("--markdown", is_flag=True, help="Print a Markdown table.")
@click.option("--latex", is_flag=True, help="Print a LaTeX table (with booktabs).")
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
    per_question: str | None,
    as_json: bool,
    markdown: bool,
    latex: bool,
) -> None:
    """Evaluate runs as trec_eval does.

    A question that is missing from a run counts as 0 (trec_eval -c). Questions without qrels are ignored.
    Unjudged candidates count as not relevant. The number of each is printed on stderr.

    Measures are means over the questions; Num* measures are sums.
    """
    from aptool.data.importing import warn_of_added, warn_of_runs
    from aptool.data.runs import Qrels, Run
    from aptool.evaluation import names
    from aptool.evaluation.groups import question_groups
    from aptool.evaluation.measures import candidate_limits
    from aptool.evaluation.measures import evaluate as evaluate_run
    from aptool.evaluation.significance import CONFIDENCE
    from aptool.outputs import check_apart
    from aptool.reporting.html import latex_table, markdown_table

    if as_json + markdown + latex > 1:
        raise UsageError("--json, --markdown and --latex: expected at most one of them")
    columns = parse_measures(measures)
    check_distinct(runs)
    if groups is not None and by is None:
        raise UsageError("--groups: requires --by COLUMN")
    if pools and by is None:
        raise UsageError("--pools: requires --by")
    read = {run: Run.load(run) for run in runs}
    qrels = qrels_of(runs, qrels)
    if per_question is not None:
        check_apart(per_question, [*runs, qrels, *(pools or (str(location_of_pools(qrels)),))])
    if intervals and confidence is None:
        confidence = CONFIDENCE
    texts = pools_given(pools, qrels) if by is not None and groups is None else None
    if by is not None and groups is None and texts is None:
        name = location_of_pools(qrels).name
        raise UsageError(f"--by {by}: no {name} in the folder of the qrels; pass --groups or --pools")
    judgements = Qrels.load(qrels)
    evaluations = {run: evaluate_run(judgements, read[run], columns, level=level) for run in runs}
    if by is not None:
        table = question_groups(by, groups if groups is not None else texts, judgements, level)
        evaluations = {run: evaluation.grouped(table) for run, evaluation in evaluations.items()}
        _report_groups(by, next(iter(evaluations.values())))
    bounds = {
        run: candidate_limits(judgements.frame, read[run].frame, columns, level=level)
        for run in (runs if limits else ())
    }
    report_gaps(evaluations)
    warn_of_added(qrels)
    levels = [measure.level or level for measure in names.parse_measures(columns)]
    warn_of_runs({run: content.frame for run, content in read.items()}, judgements.frame, levels)
    if per_question is not None:
        _write_per_question(per_question, evaluations)
    if as_json:
        settings = {"qrels": qrels, "measures": columns, **({"level": level} if level > 1 else {})}
        settings |= {"confidence": confidence} if confidence is not None else {}
        settings |= {"by": by} if by is not None else {}
        tags = {run: content.tag for run, content in read.items()}
        click.echo(_to_json(settings, evaluations, tags, bounds, confidence))
        return
    rows = _table_rows(columns, evaluations, bounds, confidence)
    # Stdout has only the table of a paper.
    err = markdown or latex
    if err:
        click.echo((latex_table if latex else markdown_table)(rows), nl=False)
    else:
        print_table(rows)
    for run, bound in bounds.items():
        without = f"{bound.without} of {bound.questions} questions have no relevant candidate"
        recall = f"the candidates have {100 * bound.recall:.1f}% of the relevant answers"
        click.echo(f"{run}: {recall}; {without}", err=err)


def _report_groups(by: str, evaluation: Evaluation) -> None:
    """Log the number of questions without a group, and of small groups."""
    from aptool.evaluation.evaluation import FEW_QUESTIONS

    without = evaluation.ungrouped
    if without:
        logger.info(f"--by {by}: questions in no group: {len(without)} ({first_few(without)})")
    few = sum(group.is_small for group in evaluation.groups.values())
    if few:
        logger.info(f"--by {by}: groups with under {FEW_QUESTIONS} questions, marked (few): {few}")


def _write_per_question(path: str, evaluations: dict[str, Evaluation]) -> None:
    import polars as pl

    from aptool.outputs import output_file

    frame = pl.concat(
        evaluation.per_question.select(pl.lit(printable(run)).alias("run"), pl.all())
        for run, evaluation in evaluations.items()
    )
    with output_file(path) as temporary:
        if path.endswith(".parquet"):
            frame.write_parquet(temporary)
        elif path.endswith(".csv"):
            frame.write_csv(temporary)
        else:
            frame.write_ndjson(temporary)


def _to_json(
    settings: dict[str, Any],
    evaluations: Mapping[str, Evaluation],
    tags: Mapping[str, str],
    limits: Mapping[str, Limits],
    confidence: float | None,
) -> str:
    """Return the results as a JSON document, with the settings that all runs share."""
    import json

    runs = []
    for run, evaluation in evaluations.items():
        entry = {
            "run": run,
            "tag": tags[run],
            "questions": evaluation.per_question.height,
            "measures": evaluation.means,
            **_intervals_json(evaluation, confidence),
        }
        if run in limits:
            entry["limits"] = limits[run]._asdict()
        if evaluation.groups:
            groups = evaluation.groups.values()
            entry["groups"] = [{**group.to_dict(), **_intervals_json(group, confidence)} for group in groups]
        entry |= {"missing": evaluation.missing, "extra": evaluation.extra}
        runs.append({**entry, "unjudged": evaluation.unjudged.height})
    return json.dumps({**settings, "runs": runs}, indent=2, ensure_ascii=False)


def _intervals_json(metrics: Evaluation | Group, confidence: float | None) -> dict[str, Any]:
    return {} if confidence is None else {"intervals": metrics.intervals(confidence)}


def _table_rows(
    names: tuple[str, ...],
    evaluations: Mapping[str, Evaluation],
    limits: Mapping[str, Limits],
    confidence: float | None,
) -> list[list[str]]:
    """Return the cells of the table, headings first."""

    def cells(metrics: Evaluation | Group) -> list[str]:
        intervals = {} if confidence is None else metrics.intervals(confidence)
        return [_cell(name, metrics.means[name], intervals.get(name)) for name in names]

    rows = [["run", "questions", *names]]
    for run, evaluation in evaluations.items():
        rows.append([run, str(evaluation.per_question.height), *cells(evaluation)])
        if run in limits:
            best = [_cell(name, limits[run].best[name], None) for name in names]
            rows.append([f"{run}, best order", "", *best])
        for group in evaluation.groups.values():
            few = " (few)" if group.is_small else ""
            rows.append([f"  {printable(group.name)}{few}", str(group.questions), *cells(group)])
    if len(names) > (_MOST_COLUMNS if confidence is None else _MOST_INTERVAL_COLUMNS):
        rows = [list(column) for column in zip(*rows, strict=True)]
        rows[0][0] = "measure"
    return rows


def _cell(name: str, value: float, interval: Interval | None) -> str:
    from aptool.evaluation.names import is_mean

    digits = 4 if is_mean(name) else 0
    mean = f"{value:.{digits}f}"
    return mean if interval is None else f"{mean} [{interval.low:.{digits}f}, {interval.high:.{digits}f}]"
