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
    level: int = 1  # lowest relevance that counts as relevant
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
_NUMBER = r"0*([1-9]\d{0,8})"
_NAME = re.compile(rf"([a-z]+)(?:\(rel={_NUMBER}\))?(?:@{_NUMBER})?", re.ASCII | re.IGNORECASE)


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


def is_mean(measure: str) -> bool:
    """Whether a measure is a mean over the questions; ``NumRel`` and the like are sums."""
    return not measure.startswith("Num")


def _parse(name: str) -> Measure | None:
    parts = _NAME.fullmatch(name)
    if parts is None:
        return None
    word, level, cutoff = parts[1].lower(), parts[2], parts[3]
    family = _BY_NAME.get(_ALIASES.get(word, word))
    if family is None or (level and not family.has_level):
        return None
    trec_eval = family.at if cutoff else family.plain
    if trec_eval is None:
        return None
    printed = family.name + (f"(rel={level})" if level else "") + (f"@{cutoff}" if cutoff else "")
    relevant = int(level or 1)
    if cutoff and family.name == "MRR":
        return Measure(printed, trec_eval, relevant, int(cutoff))
    return Measure(printed, f"{trec_eval}_{cutoff}" if cutoff else trec_eval, relevant)


def _shown(family: _Family) -> str:
    """A family in the list of known measures: ``MAP[@K]``, ``P@K``."""
    if family.at is None:
        return family.name
    return f"{family.name}[@K]" if family.plain is not None else f"{family.name}@K"
