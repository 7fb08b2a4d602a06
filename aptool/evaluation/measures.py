"""Measures of a run as ``trec_eval -c`` computes them, over all questions and over groups of questions.

Means are over all questions of the qrels. A question that the run lacks counts 0; a question that only the
run has is ignored.

pytrec_eval contains trec_eval 9 without ``-c``, which compares scores as float32. Scores 1e-8 apart would
tie, so its input is dense ranks instead of scores. Empty rankings, which give NaN, are left out.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import polars as pl
import pytrec_eval
from typing_extensions import override

from aptool.data.runs import AnyQrels, AnyRun, as_qrels, as_run
from aptool.data.trec import count_ties, log_ties, to_dicts
from aptool.environment import Tabular
from aptool.errors import InputError, counted
from aptool.evaluation.names import DEFAULT_MEASURES, Measure, is_mean, measure_names, parse_measures

if TYPE_CHECKING:
    from aptool.evaluation.significance import Interval

_HIGHEST_RELEVANCE = 1_000_000
_KEYS = ["question_id", "answer_id"]

# Not a legal id, so no candidate of a run has it.
_NO_CANDIDATE = " "

# The columns of `Evaluation.per_question` that are not measures.
_NOT_MEASURES = ("question_id", "candidates")


@dataclass(frozen=True, repr=False)
class Evaluation(Tabular):
    """The measures of one run; a table of the means in a notebook.

    Attributes:
        per_question: one row per question of the qrels, sorted by id: question_id (str), candidates (i64: the
            number of ranked answers) and one f64 column per measure.
        means: each measure by its printed name over all questions of the qrels, as trec_eval prints it: the
            mean, or the sum for ``Num*``.
        missing: ids of the questions that the run lacks; each counts 0.
        extra: ids of the questions of the run that are not in the qrels; ignored.
        unjudged: question_id, answer_id of the candidates without a judgement of 0 or more; not relevant.
        groups: the rows of ``per_question`` in each group of questions by name; empty without groups.
    """

    per_question: pl.DataFrame
    means: dict[str, float]
    missing: tuple[str, ...]
    extra: tuple[str, ...]
    unjudged: pl.DataFrame
    groups: Mapping[str, pl.DataFrame] = field(default_factory=dict)

    def intervals(self) -> "dict[str, Interval]":
        """Compute the 95% BCa bootstrap interval of each mean from 10,000 resamples of the questions."""
        return mean_intervals(self.per_question)

    @override
    def to_polars(self) -> pl.DataFrame:
        """Return the means over all questions and over each group: group (null: all), questions, measures."""
        rows: list[dict[str, Any]] = [
            {"group": name, "questions": frame.height, **averages(frame)}
            for name, frame in ((None, self.per_question), *self.groups.items())
        ]
        return pl.DataFrame(rows, schema_overrides={"group": pl.String})

    @override
    def __repr__(self) -> str:
        means = ", ".join(f"{name} {shown_mean(name, value)}" for name, value in self.means.items())
        return f"Evaluation({means}; {counted(self.per_question.height, 'question')})"


def shown_mean(measure: str, value: float) -> str:
    """The text of a mean or a sum."""
    return f"{value:.4f}" if is_mean(measure) else f"{value:.0f}"


def mean_over_runs(tables: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The mean of each question over several `Evaluation.per_question`, such as those of several seeds."""
    return pl.concat(tables).group_by("question_id", maintain_order=True).mean()


def in_groups(per_question: pl.DataFrame, groups: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """The rows of each group of questions, by the name of the group and in the order of the groups.

    ``groups`` has question_id, group (str) and position (i64: the order of the groups).
    """
    both = per_question.join(groups, on="question_id", how="inner").sort("position", "question_id")
    parts = both.partition_by("position", maintain_order=True)
    return {str(part["group"][0]): part.drop("group", "position") for part in parts}


def averages(per_question: pl.DataFrame) -> dict[str, float]:
    """`Evaluation.means` of a non-empty `Evaluation.per_question`.

    `math.fsum` rounds once, so the order of the questions does not matter.
    """
    result = {}
    for column in per_question.drop(_NOT_MEASURES, strict=False):
        total = math.fsum(column)
        result[column.name] = total / len(column) if is_mean(column.name) else total
    return result


def mean_intervals(per_question: pl.DataFrame) -> "dict[str, Interval]":
    """Bootstrap intervals of `averages`, with the same resamples for all measures.

    The interval of a sum is that of the mean times the number of questions.
    """
    from aptool.evaluation.significance import Interval, bootstrap_interval  # training needs none

    intervals = {}
    for column in per_question.drop(_NOT_MEASURES, strict=False):
        interval = bootstrap_interval(column.to_numpy())
        if not is_mean(column.name):
            interval = Interval(interval.low * len(column), interval.high * len(column))
        intervals[column.name] = interval
    return intervals


def evaluate(
    qrels: AnyQrels,
    run: AnyRun,
    measures: str | Iterable[str] = DEFAULT_MEASURES,
    *,
    groups: pl.DataFrame | None = None,
) -> Evaluation:
    """Evaluate a run as ``trec_eval -c`` does.

    Args:
        qrels: judgements: ``Qrels``, a file, or ``{question id: {answer id: relevance}}``.
        run: ``Run``, a file, or ``{question id: {answer id: score}}``.
        measures: names of ir_measures: MAP (AP), MRR@10 (RR@10), P@1, R@10, nDCG@10, MAP(rel=2).
        groups: groups of questions: question_id, group and position (the order of the groups), such as
            ``aptool.evaluation.texts.length_groups(pools, qrels)``.

    Returns:
        ``means`` by measure; ``per_question``, a polars frame with one column per measure; ``intervals()``,
        the confidence intervals of the means; ``groups``, the rows of ``per_question`` in each group; and the
        ids that only the run or only the qrels have: ``missing``, ``extra``, ``unjudged``.

    Raises:
        AptoolError: a measure is unknown (the message lists the known ones), its level is above every
            relevance, or the run and the qrels share no question.

    Example:
        >>> qrels = {"q1": {"a": 0, "b": 1}, "q2": {"c": 1}}
        >>> run = {"q1": {"a": 0.9, "b": 0.2}, "q2": {"c": 1.0}}
        >>> aptool.evaluate(qrels, run, ["MAP", "P@1"])
        Evaluation(MAP 0.7500, P@1 0.5000; 2 questions)
        >>> aptool.evaluate(qrels, run, ["MAP", "P@1"]).means["MAP"]
        0.75
    """
    judgements, loaded = as_qrels(qrels), as_run(run)
    evaluation = evaluate_frames(
        judgements.frame,
        loaded.frame,
        measure_names(measures),
        run_name=loaded.label,
        qrels_name=judgements.path or "qrels",
    )
    log_ties(loaded.label, *count_ties(loaded.frame))
    if groups is None:
        return evaluation
    return replace(evaluation, groups=in_groups(evaluation.per_question, groups))


def evaluate_frames(
    qrels: pl.DataFrame,
    run: pl.DataFrame,
    measures: Iterable[str] = DEFAULT_MEASURES,
    *,
    run_name: str = "run",
    qrels_name: str = "qrels",
) -> Evaluation:
    """Evaluate a run in checked frames, as `evaluate` does; no warning of questions with equal scores.

    Args:
        qrels: question_id, answer_id, relevance (integer): relevant from 1 on, unjudged if negative.
        run: question_id, answer_id, score (finite); each candidate once.
        measures: names accepted by `names.parse_measures`; results are under their printed names.
        run_name: name of the run in errors, such as its path.
        qrels_name: name of the qrels in errors.
    """
    parsed = parse_measures(measures)
    judgements = _judgements(qrels, qrels_name)
    level, highest = max(measure.level for measure in parsed), qrels["relevance"].max()
    if level > 1 and isinstance(highest, int) and level > highest:
        expected = f"a relevance level of at most {highest}, the highest relevance in it"
        raise InputError(qrels_name, column="relevance", problem=f"none from {level} on", expected=expected)
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
        **_columns(judgements, rankings, parsed),
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


def _columns(
    judgements: Mapping[str, dict[str, int]],
    rankings: Mapping[str, dict[str, float]],
    measures: Iterable[Measure],
) -> dict[str, list[float]]:
    """The column of each measure, by name."""
    by_level: dict[int, list[Measure]] = {}
    for measure in measures:
        by_level.setdefault(measure.level, []).append(measure)
    columns: dict[str, list[float]] = {}
    for relevance, at_level in by_level.items():
        names = {measure.trec_eval for measure in at_level}
        values = _measure_questions(judgements, rankings, names, relevance)
        for measure in at_level:
            column = [values[question][measure.trec_eval] for question in judgements]
            if measure.cutoff is not None:
                column = [value if value * measure.cutoff >= 1 else 0.0 for value in column]
            columns[measure.name] = column
    return columns


def _measure_questions(
    judgements: Mapping[str, dict[str, int]],
    rankings: Mapping[str, dict[str, float]],
    names: set[str],
    level: int,
) -> dict[str, dict[str, float]]:
    """Measures of all judged questions: question id -> trec_eval's name -> value.

    ``rankings`` are question id -> answer id -> dense rank of its score, lowest first.
    """
    judged = {question: judgements[question] for question in judgements if question in rankings}
    for question, labels in judged.items():
        # Without a judgement of at least 0, trec_eval reads the counts of the previous question.
        if max(labels.values()) < 0:
            judged[question] = {**labels, _NO_CANDIDATE: 0}
    evaluator = pytrec_eval.RelevanceEvaluator(judged, names, relevance_level=level)
    measured: dict[str, dict[str, float]] = evaluator.evaluate(
        {question: rankings[question] for question in judged}
    )
    for question, labels in judgements.items():
        if question not in measured:
            relevant = float(sum(value >= level for value in labels.values()))
            counts = {"num_q": 1.0, "num_rel": relevant}
            measured[question] = {name: counts.get(name, 0.0) for name in names}
    return measured
