"""Names of measures in ir_measures (``nDCG@10``), and their names in trec_eval (``ndcg_cut_10``)."""

import difflib
import re
from typing import NamedTuple

from aptool.errors import UsageError
from aptool.evaluation.measures import measure_names


class _Family(NamedTuple):
    """trec_eval's names of a measure, with and without a cut-off; None if there is none."""

    plain: str | None
    at: str | None = None  # with a cut-off: rank or recall level


_AP = _Family("map", "map_cut")
_NDCG = _Family("ndcg", "ndcg_cut")
_FAMILIES = {
    "AP": _AP,
    "MAP": _AP,
    "RR": _Family("recip_rank"),
    "MRR": _Family("recip_rank"),
    "P": _Family(None, "P"),
    "R": _Family(None, "recall"),
    "nDCG": _NDCG,
    "NDCG": _NDCG,
    "Success": _Family(None, "success"),
    "IPrec": _Family(None, "iprec_at_recall"),
    "Rprec": _Family("Rprec"),
    "Bpref": _Family("bpref"),
    "infAP": _Family("infAP"),
    "SetP": _Family("set_P"),
    "SetR": _Family("set_recall"),
    "SetF": _Family("set_F"),
    "SetAP": _Family("set_map"),
    "NumQ": _Family("num_q"),
    "NumRel": _Family("num_rel"),
    "NumRet": _Family("num_ret"),
}
_NAME = re.compile(r"([A-Za-z]+)(?:@([0-9.]+))?", re.ASCII)


def trec_eval_name(name: str) -> str:
    """trec_eval's name of one measure: ``map`` for ``AP`` or ``MAP``, ``P_1`` for ``P@1``.

    Args:
        name: see ``trec_eval_names``.

    Raises:
        UsageError: the measure is unknown (the message has the nearest name), or it is a set of measures.
    """
    names = trec_eval_names(name)
    if len(names) > 1:
        raise UsageError(f"{name!r} is {len(names)} measures ({', '.join(names[:3])}, …); expected one")
    return names[0]


def trec_eval_names(name: str) -> tuple[str, ...]:
    """trec_eval's names of a measure, or of each measure of a set.

    Args:
        name: a name of ir_measures (AP, RR, P@1, R@100, nDCG@10, Success@5, ...), MAP, MRR, or a name that
            ``measure_names`` takes, such as ``ndcg_cut_10``, ``P.1`` or ``official``.

    Raises:
        UsageError: the measure is unknown; the message has the nearest name.
    """
    parts = _NAME.fullmatch(name)
    family = _FAMILIES.get(parts[1]) if parts is not None else None
    if parts is not None and family is not None:
        if parts[2] is None and family.plain is not None:
            return (family.plain,)
        if parts[2] is not None and family.at is not None:
            printed = _printed(f"{family.at}_{parts[2]}")
            if printed is not None:
                return (printed,)
    near = _nearest(name)
    if near is not None:
        raise UsageError(f"unknown measure {name!r} (did you mean {near!r}?)")
    return measure_names([name])


def _printed(name: str) -> str | None:
    try:
        (printed,) = measure_names([name])
    except UsageError:
        return None
    return printed


def _nearest(name: str) -> str | None:
    """The nearest ir_measures name to an unknown name with a cut-off."""
    word, at, cutoff = name.strip().partition("@")
    if not at:
        return None
    if word in _FAMILIES and _FAMILIES[word].at is None:
        return word
    lower = {known.lower(): known for known in reversed(_FAMILIES) if _FAMILIES[known].at is not None}
    close = difflib.get_close_matches(word.lower(), lower, n=1, cutoff=0.5)
    if not close:
        return None
    number = cutoff if re.fullmatch(r"0*[1-9]\d*", cutoff) else "10"
    return f"{lower[close[0]]}@{number}"
