"""``aptool compare``: significance tests against a baseline, and the questions that differ most."""

from __future__ import annotations

import logging
import math
import shutil
import sys
from typing import TYPE_CHECKING, Any

import click

from aptool.cli.parameters import Count, SectionedCommand, json_option, seed_option
from aptool.cli.runs import (
    CONFIDENCE_RANGE,
    check_distinct,
    level_option,
    measures_option,
    parse_measures,
    pools_given,
    pools_option,
    qrels_of,
    qrels_option,
    report_gaps,
    short_names,
)
from aptool.cli.tables import print_table
from aptool.errors import UsageError, counted, first_few

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aptool.evaluation.compare import Comparison, Deltas, QuestionDelta
    from aptool.evaluation.texts import PoolTexts
    from aptool.library.evaluated_runs import ComparedRuns

logger = logging.getLogger(__name__)

_WIDTH = 110  # characters per line if stdout is not a terminal


@click.command("compare", cls=SectionedCommand)
@click.argument("runs", metavar="RUN_A RUN_B...", nargs=-1)
@qrels_option
@measures_option
@level_option
@click.option("--baseline", metavar="RUN", help="Run to compare the other runs with.  [default: RUN_A]")
@click.option("--on-common", is_flag=True, help="Use only the questions that every run ranks.")
@pools_option
@click.option(
    "--top",
    metavar="N",
    type=Count(0),
    default=5,
    help="Questions to show: the N largest gains and the N largest losses.",
)
@click.option("--by", metavar="NAME", help="Measure of the gains and losses.  [default: first of --measures]")
@click.option(
    "--confidence",
    type=CONFIDENCE_RANGE,
    metavar="X",
    help="Confidence level of intervals and tests, 0.5 to 0.999.  [default: 0.95]",
)
@seed_option
@json_option
def compare(
    runs: tuple[str, ...],
    qrels: str | None,
    measures: str | None,
    level: int,
    baseline: str | None,
    on_common: bool,
    pools: tuple[str, ...],
    top: int,
    by: str | None,
    confidence: float | None,
    seed: int,
    as_json: bool,
) -> None:
    """Compare runs with a baseline, question by question.

    Prints the mean difference with a bootstrap confidence interval, wins, ties and losses, and Cohen's d;
    Holm-corrected p-values of a paired permutation test and a paired t-test; the minimum detectable
    difference; and the questions with the largest differences.

    A difference is significant if its corrected p-value is at most 1 - confidence. Measures must be means
    over the questions. Missing questions count as 0, and all runs must miss the same questions.
    """
    from aptool.datasets.importing import warn_of_added
    from aptool.evaluation.names import measure_names
    from aptool.evaluation.significance import CONFIDENCE, PERMUTATIONS
    from aptool.library.evaluated_runs import compare_runs
    from aptool.library.run import Qrels, Run

    confidence = CONFIDENCE if confidence is None else confidence
    names = parse_measures(measures)
    by = measure_names([by])[0] if by is not None else None
    if pools and not top:
        raise UsageError("--pools: requires --top above 0")
    runs = _in_order(runs, baseline)
    read = {run: Run.load(run) for run in runs}
    qrels = qrels_of(runs, qrels)
    texts = pools_given(pools, qrels) if top else None
    judgements = Qrels.load(qrels)
    compared = compare_runs(
        judgements,
        read,
        names,
        level=level,
        on_common=on_common,
        confidence=confidence,
        permutations=PERMUTATIONS,
        seed=seed,
        top=top,
        by=by,
        pools=texts,
        options=True,
    )
    shown = short_names(runs)
    _report(compared, runs, on_common)
    warn_of_added(qrels)
    first = runs[0]
    if as_json:
        settings = {"qrels": qrels, "confidence": confidence, "permutations": PERMUTATIONS, "seed": seed}
        settings |= {"level": level} if level > 1 else {}
        tags = {run: content.tag for run, content in read.items()}
        click.echo(_to_json(settings, first, tags, compared))
        return
    _print_comparisons(first, compared.comparisons, confidence, shown)
    for deltas in compared.deltas:
        _print_deltas(first, deltas, compared.texts, shown)


def _in_order(runs: tuple[str, ...], baseline: str | None) -> tuple[str, ...]:
    """Return the runs, the baseline first."""
    check_distinct(runs)
    if baseline is not None:
        runs = (baseline, *(run for run in runs if run != baseline))
    if len(runs) < 2:
        raise UsageError(f"{counted(len(runs), 'run')} given; expected at least 2")
    return runs


def _report(compared: ComparedRuns, runs: tuple[str, ...], on_common: bool) -> None:
    """Log the questions and candidates that the runs and the qrels do not share."""
    evaluations = compared.evaluated.evaluations
    if on_common:
        common = evaluations[runs[0]].per_question.height
        logger.info(f"--on-common: {common} of {compared.questions} questions")
    report_gaps(evaluations)
    for run in runs[1:]:
        questions = compared.differing(run)
        if questions:
            count, examples = counted(len(questions), "question"), first_few(questions)
            logger.info(f"{run}: ranks different candidates than {runs[0]} for {count} ({examples})")


def _print_comparisons(
    baseline: str, comparisons: list[Comparison], confidence: float, names: Mapping[str, str]
) -> None:
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
            means.append([f"  {names[baseline]}", f"{paired.baseline:.4f}", *[""] * 6])
            tests.append([measure, *[""] * 4])
        means.append(
            [
                f"  {names[comparison.system]}",
                f"{paired.system:.4f}",
                f"{paired.difference:+.4f}",
                f"[{paired.interval.low:.4f}, {paired.interval.high:.4f}]",
                *(str(count) for count in (paired.wins, paired.ties, paired.losses)),
                f"{paired.effect:+.2f}" if math.isfinite(paired.effect) else "",
            ]
        )
        of_t = (paired.t_test.p, comparison.t_holm) if math.isfinite(paired.t_test.t) else ()
        p_values = (paired.permutation.p, comparison.permutation_holm, *of_t)
        tests.append([f"  {names[comparison.system]}", *map(shown_p, p_values), *[""] * (2 - len(of_t))])
    print_table(means)
    click.echo()
    print_table(tests)
    click.echo()
    _print_power(comparisons, confidence)
    questions = counted(comparisons[0].paired.questions, "question")
    tests_made = counted(len(comparisons), "comparison")
    click.echo(f"{questions}; p of the permutation test, corrected for {tests_made}:")
    for comparison in comparisons:
        text = verdict(names[baseline], names[comparison.system], comparison, confidence)
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


def _print_deltas(baseline: str, deltas: Deltas, texts: PoolTexts | None, names: Mapping[str, str]) -> None:
    """Print the questions with the largest gains and losses, two or three lines each."""
    groups = (("gains", deltas.better, deltas.gained), ("losses", deltas.worse, deltas.lost))
    for direction, total, shown in groups:
        if not shown:
            continue
        number = f"{len(shown)} of {total}" if len(shown) < total else f"{total}"
        click.echo()
        system = names[deltas.system]
        click.echo(f"{deltas.measure}: largest {direction} of {system} over {names[baseline]}: {number}")
        for delta in shown:
            _print_delta(names[baseline], names[deltas.system], delta, texts)


def _print_delta(baseline: str, run: str, delta: QuestionDelta, texts: PoolTexts | None) -> None:
    question = texts.questions.get(delta.question_id, "") if texts else ""
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


def _answer(delta: QuestionDelta, answer: str, texts: PoolTexts | None) -> str:
    text = texts.answers.get((delta.question_id, answer), "") if texts else ""
    return f"{answer}  {text}" if text else answer


def _one_line(line: str, width: int) -> str:
    """Truncate a line; unprintable characters, such as terminal escapes, become spaces."""
    indent = len(line) - len(line.lstrip(" "))
    shown = "".join(character if character.isprintable() else " " for character in line)
    shown = " " * indent + shown.strip()
    return shown if len(shown) <= width else shown[: width - 1] + "…"


def _to_json(settings: dict[str, Any], baseline: str, tags: dict[str, str], compared: ComparedRuns) -> str:
    """Return the results as a JSON document; ``settings`` and ``tags`` (of each run) are part of it."""
    import json

    comparisons, texts = compared.comparisons, compared.texts
    document = {
        **settings,
        "questions": comparisons[0].paired.questions,
        "baseline": {
            "run": baseline,
            "tag": tags[baseline],
            "measures": {comparison.measure: comparison.paired.baseline for comparison in comparisons},
        },
        "comparisons": [
            _comparison_json(comparison, tags, settings["confidence"]) for comparison in comparisons
        ],
        "deltas": [
            {
                "run": delta.system,
                "measure": delta.measure,
                "better": delta.better,
                "worse": delta.worse,
                "gained": [_delta_json(question, texts) for question in delta.gained],
                "lost": [_delta_json(question, texts) for question in delta.lost],
            }
            for delta in compared.deltas
        ],
    }
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)


def _comparison_json(comparison: Comparison, tags: dict[str, str], confidence: float) -> dict[str, Any]:
    """Return a comparison as JSON; values that are not finite become null."""
    paired = comparison.paired
    return {
        "run": comparison.system,
        "tag": tags[comparison.system],
        "measure": comparison.measure,
        "mean": paired.system,
        "difference": paired.difference,
        "interval": paired.interval,
        "wins": paired.wins,
        "ties": paired.ties,
        "losses": paired.losses,
        "effect": paired.effect if math.isfinite(paired.effect) else None,
        "detectable": comparison.detectable(confidence),
        "permutation": {**paired.permutation._asdict(), "holm": comparison.permutation_holm},
        "t_test": {
            "t": paired.t_test.t if math.isfinite(paired.t_test.t) else None,
            "degrees": paired.t_test.degrees,
            "p": paired.t_test.p,
            "holm": comparison.t_holm,
        },
        "significant": comparison.significant(confidence),
    }


def _delta_json(delta: QuestionDelta, texts: PoolTexts | None) -> dict[str, Any]:
    names = ("relevant", "first_before", "first_after")
    answers = {name: getattr(delta, name) for name in names}
    answer_texts = texts.answers if texts else {}
    return {
        **delta._asdict(),
        "question": texts.questions.get(delta.question_id) if texts else None,
        **{f"{name}_text": answer_texts.get((delta.question_id, answer)) for name, answer in answers.items()},
    }
