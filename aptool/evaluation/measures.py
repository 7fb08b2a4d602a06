"""trec_eval's measures of a run, computed by pytrec_eval.

The figures are those of ``trec_eval -c`` (version 10): means are over all questions of the qrels, a question
missing from the run counts 0, and a question of the run that is not in the qrels is left out.

pytrec_eval contains an older trec_eval, and two differences are corrected here. The older version compares
scores as float32, so that scores 1e-8 apart tie; it is given the dense rank of every score within its
question instead, which float32 represents exactly. It also has no ``-c`` and returns NaN for an empty
ranking, so it is never given one.
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
_TITLES = {"map": "MAP", "recip_rank": "MRR", "P_1": "P@1"}

# Measures with a cut-off rank, and measures with a recall level or a multiple of R, two decimals at most.
_AT_RANK = ("P", "recall", "ndcg_cut", "map_cut", "success", "relative_P")
_AT_LEVEL = ("iprec_at_recall", "Rprec_mult")
_NOT_NUMBERS = frozenset({"relstring", "runid"})
_PARAMETERS = re.compile(r"([A-Za-z_]+)[._](\d+(?:\.\d+)?(?:,\d+(?:\.\d+)?)*)", re.ASCII)
_RANK = re.compile(r"0*[1-9]\d{0,8}", re.ASCII)
_LEVEL = re.compile(r"\d{1,3}(\.\d{1,2})?", re.ASCII)
# The names of these measures in other tools.
_ALIASES = {
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
# trec_eval's lower bound of the factors of a geometric mean (MIN_GEO_MEAN in its trec_eval.h).
_GEOMETRIC_FLOOR = 1e-5
# trec_eval reserves memory in proportion to the highest relevance.
_HIGHEST_RELEVANCE = 1_000_000
# Not a legal id, so no candidate of a run has it.
_NO_CANDIDATE = " "


@dataclass(frozen=True)
class Evaluation:
    """The measures of one run.

    Attributes:
        per_question: question_id (str), candidates (i64: how many the run ranks, 0 if the question is
            missing) and one f64 column per measure; one row per question of the qrels, sorted by id as bytes.
        means: each measure over all questions of the qrels, as in trec_eval's ``all`` lines: the arithmetic
            mean, but the sum of ``num_*`` and the geometric mean of ``gm_*``.
        missing: ids of the questions missing from the run; each counts 0.
        extra: ids of the questions of the run that are not in the qrels; left out.
        unjudged: question_id, answer_id of the candidates of judged questions that have no judgement, or a
            negative one, sorted by both ids; they count as not relevant.
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
        qrels: question_id (str), answer_id (str), relevance (integer): relevant if at least 1, unjudged if
            negative.
        run: question_id (str), answer_id (str), score (float or integer), each candidate once.
        measures: names accepted by `measure_names`.
        run_name: name of the run in errors, such as its path.
        qrels_name: name of the qrels in errors.

    Raises:
        UsageError: an unknown measure.
        InputError: the run and the qrels have no question in common, or a relevance is too high.
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
        (question, len(rankings.get(question, ())), *(measured.get(question) or _unranked(judged, names)))
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
    """Each measure over the questions of ``per_question``, as in trec_eval's ``all`` lines.

    Args:
        per_question: question_id and one column per measure; not empty.

    Returns:
        The sum of ``num_*``, the geometric mean of ``gm_*``, the arithmetic mean of all others. Sums are
        rounded once (`math.fsum`), so they do not depend on the order of the questions.
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
    """The name of a measure in headings: ``MAP`` for ``map``; a name without a title stays as it is."""
    return _TITLES.get(measure, measure)


def measure_names(measures: Iterable[str]) -> tuple[str, ...]:
    """The names that trec_eval prints for the given measures, each once, in the given order.

    A name is one of trec_eval's (``map``, ``recip_rank``), with cut-offs as trec_eval reads them (``P.1``,
    ``P.1,5``) or prints them (``P_1``), without cut-offs for its defaults (``P``), or one of its names for a
    set of measures (``official``, ``set``, ``all_trec``).

    Raises:
        UsageError: unknown measures; the message lists all of them, each with the nearest known name.
    """
    names: dict[str, None] = {}
    bad: list[str] = []
    for measure in measures:
        printed = _printed(measure)
        names.update(dict.fromkeys(printed))
        if not printed:
            bad.append(repr(measure) + _suggestion(measure))
    if bad:
        raise UsageError(f"unknown measures: {', '.join(bad)}")
    if not names:
        raise UsageError(f"no measure given; the default is {','.join(DEFAULT_MEASURES)}")
    return tuple(names)


@cache
def _printed(measure: str) -> tuple[str, ...]:
    """The names that trec_eval prints for ``measure``; none if it is unknown."""
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
    # The default cut-offs are in trec_eval, which returns them for a single candidate.
    evaluator = pytrec_eval.RelevanceEvaluator({"question": {"answer": 1}}, wanted)
    return tuple(evaluator.evaluate({"question": {"answer": 1.0}})["question"])


def _suggestion(measure: str) -> str:
    """`` (did you mean ...?)`` or an empty string."""
    word, number = re.fullmatch(r"(.*?)[@._]?(\d*)", measure.strip().lower(), re.DOTALL).groups()  # type: ignore[union-attr]
    meant = _ALIASES.get(word)
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


def _measured(
    judgements: Mapping[str, dict[str, int]],
    rankings: Mapping[str, dict[str, float]],
    common: list[str],
    names: tuple[str, ...],
) -> dict[str, list[float]]:
    """Question id -> its measures, for the questions in both the run and the qrels."""
    judged = {question: judgements[question] for question in common}
    for question, values in judged.items():
        # For a question without a judgement of at least 0, trec_eval reads the counts of the previous one.
        if max(values.values()) < 0:
            judged[question] = {**values, _NO_CANDIDATE: 0}
    evaluator = pytrec_eval.RelevanceEvaluator(judged, set(names))
    results = evaluator.evaluate({question: rankings[question] for question in common})
    # For a geometric mean pytrec_eval returns logarithms.
    return {
        question: [math.exp(values[name]) if name.startswith("gm_") else values[name] for name in names]
        for question, values in results.items()
    }


def _unranked(judged: Mapping[str, int], names: tuple[str, ...]) -> list[float]:
    """The measures of a question that is missing from the run."""
    relevant = float(sum(value > 0 for value in judged.values()))
    known = {"num_q": 1.0, "num_rel": relevant, "gm_map": _GEOMETRIC_FLOOR, "gm_bpref": _GEOMETRIC_FLOOR}
    return [known.get(name, 0.0) for name in names]
