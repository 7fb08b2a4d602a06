"""``--review`` of `aptool eval` and `aptool compare`: the questions a reviewer asks of a table of results."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from aptool.cli.runs import found_pools, qrels_beside, short_names
from aptool.cli.tables import print_table
from aptool.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from aptool.evaluation.compare import Comparison
    from aptool.evaluation.evaluation import Evaluation
    from aptool.evaluation.gap import Gap
    from aptool.reporting.review import Answer

logger = logging.getLogger(__name__)

Command = TypeVar("Command", bound=Callable[..., Any])


class ReviewOptions(NamedTuple):
    """The options of a review.

    Attributes:
        dev: the run on dev of each run.
        dev_qrels: the judgements of dev; None for those beside its runs.
        pools: with the texts of the questions; empty for those beside the qrels.
    """

    dev: Mapping[str, str]
    dev_qrels: str | None
    pools: tuple[str, ...]


class Judged(NamedTuple):
    """What is reviewed.

    Attributes:
        runs: question_id, answer_id, score of each run.
        evaluations: of each run.
        judgements: the qrels.
        qrels: their file.
        names: of the measures, the main one first.
        level: the lowest relevance that counts as relevant.
        confidence: of the intervals.
        comparisons: with the first run, if they were made.
    """

    runs: Mapping[str, pl.DataFrame]
    evaluations: Mapping[str, Evaluation]
    judgements: pl.DataFrame
    qrels: str
    names: tuple[str, ...]
    level: int
    confidence: float
    comparisons: Sequence[Comparison] = ()


class Review(NamedTuple):
    """The answers in words, and their figures for JSON."""

    answers: list[Answer]
    figures: dict[str, Any]


def review_options(command: Command) -> Command:
    """The options ``--review``, ``--dev`` and ``--dev-qrels``."""
    for option in reversed(
        (
            click.option(
                "--review",
                is_flag=True,
                help="Answer the questions a reviewer asks: power, the limit of the first stage, figures by "
                "kind of question, agreement of the runs, the gap to dev, leaks from the splits before.",
            ),
            click.option(
                "--dev",
                metavar="RUN",
                multiple=True,
                help="Run on dev of each run, in their order, for the gap to dev; implies --review.",
            ),
            click.option(
                "--dev-qrels", metavar="QRELS", help="Qrels of dev.  [default: DEV.qrels beside DEV.run]"
            ),
        )
    ):
        command = option(command)
    return command


def parse_review(
    review: bool, runs: tuple[str, ...], dev: tuple[str, ...], dev_qrels: str | None, pools: tuple[str, ...]
) -> ReviewOptions | None:
    """The options of a review; None if there is to be none.

    Raises:
        UsageError: there is not one run on dev for each run, or qrels of dev without a run.
    """
    if dev and len(dev) != len(runs):
        raise UsageError(f"--dev: given {len(dev)} times; expected {len(runs)}, one for each run")
    if dev_qrels is not None and not dev:
        raise UsageError("--dev-qrels: requires --dev")
    return ReviewOptions(dict(zip(runs, dev, strict=False)), dev_qrels, pools) if review or dev else None


def review(judged: Judged, options: ReviewOptions) -> Review:
    """Answers every question; what the files at hand do not show is said to be unknown."""
    from aptool.evaluation.agreement import pairwise
    from aptool.evaluation.limits import candidate_limits
    from aptool.evaluation.power import detectable_effect
    from aptool.reporting.review import agreement_answer, gap_answer, limits_answer, power_answer

    shown = short_names(tuple(judged.runs))
    main = judged.names[0]
    questions = next(iter(judged.evaluations.values())).per_question.height
    tables = {run: one.per_question for run, one in judged.evaluations.items()}
    limits = {
        run: candidate_limits(judged.judgements, frame, judged.names, level=judged.level)
        for run, frame in judged.runs.items()
    }
    pairs = pairwise(judged.runs, tables, main)
    gaps = _gaps(judged, options)
    kinds, by_kind = _groups(judged, options, shown)
    copies, leaks = _leaks(judged.qrels)
    named = {shown[run]: one for run, one in limits.items()}
    agreeing = {f"{shown[one]} and {shown[other]}": [found] for (one, other), found in pairs.items()}
    if len(pairs) > 1:
        agreeing["all pairs, mean"] = list(pairs.values())
    answers = [
        power_answer(questions, judged.comparisons, shown, judged.confidence),
        limits_answer(named, judged.names),
        *kinds,
        agreement_answer(agreeing, main) if pairs else _unknown("Do the runs agree?", "one run is given"),
        gap_answer({shown[run]: one for run, one in gaps.items()}, _split_of(judged.qrels))
        if gaps
        else _unknown("How far is this from dev?", "no run on dev is given (--dev RUN)"),
        copies,
    ]
    effect = detectable_effect(questions, alpha=1 - judged.confidence) if questions > 1 else None
    figures = {
        "detectable_effect": effect,
        "limits": {run: one._asdict() for run, one in limits.items()},
        "groups": by_kind,
        "agreement": [{"runs": list(pair), **found._asdict()} for pair, found in pairs.items()],
        "gaps": {run: {name: gap._asdict() for name, gap in one.items()} for run, one in gaps.items()},
        "leaks": leaks,
    }
    return Review(answers, figures)


def print_answers(answers: Sequence[Answer], *, err: bool = False) -> None:
    """Prints each question with its answer; on stderr if stdout holds a table for a paper."""
    for one in answers:
        click.echo(err=err)
        click.echo(one.question, err=err)
        for sentence in one.sentences:
            click.echo(click.wrap_text(sentence, 100, "  ", "  "), err=err)
        if one.rows:
            print_table([["  " + row[0], *row[1:]] for row in one.rows], err=err)


def _gaps(judged: Judged, options: ReviewOptions) -> dict[str, dict[str, Gap]]:
    """The gap of each run by each measure."""
    from aptool.evaluation.gap import split_gaps
    from aptool.evaluation.measures import evaluate
    from aptool.formats.trec import read_qrels, read_run

    if not options.dev:
        return {}
    path = options.dev_qrels or qrels_beside(tuple(options.dev.values()), option="--dev-qrels")
    judgements = read_qrels(path)
    gaps = {}
    for run in judged.runs:
        dev = options.dev[run]
        found = evaluate(
            judgements,
            read_run(dev).frame,
            judged.names,
            level=judged.level,
            run_name=dev,
            qrels_name=path,
        )
        gaps[run] = split_gaps(found, judged.evaluations[run], judged.names, confidence=judged.confidence)
    return gaps


def _groups(
    judged: Judged, options: ReviewOptions, shown: Mapping[str, str]
) -> tuple[list[Answer], dict[str, Any] | None]:
    """The main measure by each kind of question."""
    from typing import get_args

    from aptool.evaluation.evaluation import group_figures
    from aptool.evaluation.measures import relevant_from
    from aptool.reporting.breakdown import Kind, question_groups
    from aptool.reporting.review import groups_answer

    pools = found_pools(options.pools, judged.qrels)
    if pools is None:
        return [_unknown("For which questions?", "no pools beside the qrels (--pools FILE)")], None
    relevant = relevant_from(judged.judgements, judged.level)
    answers, figures = [], {}
    for kind in get_args(Kind):
        groups = question_groups(pools.files, relevant, kind, pools.answers)
        found = {run: group_figures(one.per_question, groups) for run, one in judged.evaluations.items()}
        answers.append(groups_answer(kind, {shown[run]: one for run, one in found.items()}, judged.names[0]))
        figures[kind] = {run: [group.to_dict() for group in one.values()] for run, one in found.items()}
    return answers, figures


def _leaks(qrels: str) -> tuple[Answer, list[dict[str, Any]] | None]:
    """Near copies between the split of the qrels and those before it, where a collection is around them."""
    from aptool.datasets.leaks import find_leaks
    from aptool.formats.collection import MANIFEST, Collection
    from aptool.formats.location import location
    from aptool.reporting.review import leaks_answer

    path, split = location(qrels), _split_of(qrels)
    if (path.parent / MANIFEST).is_file():
        collection = Collection(path.parent)
        if split in collection.splits:
            found = find_leaks(collection, split)
            return leaks_answer(found, split), [one._asdict() for one in found]
    return _unknown("Does it leak from what was trained on?", "the qrels are in no collection"), None


def _split_of(qrels: str) -> str:
    """The split that a qrels file is named after."""
    return qrels.rsplit("/", 1)[-1].removesuffix(".gz").removesuffix(".qrels")


def _unknown(question: str, why: str) -> Answer:
    from aptool.reporting.review import Answer

    return Answer(question, [f"Unknown: {why}."], [])
