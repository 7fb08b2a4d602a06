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
_NO_ANSWER: dict[str, Any] = dict.fromkeys(("answer_id", "rank_before", "rank_after", "answer"))


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

    Prints the mean difference with a 95% bootstrap interval, wins, ties and losses, Cohen's d, and the
    p-value of a paired permutation test; the minimum detectable difference; and the questions with the
    largest differences. csv and json also have a paired t-test.

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
    if form == "csv":
        click.echo(compared.to_polars().write_csv(), nl=False)
        return
    if form == "latex":
        from aptool.reporting.html import latex_table

        click.echo(latex_table(_paper_rows(baseline.tag, compared)), nl=False)
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
    _print_comparisons(baseline.tag, compared)
    for delta in deltas:
        _print_deltas(baseline.tag, delta)


def _report_candidates(runs: Sequence[Run], questions: pl.DataFrame) -> None:
    """Log the evaluated questions for which a run ranks other candidates than the first run."""
    import polars as pl

    baseline, *systems = (
        run.frame.join(questions, on="question_id", how="semi").select("question_id", "answer_id")
        for run in runs
    )
    for run, candidates in zip(runs[1:], systems, strict=True):
        both = pl.concat([baseline, candidates])
        differing = both.filter(both.is_unique())["question_id"].unique().sort().to_list()
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

    from aptool.evaluation.compare import question_deltas, ranked_answers
    from aptool.evaluation.names import parse_measures
    from aptool.evaluation.texts import with_texts

    (parsed,) = parse_measures([measure])
    relevant = qrels.filter(pl.col("relevance") >= parsed.level)
    deltas, ranked = [], []
    for run, table in zip(runs[1:], tables[1:], strict=True):
        better, worse = question_deltas(tables[0], table, measure)
        deltas.append((better, worse))
        listed = pl.concat([better.head(top), worse.head(top)])
        answers = ranked_answers(listed, relevant, (runs[0].frame, run.frame))
        ranked.append(answers.select(pl.lit(run.tag).alias("system"), pl.all()))
    shown = (pl.col("rank_before") == 1) | (pl.col("rank_after") == 1) | pl.col("is_relevant")
    texts = with_texts(pl.concat(ranked).filter(shown), pools)
    answers_of = texts.rows_by_key(["system", "question_id"], named=True)
    entries = []
    for run, (better, worse) in zip(runs[1:], deltas, strict=True):
        gained, lost = (
            [_described(row, answers_of[run.tag, row["question_id"]]) for row in part.iter_rows(named=True)]
            for part in (better.head(top), worse.head(top))
        )
        counts = {"better": better.height, "worse": worse.height}
        entries.append({"system": run.tag, "measure": measure, **counts, "gained": gained, "lost": lost})
    return entries


def _described(delta: dict[str, Any], answers: Rows) -> dict[str, Any]:
    """A question of `question_deltas` with three of its answers, from its rows of `ranked_answers`.

    ``relevant`` is the relevant answer that the better system ranks highest, ``first_before`` and
    ``first_after`` are the answers that are ranked first; each is None if there is no such answer.
    """
    better = "rank_after" if delta["change"] > 0 else "rank_before"
    relevant = [answer for answer in answers if answer["is_relevant"] and answer[better] is not None]
    best = min(relevant, key=lambda answer: answer[better], default=_NO_ANSWER)
    chosen: dict[str, dict[str, Any]] = {"relevant": best}
    for when in ("before", "after"):
        first = (answer for answer in answers if answer[f"rank_{when}"] == 1)
        chosen[f"first_{when}"] = next(first, _NO_ANSWER)
    ids = {name: answer["answer_id"] for name, answer in chosen.items()}
    return {
        **{name: delta[name] for name in ("question_id", "before", "after")},
        "relevant": ids.pop("relevant"),
        "rank_before": best["rank_before"],
        "rank_after": best["rank_after"],
        **ids,
        "question": next((answer["question"] for answer in answers if answer["question"] is not None), None),
        **{f"{name}_text": answer["answer"] for name, answer in chosen.items()},
    }


def _print_comparisons(baseline: str, comparisons: Sequence[Comparison]) -> None:
    """Print a row per measure and system, each followed by its groups of questions."""
    from aptool.evaluation.compare import shown_p, verdict

    overall = [row for row in comparisons if row.group is None]
    rows = [["", "questions", baseline, "mean", "difference", "95% interval"]]
    rows[0] += ["wins", "ties", "losses", "d", "p", "Holm"]
    by_title: dict[str, list[Comparison]] = {}
    for row in comparisons:
        by_title.setdefault(f"{row.measure}, {row.system}", []).append(row)
    for title, parts in by_title.items():
        for row in parts:
            few = " (few)" if row.questions < FEW_QUESTIONS else ""
            rows.append(
                [
                    title if row.group is None else f"  {row.group}{few}",
                    str(row.questions),
                    f"{row.baseline:.4f}",
                    f"{row.mean:.4f}",
                    f"{row.difference:+.4f}",
                    f"[{row.low:.4f}, {row.high:.4f}]",
                    *(str(count) for count in (row.wins, row.ties, row.losses)),
                    f"{row.effect:+.2f}" if math.isfinite(row.effect) else "",
                    shown_p(row.p),
                    shown_p(row.p_holm),
                ]
            )
    print_table(rows)
    click.echo()
    corrected = f"p: permutation test; Holm: corrected for {counted(len(overall), 'comparison')}"
    groups = len(comparisons) - len(overall)
    click.echo(corrected + (f", in groups for {groups}" if groups else ""))
    _print_power(overall)
    for row in overall:
        click.echo(f"{row.measure}: {verdict(baseline, row)}")


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
    shown = {name: "above 1" if value > 1 else f"{value:.4f}" for name, value in largest.items()}
    differences = ", ".join(f"{value} ({name})" for name, value in shown.items())
    power = f"power {POWER:g}, alpha {ALPHA:.3g}"
    click.echo(f"minimum detectable difference ({power}): {differences}")


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
    for row in (row for row in comparisons if row.group is None):
        if row.measure not in rows[""]:
            rows[""] += [row.measure, "Δ", "p"]
            rows[baseline] += [f"{row.baseline:.4f}", "", ""]
        cells = [f"{row.mean:.4f}", f"{row.difference:+.4f}", shown_p(row.p_holm)]
        rows.setdefault(row.system, [row.system]).extend(cells)
    return list(rows.values())
