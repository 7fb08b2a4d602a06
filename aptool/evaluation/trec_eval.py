"""trec_eval's measures by its own names, computed by pytrec_eval: the only door to that library.

pytrec_eval contains an older trec_eval, and two differences are corrected here. The older version compares
scores as float32, so that scores 1e-8 apart tie; it is given the dense rank of every score within its
question instead, which float32 represents exactly. It also has no ``-c`` and returns NaN for an empty
ranking, so it is never given one.
"""

import math
import re
from collections.abc import Mapping
from functools import cache

import pytrec_eval

# Measures with a cut-off rank, and measures with a recall level or a multiple of R, two decimals at most.
AT_RANK = ("P", "recall", "ndcg_cut", "map_cut", "success", "relative_P")
_AT_LEVEL = ("iprec_at_recall", "Rprec_mult")
_NOT_NUMBERS = frozenset({"relstring", "runid"})
_PARAMETERS = re.compile(r"([A-Za-z_]+)[._](\d+(?:\.\d+)?(?:,\d+(?:\.\d+)?)*)", re.ASCII)
_RANK = re.compile(r"0*[1-9]\d{0,8}", re.ASCII)
_LEVEL = re.compile(r"\d{1,3}(\.\d{1,2})?", re.ASCII)
# trec_eval's lower bound of the factors of a geometric mean (MIN_GEO_MEAN in its trec_eval.h).
_GEOMETRIC_FLOOR = 1e-5
# Not a legal id, so no candidate of a run has it.
_NO_CANDIDATE = " "


def known_measures() -> list[str]:
    """trec_eval's names without cut-offs, sorted."""
    return sorted(pytrec_eval.supported_measures - _NOT_NUMBERS)


@cache
def printed_names(measure: str) -> tuple[str, ...]:
    """The names that trec_eval prints for ``measure``; none if it is unknown.

    Args:
        measure: one of trec_eval's names (``map``, ``recip_rank``), with cut-offs as trec_eval reads them
            (``P.1``, ``P.1,5``) or prints them (``P_1``), without cut-offs for its defaults (``P``), or one
            of its names for a set of measures (``official``, ``set``, ``all_trec``).
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
    wanted = set(several) & pytrec_eval.supported_measures - _NOT_NUMBERS
    if not wanted:
        return ()
    # The default cut-offs are in trec_eval, which returns them for a single candidate.
    evaluator = pytrec_eval.RelevanceEvaluator({"question": {"answer": 1}}, wanted)
    return tuple(evaluator.evaluate({"question": {"answer": 1.0}})["question"])


def measure_questions(
    judgements: Mapping[str, Mapping[str, int]],
    rankings: Mapping[str, Mapping[str, float]],
    names: tuple[str, ...],
    level: int,
) -> dict[str, dict[str, float]]:
    """Measures of each judged question.

    Args:
        judgements: question id -> answer id -> relevance, -1 where it is negative.
        rankings: question id -> answer id -> dense rank of its score, the lowest first.
        names: as trec_eval prints them.
        level: the lowest relevance that counts as relevant (trec_eval ``-l``).

    Returns:
        question id -> name -> figure, for all questions of ``judgements``; a missing one counts 0.
    """
    common = [question for question in judgements if question in rankings]
    judged = {question: judgements[question] for question in common}
    for question, labels in judged.items():
        # For a question without a judgement of at least 0, trec_eval reads the counts of the previous one.
        if max(labels.values()) < 0:
            judged[question] = {**labels, _NO_CANDIDATE: 0}
    evaluator = pytrec_eval.RelevanceEvaluator(judged, set(names), relevance_level=level)
    found: dict[str, dict[str, float]] = evaluator.evaluate(
        {question: rankings[question] for question in common}
    )
    # For a geometric mean pytrec_eval returns logarithms.
    for name in names:
        if name.startswith("gm_"):
            for values in found.values():
                values[name] = math.exp(values[name])
    missing = {question: labels for question, labels in judgements.items() if question not in found}
    found |= {question: _unranked(labels, names, level) for question, labels in missing.items()}
    return found


def _unranked(judged: Mapping[str, int], names: tuple[str, ...], level: int) -> dict[str, float]:
    """The measures of a question that is missing from the run."""
    relevant = float(sum(value >= level for value in judged.values()))
    known = {"num_q": 1.0, "num_rel": relevant, "gm_map": _GEOMETRIC_FLOOR, "gm_bpref": _GEOMETRIC_FLOOR}
    return {name: known.get(name, 0.0) for name in names}
