"""Names of measures: trec_eval's (``ndcg_cut_10``) and those of ir_measures (``nDCG@10``, ``AP(rel=2)``)."""

import difflib
import re
from collections.abc import Iterable
from typing import NamedTuple

from aptool.errors import UsageError, shortened
from aptool.evaluation.trec_eval import AT_RANK, known_measures, printed_names

DEFAULT_MEASURES = ("map", "recip_rank", "P_1")
PERSISTENCE = 0.8  # of RBP, as in ir_measures
_TITLES = {"map": "MAP", "recip_rank": "MRR", "P_1": "P@1"}


class Measure(NamedTuple):
    """A measure.

    Attributes:
        name: as it was asked for.
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
    "RR": _RR,
    "MRR": _RR,
    "P": _P,
    "Precision": _P,
    "R": _R,
    "Recall": _R,
    "nDCG": _NDCG,
    "NDCG": _NDCG,
    "Success": Family(None, "success"),
    "RBP": Family(None, own="RBP", parameters=("p", "rel")),
    "Judged": Family(None, own="Judged", parameters=()),
    "IPrec": Family(None, "iprec_at_recall"),
    "Rprec": Family("Rprec"),
    "RPrec": Family("Rprec"),
    "Bpref": Family("bpref"),
    "BPref": Family("bpref"),
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
_LONGEST_NAME = 200
_NAME = re.compile(r"([A-Za-z]+)(?:\(([^()]*)\))?(?:@([0-9.]+))?", re.ASCII)
_INTEGER = re.compile(r"0*[1-9]\d{0,8}", re.ASCII)
_DECIMAL = re.compile(r"0*\.\d+", re.ASCII)
# Other names of these measures, in lower case, with trec_eval's name where no cut-off is given.
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


def parse_measures(names: Iterable[str]) -> tuple[Measure, ...]:
    """The measures of the given names, each name once, in the given order.

    A name is one of ir_measures (``AP``, ``RR@10``, ``P(rel=2)@5``, ``RBP(p=.8)``), MAP or MRR, or one of
    trec_eval: ``map``, with cut-offs as trec_eval reads them (``P.1,5``) or prints them (``P_1``), without
    cut-offs for its defaults (``P``), or its name for a set of measures (``official``, ``all_trec``). What
    stands for several measures has them under the names that trec_eval prints.

    Raises:
        UsageError: unknown measures; the message lists all of them, each with the nearest known name.
    """
    found: dict[str, Measure] = {}
    bad: list[str] = []
    for name in names:
        measures = _parse(name) if len(name) <= _LONGEST_NAME else ()
        found |= {measure.name: measure for measure in measures if measure.name not in found}
        if not measures:
            bad.append(shortened(name) + (_suggestion(name) if len(name) <= _LONGEST_NAME else ""))
    if bad:
        raise UsageError(f"unknown measures: {', '.join(bad)}")
    if not found:
        raise UsageError(f"no measure given; the default is {','.join(DEFAULT_MEASURES)}")
    return tuple(found.values())


def measure_names(names: Iterable[str]) -> tuple[str, ...]:
    """The name of each measure in results; see `parse_measures`."""
    return tuple(measure.name for measure in parse_measures(names))


def measure_title(measure: str) -> str:
    """The name of a measure in headings: ``MAP`` for ``map``; a name without a title stays as it is."""
    return _TITLES.get(measure, measure)


def is_sum(measure: str) -> bool:
    """Whether a measure is a sum over the questions: ``num_rel``, ``NumRel``."""
    return measure.startswith(("num_", "Num"))


def is_geometric(measure: str) -> bool:
    """Whether a measure is a geometric mean over the questions: ``gm_map``."""
    return measure.startswith("gm_")


def _parse(name: str) -> tuple[Measure, ...]:
    """The measures that a name stands for; none if it is unknown."""
    parts = _NAME.fullmatch(name)
    family = FAMILIES.get(parts[1]) if parts is not None else None
    if parts is not None and family is not None and (family.plain or family.own or parts[3]):
        measure = _of_family(family, *parts.groups())
        return (measure,) if measure is not None else ()
    printed = printed_names(name)
    if len(printed) == 1:
        return (Measure(name, printed[0], printed[0]),)
    return tuple(Measure(one, one, one) for one in printed)


def _of_family(
    family: Family, word: str, written_parameters: str | None, cutoff: str | None
) -> Measure | None:
    """A measure of a family of ir_measures; None if its cut-off or a parameter is not one of the family."""
    parameters = _parameters(family, written_parameters)
    if parameters is None:
        return None
    name = word + (f"({written_parameters})" if written_parameters is not None else "")
    name += f"@{cutoff}" if cutoff is not None else ""
    level = int(parameters["rel"]) if "rel" in parameters else None
    trec_eval = family.plain if cutoff is None else family.at
    if trec_eval is not None:
        printed = printed_names(trec_eval if cutoff is None else f"{trec_eval}_{cutoff}")
        return Measure(name, printed[0], printed[0], level=level) if len(printed) == 1 else None
    if family.own is None or (cutoff is not None and not _INTEGER.fullmatch(cutoff)):
        return None
    persistence = float(parameters.get("p", PERSISTENCE))
    return Measure(name, family.own, None, int(cutoff) if cutoff is not None else None, level, persistence)


def _parameters(family: Family, written: str | None) -> dict[str, str] | None:
    """The parameters in parentheses by name; None if the family lacks one, or it is out of range."""
    if written is None:
        return {}
    found: dict[str, str] = {}
    for part in written.split(","):
        key, _, value = (word.strip() for word in part.partition("="))
        legal = _DECIMAL if key == "p" else _INTEGER
        if key not in family.parameters or key in found or not legal.fullmatch(value):
            return None
        found[key] = value
    return found if float(found.get("p", PERSISTENCE)) > 0 else None


def _suggestion(name: str) -> str:
    """The nearest known name, or the parameters that a family takes, in parentheses; or an empty string."""
    parts = _NAME.fullmatch(name.strip())
    family = FAMILIES.get(parts[1]) if parts is not None else None
    if parts is not None and family is not None and _parameters(family, parts[2]) is None:
        ranges = {"rel": "rel of 1 or more", "p": "p between 0 and 1"}
        takes = " and ".join(ranges[key] for key in family.parameters) or "no parameters"
        return f" ({parts[1]} takes {takes})"
    near = _nearest_family(name) or _nearest_of_trec_eval(name)
    return f" (did you mean {near!r}?)" if near is not None and _parse(near) else ""


def _nearest_family(name: str) -> str | None:
    """The nearest name of ir_measures, if the unknown name is written as these are."""
    word, at, cutoff = re.sub(r"\(.*\)", "", name.strip()).partition("@")
    if not at and word not in FAMILIES:
        return None
    known = {family.lower(): family for family in reversed(FAMILIES)}
    known |= {"acc": "P", "accuracy": "P", "prec": "P", "precision": "P", "recall": "R"}
    known |= {"hit": "Success", "hits": "Success"}
    close = difflib.get_close_matches(word.lower(), known, n=1, cutoff=0.5)
    if word not in FAMILIES and not close:
        return None
    meant = word if word in FAMILIES else known[close[0]]
    family = FAMILIES[meant]
    if family.at is None and family.own is None:
        return meant
    if meant == "IPrec":
        return "IPrec@0.1"
    return f"{meant}@{cutoff if _INTEGER.fullmatch(cutoff) else 10}"


def _nearest_of_trec_eval(name: str) -> str | None:
    """The nearest of trec_eval's names."""
    word, number = re.fullmatch(r"(.*?)[@._]?(\d*)", name.strip().lower(), re.DOTALL).groups()  # type: ignore[union-attr]
    meant = _ALIASES.get(word)
    if word in ("map", "ndcg") and not number:
        return str(word)
    if meant in AT_RANK:
        return f"{meant}_{number or 1}"
    if meant is not None:
        return meant
    by_lower_case = {known.lower(): known for known in known_measures()}
    close = difflib.get_close_matches(word, by_lower_case, n=1, cutoff=0.6)
    nearest = by_lower_case[close[0]] if close else None
    return f"{nearest}_{number}" if nearest in AT_RANK and number else nearest
