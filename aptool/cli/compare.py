"""``aptool compare``: whether systems differ significantly from a baseline, and on which questions."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import click

from aptool.cli.comparisons import as_json as to_json
from aptool.cli.comparisons import print_comparisons, print_deltas
from aptool.cli.parameters import Seed, whole_number
from aptool.cli.review import check_review, print_answers, review_inputs, review_options
from aptool.cli.runs import (
    confidence_option,
    level_option,
    measures_option,
    parse_measures,
    pools_given,
    pools_option,
    qrels_beside,
    qrels_option,
    report_gaps,
    short_names,
)
from aptool.errors import UsageError, counted, first_few

if TYPE_CHECKING:
    from aptool.library.evaluated_runs import ComparedRuns

logger = logging.getLogger(__name__)


@click.command("compare")
@click.argument("runs", metavar="RUN_A RUN_B...", nargs=-1, required=True)
@qrels_option
@measures_option
@level_option
@click.option("--baseline", metavar="RUN", help="Run to compare the others with.  [default: the first]")
@click.option("--on-common", is_flag=True, help="Compare only the questions that every run ranks.")
@pools_option
@click.option(
    "--top",
    metavar="N",
    type=whole_number(0),
    default=5,
    show_default=True,
    help="Number of questions with the largest gains, and with the largest losses, to show.",
)
@click.option(
    "--by", metavar="NAME", help="Measure of the gains and losses.  [default: the first of --measures]"
)
@review_options
@confidence_option
@click.option(
    "--permutations",
    metavar="N",
    type=click.IntRange(1000, 10_000_000),
    help="Number of random sign assignments of a permutation test that is not exact.  [default: 100000]",
)
@click.option("--seed", default=0, show_default=True, help="Random seed.", type=Seed())
@click.option("--json", "as_json", is_flag=True, help="Print JSON, in full precision.")
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
    review: bool,
    dev: tuple[str, ...],
    dev_qrels: str | None,
    confidence: float | None,
    permutations: int | None,
    seed: int,
    as_json: bool,
) -> None:
    """Compare runs with a baseline, question by question.

    Prints mean differences with bootstrap intervals, wins, ties and losses, Cohen's d, and the p-values of a
    paired permutation test and a paired t-test, each corrected for multiple comparisons (Holm); how large a
    difference these questions would show; then the questions with the largest differences. A difference is
    significant if its corrected p is at most 1 minus the confidence. The measures must be means over
    questions. Missing questions count 0 as in `aptool eval`, but all runs must lack the same ones.
    """
    from aptool.evaluation.compare import check_comparable
    from aptool.evaluation.names import measure_names
    from aptool.evaluation.significance import CONFIDENCE, PERMUTATIONS
    from aptool.library.evaluated_runs import compare_runs
    from aptool.library.qrels import Qrels
    from aptool.library.run import Run

    confidence = CONFIDENCE if confidence is None else confidence
    permutations = PERMUTATIONS if permutations is None else permutations
    names = parse_measures(measures)
    by = measure_names([by])[0] if by is not None else names[0]
    check_comparable(dict.fromkeys([*names, by]))
    reviewing = check_review(review, runs, dev, dev_qrels)
    if pools and not top and not reviewing:
        raise UsageError("--pools: requires --top above 0 or --review")
    if dev and baseline is not None and baseline not in runs:
        raise UsageError(f"--dev: no run on dev of --baseline {baseline}; expected a baseline among the runs")
    on_dev = dict(zip(runs, dev, strict=False))
    runs = _in_order(runs, baseline)
    read = {run: Run.load(run) for run in runs}
    qrels = qrels or qrels_beside(runs)
    texts = pools_given(pools, qrels) if top or reviewing else None
    compared = compare_runs(
        Qrels.load(qrels),
        read,
        names,
        level=level,
        on_common=on_common,
        confidence=confidence,
        permutations=permutations,
        seed=seed,
        top=top,
        by=by,
        pools=texts,
        review=review_inputs(runs, on_dev, dev_qrels, texts, confidence) if reviewing else None,
        options=True,
    )
    _report(compared, runs, on_common)
    first, reviewed = runs[0], compared.review
    if as_json:
        facts = {"qrels": qrels, "confidence": confidence, "permutations": permutations, "seed": seed}
        facts |= {"level": level} if level > 1 else {}
        facts |= {"review": reviewed.figures} if reviewed is not None else {}
        tags = {run: content.tag for run, content in read.items()}
        click.echo(to_json(facts, first, tags, compared.comparisons, compared.deltas, compared.texts))
        return
    shown = short_names(runs)
    print_comparisons(first, compared.comparisons, confidence, shown)
    for deltas in compared.deltas:
        print_deltas(first, deltas, compared.texts, shown)
    if reviewed is not None:
        print_answers(reviewed.answers)


def _in_order(runs: tuple[str, ...], baseline: str | None) -> tuple[str, ...]:
    """The runs, the baseline first, each once."""
    repeated = sorted({run for run in runs if runs.count(run) > 1})
    if repeated:
        raise UsageError(f"{', '.join(repeated)}: given more than once; expected different runs")
    if baseline is not None:
        runs = (baseline, *(run for run in runs if run != baseline))
    if len(runs) < 2:
        raise UsageError(f"{runs[0]}: only one run given; expected at least two")
    return runs


def _report(compared: ComparedRuns, runs: tuple[str, ...], on_common: bool) -> None:
    """Logs the questions and candidates that the runs and the qrels do not share."""
    evaluations = compared.evaluated.evaluations
    if on_common:
        common = evaluations[runs[0]].per_question.height
        logger.info(f"--on-common: {common} of {compared.questions} questions")
    for run, evaluation in evaluations.items():
        report_gaps(run, evaluation)
    for run in runs[1:]:
        questions = compared.differing(run)
        if questions:
            count, examples = counted(len(questions), "question"), first_few(questions)
            logger.info(f"{run}: ranks different candidates than {runs[0]} for {count} ({examples})")
