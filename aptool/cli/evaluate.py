"""``aptool eval``: trec_eval's measures of one or more runs."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

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
from aptool.errors import MOST_EXAMPLES, UsageError, first_few, printable

if TYPE_CHECKING:
    import polars as pl

    from aptool.evaluation.limits import Limits
    from aptool.evaluation.measures import Evaluation
    from aptool.evaluation.significance import Interval
    from aptool.formats.trec import Run
    from aptool.reporting.breakdown import Group, Kind

    Intervals = dict[str, dict[str, Interval]]
    Groups = dict[str, list[Group]]

logger = logging.getLogger(__name__)

# More measures than this are shown as rows, with the runs as columns; intervals are wide.
_MOST_COLUMNS = 8
_MOST_INTERVAL_COLUMNS = 4
_PER_QUESTION_SUFFIXES = (".parquet", ".csv", ".jsonl")


@click.command("eval")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@qrels_option
@measures_option
@level_option
@click.option(
    "--limits",
    is_flag=True,
    help="Add the figures of the best order of each run's candidates, and their recall.",
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
    type=click.Choice(["question-length", "answer-length", "type"]),
    help="Add the figures by length of the question or of its relevant answer, or by question word.",
)
@pools_option
@review_options
@click.option(
    "--per-question",
    metavar="FILE",
    help="Write the measures of each question to a .parquet, .csv or .jsonl file.",
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
    by: Kind | None,
    pools: tuple[str, ...],
    review: bool,
    dev: tuple[str, ...],
    dev_qrels: str | None,
    per_question: str | None,
    as_json: bool,
    markdown: bool,
    latex: bool,
) -> None:
    """Evaluate runs as trec_eval does.

    A question of the qrels that is missing from a run counts 0 (trec_eval -c), a question of the run that is
    not in the qrels is left out, and a candidate without a judgement counts as not relevant; the number of
    each is printed on stderr. num_* measures are sums over the questions, gm_* geometric means, all others
    means. No order of a run's candidates has a higher figure than --limits shows; their recall is its map.
    """
    from aptool.evaluation.compare import mean_intervals
    from aptool.evaluation.limits import candidate_limits
    from aptool.evaluation.measures import evaluate as measure
    from aptool.evaluation.measures import relevant_from
    from aptool.evaluation.names import measure_names
    from aptool.evaluation.significance import CONFIDENCE
    from aptool.formats.trec import read_qrels, read_run
    from aptool.reporting.markup import latex_table, markdown_table

    if as_json + markdown + latex > 1:
        raise UsageError("--json, --markdown and --latex: expected at most one of them")
    names = measure_names(split_measures(measures))
    reviewing = parse_review(review, runs, dev, dev_qrels, pools)
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
        run: measure(judgements, content.frame, names, level=level, run_name=run, qrels_name=qrels)
        for run, content in read.items()
    }
    for run, evaluation in evaluations.items():
        report_gaps(run, evaluation)
    if intervals and confidence is None:
        confidence = CONFIDENCE
    ranges: Intervals = {}
    if confidence is not None:
        ranges = {
            run: mean_intervals(evaluation.per_question, confidence=confidence)
            for run, evaluation in evaluations.items()
        }
    reachable: dict[str, Limits] = {}
    if limits:
        reachable = {
            run: candidate_limits(judgements, content.frame, names, level=level)
            for run, content in read.items()
        }
    groups: Groups = {}
    if by is not None:
        groups = _groups(by, pools, qrels, relevant_from(judgements, level), evaluations, names)
    if per_question is not None:
        _write_per_question(per_question, evaluations)
    reviewed = None
    if reviewing is not None:
        frames = {run: content.frame for run, content in read.items()}
        level_of_tests = CONFIDENCE if confidence is None else confidence
        judged = Judged(frames, evaluations, judgements, qrels, names, level, level_of_tests)
        reviewed = answer(judged, reviewing)
    if as_json:
        facts = {"qrels": qrels, "measures": names, **({"level": level} if level > 1 else {})}
        facts |= {"confidence": confidence} if ranges else {}
        facts |= {"review": reviewed.figures} if reviewed is not None else {}
        click.echo(_as_json(facts, read, evaluations, ranges, reachable, groups))
        return
    rows = _rows(names, evaluations, ranges, reachable, groups)
    # With a table for a paper, all else goes to stderr, as messages do.
    err = markdown or latex
    if err:
        click.echo((latex_table if latex else markdown_table)(rows), nl=False)
    else:
        print_table(rows)
    for run, one in reachable.items():
        click.echo(_limits_line(run, one), err=err)
    if reviewed is not None:
        print_answers(reviewed.answers, err=err)


def _groups(
    by: Kind,
    pools: tuple[str, ...],
    qrels: str,
    relevant: pl.DataFrame,
    evaluations: dict[str, Evaluation],
    names: tuple[str, ...],
) -> Groups:
    """The figures of each run by kind of question, of which the judgements ``relevant`` count as relevant."""
    from aptool.reporting.breakdown import break_down, question_groups

    found = found_pools(pools, qrels)
    if found is None:
        name = location_of_pools(qrels).name
        raise UsageError(f"--by {by}: no {name} beside the qrels; pass --pools FILE")
    kinds = question_groups(found.files, relevant, by, found.answers)
    judged = next(iter(evaluations.values())).per_question
    without = judged.join(kinds, on="question_id", how="anti")["question_id"]
    if len(without) == judged.height:
        raise UsageError(f"--by {by}: no question of {qrels} is in {', '.join(found.files)}")
    if len(without):
        examples = first_few(without.head(MOST_EXAMPLES + 1).to_list(), len(without))
        logger.info(f"--by {by}: questions not in the pools, in no group: {len(without)} ({examples})")
    return {run: break_down(one.per_question, kinds, names) for run, one in evaluations.items()}


def _check_per_question(path: str) -> None:
    from aptool.formats.atomic import check_writable

    if Path(path).suffix not in _PER_QUESTION_SUFFIXES:
        wanted = ", ".join(_PER_QUESTION_SUFFIXES)
        raise UsageError(f"--per-question {path}: expected a name ending in one of {wanted}")
    check_writable(path)


def _check_apart(path: str, runs: tuple[str, ...], qrels: str, pools: tuple[str, ...]) -> None:
    from aptool.formats.atomic import check_apart, files_of

    check_apart(path, files_of(*runs, qrels, *(pools or (str(location_of_pools(qrels)),))))


def _write_per_question(path: str, evaluations: dict[str, Evaluation]) -> None:
    import polars as pl

    from aptool.formats.atomic import atomic_file

    frame = pl.concat(
        evaluation.per_question.select(pl.lit(printable(run)).alias("run"), pl.all())
        for run, evaluation in evaluations.items()
    )
    with atomic_file(path) as temporary:
        if path.endswith(".parquet"):
            frame.write_parquet(temporary)
        elif path.endswith(".csv"):
            frame.write_csv(temporary)
        else:
            frame.write_ndjson(temporary)


def _limits_line(run: str, limits: Limits) -> str:
    without = f"{limits.without} of {limits.questions} questions have no relevant one among them"
    return f"{run}: the candidates have {100 * limits.recall:.1f}% of the relevant answers; {without}"


def _as_json(
    facts: dict[str, Any],
    read: dict[str, Run],
    evaluations: dict[str, Evaluation],
    ranges: Intervals,
    reachable: dict[str, Limits],
    groups: Groups,
) -> str:
    """The document; ``facts`` are what holds for all runs."""
    import json

    runs = [
        {
            "run": run,
            "tag": read[run].tag,
            "questions": evaluation.per_question.height,
            "measures": dict(evaluation.means),
            **({"intervals": ranges[run]} if ranges else {}),
            **({"limits": reachable[run]._asdict()} if reachable else {}),
            **({"groups": [group._asdict() for group in groups[run]]} if groups else {}),
            "missing": list(evaluation.missing),
            "extra": list(evaluation.extra),
            "unjudged": evaluation.unjudged.height,
        }
        for run, evaluation in evaluations.items()
    ]
    return json.dumps({**facts, "runs": runs}, indent=2, ensure_ascii=False)


def _rows(
    names: tuple[str, ...],
    evaluations: dict[str, Evaluation],
    ranges: Intervals,
    reachable: dict[str, Limits],
    groups: Groups,
) -> list[list[str]]:
    """The cells of the table, headings first."""
    rows = [["run", "questions", *names]]
    for run, evaluation in evaluations.items():
        values = [_shown(name, evaluation.means[name], ranges.get(run, {}).get(name)) for name in names]
        rows.append([run, str(evaluation.per_question.height), *values])
        if run in reachable:
            best = [_shown(name, reachable[run].best[name], None) for name in names]
            rows.append([f"{run}, best order", "", *best])
        for group in groups.get(run, ()):
            means = [_shown(name, group.means[name], None) for name in names]
            rows.append([f"  {group.name}", str(group.questions), *means])
    if len(names) > (_MOST_INTERVAL_COLUMNS if ranges else _MOST_COLUMNS):
        rows = [list(column) for column in zip(*rows, strict=True)]
        rows[0][0] = "measure"
    return rows


def _shown(name: str, value: float, interval: Interval | None) -> str:
    from aptool.evaluation.names import is_sum

    digits = 0 if is_sum(name) else 4
    mean = f"{value:.{digits}f}"
    return mean if interval is None else f"{mean} [{interval.low:.{digits}f}, {interval.high:.{digits}f}]"
