"""``aptool eval``: trec_eval's measures of one run or several."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aptool.cli.display import say
from aptool.errors import UsageError

if TYPE_CHECKING:
    from aptool.evaluation.metrics import Evaluation
    from aptool.formats.trec import Run

_NAMED_AT_MOST = 5
# With more measures than this, each gets a row and the runs get the columns.
_COLUMNS_AT_MOST = 8
_PER_QUESTION_SUFFIXES = (".parquet", ".csv", ".jsonl")


@click.command("eval")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option("--qrels", metavar="QRELS", help="The judgements.  [default: DEV.qrels beside DEV.run]")
@click.option(
    "--measures",
    metavar="NAMES",
    default="map,recip_rank,P_1",
    show_default=True,
    help="Measures of trec_eval: map, recip_rank, P_1, ndcg_cut_10, recall_100, success_5, bpref, set_F, "
    "num_rel, or several at once: official, set, all_trec.",
)
@click.option(
    "--per-question",
    metavar="FILE",
    help="Write the measures of every question to a .parquet, .csv or .jsonl file.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, in full precision.")
def evaluate(
    runs: tuple[str, ...], qrels: str | None, measures: str, per_question: str | None, as_json: bool
) -> None:
    """Evaluate runs as trec_eval does.

    A question of the qrels that a run lacks counts 0 (trec_eval -c), a question of the run that the qrels
    lack is left out, and a candidate without a judgement counts as not relevant; all three are counted on
    stderr. num_* measures are sums over the questions, gm_* geometric means, all others means.
    """
    from aptool.evaluation.metrics import evaluate as measure
    from aptool.evaluation.metrics import measure_names
    from aptool.formats.trec import read_qrels, read_run

    names = measure_names(_split(measures))
    if per_question is not None:
        _check_per_question(per_question)
    read = {run: read_run(run) for run in runs}
    qrels = qrels or _qrels_beside(runs)
    judgements = read_qrels(qrels)
    evaluations = {
        run: measure(judgements, content.frame, names, run_name=run, qrels_name=qrels)
        for run, content in read.items()
    }
    for run, evaluation in evaluations.items():
        _report_gaps(run, evaluation)
    if per_question is not None:
        _write_per_question(per_question, evaluations)
    if as_json:
        click.echo(_as_json(qrels, names, read, evaluations))
    else:
        _print_table(names, evaluations)


def _split(measures: str) -> list[str]:
    """The names in a list; a comma before a further cut-off, as in ``P.1,5``, separates no names."""
    return [name for name in re.split(r",(?!\d+(?:\.\d+)?(?:,|$))|\s+", measures.strip()) if name]


def _qrels_beside(runs: tuple[str, ...]) -> str:
    """The qrels that stand beside the runs; says which they are."""
    found: dict[str, str] = {}
    for run in runs:
        candidates = _possible_qrels(run)
        existing = [path for path in candidates if path.is_file()]
        if not existing:
            tried = " or ".join(path.name for path in candidates[::2])
            raise UsageError(f"{run}: no qrels given and no {tried} beside it: pass --qrels FILE")
        found[run] = str(existing[0])
    qrels = set(found.values())
    if len(qrels) > 1:
        raise UsageError(f"the runs have several qrels beside them, {', '.join(sorted(qrels))}: pass --qrels")
    say(f"--qrels not given: {found[runs[0]]}")
    return found[runs[0]]


def _possible_qrels(run: str) -> list[Path]:
    """For ``test.ap-cnn.run``: ``test.ap-cnn.qrels``, then ``test.qrels``, each plain and gzipped."""
    path = Path(run)
    parts = path.name.removesuffix(".gz").removesuffix(".run").split(".")
    stems = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    return [path.with_name(stem + suffix) for stem in stems if stem for suffix in (".qrels", ".qrels.gz")]


def _report_gaps(run: str, evaluation: Evaluation) -> None:
    total = evaluation.per_question.height
    missing, extra = evaluation.missing, evaluation.extra
    unjudged = [" ".join(pair) for pair in evaluation.unjudged.head(_NAMED_AT_MOST).iter_rows()]
    gaps = (
        ("questions missing from the run, counted as 0", f"{len(missing)} of {total}", missing),
        ("questions not in the qrels, left out", f"{len(extra)}", extra),
        ("candidates not judged, counted as not relevant", f"{evaluation.unjudged.height}", unjudged),
    )
    for what, count, names in gaps:
        if names:
            more = ", …" if int(count.split()[0]) > _NAMED_AT_MOST else ""
            say(f"{run}: {what}: {count} ({', '.join(names[:_NAMED_AT_MOST])}{more})")


def _check_per_question(path: str) -> None:
    from aptool.formats.atomic import check_writable

    if Path(path).suffix not in _PER_QUESTION_SUFFIXES:
        wanted = ", ".join(_PER_QUESTION_SUFFIXES)
        raise UsageError(f"--per-question {path}: expected a name that ends in one of {wanted}")
    check_writable(path)


def _write_per_question(path: str, evaluations: dict[str, Evaluation]) -> None:
    import polars as pl

    from aptool.formats.atomic import atomic_file

    frame = pl.concat(
        evaluation.per_question.select(pl.lit(run).alias("run"), pl.all())
        for run, evaluation in evaluations.items()
    )
    with atomic_file(path) as temporary:
        if path.endswith(".parquet"):
            frame.write_parquet(temporary)
        elif path.endswith(".csv"):
            frame.write_csv(temporary)
        else:
            frame.write_ndjson(temporary)


def _as_json(
    qrels: str, names: tuple[str, ...], read: dict[str, Run], evaluations: dict[str, Evaluation]
) -> str:
    import json

    runs = [
        {
            "run": run,
            "tag": read[run].tag,
            "questions": evaluation.per_question.height,
            "measures": dict(evaluation.means),
            "missing": list(evaluation.missing),
            "extra": list(evaluation.extra),
            "unjudged": evaluation.unjudged.height,
        }
        for run, evaluation in evaluations.items()
    ]
    return json.dumps({"qrels": qrels, "measures": names, "runs": runs}, indent=2, ensure_ascii=False)


def _print_table(names: tuple[str, ...], evaluations: dict[str, Evaluation]) -> None:
    rows = [["run", "questions", *names]]
    for run, evaluation in evaluations.items():
        values = [_shown(name, evaluation.means[name]) for name in names]
        rows.append([run, str(evaluation.per_question.height), *values])
    if len(names) > _COLUMNS_AT_MOST:
        rows = [list(column) for column in zip(*rows, strict=True)]
        rows[0][0] = "measure"
    if sys.stdout.isatty():
        _print_rich(rows)
        return
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        aligned = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        click.echo("  ".join([first.ljust(widths[0]), *aligned]))


def _print_rich(rows: list[list[str]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD)
    for index, title in enumerate(rows[0]):
        table.add_column(Text(title), justify="right" if index else "left", overflow="fold")
    for row in rows[1:]:
        table.add_row(*map(Text, row))
    Console().print(table)


def _shown(name: str, value: float) -> str:
    return str(round(value)) if name.startswith("num_") else f"{value:.4f}"
