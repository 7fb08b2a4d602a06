"""Measures of a run as ``trec_eval -c`` (version 10) computes them.

Means are over all questions of the qrels. A question that the run lacks counts 0; a question that only the
run has is ignored. Measures that trec_eval lacks, such as ERR and RBP, are computed from
the ranking by the same rules.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import polars as pl

from aptool.errors import InputError
from aptool.evaluation.evaluation import Evaluation, MeasureValues, averages
from aptool.evaluation.names import DEFAULT_MEASURES, Measure, measure_names, parse_measures
from aptool.evaluation.trec_eval import measure_questions
from aptool.formats.trec import rank_candidates, to_dicts

_HIGHEST_RELEVANCE = 1_000_000
_KEYS = ["question_id", "answer_id"]

# Lowest maximal grade of ERR. gdeval always has this one, and refuses qrels with higher grades.
_MAXIMAL_GRADE = 4


def evaluate(
    qrels: pl.DataFrame,
    run: pl.DataFrame,
    measures: Iterable[str] = DEFAULT_MEASURES,
    *,
    level: int = 1,
    run_name: str = "run",
    qrels_name: str = "qrels",
) -> Evaluation:
    """Evaluate a run.

    Args:
        qrels: question_id, answer_id, relevance (integer): relevant from ``level`` on, unjudged if negative.
        run: question_id, answer_id, score (finite); each candidate once.
        measures: names accepted by `names.parse_measures`; results are under their common names.
        level: the lowest relevance that counts as relevant (trec_eval ``-l``), at least 1. It does not apply
            to nDCG, nor to a measure with its own level, such as ``AP(rel=2)``.
        run_name: name of the run in errors, such as its path.
        qrels_name: name of the qrels in errors.
    """
    parsed = parse_measures(measures)
    judgements = _judgements(qrels, qrels_name)
    _check_levels(qrels, [level, *(measure.level or level for measure in parsed)], qrels_name)
    # pytrec_eval compares scores as float32, so it gets dense ranks, the lowest score first.
    ranks = pl.col("score").cast(pl.Float64).rank("dense").over("question_id").cast(pl.Float64)
    rankings = to_dicts(run.with_columns(score=ranks).sort("question_id"), "score")
    common = [question for question in judgements if question in rankings]
    if not common:
        first = next(iter(rankings), "no question")
        example = "".join(f", such as {question!r}" for question in list(judgements)[:1])
        raise InputError(run_name, value=first, expected=f"at least one question of {qrels_name}{example}")
    if run.join(qrels, on="answer_id", how="semi").is_empty():
        first, example = next(iter(rankings[common[0]])), next(iter(judgements[common[0]]))
        expected = f"at least one answer of {qrels_name}, such as {example!r}"
        raise InputError(run_name, position=f"question {common[0]!r}", value=first, expected=expected)
    judged = qrels.filter(pl.col("relevance") >= 0)
    unjudged = run.join(qrels, on="question_id", how="semi").join(judged, on=_KEYS, how="anti")
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
        unjudged=unjudged.select(_KEYS).sort(_KEYS),
    )


class Limits(NamedTuple):
    """The oracle upper bound of a run: the measures of a perfect re-ranking of its candidates."""

    recall: float  # share of the relevant answers that are candidates, mean over questions: the best MAP
    questions: int  # number of questions with a relevant answer
    without: int  # number of these questions without a relevant candidate
    relevant: int  # number of relevant answers of all questions
    found: int  # number of relevant answers that are candidates
    best: Mapping[str, float]  # each measure of the best order


def candidate_limits(
    qrels: pl.DataFrame, run: pl.DataFrame, measures: Iterable[str], *, level: int = 1
) -> Limits:
    """The measures of the best order: the highest relevance first, unjudged candidates last.

    The arguments are those of `evaluate`; the scores of the run do not matter.
    """
    names = measure_names(measures)
    relevance = pl.col("relevance").clip(lower_bound=-1).fill_null(-2).cast(pl.Float64)
    best = run.select(_KEYS).join(qrels.select(*_KEYS, "relevance"), on=_KEYS, how="left")
    counts = ["set_recall", "num_rel", "num_rel_ret"]
    evaluation = evaluate(qrels, best.select(*_KEYS, score=relevance), [*names, *counts], level=level)
    answerable = evaluation.per_question.filter(pl.col("NumRel") > 0)
    return Limits(
        recall=evaluation.means["set_recall"],
        questions=answerable.height,
        without=answerable.filter(pl.col("NumRelRet") == 0).height,
        relevant=int(evaluation.means["num_rel"]),
        found=int(evaluation.means["num_rel_ret"]),
        best=MeasureValues({name: evaluation.means[name] for name in names}),
    )


def _judgements(qrels: pl.DataFrame, qrels_name: str) -> dict[str, dict[str, int]]:
    """The qrels as question id -> answer id -> relevance, sorted by question id; negative values become -1.

    trec_eval crashes on values below -1, and allocates memory in proportion to the highest value.
    """
    highest = qrels.filter(pl.col("relevance") > _HIGHEST_RELEVANCE)
    if not highest.is_empty():
        row = highest.row(0, named=True)
        position = f"question {row['question_id']!r}, answer {row['answer_id']!r}"
        expected = f"at most {_HIGHEST_RELEVANCE}"
        raise InputError(
            qrels_name, position=position, column="relevance", value=row["relevance"], expected=expected
        )
    relevance = pl.col("relevance").cast(pl.Int64).clip(lower_bound=-1)
    return to_dicts(qrels.with_columns(relevance).sort("question_id"), "relevance")


def relevant_from(qrels: pl.DataFrame, level: int) -> pl.DataFrame:
    """The judgements with a relevance of at least ``level``."""
    return qrels.filter(pl.col("relevance") >= level)


def _check_levels(qrels: pl.DataFrame, levels: Iterable[int], qrels_name: str) -> None:
    """Raise if a level is above every relevance: every measure would be 0."""
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
    """The columns of the measures that trec_eval has, by name."""
    by_level: dict[int, list[tuple[str, str]]] = {}
    for measure in measures:
        if measure.trec_eval is not None:
            by_level.setdefault(measure.level or level, []).append((measure.name, measure.trec_eval))
    columns: dict[str, list[float]] = {}
    for relevance, names in by_level.items():
        printed = tuple(dict.fromkeys(name for _, name in names))
        values = measure_questions(judgements, rankings, printed, relevance)
        columns |= {name: [values[question][key] for question in judgements] for name, key in names}
    return columns


def _by_ranking(
    judgements: Mapping[str, dict[str, int]],
    qrels: pl.DataFrame,
    run: pl.DataFrame,
    measures: Iterable[Measure],
    level: int,
) -> dict[str, list[float]]:
    """The columns of the measures that trec_eval lacks, by name."""
    missing = [measure for measure in measures if measure.trec_eval is None]
    if not missing:
        return {}
    values = measure_rankings(qrels, run, missing, level)
    return {
        measure.name: [values.get(question, {}).get(measure.name, 0.0) for question in judgements]
        for measure in missing
    }


def measure_rankings(
    qrels: pl.DataFrame, run: pl.DataFrame, measures: Sequence[Measure], level: int
) -> dict[str, dict[str, float]]:
    """Compute measures of `RANKING_MEASURES`: question id -> name -> value, for questions in both frames."""
    values = _values_by_question(qrels, run, measures, level)
    normalized = [measure for measure in measures if measure.family == "nERR"]
    if normalized:
        best = qrels.select("question_id", "answer_id", score="relevance")
        ideal = _values_by_question(qrels, best, normalized, level)
        for question, row in values.items():
            for measure in normalized:
                row[measure.name] /= ideal[question][measure.name] or 1.0
    return values


def _values_by_question(
    qrels: pl.DataFrame, run: pl.DataFrame, measures: Sequence[Measure], level: int
) -> dict[str, dict[str, float]]:
    judged = run.select(*_KEYS, pl.col("score").cast(pl.Float64))
    judged = judged.join(qrels.select("question_id").unique(), on="question_id", how="semi")
    relevance = pl.col("relevance").cast(pl.Int64)
    labels = qrels.select(*_KEYS, relevance, maximum=relevance.max().clip(_MAXIMAL_GRADE))
    ranked = rank_candidates(judged).join(labels, on=_KEYS, how="left", maintain_order="left")
    expressions = []
    for measure in measures:
        within = pl.col("rank") <= (pl.len() if measure.cutoff is None else measure.cutoff)
        value = RANKING_MEASURES[measure.family](measure, within, measure.level or level)
        expressions.append(value.alias(measure.name))
    values = ranked.group_by("question_id", maintain_order=True).agg(expressions)
    return {row.pop("question_id"): row for row in values.iter_rows(named=True)}


def _hits(within: pl.Expr, level: int) -> pl.Expr:
    """The ranks of the relevant candidates."""
    relevant = pl.col("relevance").fill_null(-1) >= level
    return pl.col("rank").filter(within & relevant).cast(pl.Float64)


def _reciprocal_rank(measure: Measure, within: pl.Expr, level: int) -> pl.Expr:
    return (1 / _hits(within, level).min()).fill_null(0.0)


def _rank_biased_precision(measure: Measure, within: pl.Expr, level: int) -> pl.Expr:
    """(1 - p) * sum over relevant ranks i of p ** (i - 1) (Moffat and Zobel, 2008, equation 3)."""
    ranks = _hits(within, level)
    # polars 1.30 computes the power of a literal only once for all questions.
    persistence = ranks * 0 + measure.persistence
    return (1 - measure.persistence) * persistence.pow(ranks - 1).sum()


def _expected_reciprocal_rank(measure: Measure, within: pl.Expr, level: int) -> pl.Expr:
    """Sum over ranks r of 1/r times the probability that the user stops there (Chapelle et al., 2009).

    Grade g satisfies the user with probability (2^g - 1) / 2^m, m the maximal grade; a satisfied user stops.
    """
    grade = pl.col("relevance").clip(lower_bound=0).cast(pl.Float64)
    two = grade * 0 + 2
    # 2^(g - m) - 2^-m has no overflow.
    probability = two.pow(grade - pl.col("maximum")) - two.pow(-pl.col("maximum").cast(pl.Float64))
    satisfied = probability.fill_null(0.0)
    reads_on = (1 - satisfied).cum_prod().shift(1, fill_value=1.0)
    return (satisfied * reads_on / pl.col("rank")).filter(within).sum()


def _judged(measure: Measure, within: pl.Expr, level: int) -> pl.Expr:
    """The share of candidates in the qrels, with any label, among at most as many as the cutoff."""
    return pl.col("relevance").is_not_null().filter(within).mean()


# Family -> expression over a question's candidates (columns rank and relevance, null if unjudged), from the
# measure, a mask of the candidates within its cutoff, and the relevance level.
RANKING_MEASURES: dict[str, Callable[[Measure, pl.Expr, int], pl.Expr]] = {
    "RR": _reciprocal_rank,
    "RBP": _rank_biased_precision,
    "ERR": _expected_reciprocal_rank,
    "nERR": _expected_reciprocal_rank,  # divided by its value for the best ranking of the judged answers
    "Judged": _judged,
}
