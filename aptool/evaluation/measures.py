"""trec_eval's measures of a run, by way of pytrec_eval.

The numbers are those of ``trec_eval -c`` (version 10): averages are over all questions of the qrels, a
question the run lacks counts 0, and a question of the run that is not in the qrels is left out.

Two things differ between trec_eval 10 and the older one that pytrec_eval carries, and are made up for
here. The older one compares scores as float32, so that scores 1e-8 apart tie; it is given the rank of
every score among its question's scores instead, equal for equal scores, which float32 holds exactly. And
it knows nothing of ``-c``, and is never handed an empty ranking, of which it makes NaN.
"""

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import polars as pl
import pytrec_eval

from aptool.errors import InputError, UsageError

DEFAULT_MEASURES = ("map", "recip_rank", "P_1")
# What headings call them.
_TITLES = {"map": "MAP", "recip_rank": "MRR", "P_1": "P@1"}

# Measures with a cut-off rank, and measures with a recall level or a multiple of R, two decimals at most.
_AT_RANK = ("P", "recall", "ndcg_cut", "map_cut", "success", "relative_P")
_AT_LEVEL = ("iprec_at_recall", "Rprec_mult")
_NOT_NUMBERS = frozenset({"relstring", "runid"})
_PARAMETERS = re.compile(r"([A-Za-z_]+)[._](\d+(?:\.\d+)?(?:,\d+(?:\.\d+)?)*)", re.ASCII)
_RANK = re.compile(r"0*[1-9]\d{0,8}", re.ASCII)
_LEVEL = re.compile(r"\d{1,3}(\.\d{1,2})?", re.ASCII)
# What other tools call these measures.
_KNOWN_AS = {
    "acc": "P",
    "accuracy": "P",
    "ap": "map",
    "hit": "success",
    "hits": "success",
    "map": "map_cut",
    "mrr": "recip_rank",
    "ndcg": "ndcg_cut",
    "p": "P",
    "prec": "P",
    "precision": "P",
    "r": "recall",
    "reciprocal_rank": "recip_rank",
    "rr": "recip_rank",
}
# trec_eval's floor under the factors of a geometric mean (MIN_GEO_MEAN in its trec_eval.h).
_GEOMETRIC_FLOOR = 1e-5
# trec_eval reserves memory in proportion to the highest relevance.
_HIGHEST_RELEVANCE = 1_000_000
# An id that no file can hold.
_NO_CANDIDATE = " "


@dataclass(frozen=True)
class Evaluation:
    """The measures of one run.

    Attributes:
        per_question: question_id (str), candidates (i64: how many the run ranks, 0 where it lacks the
            question) and one f64 column a measure; one row a question of the qrels, by id as bytes.
        means: each measure over all questions of the qrels, as trec_eval's ``all`` lines have it: the
            arithmetic mean, but the sum of ``num_*`` and the geometric mean of ``gm_*``.
        missing: ids of the questions that the run lacks; each counts 0.
        extra: ids of the questions of the run that the qrels lack; left out.
        unjudged: question_id, answer_id of the candidates of judged questions that have no judgement, or a
            negative one, by both ids; they count as not relevant.
    """

    per_question: pl.DataFrame
    means: Mapping[str, float]
    missing: tuple[str, ...]
    extra: tuple[str, ...]
    unjudged: pl.DataFrame


def evaluate(
    qrels: pl.DataFrame,
    run: pl.DataFrame,
    measures: Iterable[str] = DEFAULT_MEASURES,
    *,
    run_name: str = "run",
    qrels_name: str = "qrels",
) -> Evaluation:
    """Evaluates a run.

    Args:
        qrels: question_id (str), answer_id (str), relevance (integer); relevant from 1 on, unjudged below 0.
        run: question_id (str), answer_id (str), score (float or integer), each candidate once.
        measures: names as `measure_names` takes them.
        run_name: what an error calls the run, such as its path.
        qrels_name: what an error calls the qrels.

    Raises:
        UsageError: a measure is not one.
        InputError: the run and the qrels share no question, or a relevance is beyond reason.
        ValueError: a frame repeats a candidate or has a score that is not finite.
        TypeError: relevance is not a column of integers.
    """
    names = measure_names(measures)
    judgements = _judgements(qrels, qrels_name)
    rankings = _rankings(run)
    common = [question for question in judgements if question in rankings]
    if not common:
        given = next(iter(rankings), "no question")
        example = "".join(f", such as {question!r}" for question in list(judgements)[:1])
        raise InputError(run_name, value=given, expected=f"at least one question of {qrels_name}{example}")
    unjudged = _unjudged(judgements, rankings, common)
    measured = _measured(judgements, rankings, common, names)
    rows = [
        (question, len(rankings.get(question, ())), *(measured.get(question) or _of_nothing(judged, names)))
        for question, judged in judgements.items()
    ]
    types = {"question_id": pl.String, "candidates": pl.Int64} | dict.fromkeys(names, pl.Float64)
    per_question = pl.DataFrame(rows, schema=types, orient="row")
    return Evaluation(
        per_question=per_question,
        means=averages(per_question.drop("candidates")),
        missing=tuple(question for question in judgements if question not in rankings),
        extra=tuple(question for question in rankings if question not in judgements),
        unjudged=unjudged,
    )


def averages(per_question: pl.DataFrame) -> dict[str, float]:
    """What trec_eval's ``all`` line says of each measure over the questions of ``per_question``.

    Args:
        per_question: question_id and one column a measure; not empty.

    Returns:
        The sum of ``num_*``, the geometric mean of ``gm_*``, the arithmetic mean of all others. Sums are
        rounded once (`math.fsum`), so they depend on no order of questions.
    """
    result = {}
    for column in per_question.drop("question_id"):
        if column.name.startswith("num_"):
            result[column.name] = math.fsum(column)
        elif column.name.startswith("gm_"):
            result[column.name] = math.exp(math.fsum(map(math.log, column)) / len(column))
        else:
            result[column.name] = math.fsum(column) / len(column)
    return result


def measure_title(measure: str) -> str:
    """What headings call a measure: ``MAP`` for ``map``; its own name if it has no other."""
    return _TITLES.get(measure, measure)


def measure_names(measures: Iterable[str]) -> tuple[str, ...]:
    """The names under which trec_eval prints the measures asked for, each once, in the order asked for.

    A name is one of trec_eval's (``map``, ``recip_rank``), with its cut-offs as trec_eval takes them
    (``P.1``, ``P.1,5``) or prints them (``P_1``), without them for trec_eval's usual ones (``P``), or one of
    its names for several (``official``, ``set``, ``all_trec``).

    Raises:
        UsageError: names all that are not measures, and what may have been meant.
    """
    names: dict[str, None] = {}
    bad: list[str] = []
    for measure in measures:
        printed = _printed(measure)
        names.update(dict.fromkeys(printed))
        if not printed:
            bad.append(repr(measure) + _suggestion(measure))
    if bad:
        raise UsageError(f"not measures of trec_eval: {', '.join(bad)}")
    if not names:
        raise UsageError(f"no measure is named; the usual ones are {','.join(DEFAULT_MEASURES)}")
    return tuple(names)


@cache
def _printed(measure: str) -> tuple[str, ...]:
    """The names that ``measure`` stands for; none if it is not a measure."""
    parts = _PARAMETERS.fullmatch(measure)
    if parts is not None:
        family, parameters = parts[1], parts[2].split(",")
        if family in _AT_RANK and all(_RANK.fullmatch(cutoff) for cutoff in parameters):
            return tuple(f"{family}_{int(cutoff)}" for cutoff in parameters)
        if family in _AT_LEVEL and all(_LEVEL.fullmatch(level) for level in parameters):
            return tuple(f"{family}_{float(level):.2f}" for level in parameters)
        return ()
    several = pytrec_eval.supported_nicknames.get(measure, {measure})
    wanted = set(several) & pytrec_eval.supported_measures - _NOT_NUMBERS
    if not wanted:
        return ()
    # The usual cut-offs of a measure are in trec_eval; one candidate makes it tell them.
    evaluator = pytrec_eval.RelevanceEvaluator({"question": {"answer": 1}}, wanted)
    return tuple(evaluator.evaluate({"question": {"answer": 1.0}})["question"])


def _suggestion(measure: str) -> str:
    """`` (did you mean ...?)`` or nothing."""
    word, number = re.fullmatch(r"(.*?)[@._]?(\d*)", measure.strip().lower(), re.DOTALL).groups()  # type: ignore[union-attr]
    meant = _KNOWN_AS.get(word)
    if word in ("map", "ndcg") and not number:
        meant = word
    elif meant in _AT_RANK:
        meant = f"{meant}_{number or 1}"
    elif meant is None:
        known = sorted(pytrec_eval.supported_measures - _NOT_NUMBERS)
        by_lower_case = {name.lower(): name for name in known}
        close = difflib.get_close_matches(word, by_lower_case, n=1, cutoff=0.6)
        meant = by_lower_case[close[0]] if close else None
        if meant in _AT_RANK and number:
            meant = f"{meant}_{number}"
    return f" (did you mean {meant!r}?)" if meant is not None and _printed(meant) else ""


def _judgements(qrels: pl.DataFrame, qrels_name: str) -> dict[str, dict[str, int]]:
    """The qrels as question id -> answer id -> relevance, questions by id as bytes, what is negative as -1.

    All negative judgements mean the same, but trec_eval takes the highest of a question for a length, and
    one below -1 would end the process.
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
    """The run as question id -> answer id -> rank of its score from the lowest, questions by id as bytes."""
    score = pl.col("score").cast(pl.Float64)
    if not run.select(score.is_finite().all()).item():
        raise ValueError("a score is not a finite number")
    ranks = score.rank("dense").over("question_id").cast(pl.Float64)
    return _nested(run.select("question_id", "answer_id", value=ranks))


def _nested(frame: pl.DataFrame) -> dict[str, dict[str, Any]]:
    """Question id -> answer id -> value. Python loops over questions; over lines only polars and C do."""
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


def _unjudged(
    judgements: Mapping[str, Mapping[str, int]],
    rankings: Mapping[str, Mapping[str, float]],
    common: list[str],
) -> pl.DataFrame:
    """question_id, answer_id of the ranked candidates without a judgement from 0 on, by both ids."""
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


def _measured(
    judgements: Mapping[str, dict[str, int]],
    rankings: Mapping[str, dict[str, float]],
    common: list[str],
    names: tuple[str, ...],
) -> dict[str, list[float]]:
    """Question id -> its measures, for the questions that both have."""
    judged = {question: judgements[question] for question in common}
    for question, values in judged.items():
        # Of a question without a judgement from 0 on, trec_eval reads what it counted for the one before.
        if max(values.values()) < 0:
            judged[question] = {**values, _NO_CANDIDATE: 0}
    evaluator = pytrec_eval.RelevanceEvaluator(judged, set(names))
    results = evaluator.evaluate({question: rankings[question] for question in common})
    # pytrec_eval leaves the last step of a geometric mean to its caller: the values are logarithms.
    return {
        question: [math.exp(values[name]) if name.startswith("gm_") else values[name] for name in names]
        for question, values in results.items()
    }


def _of_nothing(judged: Mapping[str, int], names: tuple[str, ...]) -> list[float]:
    """The measures of a question of which nothing is ranked."""
    relevant = float(sum(value > 0 for value in judged.values()))
    known = {"num_q": 1.0, "num_rel": relevant, "gm_map": _GEOMETRIC_FLOOR, "gm_bpref": _GEOMETRIC_FLOOR}
    return [known.get(name, 0.0) for name in names]
