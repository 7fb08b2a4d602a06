"""``aptool compare``: significance tests against a baseline, and the questions that differ most."""

from __future__ import annotations

import logging
import math
import shutil
import sys
from typing import TYPE_CHECKING, Any

import click

from aptool.cli.parameters import Count, SectionedCommand, seed_option
from aptool.cli.runs import (
    CONFIDENCE_RANGE,
    check_distinct,
    level_option,
    measures_option,
    named_runs,
    parse_measures,
    pools_given,
    pools_option,
    qrels_of,
    qrels_option,
    report_gaps,
)
from aptool.cli.tables import print_table
from aptool.errors import UsageError, counted, first_few

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import polars as pl

    from aptool.data.pools import Pools
    from aptool.data.runs import Run
    from aptool.evaluation.compare import Comparison, Comparisons, Deltas, QuestionDelta
    from aptool.evaluation.texts import PoolTexts

logger = logging.getLogger(__name__)

_WIDTH = 110  # characters per line if stdout is not a terminal


@click.command("compare", cls=SectionedCommand)
@click.argument("runs", metavar="[NAME=]BASELINE [NAME=]RUN...", nargs=-1)
@qrels_option
@measures_option
@level_option
@click.option("--on-common", is_flag=True, help="Use only the questions that every run ranks.")
@pools_option
@click.option(
    "--top",
    metavar="N",
    type=Count(0),
    default=5,
    help="Questions to show: the N largest gains and the N largest losses by the first measure.",
)
@click.option(
    "--confidence",
    type=CONFIDENCE_RANGE,
    metavar="X",
    help="Confidence level of intervals and tests, 0.5 to 0.999.  [default: 0.95]",
)
@seed_option
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
    level: int,
    on_common: bool,
    pools: tuple[str, ...],
    top: int,
    confidence: float | None,
    seed: int,
    form: str,
) -> None:
    """Compare RUNs with BASELINE, question by question.

    Prints the mean difference with a bootstrap confidence interval, wins, ties and losses, and Cohen's d;
    Holm-corrected p-values of a paired permutation test and a paired t-test; the minimum detectable
    difference; and the questions with the largest differences.

    A difference is significant if its corrected p-value is at most 1 - confidence. Measures must be means
    over the questions. Missing questions count as 0, and all runs must miss the same questions.
    """
    from aptool.data.importing import warn_of_added
    from aptool.data.runs import Qrels, Run
    from aptool.evaluation.compare import Comparisons, largest_deltas
    from aptool.evaluation.compare import compare as compare_runs
    from aptool.evaluation.names import parse_measures as parsed
    from aptool.evaluation.significance import CONFIDENCE
    from aptool.evaluation.texts import PoolTexts, relevant_from
    from aptool.reporting.html import latex_table

    confidence = CONFIDENCE if confidence is None else confidence
    names = parse_measures(measures)
    if pools and not top:
        raise UsageError("--pools: requires --top above 0")
    paths, shown = named_runs(runs)
    if len(shown) < 2:
        raise UsageError(f"{counted(len(shown), 'run')} given; expected at least 2")
    check_distinct(paths)
    check_distinct(shown)
    read = [Run.load(path) for path in paths]
    for run, name in zip(read, shown, strict=True):
        run.tag = name
    qrels = qrels_of(paths, qrels)
    texts = pools_given(pools, qrels) if top else None
    judgements = Qrels.load(qrels)
    first, *others = read
    compared = compare_runs(
        first, others, judgements, names, level=level, on_common=on_common, confidence=confidence, seed=seed
    )
    assert isinstance(compared, Comparisons)  # as a list was given
    tables = [evaluation.per_question for evaluation in compared.evaluations]
    if on_common:
        questions = judgements.frame["question_id"].n_unique()
        logger.info(f"--on-common: {tables[0].height} of {questions} questions")
    report_gaps(dict(zip(shown, compared.evaluations, strict=True)))
    _report_candidates(read, tables[0])
    warn_of_added(qrels)
    relevant = relevant_from(judgements.frame, parsed(names)[0].level or level)
    deltas = [
        largest_deltas(run.tag, names[0], top, (tables[0], table), (first.frame, run.frame), relevant)
        for run, table in zip(others, tables[1:], strict=True)
        if top
    ]
    found = _texts(texts, deltas) if texts is not None else PoolTexts({}, {})
    if form == "json":
        settings = {"qrels": qrels, "level": level, "confidence": confidence, "seed": seed}
        settings |= {"runs": dict(zip(shown, paths, strict=True)), "baseline": first.tag}
        click.echo(_to_json(settings, compared, deltas, found))
    elif form == "csv":
        click.echo(compared.to_polars().write_csv(), nl=False)
    elif form == "latex":
        click.echo(latex_table(_paper_rows(first.tag, compared)), nl=False)
    else:
        _print_comparisons(first.tag, compared, confidence)
        for each in deltas:
            _print_deltas(first.tag, each, found)


def _report_candidates(runs: Sequence[Run], questions: pl.DataFrame) -> None:
    """Log the evaluated questions for which a run ranks other candidates than the first run."""
    from aptool.evaluation.compare import differing_candidates

    for run in runs[1:]:
        differing = differing_candidates(runs[0].frame, run.frame, questions)
        if differing:
            count, examples = counted(len(differing), "question"), first_few(differing)
            logger.info(f"{run.tag}: ranks different candidates than {runs[0].tag} for {count} ({examples})")


def _texts(pools: Pools, deltas: Iterable[Deltas]) -> PoolTexts:
    """The texts of the questions with the largest differences."""
    import polars as pl

    from aptool.evaluation.texts import find_texts

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


def _print_comparisons(baseline: str, comparisons: list[Comparison], confidence: float) -> None:
    """Print the means and differences, the p-values, and a sentence per comparison."""
    from aptool.evaluation.compare import shown_p, verdict

    means = [["", "mean", "difference", f"{100 * confidence:g}% interval", "wins", "ties", "losses", "d"]]
    tests = [["p-values", "permutation", "Holm", "t-test", "Holm"]]
    measure = ""
    for comparison in comparisons:
        paired = comparison.paired
        if measure != comparison.measure:
            measure = comparison.measure
            means.append([measure, *[""] * 7])
            means.append([f"  {baseline}", f"{paired.baseline:.4f}", *[""] * 6])
            tests.append([measure, *[""] * 4])
        means.append(
            [
                f"  {comparison.system}",
                f"{paired.system:.4f}",
                f"{paired.difference:+.4f}",
                f"[{paired.interval.low:.4f}, {paired.interval.high:.4f}]",
                *(str(count) for count in (paired.wins, paired.ties, paired.losses)),
                f"{paired.effect:+.2f}" if math.isfinite(paired.effect) else "",
            ]
        )
        of_t = (paired.t_test.p, comparison.t_holm) if math.isfinite(paired.t_test.t) else ()
        p_values = (paired.permutation.p, comparison.permutation_holm, *of_t)
        tests.append([f"  {comparison.system}", *map(shown_p, p_values), *[""] * (2 - len(of_t))])
    print_table(means)
    click.echo()
    print_table(tests)
    click.echo()
    _print_power(comparisons, confidence)
    questions = counted(comparisons[0].paired.questions, "question")
    tests_made = counted(len(comparisons), "comparison")
    click.echo(f"{questions}; p of the permutation test, corrected for {tests_made}:")
    for comparison in comparisons:
        text = verdict(baseline, comparison.system, comparison, confidence)
        click.echo(f"{comparison.measure}: {text}")


def _print_power(comparisons: list[Comparison], confidence: float) -> None:
    """Print the minimum detectable difference of each measure, the largest one of the systems."""
    from aptool.evaluation.compare import shown_detectable
    from aptool.evaluation.significance import POWER

    largest: dict[str, float] = {}
    for comparison in comparisons:
        detectable = comparison.detectable(confidence)
        if detectable is not None:
            largest[comparison.measure] = max(detectable, largest.get(comparison.measure, 0.0))
    if not largest:
        click.echo("all questions have the same difference: d is undefined, intervals have no width")
        return
    questions = counted(comparisons[0].paired.questions, "question")
    power = f"power {POWER:g}, alpha {1 - confidence:.3g}"
    click.echo(f"minimum detectable difference with {questions} ({power}):")
    shown = [f"{shown_detectable(value)} ({name})" for name, value in largest.items()]
    click.echo(", ".join(shown))
    if any(text.startswith("above") for text in shown):
        click.echo("no true difference can be that large: the tests need more questions")


def _print_deltas(baseline: str, deltas: Deltas, texts: PoolTexts) -> None:
    """Print the questions with the largest gains and losses, two or three lines each."""
    groups = (("gains", deltas.better, deltas.gained), ("losses", deltas.worse, deltas.lost))
    for direction, total, shown in groups:
        if not shown:
            continue
        number = f"{len(shown)} of {total}" if len(shown) < total else f"{total}"
        click.echo()
        click.echo(f"{deltas.measure}: largest {direction} of {deltas.system} over {baseline}: {number}")
        for delta in shown:
            _print_delta(baseline, deltas.system, delta, texts)


def _print_delta(baseline: str, run: str, delta: QuestionDelta, texts: PoolTexts) -> None:
    question = texts.questions.get(delta.question_id, "")
    lines = [f"  {delta.question_id}  {delta.before:.4f} → {delta.after:.4f}  {question}"]
    if delta.relevant is None:
        lines.append("      no relevant answer is ranked")
    else:
        ranks = f"rank {_rank(delta.rank_before)} → {_rank(delta.rank_after)}"
        lines.append(f"      relevant, {ranks}: {_answer(delta, delta.relevant, texts)}")
    gained = delta.after > delta.before
    first = delta.first_before if gained else delta.first_after
    if first is None:
        lines.append(f"      not in {baseline if gained else run}")
    elif first != delta.relevant:
        lines.append(f"      first in {baseline if gained else run}: {_answer(delta, first, texts)}")
    width = shutil.get_terminal_size((_WIDTH, 0)).columns if sys.stdout.isatty() else _WIDTH
    for line in lines:
        click.echo(_one_line(line, width))


def _rank(rank: int | None) -> str:
    return "none" if rank is None else str(rank)


def _answer(delta: QuestionDelta, answer: str, texts: PoolTexts) -> str:
    text = texts.answers.get((delta.question_id, answer), "")
    return f"{answer}  {text}" if text else answer


def _one_line(line: str, width: int) -> str:
    """Truncate a line; unprintable characters, such as terminal escapes, become spaces."""
    indent = len(line) - len(line.lstrip(" "))
    shown = "".join(character if character.isprintable() else " " for character in line)
    shown = " " * indent + shown.strip()
    return shown if len(shown) <= width else shown[: width - 1] + "…"


def _paper_rows(baseline: str, comparisons: Iterable[Comparison]) -> list[list[str]]:
    """A row per run, the baseline first, and per measure its mean, the difference and the corrected p."""
    from aptool.evaluation.compare import shown_p

    rows = {"": ["system"], baseline: [baseline]}
    for comparison in comparisons:
        paired, system = comparison.paired, comparison.system
        if comparison.measure not in rows[""]:
            rows[""] += [comparison.measure, "Δ", "p"]
            rows[baseline] += [f"{paired.baseline:.4f}", "", ""]
        cells = [f"{paired.system:.4f}", f"{paired.difference:+.4f}", shown_p(comparison.permutation_holm)]
        rows.setdefault(system, [system]).extend(cells)
    return list(rows.values())


def _to_json(
    settings: Mapping[str, Any], compared: Comparisons, deltas: Iterable[Deltas], texts: PoolTexts
) -> str:
    """Return the settings and results as a JSON document; values that are not finite become null."""
    import json

    import polars as pl
    import polars.selectors as cs

    confidence = settings["confidence"]
    finite = pl.when(cs.float().is_finite()).then(cs.float()).name.keep()
    rows = compared.to_polars().with_columns(finite).to_dicts()
    document = {
        **settings,
        "comparisons": [
            {
                **row,
                "detectable": comparison.detectable(confidence),
                "significant": comparison.significant(confidence),
            }
            for row, comparison in zip(rows, compared, strict=True)
        ],
        "deltas": [
            {
                **delta._asdict(),
                "gained": [_delta_json(question, texts) for question in delta.gained],
                "lost": [_delta_json(question, texts) for question in delta.lost],
            }
            for delta in deltas
        ],
    }
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)


def _delta_json(delta: QuestionDelta, texts: PoolTexts) -> dict[str, Any]:
    names = ("relevant", "first_before", "first_after")
    answers = {name: getattr(delta, name) for name in names}
    return {
        **delta._asdict(),
        "question": texts.questions.get(delta.question_id),
        **{
            f"{name}_text": texts.answers.get((delta.question_id, answer)) for name, answer in answers.items()
        },
    }
