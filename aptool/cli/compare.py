"""``aptool compare``: whether systems differ significantly from a baseline, and on which questions."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import click

from aptool.cli.comparisons import as_json as to_json
from aptool.cli.comparisons import print_comparisons, print_deltas
from aptool.cli.parameters import Seed, whole_number
from aptool.cli.review import Judged, parse_review, print_answers, review_options
from aptool.cli.review import review as answer
from aptool.cli.runs import (
    confidence_option,
    found_pools,
    level_option,
    measures_option,
    pools_option,
    qrels_beside,
    qrels_option,
    report_gaps,
    short_names,
    split_measures,
)
from aptool.errors import AptoolError, UsageError, counted, first_few

if TYPE_CHECKING:
    import polars as pl

    from aptool.evaluation.compare import Deltas
    from aptool.evaluation.texts import FoundTexts

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
    from aptool.evaluation.compare import check_comparable, check_same_questions, largest_deltas
    from aptool.evaluation.compare import compare as compare_frames
    from aptool.evaluation.measures import evaluate, relevant_from
    from aptool.evaluation.names import measure_names, parse_measures
    from aptool.evaluation.significance import CONFIDENCE, PERMUTATIONS
    from aptool.formats.trec import read_qrels, read_run

    confidence = CONFIDENCE if confidence is None else confidence
    permutations = PERMUTATIONS if permutations is None else permutations
    names = measure_names(split_measures(measures))
    by = measure_names([by])[0] if by is not None else names[0]
    needed = tuple(dict.fromkeys([*names, by]))
    check_comparable(needed)
    reviewing = parse_review(review, runs, dev, dev_qrels, pools)
    if pools and not top and reviewing is None:
        raise UsageError("--pools: requires --top above 0 or --review")
    runs = _in_order(runs, baseline)
    read = {run: read_run(run) for run in runs}
    qrels = qrels or qrels_beside(runs)
    judgements = read_qrels(qrels)
    frames = {run: content.frame for run, content in read.items()}
    if on_common:
        judgements, frames = _common(judgements, frames)
    evaluations = {
        run: evaluate(judgements, frame, needed, level=level, run_name=run, qrels_name=qrels)
        for run, frame in frames.items()
    }
    first, *others = runs
    for run in others:
        missing = evaluations[first].missing, evaluations[run].missing
        check_same_questions(first, missing[0], run, missing[1], remedy=", or --on-common")
    for run, evaluation in evaluations.items():
        report_gaps(run, evaluation)
    for run in others:
        _report_candidates(judgements, first, frames[first], run, frames[run])
    tables = {run: evaluation.per_question for run, evaluation in evaluations.items()}
    comparisons = compare_frames(
        tables[first],
        {run: tables[run] for run in others},
        names,
        confidence=confidence,
        permutations=permutations,
        seed=seed,
    )
    deltas = []
    if top:
        relevant = relevant_from(judgements, parse_measures([by])[0].level or level)
        deltas = [
            largest_deltas(run, by, top, (tables[first], tables[run]), (frames[first], frames[run]), relevant)
            for run in others
        ]
    texts = _texts(pools, qrels, deltas) if top else None
    reviewed = None
    if reviewing is not None:
        judged = Judged(frames, evaluations, judgements, qrels, names, level, confidence, comparisons)
        reviewed = answer(judged, reviewing)
    if as_json:
        facts = {"qrels": qrels, "confidence": confidence, "permutations": permutations, "seed": seed}
        facts |= {"level": level} if level > 1 else {}
        facts |= {"review": reviewed.figures} if reviewed is not None else {}
        tags = {run: content.tag for run, content in read.items()}
        click.echo(to_json(facts, first, tags, comparisons, deltas, texts))
        return
    shown = short_names(runs)
    print_comparisons(first, comparisons, confidence, shown)
    for one in deltas:
        print_deltas(first, one, texts, shown)
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


def _common(
    judgements: pl.DataFrame, frames: dict[str, pl.DataFrame]
) -> tuple[pl.DataFrame, dict[str, pl.DataFrame]]:
    """Judgements of the questions that every run ranks, and the runs without the other judged questions."""
    judged = judgements.select("question_id").unique()
    common = judged
    for frame in frames.values():
        common = common.join(frame, on="question_id", how="semi")
    if common.is_empty():
        raise AptoolError(f"{', '.join(frames)}: no question of the qrels is in all of these runs")
    left_out = judged.join(common, on="question_id", how="anti")
    logger.info(f"--on-common: {common.height} of {judged.height} questions")
    kept = {run: frame.join(left_out, on="question_id", how="anti") for run, frame in frames.items()}
    return judgements.join(common, on="question_id", how="semi"), kept


def _report_candidates(
    judgements: pl.DataFrame, baseline: str, before: pl.DataFrame, run: str, after: pl.DataFrame
) -> None:
    """Logs the questions for which two runs rank different candidates."""
    import polars as pl

    keys = ["question_id", "answer_id"]
    differing = pl.concat(
        one.select(keys).join(other, on=keys, how="anti") for one, other in ((before, after), (after, before))
    )
    questions = differing.join(judgements, on="question_id", how="semi")["question_id"].unique().sort()
    if len(questions):
        examples = first_few(questions.head(6).to_list(), len(questions))
        count = counted(len(questions), "question")
        logger.info(f"{run}: ranks different candidates than {baseline} for {count} ({examples})")


def _texts(pools: tuple[str, ...], qrels: str, deltas: list[Deltas]) -> FoundTexts | None:
    """The texts of the questions with the largest differences, if pools are given or beside the qrels."""
    import polars as pl

    from aptool.evaluation.texts import find_texts

    found = found_pools(pools, qrels)
    if found is None:
        return None
    pairs = {
        (delta.question_id, answer)
        for one in deltas
        for delta in (*one.gained, *one.lost)
        for answer in (delta.relevant, delta.first_before, delta.first_after)
        if answer is not None
    }
    wanted = pl.DataFrame(
        sorted(pairs), schema={"question_id": pl.String, "answer_id": pl.String}, orient="row"
    )
    return find_texts(found.files, wanted, found.answers)
