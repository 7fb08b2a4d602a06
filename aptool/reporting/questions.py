"""The questions on which a system and the baseline differ most, with rankings and heat maps."""

import logging
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from aptool.data.runs import read_run
from aptool.data.trec import rank_candidates, read_qrels
from aptool.evaluation.compare import question_deltas
from aptool.evaluation.texts import PoolTexts, find_texts
from aptool.reporting.runs import CollectionResults, SystemResults

if TYPE_CHECKING:
    import torch

    from aptool.models.explain import Explanation

logger = logging.getLogger(__name__)

_KEYS = ["question_id", "answer_id"]


class RankedAnswer(NamedTuple):
    """An answer in the ranking of a system."""

    answer_id: str
    text: str
    rank: int  # from 1
    score: float
    baseline_rank: int | None  # None if the baseline's run lacks the answer
    is_relevant: bool
    heat_map: "Explanation | None"


class DifferingQuestion(NamedTuple):
    """A question, its main measure under the baseline (before) and the system (after), and the ranking."""

    question_id: str
    text: str
    before: float
    after: float
    candidates: int
    relevant: int
    missing: list[str]  # relevant answers that are not among the candidates
    answers: list[RankedAnswer]


class Differences(NamedTuple):
    """The questions with the largest differences between a system and the baseline."""

    system: str
    seed: int  # of the rankings
    better: int  # number of questions with a higher measure, including those not listed
    worse: int
    gained: list[DifferingQuestion]
    lost: list[DifferingQuestion]


def largest_differences(
    results: CollectionResults, *, top: int, depth: int, device: "torch.device | None"
) -> Differences:
    """The ``top`` questions with the largest gains over the baseline and as many with the largest losses.

    The system is the best trained system, or the best system if none was trained. The measure is the main
    measure, a mean over seeds. The rankings are those of the first seed, with the first ``depth`` answers and
    all relevant answers. The first answer and the highest-ranked relevant answer have heat maps, unless the
    system has no weights of words or the device is None.
    """
    baseline = next(each for each in results.systems if each.name == results.baseline)
    others = [each for each in results.systems if each is not baseline] or [baseline]
    trained = [each for each in others if each.configs]
    system = max(trained or others, key=lambda each: each.spreads[results.measures[0]].mean)
    deltas = question_deltas(baseline.per_question, system.per_question, results.measures[0])
    better, worse = deltas.filter(pl.col("change") > 0), deltas.filter(pl.col("change") < 0)
    listed = pl.concat([better.head(top), worse.head(top)])
    questions = _describe(results, system, baseline, listed, depth, device)
    gained = [question for question in questions if question.after > question.before]
    lost = [question for question in questions if question.after < question.before]
    return Differences(system.name, system.entries[0].seed, better.height, worse.height, gained, lost)


def _describe(
    results: CollectionResults,
    system: SystemResults,
    baseline: SystemResults,
    deltas: pl.DataFrame,
    depth: int,
    device: "torch.device | None",
) -> list[DifferingQuestion]:
    """Add texts, rankings and heat maps to rows of `question_deltas`."""
    asked = results.questions
    qrels = read_qrels(asked.qrels).filter(pl.col("relevance") > 0)
    relevant = qrels.join(deltas, on="question_id", how="semi").select(*_KEYS, is_relevant=True)
    before, after = (_ranking(each, deltas) for each in (baseline, system))
    ranks = before.select(*_KEYS, baseline_rank="rank")
    shown = after.join(relevant, on=_KEYS, how="left", maintain_order="left")
    shown = shown.join(ranks, on=_KEYS, how="left", maintain_order="left")
    shown = shown.with_columns(pl.col("is_relevant").fill_null(value=False))
    shown = shown.filter((pl.col("rank") <= depth) | pl.col("is_relevant"))
    texts = find_texts(asked.pools, shown, asked.shared_answers()) if asked.pools else PoolTexts({}, {})
    heat_maps = _heat_maps(system, shown, texts, device)
    answers: dict[str, list[RankedAnswer]] = {}
    for row in shown.iter_rows(named=True):
        question = row.pop("question_id")
        pair = question, row["answer_id"]
        answer = RankedAnswer(text=texts.answers.get(pair, ""), heat_map=heat_maps.get(pair), **row)
        answers.setdefault(question, []).append(answer)
    missing = relevant.join(after, on=_KEYS, how="anti").sort("answer_id").rows_by_key("question_id")
    candidates = dict(after.group_by("question_id").len().iter_rows())
    judged = dict(relevant.group_by("question_id").len().iter_rows())
    return [
        DifferingQuestion(
            question,
            texts.questions.get(question, ""),
            old,
            new,
            candidates.get(question, 0),
            judged.get(question, 0),
            [answer for answer, _ in missing.get(question, [])],
            answers.get(question, []),
        )
        for question, old, new, _ in deltas.iter_rows()
    ]


def _ranking(system: SystemResults, questions: pl.DataFrame) -> pl.DataFrame:
    """Rank the candidates of some questions by the first seed of a system."""
    run = read_run(system.entries[0].run).frame
    return rank_candidates(run.join(questions, on="question_id", how="semi"))


def _heat_maps(
    system: SystemResults, shown: pl.DataFrame, texts: PoolTexts, device: "torch.device | None"
) -> dict[tuple[str, str], "Explanation"]:
    """Explain the scores of the first answer and of the highest-ranked relevant answer of each question."""
    folder = system.entries[0].model
    if folder is None or device is None:
        return {}
    from aptool.models.explain import explain_pairs, gives_weights
    from aptool.models.model import load_model

    model = load_model(folder, device)
    if not gives_weights(model):
        return {}
    logger.info(f"heat maps of {system.name}")
    best = shown.filter("is_relevant").group_by("question_id", maintain_order=True).first()
    chosen = pl.concat([shown.filter(pl.col("rank") == 1).select(_KEYS), best.select(_KEYS)]).unique(
        maintain_order=True
    )
    keys = [
        (question, answer) for question, answer in chosen.iter_rows() if (question, answer) in texts.answers
    ]
    pairs = [(texts.questions[question], texts.answers[question, answer]) for question, answer in keys]
    return dict(zip(keys, explain_pairs(model, pairs), strict=True))
