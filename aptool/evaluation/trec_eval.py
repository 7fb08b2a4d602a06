"""trec_eval's measures, computed by pytrec_eval.

pytrec_eval contains an older trec_eval without ``-c`` that compares scores as float32. Scores 1e-8 apart
would tie, so its input is dense ranks instead of scores. Empty rankings, which give NaN, are left out.
Interpolated precisions are computed here, since trec_eval 10 rounds recall to another number of answers.
"""

import math
import re
from collections.abc import Mapping
from functools import cache
from statistics import fmean
from typing import Literal, TypeAlias

import pytrec_eval

Average: TypeAlias = Literal["arithmetic", "geometric", "sum"]

# Measures with a cutoff rank, and measures with a recall level or a multiple of R, two decimals at most.
AT_RANK = ("P", "recall", "ndcg_cut", "map_cut", "success", "relative_P")
_AT_LEVEL = ("iprec_at_recall", "Rprec_mult")
_INTERPOLATED = "iprec_at_recall_"
_ELEVEN_POINTS = "11pt_avg"
_TEXT_MEASURES = frozenset({"relstring", "runid"})
# How trec_eval averages a measure over the questions, unless by the arithmetic mean.
AVERAGES: dict[str, Average] = {
    **dict.fromkeys(("num_q", "num_rel", "num_ret", "num_rel_ret", "num_nonrel_judged_ret"), "sum"),
    **dict.fromkeys(("gm_map", "gm_bpref"), "geometric"),
}
# Measures with values above 1.
UNBOUNDED = frozenset({"utility"})
_PARAMETERS = re.compile(r"([A-Za-z_]+)[._](\d+(?:\.\d+)?(?:,\d+(?:\.\d+)?)*)", re.ASCII)
_RANK = re.compile(r"0*[1-9]\d{0,8}", re.ASCII)
_LEVEL = re.compile(r"\d{1,3}(\.\d{1,2})?", re.ASCII)
# trec_eval's lower bound of the factors of a geometric mean (MIN_GEO_MEAN in its trec_eval.h).
_GEOMETRIC_FLOOR = 1e-5
# Not a legal id, so no candidate of a run has it.
_NO_CANDIDATE = " "


def known_measures() -> list[str]:
    """trec_eval's names without cutoffs, sorted."""
    return sorted(pytrec_eval.supported_measures - _TEXT_MEASURES)


@cache
def printed_names(measure: str) -> tuple[str, ...]:
    """The names that trec_eval prints for ``measure``; empty if it is unknown.

    ``measure`` is a name of trec_eval (``map``), with cutoffs as trec_eval reads them (``P.1,5``) or prints
    them (``P_1``), without cutoffs for the defaults (``P``), or a name of a set of measures (``official``).
    """
    parts = _PARAMETERS.fullmatch(measure)
    if parts is not None:
        family, parameters = parts[1], parts[2].split(",")
        if family in AT_RANK and all(_RANK.fullmatch(cutoff) for cutoff in parameters):
            return tuple(f"{family}_{int(cutoff)}" for cutoff in parameters)
        if family in _AT_LEVEL and all(_LEVEL.fullmatch(level) for level in parameters):
            return tuple(f"{family}_{float(level):.2f}" for level in parameters)
        return ()
    several = pytrec_eval.supported_nicknames.get(measure, {measure})
    supported = set(several) & pytrec_eval.supported_measures - _TEXT_MEASURES
    if not supported:
        return ()
    # Only trec_eval knows its default cutoffs; it returns them for a single candidate.
    evaluator = pytrec_eval.RelevanceEvaluator({"question": {"answer": 1}}, supported)
    return tuple(evaluator.evaluate({"question": {"answer": 1.0}})["question"])


def measure_questions(
    judgements: Mapping[str, Mapping[str, int]],
    rankings: Mapping[str, Mapping[str, float]],
    names: tuple[str, ...],
    level: int,
) -> dict[str, dict[str, float]]:
    """Measures of all judged questions: question id -> name -> value; a question without a ranking counts 0.

    ``judgements`` are question id -> answer id -> relevance, at least -1; ``rankings`` question id -> answer
    id -> dense rank of its score, lowest first; ``names`` those that trec_eval prints; ``level`` the lowest
    relevance that counts as relevant (trec_eval ``-l``).
    """
    common = [question for question in judgements if question in rankings]
    judged = {question: judgements[question] for question in common}
    for question, labels in judged.items():
        # Without a judgement of at least 0, trec_eval reads the counts of the previous question.
        if max(labels.values()) < 0:
            judged[question] = {**labels, _NO_CANDIDATE: 0}
    evaluator = pytrec_eval.RelevanceEvaluator(judged, set(names), relevance_level=level)
    measured: dict[str, dict[str, float]] = evaluator.evaluate(
        {question: rankings[question] for question in common}
    )
    # For a geometric mean pytrec_eval returns logarithms.
    for name in names:
        if AVERAGES.get(name) == "geometric":
            for values in measured.values():
                values[name] = math.exp(values[name])
    interpolated = [name for name in names if name == _ELEVEN_POINTS or name.startswith(_INTERPOLATED)]
    if interpolated:
        for question, values in measured.items():
            values |= _interpolated(judged[question], rankings[question], interpolated, level)
    missing = {question: labels for question, labels in judgements.items() if question not in measured}
    return measured | {question: _unranked(labels, names, level) for question, labels in missing.items()}


def _interpolated(
    judged: Mapping[str, int], ranking: Mapping[str, float], names: list[str], level: int
) -> dict[str, float]:
    """Interpolated precision of a question: name -> value.

    The precision at a recall is the highest one from that many relevant answers on; 0 if fewer are ranked.
    """
    ranked = sorted(ranking, key=lambda answer: (ranking[answer], answer.encode()), reverse=True)
    relevant = sum(value >= level for value in judged.values())
    hits = [rank for rank, answer in enumerate(ranked, 1) if judged.get(answer, -1) >= level]
    precisions = [number / rank for number, rank in enumerate(hits, 1)]

    def at(recall: float) -> float:
        number = recall * relevant
        # C's lround, which unlike Python's round rounds halves up.
        least = math.floor(number) + (number % 1 >= 0.5)
        return max(precisions[max(least - 1, 0) :], default=0.0)

    return {
        name: fmean(at(point / 10) for point in range(11))
        if name == _ELEVEN_POINTS
        else at(float(name.removeprefix(_INTERPOLATED)))
        for name in names
    }


def _unranked(judged: Mapping[str, int], names: tuple[str, ...], level: int) -> dict[str, float]:
    """The measures of a question that is missing from the run."""
    relevant = float(sum(value >= level for value in judged.values()))
    values = {"num_q": 1.0, "num_rel": relevant, "gm_map": _GEOMETRIC_FLOOR, "gm_bpref": _GEOMETRIC_FLOOR}
    return {name: values.get(name, 0.0) for name in names}
