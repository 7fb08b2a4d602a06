"""``aptool eval``: evaluate runs with the measures of trec_eval; ``aptool fuse``: fuse runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from aptool.arguments import check_one_word
from aptool.cli.parameters import json_option, overwrite_flag
from aptool.cli.runs import (
    FEW_QUESTIONS,
    by_option,
    check_distinct,
    groups_of,
    measures_option,
    parse_measures,
    pools_given,
    pools_option,
    qrels_of,
    qrels_option,
    report_gaps,
    report_groups,
)
from aptool.cli.tables import print_table
from aptool.errors import UsageError, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import polars as pl

    from aptool.evaluation.measures import Evaluation


@click.command("eval")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@qrels_option
@measures_option
@click.option("--intervals", is_flag=True, help="Add 95% bootstrap intervals (BCa, 10,000 resamples).")
@by_option
@pools_option
@click.option("--per-question", metavar="FILE", help="Write measures per question to a CSV file.")
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
    from aptool.data.check import warn_of_added, warn_of_runs
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
        if not per_question.endswith(".csv"):
            raise UsageError(f"--per-question {per_question}: expected a name ending in .csv")
        check_output(per_question, overwrite=overwrite)
    read = {run: Run.load(run) for run in runs}
    qrels = qrels_of(runs, qrels)
    if per_question is not None:
        check_apart(per_question, [*runs, qrels, *pools])
    judgements = Qrels.load(qrels)
    groups = groups_of(judgements, qrels, pools_given(pools, qrels)) if by is not None else None
    evaluations = {
        run: evaluate_run(judgements, content, columns, groups=groups) for run, content in read.items()
    }
    if groups is not None:
        report_groups(next(iter(evaluations.values())), groups)
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


def _write_per_question(path: str, evaluations: dict[str, Evaluation]) -> None:
    import polars as pl

    from aptool.outputs import output_file

    frame = pl.concat(
        evaluation.per_question.select(pl.lit(printable(run)).alias("run"), pl.all())
        for run, evaluation in evaluations.items()
    )
    with output_file(path) as temporary:
        frame.write_csv(temporary)


def _entry(run: str, tag: str, evaluation: Evaluation, intervals: bool) -> dict[str, Any]:
    """The results of a run, and of each group of questions, for JSON."""
    from aptool.evaluation.measures import averages, mean_intervals

    def figures(per_question: pl.DataFrame, key: str) -> dict[str, Any]:
        bounds = {"intervals": mean_intervals(per_question)} if intervals else {}
        return {"questions": per_question.height, key: averages(per_question), **bounds}

    entry = {"run": run, "tag": tag, **figures(evaluation.per_question, "measures")}
    if evaluation.groups:
        entry["groups"] = [
            {"name": name, "few": group.height < FEW_QUESTIONS, **figures(group, "means")}
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
    from aptool.evaluation.measures import shown_mean

    cells = [str(entry["questions"])]
    for name, mean in means.items():
        bounds = [shown_mean(name, bound) for bound in entry.get("intervals", {}).get(name, ())]
        cells.append(shown_mean(name, mean) + (f" [{', '.join(bounds)}]" if bounds else ""))
    return cells


@click.command("fuse")
@click.argument("runs", nargs=-1, required=True)
@click.option("--output", required=True, type=click.Path(), help="TREC run file.")
@overwrite_flag
@click.option("--train", "qrels", metavar="QRELS", help="Learn the weights from these qrels.")
@click.option(
    "--train-run",
    "train_runs",
    metavar="RUN",
    multiple=True,
    help="Training run per RUN, in the same order.  [default: RUN, by cross-validation]",
)
@click.option("--tag", default="fused", help="Run tag, one word.")
def fuse(
    runs: tuple[str, ...],
    output: str,
    overwrite: bool,
    qrels: str | None,
    train_runs: tuple[str, ...],
    tag: str,
) -> None:
    """Fuse RUNs of the same questions into one run.

    Without --train, by reciprocal rank fusion: the score of a candidate is the sum of 1 / (60 + rank). With
    --train, by a linear model of the scores, standardized per question; its weights are printed.
    """
    if qrels is None and train_runs:
        raise UsageError("--train-run given without --train QRELS; expected both")
    check_one_word("--tag", tag)
    from aptool.evaluation.fusion import fuse as fuse_runs
    from aptool.evaluation.fusion import learn_fusion
    from aptool.outputs import check_apart, check_output

    check_apart(output, [*runs, *train_runs, *([qrels] if qrels is not None else [])])
    check_output(output, overwrite=overwrite)
    if qrels is None:
        fuse_runs(runs, tag=tag).save(output, overwrite=overwrite)
    else:
        learned = learn_fusion(runs, qrels, train_runs=train_runs or None, tag=tag)
        learned.run.save(output, overwrite=overwrite)
        rows = zip(runs, learned.weights, strict=True)
        weights = [[run, f"{mean:.4f}", f"{deviation:.4f}"] for run, (mean, deviation) in rows]
        print_table([["run", "weight", "sd over folds"], *weights])
    click.echo(output)
