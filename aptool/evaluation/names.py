"""Names of measures: those of ir_measures that pytrec_eval computes.

``AP`` and ``RR`` of ir_measures are printed as ``MAP`` and ``MRR``. Case does not matter.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from aptool.errors import UsageError, shortened

DEFAULT_MEASURES = ("MAP", "MRR", "P@1")


class Measure(NamedTuple):
    """A measure of trec_eval."""

    name: str  # as printed
    trec_eval: str  # name in trec_eval
    level: int | None = None  # lowest relevance that counts as relevant; None is the evaluation's
    cutoff: int | None = None  # last rank of a reciprocal rank, which trec_eval has no name for


class _Family(NamedTuple):
    """A measure with its cutoffs and levels."""

    name: str  # as printed
    plain: str | None  # trec_eval's name without a cutoff
    at: str | None = None  # trec_eval's name with a cutoff, without the cutoff
    has_level: bool = True


_FAMILIES = (
    _Family("MAP", "map", "map_cut"),
    _Family("MRR", "recip_rank", "recip_rank"),
    _Family("P", None, "P"),
    _Family("R", None, "recall"),
    _Family("nDCG", "ndcg", "ndcg_cut", has_level=False),
    _Family("Success", None, "success"),
    _Family("Rprec", "Rprec"),
    _Family("Bpref", "bpref"),
    _Family("infAP", "infAP"),
    _Family("IPrec", None, "iprec_at_recall"),
    _Family("SetP", "set_P"),
    _Family("SetR", "set_recall"),
    _Family("SetF", "set_F"),
    _Family("SetAP", "set_map"),
    _Family("NumQ", "num_q", has_level=False),
    _Family("NumRel", "num_rel"),
    _Family("NumRet", "num_ret", has_level=False),
    _Family("NumRelRet", "num_rel_ret"),
)
_ALIASES = {"ap": "map", "rr": "mrr", "precision": "p", "recall": "r"}
_BY_NAME = {family.name.lower(): family for family in _FAMILIES}
_NAME = re.compile(r"([a-z]+)(?:\(rel=0*([1-9]\d{0,8})\))?(?:@(\d+(?:\.\d+)?))?", re.ASCII | re.IGNORECASE)
_RANK = re.compile(r"0*([1-9]\d{0,8})", re.ASCII)


def parse_measures(names: Iterable[str]) -> tuple[Measure, ...]:
    """The distinct measures of the given names, in the given order; the error lists all unknown names."""
    parsed: dict[str, Measure] = {}
    unknown: list[str] = []
    for name in names:
        measure = _parse(name)
        if measure is None:
            unknown.append(shortened(name))
        else:
            parsed.setdefault(measure.name, measure)
    if unknown:
        known = ", ".join(_shown(family) for family in _FAMILIES)
        raise UsageError(
            f"unknown measures: {', '.join(unknown)}; expected {known}, such as nDCG@10 or MAP(rel=2); "
            "ir_measures computes others from the run file"
        )
    if not parsed:
        raise UsageError(f"no measure given; the default is {','.join(DEFAULT_MEASURES)}")
    return tuple(parsed.values())


def measure_names(names: str | Iterable[str]) -> tuple[str, ...]:
    """The printed names of one measure or several; see `parse_measures`."""
    parsed = parse_measures([names] if isinstance(names, str) else names)
    return tuple(measure.name for measure in parsed)


def printed_name(name: str) -> str | None:
    """The printed name of a measure; None if it is unknown."""
    measure = _parse(name)
    return measure.name if measure is not None else None


def is_mean(measure: str) -> bool:
    """Whether a measure is a mean over the questions; ``NumRel`` and the like are sums."""
    return not measure.startswith("Num")


def _parse(name: str) -> Measure | None:
    parts = _NAME.fullmatch(name)
    if parts is None:
        return None
    word, level, cutoff = parts[1].lower(), parts[2], parts[3]
    family = _BY_NAME.get(_ALIASES.get(word, word))
    if family is None or (level is not None and not family.has_level):
        return None
    printed = family.name + (f"(rel={level})" if level is not None else "")
    relevant = int(level) if level is not None else None
    if cutoff is None:
        return Measure(printed, family.plain, relevant) if family.plain is not None else None
    if family.name == "IPrec":
        recall = float(cutoff)
        if recall > 1 or recall != round(recall, 2):
            return None
        return Measure(f"{printed}@{recall:g}", f"{family.at}_{recall:.2f}", relevant)
    rank = _RANK.fullmatch(cutoff)
    if family.at is None or rank is None:
        return None
    printed = f"{printed}@{rank[1]}"
    if family.name == "MRR":
        return Measure(printed, family.at, relevant, int(rank[1]))
    return Measure(printed, f"{family.at}_{rank[1]}", relevant)


def _shown(family: _Family) -> str:
    """A family in the list of known measures: ``MAP[@K]``, ``P@K``."""
    if family.at is None:
        return family.name
    cutoff = "@RECALL" if family.name == "IPrec" else "@K"
    return f"{family.name}[{cutoff}]" if family.plain is not None else f"{family.name}{cutoff}"
