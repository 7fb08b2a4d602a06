"""Names of measures.

A measure has three names: the common one of papers (``MAP``, ``MRR``, ``P@1``, ``nDCG@10``), trec_eval's
(``map``, ``recip_rank``, ``P_1``, ``ndcg_cut_10``) and that of ir_measures (``AP``, ``RR``, ``P@1``,
``nDCG@10``). Results carry the common name; every function accepts all three.
"""

import difflib
import re
from collections.abc import Iterable
from functools import cache
from typing import Literal, NamedTuple, TypeAlias, get_args

from aptool.errors import UsageError, shortened
from aptool.evaluation.trec_eval import known_measures, printed_names
from aptool.plugins import load_plugins

Naming: TypeAlias = Literal["common", "trec_eval", "ir_measures"]
NAMINGS: tuple[Naming, ...] = get_args(Naming)

DEFAULT_MEASURES = ("MAP", "MRR", "P@1")
PERSISTENCE = 0.8  # of RBP, as in ir_measures


class Measure(NamedTuple):
    """A measure.

    Attributes:
        name: common name.
        family: RR, RBP or Judged of those that are computed from the ranking; trec_eval's name of others.
        trec_eval: the name that trec_eval prints; None if the measure is computed from the ranking.
        cutoff: rank from which on candidates are ignored; of measures computed from the ranking.
        level: lowest relevance that counts as relevant; None for the level of the evaluation.
        persistence: p of RBP.
    """

    name: str
    family: str
    trec_eval: str | None
    cutoff: int | None = None
    level: int | None = None
    persistence: float = PERSISTENCE


class Family(NamedTuple):
    """A family of ir_measures.

    Attributes:
        plain: trec_eval's name without a cut-off; None if there is none.
        at: trec_eval's name with a cut-off (a rank, or a recall level); None if there is none.
        own: name in `rankings.RANKING_MEASURES` of what trec_eval lacks; None if it has it.
        parameters: that may stand in parentheses.
    """

    plain: str | None
    at: str | None = None
    own: str | None = None
    parameters: tuple[str, ...] = ("rel",)


_AP, _RR, _P, _R = (
    Family("map", "map_cut"),
    Family("recip_rank", own="RR"),
    Family(None, "P"),
    Family(None, "recall"),
)
_NDCG = Family("ndcg", "ndcg_cut", parameters=())
FAMILIES = {
    "AP": _AP,
    "MAP": _AP,
    "GMAP": Family("gm_map"),
    "RR": _RR,
    "MRR": _RR,
    "P": _P,
    "Precision": _P,
    "R": _R,
    "Recall": _R,
    "nDCG": _NDCG,
    "Success": Family(None, "success"),
    "RBP": Family(None, own="RBP", parameters=("p", "rel")),
    "Judged": Family(None, own="Judged", parameters=()),
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
# trec_eval's name without the cut-off -> the common name. A measure that is missing keeps trec_eval's name.
_COMMON = {
    "map": "MAP",
    "map_cut": "MAP",
    "gm_map": "GMAP",
    "recip_rank": "MRR",
    "P": "P",
    "recall": "R",
    "ndcg": "nDCG",
    "ndcg_cut": "nDCG",
    "success": "Success",
    "iprec_at_recall": "IPrec",
    "Rprec": "Rprec",
    "bpref": "bpref",
    "infAP": "infAP",
    "set_P": "SetP",
    "set_recall": "SetR",
    "set_F": "SetF",
    "set_map": "SetAP",
    "num_q": "NumQ",
    "num_rel": "NumRel",
    "num_ret": "NumRet",
    "num_rel_ret": "NumRelRet",
}
# Where ir_measures differs from the common name; None: it has no such measure.
_IR_MEASURES = {"MAP": "AP", "MRR": "RR", "bpref": "Bpref", "GMAP": None}
_LONGEST_NAME = 200
_NAME = re.compile(r"([A-Za-z]+)(?:\(([^()]*)\))?(?:@([0-9.]+))?", re.ASCII)
_INTEGER = re.compile(r"0*[1-9]\d{0,8}", re.ASCII)
_DECIMAL = re.compile(r"0*\.\d+", re.ASCII)
_CUTOFF_OF_SUGGESTIONS = {"IPrec": "0.1"}
# Names of other toolkits, in lower case, and the names to suggest for them.
_ALIASES = {
    "acc": "P",
    "accuracy": "P",
    "hit": "Success",
    "hit_rate": "Success",
    "hits": "Success",
    "prec": "P",
    "reciprocal_rank": "MRR",
}


def parse_measures(names: Iterable[str]) -> tuple[Measure, ...]:
    """The measures of the given names, each measure once, in the given order.

    A name is a common one, one of ir_measures (``AP``, ``RR@10``, ``P(rel=2)@5``, ``RBP(p=.8)``), or one of
    trec_eval: ``map``, with cut-offs as trec_eval reads them (``P.1,5``) or prints them (``P_1``), without
    cut-offs for its defaults (``P``), or its name for a set of measures (``official``, ``all_trec``). Case
    does not matter.

    Raises:
        UsageError: unknown measures; the message lists all of them, each with the nearest known name.
    """
    parsed: dict[str, Measure] = {}
    unknown: list[str] = []
    for name in names:
        measures = _parse(name) if len(name) <= _LONGEST_NAME else ()
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
    """The common name of a measure by any of its names; None if it is not the name of one measure."""
    measures = _parse(name) if len(name) <= _LONGEST_NAME else ()
    return measures[0].name if len(measures) == 1 else None


def name_in(naming: Naming, measure: str) -> str:
    """The name of a measure in a naming; its common name where that naming lacks the measure.

    trec_eval's names cannot say a relevance level, so a measure with a level of its own has the name of
    ir_measures there.
    """
    parsed = _parse(measure)[0]
    if naming == "trec_eval" and parsed.level is None and parsed.trec_eval is not None:
        return parsed.trec_eval
    if naming == "common":
        return parsed.name
    word = re.split(r"[@(]", parsed.name)[0]
    other = _IR_MEASURES.get(word, word)
    return parsed.name if other is None else other + parsed.name[len(word) :]


def is_sum(measure: str) -> bool:
    """Whether a measure is a sum over the questions: ``NumRel``, ``num_rel``."""
    return measure.startswith(("num_", "Num"))


def is_geometric(measure: str) -> bool:
    """Whether a measure is a geometric mean over the questions: ``GMAP``, ``gm_bpref``."""
    return measure.startswith(("gm_", "GM"))


def _parse(name: str) -> tuple[Measure, ...]:
    """The measures of a name; plugins are imported for an unknown name. Empty if it stays unknown."""
    measures = _parse_registered(name)
    if not measures:
        load_plugins()
        measures = _parse_registered(name)
    return measures


def _parse_registered(name: str) -> tuple[Measure, ...]:
    parts = _NAME.fullmatch(name)
    family = _family(parts[1]) if parts is not None else None
    if parts is not None and family is not None and (family.plain or family.own or parts[3]):
        measure = _of_family(family, *parts.groups()[1:])
        return (measure,) if measure is not None else ()
    printed = printed_names(_in_trec_eval_case(name))
    return tuple(Measure(_common_name(measure), measure, measure) for measure in printed)


def _family(word: str) -> Family | None:
    """The family of ir_measures of a name, in any case; None if there is none."""
    # By the word itself first: a family may have been registered since this module was imported.
    return FAMILIES.get(word) or FAMILIES.get(_FAMILY_OF_LOWER_CASE.get(word.lower(), ""))


def _in_trec_eval_case(name: str) -> str:
    """The name in the case of trec_eval's names, before the cut-offs."""
    by_lower_case = {known.lower(): known for known in known_measures()}
    word, cutoffs = re.fullmatch(r"(.*?)([._]\d.*)?", name, re.DOTALL).groups(default="")  # type: ignore[union-attr]
    return by_lower_case.get(name.lower()) or by_lower_case.get(word.lower(), word) + cutoffs


def _common_name(printed: str, level: int | None = None) -> str:
    """The common name of a measure by the name that trec_eval prints: ``P@5`` for ``P_5``."""
    word, cutoff = re.fullmatch(r"(.+?)(?:_([\d.]+))?", printed).groups()  # type: ignore[union-attr]
    if word not in _COMMON:
        return printed
    name = _COMMON[word] + (f"(rel={level})" if level is not None else "")
    return name if cutoff is None else f"{name}@{float(cutoff):g}" if "." in cutoff else f"{name}@{cutoff}"


def _of_family(family: Family, written_parameters: str | None, cutoff: str | None) -> Measure | None:
    """A measure of a family of ir_measures; None if its cut-off or a parameter is not one of the family."""
    parameters = _parameters(family, written_parameters)
    if parameters is None:
        return None
    level = int(parameters["rel"]) if "rel" in parameters else None
    trec_eval = family.plain if cutoff is None else family.at
    if trec_eval is not None:
        printed = printed_names(trec_eval if cutoff is None else f"{trec_eval}_{cutoff}")
        if len(printed) != 1:
            return None
        return Measure(_common_name(printed[0], level), printed[0], printed[0], level=level)
    if family.own is None or (cutoff is not None and not _INTEGER.fullmatch(cutoff)):
        return None
    written = parameters.get("p", str(PERSISTENCE))
    options = [f"p=0.{written.partition('.')[2].rstrip('0')}"] if "p" in family.parameters else []
    options += [f"rel={level}"] if level is not None else []
    name = {"RR": "MRR"}.get(family.own, family.own) + (f"({','.join(options)})" if options else "")
    name += f"@{int(cutoff)}" if cutoff is not None else ""
    rank = int(cutoff) if cutoff is not None else None
    return Measure(name, family.own, None, rank, level, float(written))


def _parameters(family: Family, written: str | None) -> dict[str, str] | None:
    """The parameters in parentheses by name; None if the family lacks one, or it is out of range."""
    if written is None:
        return {}
    found: dict[str, str] = {}
    for part in written.split(","):
        key, _, value = (word.strip() for word in part.lower().partition("="))
        legal = _DECIMAL if key == "p" else _INTEGER
        if key not in family.parameters or key in found or not legal.fullmatch(value):
            return None
        found[key] = value
    return found if float(found.get("p", PERSISTENCE)) > 0 else None


def _suggestion(name: str) -> str:
    """The nearest known name, or the parameters that a family takes, in parentheses; or an empty string."""
    parts = _NAME.fullmatch(name.strip())
    family = _family(parts[1]) if parts is not None else None
    if parts is not None and family is not None and _parameters(family, parts[2]) is None:
        ranges = {"rel": "rel of 1 or more", "p": "p between 0 and 1"}
        takes = " and ".join(ranges[key] for key in family.parameters) or "no parameters"
        return f" ({parts[1]} takes {takes})"
    near = " or ".join(map(repr, _near_names(name)))
    return f" (did you mean {near}?)" if near else ""


def _near_names(name: str) -> list[str]:
    """The common names of the measures that an unknown name resembles, the nearest first."""
    pattern = r"(.*?)(?:\(.*\))?[@._]?([\d.]*)"
    word, cutoff = re.fullmatch(pattern, name.strip().lower(), re.DOTALL).groups()  # type: ignore[union-attr]
    known = {trec_eval.lower(): trec_eval for trec_eval in known_measures()}
    known |= _FAMILY_OF_LOWER_CASE | _ALIASES
    close = [word] if word in known else difflib.get_close_matches(word, known, n=3, cutoff=0.6)
    near: dict[str, None] = {}
    for base in map(known.__getitem__, close):
        rank = cutoff if _INTEGER.fullmatch(cutoff) else _CUTOFF_OF_SUGGESTIONS.get(base, "10")
        candidates = [f"{base}@{rank}", f"{base}_{rank}"]
        candidates.insert(2 if cutoff else 0, base)
        names = [common for candidate in candidates if (common := common_name(candidate)) is not None]
        near |= dict.fromkeys(names[:1])
    return list(near)
