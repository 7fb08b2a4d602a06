"""``aptool compare``: significance tests against a baseline, and the questions that differ most."""

from __future__ import annotations

import json
import logging
import math
from typing import TYPE_CHECKING, Any

import click

from aptool.cli.parameters import Count
from aptool.cli.runs import (
    FEW_QUESTIONS,
    by_option,
    check_distinct,
    groups_of,
    measures_option,
    named_runs,
    parse_measures,
    pools_given,
    pools_option,
    qrels_of,
    qrels_option,
    report_gaps,
    report_groups,
)
from aptool.cli.tables import print_table
from aptool.errors import UsageError, counted, first_few, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from aptool.data.pools import Pools
    from aptool.data.runs import Run
    from aptool.evaluation.compare import Comparison

logger = logging.getLogger(__name__)

Rows = list[dict[str, Any]]

_WIDTH = 110  # characters per line
_ANSWERS = ("relevant", "first_before", "first_after")  # columns with answers of `describe_deltas`


@click.command("compare")
@click.argument("runs", metavar="[NAME=]BASELINE [NAME=]RUN...", nargs=-1)
@qrels_option
@measures_option
@by_option
@pools_option
@click.option(
    "--top",
    metavar="N",
    type=Count(0),
    default=5,
    help="Questions to show: the N largest gains and the N largest losses by the first measure.",
)
@click.option(
    "--format",
    "form",
    metavar="FORMAT",
    type=click.Choice(["text", "json", "csv", "latex"]),
    default="text",
    help="text; json and csv, in full precision; or latex (with booktabs).",
)
def compare(
    runs: tuple[str, ...],
    qrels: str | None,
    measures: str | None,
    by: str | None,
    pools: tuple[str, ...],
    top: int,
    form: str,
) -> None:
    """Compare RUNs with BASELINE, question by question.

    Prints the mean difference with a 95% bootstrap interval, wins, ties and losses, and Cohen's d;
    Holm-corrected p-values of a paired permutation test and a paired t-test; the minimum detectable
    difference; and the questions with the largest differences.

    A difference is significant if its corrected p-value is at most 0.05. Measures must be means over the
    questions. Missing questions count as 0, and all runs must miss the same questions.
    """
    from aptool.data.check import warn_of_added
    from aptool.data.runs import Qrels, Run
    from aptool.evaluation.compare import compare as compare_runs
    from aptool.evaluation.significance import CONFIDENCE

    names = parse_measures(measures)
    if pools and not top and by is None:
        raise UsageError("--pools: requires --by, or --top above 0")
    paths, shown = named_runs(runs)
    if len(shown) < 2:
        raise UsageError(f"{counted(len(shown), 'run')} given; expected at least 2")
    check_distinct(paths)
    check_distinct(shown)
    read = [Run.load(path) for path in paths]
    for run, name in zip(read, shown, strict=True):
        run.tag = name
    qrels = qrels_of(paths, qrels)
    texts = pools_given(pools, qrels) if top or by is not None else None
    judgements = Qrels.load(qrels)
    groups = groups_of(judgements, qrels, texts) if by is not None else None
    baseline, *systems = read
    compared = compare_runs(baseline, systems, judgements, names, groups=groups)
    tables = [evaluation.per_question for evaluation in compared.evaluations]
    if groups is not None:
        report_groups(compared.evaluations[0], groups)
    report_gaps(dict(zip(shown, compared.evaluations, strict=True)))
    _report_candidates(read, tables[0])
    warn_of_added(qrels)
    overall = [comparison for comparison in compared if comparison.group is None]
    if form == "csv":
        click.echo(compared.to_polars().write_csv(), nl=False)
        return
    if form == "latex":
        from aptool.reporting.html import latex_table

        click.echo(latex_table(_paper_rows(baseline.tag, overall)), nl=False)
        return
    deltas = _largest_deltas(read, tables, judgements.frame, names[0], top, texts) if top else []
    if form == "json":
        import polars as pl
        import polars.selectors as cs

        finite = pl.when(cs.float().is_finite()).then(cs.float()).name.keep()
        rows = compared.to_polars().with_columns(finite).to_dicts()
        settings = {"qrels": qrels, "confidence": CONFIDENCE}
        settings |= {"runs": dict(zip(shown, paths, strict=True)), "baseline": baseline.tag}
        document = {**settings, "comparisons": rows, "deltas": deltas}
        click.echo(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))
        return
    _print_comparisons(baseline.tag, overall)
    if groups is not None:
        _print_groups(baseline.tag, compared[len(overall) :])
    for delta in deltas:
        _print_deltas(baseline.tag, delta)


def _report_candidates(runs: Sequence[Run], questions: pl.DataFrame) -> None:
    """Log the evaluated questions for which a run ranks other candidates than the first run."""
    import polars as pl

    keys = ["question_id", "answer_id"]
    baseline, *systems = (
        run.frame.join(questions, on="question_id", how="semi").select(keys) for run in runs
    )
    for run, candidates in zip(runs[1:], systems, strict=True):
        both = [
            candidates.join(baseline, on=keys, how="anti"),
            baseline.join(candidates, on=keys, how="anti"),
        ]
        differing = pl.concat(both)["question_id"].unique().sort().to_list()
        if differing:
            count, examples = counted(len(differing), "question"), first_few(differing)
            logger.info(f"{run.tag}: ranks different candidates than {runs[0].tag} for {count} ({examples})")


def _largest_deltas(
    runs: Sequence[Run],
    tables: Sequence[pl.DataFrame],
    qrels: pl.DataFrame,
    measure: str,
    top: int,
    pools: Pools | None,
) -> Rows:
    """The questions with the ``top`` largest gains and losses of each system, with texts.

    ``tables`` are `Evaluation.per_question` of the runs, the baseline first.
    """
    import polars as pl

    from aptool.evaluation.compare import describe_deltas, question_deltas
    from aptool.evaluation.names import parse_measures

    (parsed,) = parse_measures([measure])
    relevant = qrels.filter(pl.col("relevance") >= parsed.level)
    entries, described = [], []
    for run, table in zip(runs[1:], tables[1:], strict=True):
        better, worse = question_deltas(tables[0], table, measure)
        entries.append(
            {"system": run.tag, "measure": measure, "better": better.height, "worse": worse.height}
        )
        described += [
            describe_deltas(part.head(top), relevant, (runs[0].frame, run.frame)) for part in (better, worse)
        ]
    rows = _with_texts(described, pools)
    return [
        {**entry, "gained": gained, "lost": lost}
        for entry, gained, lost in zip(entries, rows[::2], rows[1::2], strict=True)
    ]


def _with_texts(described: Sequence[pl.DataFrame], pools: Pools | None) -> list[Rows]:
    """The rows of `describe_deltas` with the texts of the questions and answers; None without pools."""
    import polars as pl

    from aptool.evaluation.texts import find_texts

    every = pl.concat(described).unpivot(_ANSWERS, index="question_id", value_name="answer_id")
    pairs = every.select("question_id", "answer_id").drop_nulls().unique()
    if pools is None:
        texts = find_texts([], pairs)
    else:
        with pools.files() as (files, answers):
            texts = find_texts(files, pairs, answers)
    rows = []
    for frame in described:
        question = texts.select("question_id", "question").unique("question_id")
        joined = frame.join(question, on="question_id", how="left", maintain_order="left")
        for name in _ANSWERS:
            answer = texts.select("question_id", "answer_id", pl.col("answer").alias(f"{name}_text"))
            joined = joined.join(
                answer,
                how="left",
                left_on=["question_id", name],
                right_on=["question_id", "answer_id"],
                maintain_order="left",
            )
        rows.append(joined.to_dicts())
    return rows


def _print_comparisons(baseline: str, comparisons: Sequence[Comparison]) -> None:
    """Print the means and differences, the p-values, and a sentence per comparison."""
    from aptool.evaluation.compare import shown_p, verdict

    means = [["", "mean", "difference", "95% interval", "wins", "ties", "losses", "d"]]
    tests = [["p-values", "permutation", "Holm", "t-test", "Holm"]]
    measure = ""
    for row in comparisons:
        if measure != row.measure:
            measure = row.measure
            means.append([measure, *[""] * 7])
            means.append([f"  {baseline}", f"{row.baseline:.4f}", *[""] * 6])
            tests.append([measure, *[""] * 4])
        means.append(
            [
                f"  {row.system}",
                f"{row.mean:.4f}",
                f"{row.difference:+.4f}",
                f"[{row.low:.4f}, {row.high:.4f}]",
                *(str(count) for count in (row.wins, row.ties, row.losses)),
                f"{row.effect:+.2f}" if math.isfinite(row.effect) else "",
            ]
        )
        of_t = (shown_p(row.t_test_p), shown_p(row.t_test_p_holm)) if math.isfinite(row.effect) else ("", "")
        tests.append([f"  {row.system}", shown_p(row.p), shown_p(row.p_holm), *of_t])
    print_table(means)
    click.echo()
    print_table(tests)
    click.echo()
    _print_power(comparisons)
    questions = counted(comparisons[0].questions, "question")
    click.echo(
        f"{questions}; p of the permutation test, corrected for {counted(len(comparisons), 'comparison')}:"
    )
    for row in comparisons:
        click.echo(f"{row.measure}: {verdict(baseline, row)}")


def _print_groups(baseline: str, comparisons: Sequence[Comparison]) -> None:
    """Print the tests in each group of questions."""
    from aptool.evaluation.compare import shown_p

    rows = [["", "questions", baseline, "mean", "difference", "95% interval", "p", "Holm"]]
    last = ""
    for row in comparisons:
        title = f"{row.measure}, {row.system}"
        if title != last:
            last = title
            rows.append([title, *[""] * 7])
        few = " (few)" if row.questions < FEW_QUESTIONS else ""
        means = (f"{row.baseline:.4f}", f"{row.mean:.4f}", f"{row.difference:+.4f}")
        interval = f"[{row.low:.4f}, {row.high:.4f}]"
        tests = (shown_p(row.p), shown_p(row.p_holm))
        rows.append([f"  {row.group}{few}", str(row.questions), *means, interval, *tests])
    click.echo()
    print_table(rows)
    click.echo(f"p of the permutation test; Holm: corrected for {counted(len(comparisons), 'comparison')}")


def _print_power(comparisons: Sequence[Comparison]) -> None:
    """Print the minimum detectable difference of each measure, the largest one of the systems."""
    from aptool.evaluation.significance import ALPHA, POWER

    largest: dict[str, float] = {}
    for row in comparisons:
        if row.detectable is not None:
            largest[row.measure] = max(row.detectable, largest.get(row.measure, 0.0))
    if not largest:
        click.echo("all questions have the same difference: d is undefined, intervals have no width")
        return
    questions = counted(comparisons[0].questions, "question")
    power = f"power {POWER:g}, alpha {ALPHA:.3g}"
    click.echo(f"minimum detectable difference with {questions} ({power}):")
    shown = {name: "above 1" if value > 1 else f"{value:.4f}" for name, value in largest.items()}
    click.echo(", ".join(f"{value} ({name})" for name, value in shown.items()))
    if "above 1" in shown.values():
        click.echo("no true difference can be that large: the tests need more questions")


def _print_deltas(baseline: str, deltas: dict[str, Any]) -> None:
    """Print the questions with the largest gains and losses, two or three lines each."""
    system = deltas["system"]
    for direction, total, rows in (
        ("gains", deltas["better"], deltas["gained"]),
        ("losses", deltas["worse"], deltas["lost"]),
    ):
        if not rows:
            continue
        number = f"{len(rows)} of {total}" if len(rows) < total else f"{total}"
        click.echo()
        click.echo(f"{deltas['measure']}: largest {direction} of {system} over {baseline}: {number}")
        for row in rows:
            lines = [
                f"  {row['question_id']}  {row['before']:.4f} → {row['after']:.4f}  {row['question'] or ''}"
            ]
            if row["relevant"] is None:
                lines.append("      no relevant answer is ranked")
            else:
                ranks = f"rank {row['rank_before'] or 'none'} → {row['rank_after'] or 'none'}"
                lines.append(f"      relevant, {ranks}: {_answer(row, 'relevant')}")
            worse, first = (baseline, "first_before") if direction == "gains" else (system, "first_after")
            if row[first] is None:
                lines.append(f"      not in {worse}")
            elif row[first] != row["relevant"]:
                lines.append(f"      first in {worse}: {_answer(row, first)}")
            for line in lines:
                line = printable(" ".join(line.splitlines())).rstrip()
                click.echo(line if len(line) <= _WIDTH else line[: _WIDTH - 1] + "…")


def _answer(row: dict[str, Any], name: str) -> str:
    text = row[f"{name}_text"]
    return f"{row[name]}  {text}" if text else str(row[name])


def _paper_rows(baseline: str, comparisons: Sequence[Comparison]) -> list[list[str]]:
    """A row per run, the baseline first, and per measure its mean, the difference and the corrected p."""
    from aptool.evaluation.compare import shown_p

    rows = {"": ["system"], baseline: [baseline]}
    for row in comparisons:
        if row.measure not in rows[""]:
            rows[""] += [row.measure, "Δ", "p"]
            rows[baseline] += [f"{row.baseline:.4f}", "", ""]
        cells = [f"{row.mean:.4f}", f"{row.difference:+.4f}", shown_p(row.p_holm)]
        rows.setdefault(row.system, [row.system]).extend(cells)
    return list(rows.values())
