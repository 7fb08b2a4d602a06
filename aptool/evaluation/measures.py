"""Measures of a run by the policies of trec_eval.

The figures are those of ``trec_eval -c`` (version 10): means are over all questions of the qrels, a question
missing from the run counts 0, and a question of the run that is not in the qrels is left out. What trec_eval
lacks is computed from the ranking under the same policies.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from aptool.errors import InputError
from aptool.evaluation.evaluation import Evaluation, averages
from aptool.evaluation.names import DEFAULT_MEASURES, Measure, parse_measures
from aptool.evaluation.rankings import measure_rankings
from aptool.evaluation.trec_eval import measure_questions

# trec_eval reserves memory in proportion to the highest relevance.
_HIGHEST_RELEVANCE = 1_000_000


def evaluate(
    qrels: pl.DataFrame,
    run: pl.DataFrame,
    measures: Iterable[str] = DEFAULT_MEASURES,
    *,
    level: int = 1,
    run_name: str = "run",
    qrels_name: str = "qrels",
) -> Evaluation:
    """Evaluates a run.

    Args:
        qrels: question_id (str), answer_id (str), relevance (integer): relevant if at least ``level``,
            unjudged if negative.
        run: question_id (str), answer_id (str), score (float or integer), each candidate once.
        measures: names accepted by `names.parse_measures`; results are under their common names.
        level: the lowest relevance that counts as relevant (trec_eval ``-l``); at least 1. A measure with a
            level of its own, as ``AP(rel=2)``, keeps it, and nDCG takes every relevance as a gain.
        run_name: name of the run in errors, such as its path.
        qrels_name: name of the qrels in errors.

    Raises:
        UsageError: an unknown measure.
        InputError: the run and the qrels have no question or no answer in common, a relevance is too high, or
            no relevance is as high as a level above 1.
        ValueError: a frame repeats a candidate or has a score that is not finite.
        TypeError: relevance is not a column of integers.
    """
    parsed = parse_measures(measures)
    judgements = _judgements(qrels, qrels_name)
    _check_levels(qrels, [level, *(measure.level or level for measure in parsed)], qrels_name)
    rankings = _rankings(run)
    common = [question for question in judgements if question in rankings]
    if not common:
        given = next(iter(rankings), "no question")
        example = "".join(f", such as {question!r}" for question in list(judgements)[:1])
        raise InputError(run_name, value=given, expected=f"at least one question of {qrels_name}{example}")
    _check_answers(judgements, rankings, common[0], run_name, qrels_name)
    unjudged = _unjudged(judgements, rankings, common)
    columns = {
        "question_id": list(judgements),
        "candidates": [len(rankings.get(question, ())) for question in judgements],
        **_by_trec_eval(judgements, rankings, parsed, level),
        **_by_ranking(judgements, qrels, run, parsed, level),
    }
    names = [measure.name for measure in parsed]
    types = {"question_id": pl.String, "candidates": pl.Int64} | dict.fromkeys(names, pl.Float64)
    per_question = pl.DataFrame({name: columns[name] for name in types}, schema=types)
    return Evaluation(
        per_question=per_question,
        means=averages(per_question),
        missing=tuple(question for question in judgements if question not in rankings),
        extra=tuple(question for question in rankings if question not in judgements),
        unjudged=unjudged,
    )


def _judgements(qrels: pl.DataFrame, qrels_name: str) -> dict[str, dict[str, int]]:
    """The qrels as question id -> answer id -> relevance, sorted by question id as bytes, negatives as -1.

    All negative judgements mean the same, but trec_eval sizes an array by the highest judgement of a
    question, and a value below -1 crashes the process.
    """
    if not qrels.schema["relevance"].is_integer():
        raise TypeError(f"relevance is {qrels.schema['relevance']}, not an integer")
    highest = qrels.filter(pl.col("relevance") > _HIGHEST_RELEVANCE)
    if not highest.is_empty():
        row = highest.row(0, named=True)
        place = f"question {row['question_id']!r}, answer {row['answer_id']!r}"
        expected = f"at most {_HIGHEST_RELEVANCE}"
        raise InputError(
            qrels_name, place=place, column="relevance", value=row["relevance"], expected=expected
        )
    relevance = pl.col("relevance").cast(pl.Int64).clip(lower_bound=-1)
    return _nested(qrels.select("question_id", "answer_id", value=relevance))


def _rankings(run: pl.DataFrame) -> dict[str, dict[str, float]]:
    """The run as question id -> answer id -> dense rank of its score, lowest first, sorted by question id."""
    score = pl.col("score").cast(pl.Float64)
    if not run.select(score.is_finite().all()).item():
        raise ValueError("a score is not a finite number")
    ranks = score.rank("dense").over("question_id").cast(pl.Float64)
    return _nested(run.select("question_id", "answer_id", value=ranks))


def _nested(frame: pl.DataFrame) -> dict[str, dict[str, Any]]:
    """Question id -> answer id -> value. The Python loop is over questions, not over candidates."""
    ordered = frame.sort("question_id")
    answers, values = ordered["answer_id"].to_list(), ordered["value"].to_list()
    nested: dict[str, dict[str, Any]] = {}
    start = 0
    for length, question in ordered.select(pl.col("question_id").rle().struct.unnest()).iter_rows():
        end = start + length
        nested[question] = dict(zip(answers[start:end], values[start:end], strict=True))
        if len(nested[question]) < length:
            raise ValueError(f"question {question!r} has a candidate twice")
        start = end
    return nested


def _check_answers(
    judgements: Mapping[str, Mapping[str, int]],
    rankings: Mapping[str, Mapping[str, float]],
    question: str,
    run_name: str,
    qrels_name: str,
) -> None:
    """Refuses a run that has none of the qrels' answers: its ids are others, and every figure would be 0.

    The error names the first answers of ``question``, the first question of both.
    """
    judged = set().union(*judgements.values())
    if all(judged.isdisjoint(ranking) for ranking in rankings.values()):
        given, example = next(iter(rankings[question])), next(iter(judgements[question]))
        expected = f"at least one answer of {qrels_name}, such as {example!r}"
        raise InputError(run_name, place=f"question {question!r}", value=given, expected=expected)


def _unjudged(
    judgements: Mapping[str, Mapping[str, int]],
    rankings: Mapping[str, Mapping[str, float]],
    common: list[str],
) -> pl.DataFrame:
    """question_id, answer_id of the ranked candidates without a judgement of 0 or more, sorted."""
    questions: list[str] = []
    answers: list[str] = []
    for question in common:
        judged, ranked = judgements[question], rankings[question]
        without = ranked.keys() - judged.keys()
        if min(judged.values()) < 0:
            without |= {answer for answer, value in judged.items() if value < 0} & ranked.keys()
        answers.extend(without)
        questions.extend([question] * len(without))
    types = {"question_id": pl.String, "answer_id": pl.String}
    return pl.DataFrame({"question_id": questions, "answer_id": answers}, schema=types).sort(pl.all())


def relevant_from(qrels: pl.DataFrame, level: int) -> pl.DataFrame:
    """The judgements that count as relevant at a level: rows whose relevance is at least that."""
    return qrels.filter(pl.col("relevance") >= level)


def _check_levels(qrels: pl.DataFrame, levels: Iterable[int], qrels_name: str) -> None:
    """Refuses a level above every relevance, at which every figure would be 0."""
    level = max(levels)
    highest = qrels["relevance"].max()
    if level > 1 and isinstance(highest, int) and level > highest:
        expected = f"a relevance level of at most {highest}, the highest relevance in it"
        raise InputError(qrels_name, column="relevance", problem=f"none from {level} on", expected=expected)


def _by_trec_eval(
    judgements: Mapping[str, dict[str, int]],
    rankings: Mapping[str, dict[str, float]],
    measures: Iterable[Measure],
    level: int,
) -> dict[str, list[float]]:
    """The columns of the measures that trec_eval has, by their names."""
    by_level: dict[int, list[tuple[str, str]]] = {}
    for measure in measures:
        if measure.trec_eval is not None:
            by_level.setdefault(measure.level or level, []).append((measure.name, measure.trec_eval))
    columns: dict[str, list[float]] = {}
    for own_level, names in by_level.items():
        printed = tuple(dict.fromkeys(name for _, name in names))
        found = measure_questions(judgements, rankings, printed, own_level)
        columns |= {asked: [found[question][name] for question in judgements] for asked, name in names}
    return columns


def _by_ranking(
    judgements: Mapping[str, dict[str, int]],
    qrels: pl.DataFrame,
    run: pl.DataFrame,
    measures: Iterable[Measure],
    level: int,
) -> dict[str, list[float]]:
    """The columns of the measures that trec_eval lacks, by their names."""
    own = [measure for measure in measures if measure.trec_eval is None]
    if not own:
        return {}
    found = measure_rankings(qrels, run, own, level)
    return {
        measure.name: [found[question][measure.name] if question in found else 0.0 for question in judgements]
        for measure in own
    }
