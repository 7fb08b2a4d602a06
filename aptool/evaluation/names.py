"""Names of measures.

A measure has a common name (``MAP``, ``MRR``, ``nDCG@10``), a name in trec_eval (``map``, ``recip_rank``,
``ndcg_cut_10``) and a name in ir_measures (``AP``, ``RR``, ``nDCG@10``). Every function accepts all three;
results have the common name.
"""

import difflib
import math
import re
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from aptool.errors import UsageError, shortened
from aptool.evaluation.trec_eval import AVERAGES, UNBOUNDED, Average, known_measures, printed_names
from aptool.plugins import load_plugins

DEFAULT_MEASURES = ("MAP", "MRR", "P@1")
PERSISTENCE = 0.8  # of RBP, as in ir_measures


class Measure(NamedTuple):
    """A measure, computed by trec_eval or from the ranking."""

    name: str  # common name
    family: str  # key of `measures.RANKING_MEASURES`, or trec_eval's name
    trec_eval: str | None  # the name that trec_eval prints; None if computed from the ranking
    cutoff: int | None = None  # last rank, of a measure computed from the ranking
    level: int | None = None  # lowest relevance that counts as relevant; None is the evaluation's
    persistence: float = PERSISTENCE
    average: Average = "arithmetic"  # over the questions
    highest: float = 1.0  # the highest possible value of a question


class Family(NamedTuple):
    """A family of ir_measures."""

    plain: str | None  # trec_eval's name without a cutoff
    at: str | None = None  # trec_eval's name with a cutoff (a rank or a recall level)
    ranking: str | None = None  # key of `measures.RANKING_MEASURES`, for measures that trec_eval lacks
    parameters: tuple[str, ...] = ("rel",)  # allowed in parentheses
    average: Average = "arithmetic"  # of measures that trec_eval lacks, over the questions
    highest: float = 1.0  # of measures that trec_eval lacks: the highest possible value of a question


# The first name of several names for the same measures is the common name.
FAMILIES = {
    "MAP": Family("map", "map_cut"),
    "AP": Family("map", "map_cut"),
    "GMAP": Family("gm_map"),
    "MRR": Family("recip_rank", ranking="RR"),
    "RR": Family("recip_rank", ranking="RR"),
    "P": Family(None, "P"),
    "Precision": Family(None, "P"),
    "R": Family(None, "recall"),
    "Recall": Family(None, "recall"),
    "nDCG": Family("ndcg", "ndcg_cut", parameters=()),
    "Success": Family(None, "success"),
    "RBP": Family(None, ranking="RBP", parameters=("p", "rel")),
    "ERR": Family(None, ranking="ERR", parameters=()),
    "nERR": Family(None, ranking="nERR", parameters=()),
    "Judged": Family(None, ranking="Judged", parameters=()),
    "IPrec": Family(None, "iprec_at_recall"),
    "Rprec": Family("Rprec"),
    "bpref": Family("bpref"),
    "infAP": Family("infAP"),
    "SetP": Family("set_P"),
    "SetR": Family("set_recall"),
    "SetF": Family("set_F"),
    "SetAP": Family("set_map"),
    "NumQ": Family("num_q", parameters=()),
    "NumRel": Family("num_rel"),
    "NumRet": Family("num_ret", parameters=()),
    "NumRelRet": Family("num_rel_ret"),
}
_FAMILY_OF_LOWER_CASE = {word.lower(): word for word in FAMILIES}
# trec_eval's name without the cutoff -> the common name. Other measures keep trec_eval's name.
_COMMON: dict[str, str] = {}
for _name, _entry in FAMILIES.items():
    for _printed in filter(None, (_entry.plain, _entry.at)):
        _COMMON.setdefault(_printed, _name)
_LONGEST_NAME = 200
_NAME = re.compile(r"([A-Za-z]+)(?:\(([^()]*)\))?(?:@([0-9.]+))?", re.ASCII)
_INTEGER = re.compile(r"0*[1-9]\d{0,8}", re.ASCII)
_DECIMAL = re.compile(r"0*\.\d+", re.ASCII)
# Name in another toolkit, in lower case -> the family to suggest.
_ALIASES = {
    "acc": "Success",
    "accuracy": "Success",
    "hit": "Success",
    "hit_rate": "Success",
    "hits": "Success",
    "prec": "P",
    "reciprocal_rank": "MRR",
}


def parse_measures(names: Iterable[str]) -> tuple[Measure, ...]:
    """The distinct measures of the given names, in the given order.

    A name is a common name, a name of ir_measures (``RR@10``, ``P(rel=2)@5``, ``RBP(p=.8)``) or a name of
    trec_eval; see `trec_eval.printed_names`. Case does not matter. The error for unknown measures lists all
    of them with the nearest names.
    """
    parsed: dict[str, Measure] = {}
    unknown: list[str] = []
    for name in names:
        measures = _parse(name)
        parsed |= {measure.name: measure for measure in measures if measure.name not in parsed}
        if not measures:
            unknown.append(shortened(name) + (_suggestion(name) if len(name) <= _LONGEST_NAME else ""))
    if unknown:
        raise UsageError(f"unknown measures: {', '.join(unknown)}")
    if not parsed:
        raise UsageError(f"no measure given; the default is {','.join(DEFAULT_MEASURES)}")
    return tuple(parsed.values())


def measure_names(names: Iterable[str]) -> tuple[str, ...]:
    """The common name of each measure; see `parse_measures`."""
    return tuple(measure.name for measure in parse_measures(names))


@cache
def common_name(name: str) -> str | None:
    """The common name of a measure; None if ``name`` is unknown or names several measures."""
    measures = _parse(name)
    return measures[0].name if len(measures) == 1 else None


def is_sum(measure: str) -> bool:
    """Whether a measure is a sum over the questions: ``NumRel``, ``num_rel``."""
    return _declared(measure).average == "sum"


def is_geometric(measure: str) -> bool:
    """Whether a measure is a geometric mean over the questions: ``GMAP``, ``gm_bpref``."""
    return _declared(measure).average == "geometric"


def is_mean(measure: str) -> bool:
    """Whether a measure is an arithmetic mean over the questions."""
    return _declared(measure).average == "arithmetic"


def highest_value(measure: str) -> float:
    """The highest possible value of a measure for a question; infinity without a bound."""
    return _declared(measure).highest


@cache
def _declared(name: str) -> Measure:
    return parse_measures([name])[0]


def _parse(name: str) -> tuple[Measure, ...]:
    """The measures of a name; empty if it is unknown even after plugins are imported."""
    if len(name) > _LONGEST_NAME:
        return ()
    measures = _parse_registered(name)
    if not measures:
        load_plugins()
        measures = _parse_registered(name)
    return measures


def _parse_registered(name: str) -> tuple[Measure, ...]:
    parts = _NAME.fullmatch(name)
    family = _family(parts[1]) if parts is not None else None
    if parts is not None and family is not None and (family.plain or family.ranking or parts[3]):
        measure = _of_family(family, *parts.groups()[1:])
        return (measure,) if measure is not None else ()
    printed = printed_names(_in_trec_eval_case(name))
    return tuple(map(_of_trec_eval, printed))


def _of_trec_eval(printed: str, level: int | None = None) -> Measure:
    """The measure with a name that trec_eval prints."""
    return Measure(
        _common_name(printed, level),
        printed,
        printed,
        level=level,
        average=AVERAGES.get(printed, "arithmetic"),
        highest=math.inf if printed in UNBOUNDED else 1.0,
    )


def _family(word: str) -> Family | None:
    """The family of ir_measures with a name, in any case."""
    # A plugin may have registered the family after `_FAMILY_OF_LOWER_CASE` was built.
    return FAMILIES.get(word) or FAMILIES.get(_FAMILY_OF_LOWER_CASE.get(word.lower(), ""))


def _in_trec_eval_case(name: str) -> str:
    """The name with the part before the cutoffs in trec_eval's case."""
    by_lower_case = {measure.lower(): measure for measure in known_measures()}
    word, cutoffs = re.fullmatch(r"(.*?)([._]\d.*)?", name, re.DOTALL).groups(default="")  # type: ignore[union-attr]
    return by_lower_case.get(name.lower()) or by_lower_case.get(word.lower(), word) + cutoffs


def _common_name(printed: str, level: int | None = None) -> str:
    """The common name for the name that trec_eval prints: ``P@5`` for ``P_5``."""
    word, cutoff = re.fullmatch(r"(.+?)(?:_([\d.]+))?", printed).groups()  # type: ignore[union-attr]
    if word not in _COMMON:
        return printed
    name = _COMMON[word] + (f"(rel={level})" if level is not None else "")
    return name if cutoff is None else f"{name}@{float(cutoff):g}" if "." in cutoff else f"{name}@{cutoff}"


def _of_family(family: Family, written_parameters: str | None, cutoff: str | None) -> Measure | None:
    """A measure of a family; None if its cutoff or a parameter is invalid."""
    parameters = _parameters(family, written_parameters)
    if parameters is None:
        return None
    level = int(parameters["rel"]) if "rel" in parameters else None
    trec_eval = family.plain if cutoff is None else family.at
    if trec_eval is not None:
        printed = printed_names(trec_eval if cutoff is None else f"{trec_eval}_{cutoff}")
        if len(printed) != 1:
            return None
        return _of_trec_eval(printed[0], level)
    if family.ranking is None or (cutoff is not None and not _INTEGER.fullmatch(cutoff)):
        return None
    written = parameters.get("p", str(PERSISTENCE))
    options = [f"p=0.{written.partition('.')[2].rstrip('0')}"] if "p" in family.parameters else []
    options += [f"rel={level}"] if level is not None else []
    name = {"RR": "MRR"}.get(family.ranking, family.ranking) + (f"({','.join(options)})" if options else "")
    name += f"@{int(cutoff)}" if cutoff is not None else ""
    rank = int(cutoff) if cutoff is not None else None
    persistence = float(written)
    return Measure(name, family.ranking, None, rank, level, persistence, family.average, family.highest)


def _parameters(family: Family, written: str | None) -> dict[str, str] | None:
    """The parameters in parentheses by name; None if one is unknown or out of range."""
    if written is None:
        return {}
    parameters: dict[str, str] = {}
    for part in written.split(","):
        key, _, value = (word.strip() for word in part.lower().partition("="))
        legal = _DECIMAL if key == "p" else _INTEGER
        if key not in family.parameters or key in parameters or not legal.fullmatch(value):
            return None
        parameters[key] = value
    return parameters if float(parameters.get("p", PERSISTENCE)) > 0 else None


def _suggestion(name: str) -> str:
    """The nearest names, or the parameters of the family, in parentheses; or an empty string."""
    parts = _NAME.fullmatch(name.strip())
    family = _family(parts[1]) if parts is not None else None
    if parts is not None and family is not None and _parameters(family, parts[2]) is None:
        ranges = {"rel": "rel of 1 or more", "p": "p between 0 and 1"}
        takes = " and ".join(ranges[key] for key in family.parameters) or "no parameters"
        return f" ({parts[1]} takes {takes})"
    near = " or ".join(map(repr, _near_names(name)))
    return f" (did you mean {near}?)" if near else ""


def _near_names(name: str) -> list[str]:
    """The common names of the measures nearest to an unknown name."""
    pattern = r"(.*?)(?:\(.*\))?[@._]?([\d.]*)"
    word, cutoff = re.fullmatch(pattern, name.strip().lower(), re.DOTALL).groups()  # type: ignore[union-attr]
    by_lower_case = {trec_eval.lower(): trec_eval for trec_eval in known_measures()}
    by_lower_case |= _FAMILY_OF_LOWER_CASE | _ALIASES
    if word in ("acc", "accuracy") and not cutoff:
        return ["P@1", "Success@1"]  # the same share of questions
    close = (
        [word] if word in by_lower_case else difflib.get_close_matches(word, by_lower_case, n=3, cutoff=0.6)
    )
    near: dict[str, None] = {}
    for base in map(by_lower_case.__getitem__, close):
        rank = cutoff if _INTEGER.fullmatch(cutoff) else "0.1" if base == "IPrec" else "10"
        candidates = [f"{base}@{rank}", f"{base}_{rank}"]
        candidates.insert(2 if cutoff else 0, base)
        names = [common for candidate in candidates if (common := common_name(candidate)) is not None]
        near |= dict.fromkeys(names[:1])
    return list(near)
