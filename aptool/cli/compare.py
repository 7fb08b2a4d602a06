"""``aptool compare``: whether systems differ from a baseline, and on which questions."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import click

from aptool.cli.comparisons import as_json as to_json
from aptool.cli.comparisons import print_comparisons, print_moved
from aptool.cli.runs import (
    Confidence,
    pools_beside,
    qrels_beside,
    qrels_option,
    report_gaps,
    short_names,
    some,
    split_measures,
)
from aptool.errors import AptoolError, UsageError

if TYPE_CHECKING:
    import polars as pl

    from aptool.evaluation.compare import Deltas
    from aptool.evaluation.texts import Texts

logger = logging.getLogger(__name__)


@click.command("compare")
@click.argument("runs", metavar="RUN_A RUN_B...", nargs=-1, required=True)
@qrels_option
@click.option(
    "--measures",
    metavar="NAMES",
    default="map,recip_rank,P_1",
    show_default=True,
    help="Measures of trec_eval that are means over questions.",
)
@click.option("--baseline", metavar="RUN", help="The run to compare the others with.  [default: the first]")
@click.option("--on-common", is_flag=True, help="Compare on the questions that every run ranks.")
@click.option(
    "--pools",
    metavar="POOLS",
    multiple=True,
    help="Where the texts are: files, folders, globs, URLs.  [default: DEV.pools.parquet beside DEV.qrels]",
)
@click.option(
    "--top",
    type=click.IntRange(0),
    default=5,
    show_default=True,
    help="How many of the questions that gained and lost most to show.",
)
@click.option("--by", metavar="NAME", help="The measure they moved in.  [default: the first of --measures]")
@click.option(
    "--confidence",
    type=Confidence(),
    default=0.95,
    show_default=True,
    help="Of the intervals; a difference is significant if its corrected p is at most 1 less this.",
)
@click.option(
    "--permutations",
    type=click.IntRange(1000, 10_000_000),
    default=100_000,
    show_default=True,
    help="Assignments of signs that a permutation test draws where it cannot count them all.",
)
@click.option("--seed", default=0, show_default=True, help="Of all that is drawn.", type=click.IntRange(0))
@click.option("--json", "as_json", is_flag=True, help="Print JSON, in full precision.")
def compare(
    runs: tuple[str, ...],
    qrels: str | None,
    measures: str,
    baseline: str | None,
    on_common: bool,
    pools: tuple[str, ...],
    top: int,
    by: str | None,
    confidence: float,
    permutations: int,
    seed: int,
    as_json: bool,
) -> None:
    """Compare runs with a baseline, question by question.

    Prints mean differences with bootstrap intervals, wins, ties and losses, Cohen's d, and the p-values of a
    paired permutation test and a paired t-test, each corrected for the number of comparisons (Holm); then
    the questions that moved most. Counts missing questions as `aptool eval` does, but refuses runs that lack
    different ones.
    """
    from aptool.evaluation.compare import check_comparable, moved_most
    from aptool.evaluation.compare import compare as compare_frames
    from aptool.evaluation.measures import evaluate, measure_names
    from aptool.formats.trec import read_qrels, read_run

    names = measure_names(split_measures(measures))
    by = measure_names([by])[0] if by is not None else names[0]
    needed = tuple(dict.fromkeys([*names, by]))
    check_comparable(needed)
    runs = _in_order(runs, baseline)
    read = {run: read_run(run) for run in runs}
    qrels = qrels or qrels_beside(runs)
    judgements = read_qrels(qrels)
    frames = {run: content.frame for run, content in read.items()}
    if on_common:
        judgements, frames = _common(judgements, frames)
    evaluations = {
        run: evaluate(judgements, frame, needed, run_name=run, qrels_name=qrels)
        for run, frame in frames.items()
    }
    first, *others = runs
    for run in others:
        _check_same_questions(first, evaluations[first].missing, run, evaluations[run].missing)
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
    moved = []
    if top:
        moved = [
            moved_most(run, by, top, (tables[first], tables[run]), (frames[first], frames[run]), judgements)
            for run in others
        ]
    texts = _texts(pools, qrels, moved) if top else None
    if as_json:
        facts = {"qrels": qrels, "confidence": confidence, "permutations": permutations, "seed": seed}
        tags = {run: content.tag for run, content in read.items()}
        click.echo(to_json(facts, first, tags, comparisons, moved, texts))
        return
    shown = short_names(runs)
    print_comparisons(first, comparisons, confidence, shown)
    for one in moved:
        print_moved(first, one, texts, shown)


def _in_order(runs: tuple[str, ...], baseline: str | None) -> tuple[str, ...]:
    """The runs, the baseline first, each once."""
    repeated = sorted({run for run in runs if runs.count(run) > 1})
    if repeated:
        raise UsageError(f"{', '.join(repeated)}: given twice; a run is not compared with itself")
    if baseline is not None:
        runs = (baseline, *(run for run in runs if run != baseline))
    if len(runs) < 2:
        raise UsageError(f"{runs[0]}: one run given, expected at least two to compare")
    return runs


def _common(
    judgements: pl.DataFrame, frames: dict[str, pl.DataFrame]
) -> tuple[pl.DataFrame, dict[str, pl.DataFrame]]:
    """What concerns the judged questions that every run ranks, and what is not judged at all."""
    judged = judgements.select("question_id").unique()
    common = judged
    for frame in frames.values():
        common = common.join(frame, on="question_id", how="semi")
    if common.is_empty():
        raise AptoolError(f"{', '.join(frames)}: no question of the qrels is in all of them")
    left_out = judged.join(common, on="question_id", how="anti")
    logger.info(f"--on-common: {common.height} of {judged.height} questions")
    kept = {run: frame.join(left_out, on="question_id", how="anti") for run, frame in frames.items()}
    return judgements.join(common, on="question_id", how="semi"), kept


def _check_same_questions(
    baseline: str, missing_there: tuple[str, ...], run: str, missing_here: tuple[str, ...]
) -> None:
    there, here = set(missing_there), set(missing_here)
    lacks = [question for question in missing_here if question not in there]
    has = [question for question in missing_there if question not in here]
    if lacks or has:
        parts = [
            *([f"lacks {len(lacks)} questions of {baseline} ({some(lacks)})"] if lacks else []),
            *([f"has {len(has)} that {baseline} lacks ({some(has)})"] if has else []),
        ]
        raise AptoolError(f"{run}: {' and '.join(parts)}: expected the same questions, or --on-common")


def _report_candidates(
    judgements: pl.DataFrame, baseline: str, before: pl.DataFrame, run: str, after: pl.DataFrame
) -> None:
    """Says where two runs rank different candidates, so that they differ in more than order."""
    import polars as pl

    keys = ["question_id", "answer_id"]
    differing = pl.concat(
        one.select(keys).join(other, on=keys, how="anti") for one, other in ((before, after), (after, before))
    )
    questions = differing.join(judgements, on="question_id", how="semi")["question_id"].unique().sort()
    if len(questions):
        named = some(questions.head(6).to_list(), len(questions))
        logger.info(f"{run}: ranks other candidates than {baseline} for {len(questions)} questions ({named})")


def _texts(pools: tuple[str, ...], qrels: str, moved: list[Deltas]) -> Texts | None:
    """The texts of the questions that moved, if there are pools to find them in."""
    import polars as pl

    from aptool.evaluation.texts import find_texts
    from aptool.formats.collection import answers_beside
    from aptool.formats.pools import read_answers
    from aptool.formats.storage import expand

    if not pools:
        beside = pools_beside(qrels)
        if beside is None:
            return None
        pools = (beside,)
    files = expand(pools, ".pools.parquet")
    pairs = {
        (move.question_id, answer)
        for one in moved
        for move in (*one.gained, *one.lost)
        for answer in (move.right, move.first_before, move.first_after)
        if answer is not None
    }
    wanted = pl.DataFrame(
        sorted(pairs), schema={"question_id": pl.String, "answer_id": pl.String}, orient="row"
    )
    shared = answers_beside(files[0])
    return find_texts(files, wanted, read_answers(shared) if shared is not None else None)
