"""``aptool eval``: evaluate runs with the measures of trec_eval."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aptool.cli.parameters import json_option, overwrite_flag
from aptool.cli.runs import (
    check_distinct,
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
    from collections.abc import Iterable, Sequence

    import polars as pl

    from aptool.data.runs import Qrels
    from aptool.evaluation.evaluation import Evaluation

logger = logging.getLogger(__name__)

_PER_QUESTION_SUFFIXES = (".parquet", ".csv", ".jsonl")
# Means of groups with fewer questions are unreliable.
_FEW_QUESTIONS = 10


@click.command("eval")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@qrels_option
@measures_option
@click.option("--intervals", is_flag=True, help="Add 95% bootstrap intervals (BCa, 10,000 resamples).")
@click.option(
    "--by",
    type=click.Choice(["length"]),
    metavar="length",
    help="Add metrics by length: over the questions whose relevant answer has at most N words (figures 3 and "
    "4 of the paper).",
)
@pools_option
@click.option(
    "--per-question", metavar="FILE", help="Write measures per question to a .parquet, .csv or .jsonl file."
)
@overwrite_flag
@json_option
def evaluate(
    runs: tuple[str, ...],
    qrels: str | None,
    measures: str | None,
    intervals: bool,
    by: str | None,
    pools: tuple[str, ...],
    per_question: str | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Evaluate runs as trec_eval does.

    A question that is missing from a run counts as 0 (trec_eval -c). Questions without qrels are ignored.
    Unjudged candidates count as not relevant. The number of each is printed on stderr.

    Measures are means over the questions; Num* measures are sums.
    """
    from aptool.data.importing import warn_of_added, warn_of_runs
    from aptool.data.runs import Qrels, Run
    from aptool.evaluation import names
    from aptool.evaluation.measures import evaluate as evaluate_run
    from aptool.evaluation.significance import CONFIDENCE
    from aptool.outputs import check_apart, check_output

    columns = parse_measures(measures)
    check_distinct(runs)
    if pools and by is None:
        raise UsageError("--pools: requires --by")
    if per_question is not None:
        if Path(per_question).suffix not in _PER_QUESTION_SUFFIXES:
            suffixes = ", ".join(_PER_QUESTION_SUFFIXES)
            raise UsageError(f"--per-question {per_question}: expected a name ending in one of {suffixes}")
        check_output(per_question, overwrite=overwrite)
    read = {run: Run.load(run) for run in runs}
    qrels = qrels_of(runs, qrels)
    if per_question is not None:
        check_apart(per_question, [*runs, qrels, *pools])
    judgements = Qrels.load(qrels)
    groups = _groups(judgements, qrels, pools) if by is not None else None
    evaluations = {
        run: evaluate_run(judgements, content, columns, groups=groups) for run, content in read.items()
    }
    if groups is not None:
        _report_groups(next(iter(evaluations.values())), groups)
    report_gaps(evaluations)
    warn_of_added(qrels)
    levels = [measure.level for measure in names.parse_measures(columns)]
    warn_of_runs({run: content.frame for run, content in read.items()}, judgements.frame, levels)
    if per_question is not None:
        _write_per_question(per_question, evaluations)
    entries = [_entry(run, read[run].tag, evaluations[run], intervals) for run in runs]
    if as_json:
        document = {
            "qrels": qrels,
            "measures": columns,
            **({"confidence": CONFIDENCE} if intervals else {}),
            **({"by": by} if by is not None else {}),
            "runs": entries,
        }
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        print_table(_table_rows(columns, entries))


def _groups(judgements: Qrels, qrels: str, pools: tuple[str, ...]) -> pl.DataFrame:
    """The groups of questions by the length of their relevant answers in the pools."""
    from aptool.evaluation.texts import length_groups

    texts = pools_given(pools, qrels)
    if texts is None:
        name = location_of_pools(qrels).name
        raise UsageError(f"--by length: no {name} in the folder of the qrels; pass --pools")
    return length_groups(texts, judgements)


def _report_groups(evaluation: Evaluation, groups: pl.DataFrame) -> None:
    """Log the number of questions without a group, and of small groups."""
    without = evaluation.per_question.join(groups, on="question_id", how="anti", maintain_order="left")
    if without.height:
        examples = first_few(without["question_id"].to_list())
        logger.info(f"--by length: questions in no group: {without.height} ({examples})")
    few = sum(group.height < _FEW_QUESTIONS for group in evaluation.groups.values())
    if few:
        logger.info(f"--by length: groups with under {_FEW_QUESTIONS} questions, marked (few): {few}")


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


def _entry(run: str, tag: str, evaluation: Evaluation, intervals: bool) -> dict[str, Any]:
    """The results of a run, and of each group of questions, for JSON."""
    from aptool.evaluation.evaluation import averages, mean_intervals

    def figures(per_question: pl.DataFrame, key: str) -> dict[str, Any]:
        bounds = {"intervals": mean_intervals(per_question)} if intervals else {}
        return {"questions": per_question.height, key: averages(per_question), **bounds}

    entry = {"run": run, "tag": tag, **figures(evaluation.per_question, "measures")}
    if evaluation.groups:
        entry["groups"] = [
            {"name": name, "few": group.height < _FEW_QUESTIONS, **figures(group, "means")}
            for name, group in evaluation.groups.items()
        ]
    gaps = {"missing": evaluation.missing, "extra": evaluation.extra}
    return {**entry, **gaps, "unjudged": evaluation.unjudged.height}


def _table_rows(measures: Sequence[str], entries: Iterable[dict[str, Any]]) -> list[list[str]]:
    """Return the cells of the table, headings first."""
    rows = [["run", "questions", *measures]]
    for entry in entries:
        rows.append([entry["run"], *_cells(entry, entry["measures"])])
        for group in entry.get("groups", []):
            few = " (few)" if group["few"] else ""
            rows.append([f"  {group['name']}{few}", *_cells(group, group["means"])])
    return rows


def _cells(entry: dict[str, Any], means: dict[str, float]) -> list[str]:
    """The number of questions, and each mean with its interval."""
    from aptool.evaluation.evaluation import shown_mean

    cells = [str(entry["questions"])]
    for name, mean in means.items():
        bounds = [shown_mean(name, bound) for bound in entry.get("intervals", {}).get(name, ())]
        cells.append(shown_mean(name, mean) + (f" [{', '.join(bounds)}]" if bounds else ""))
    return cells
