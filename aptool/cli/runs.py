"""Runs, the qrels beside them and the measures asked for, as several commands take them."""

from __future__ import annotations

import logging
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aptool.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aptool.evaluation.measures import Evaluation

logger = logging.getLogger(__name__)

_NAMED_AT_MOST = 5
# Qrels that list right answers alone leave more unjudged than this, and then examples say nothing.
_EXAMPLES_SAY_NOTHING = 1000

qrels_option = click.option(
    "--qrels", metavar="QRELS", help="The judgements.  [default: DEV.qrels beside DEV.run]"
)


class Confidence(click.FloatRange):
    """The confidence of an interval, up to what 10,000 resamples can tell."""

    name = "confidence"

    def __init__(self) -> None:
        super().__init__(0, 0.999, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """A number in the range, which NaN would slip through."""
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


def split_measures(measures: str) -> list[str]:
    """The names in a list; a comma before a further cut-off, as in ``P.1,5``, separates no names."""
    return [name for name in re.split(r",(?!\d+(?:\.\d+)?(?:,|$))|\s+", measures.strip()) if name]


def qrels_beside(runs: Sequence[str]) -> str:
    """The qrels that stand beside the runs; says which they are.

    Raises:
        UsageError: a run has none beside it, or two runs have different ones.
    """
    found: dict[str, str] = {}
    for run in runs:
        candidates = _possible_qrels(run)
        existing = [path for path in candidates if path.is_file()]
        if not existing:
            tried = " or ".join(path.name for path in candidates[::2])
            raise UsageError(f"{run}: no qrels given and no {tried} beside it: pass --qrels FILE")
        found[run] = str(existing[0])
    qrels = set(found.values())
    if len(qrels) > 1:
        raise UsageError(f"the runs have several qrels beside them, {', '.join(sorted(qrels))}: pass --qrels")
    logger.info(f"--qrels not given: {found[runs[0]]}")
    return found[runs[0]]


def report_gaps(run: str, evaluation: Evaluation) -> None:
    """Says how many questions and candidates the run and the qrels do not have in common, and names some."""
    missing, extra = evaluation.missing, evaluation.extra
    unjudged = evaluation.unjudged.height
    examples = evaluation.unjudged.head(_NAMED_AT_MOST if unjudged <= _EXAMPLES_SAY_NOTHING else 0)
    pairs = [" ".join(pair) for pair in examples.iter_rows()]
    of_all = f" of {evaluation.per_question.height}"
    gaps = (
        ("questions missing from the run, counted as 0", len(missing), of_all, missing),
        ("questions not in the qrels, left out", len(extra), "", extra),
        ("candidates not judged, counted as not relevant", unjudged, "", pairs),
    )
    for what, count, among, names in gaps:
        if count:
            logger.info(f"{run}: {what}: {count}{among}" + (f" ({some(names, count)})" if names else ""))


def some(names: Sequence[str], total: int | None = None) -> str:
    """The first few names, and a sign if there are more."""
    total = len(names) if total is None else total
    return ", ".join(names[:_NAMED_AT_MOST]) + (", …" if total > _NAMED_AT_MOST else "")


def short_names(runs: Sequence[str]) -> dict[str, str]:
    """The runs by the words that tell their paths apart: ``qa-cnn`` for ``runs/qa-cnn/test.run``.

    Args:
        runs: different paths; one alone goes by its last part.
    """
    if len(runs) == 1:
        return {runs[0]: Path(runs[0]).name}
    words = [re.split(r"([/.])", run) for run in runs]
    for end in (-1, 0):
        while len({parts[end] for parts in words}) == 1 and min(map(len, words)) > 1:
            for parts in words:
                del parts[end]
    names = ["".join(parts).strip("/.") for parts in words]
    return dict(zip(runs, names if all(names) else runs, strict=True))


def pools_beside(qrels: str) -> str | None:
    """The pools of the collection that the qrels stand in, if they are there; says which they are."""
    path = Path(qrels.removesuffix(".gz").removesuffix(".qrels") + ".pools.parquet")
    if not path.is_file():
        return None
    logger.info(f"--pools not given: {path}")
    return str(path)


def _possible_qrels(run: str) -> list[Path]:
    """For ``test.ap-cnn.run``: ``test.ap-cnn.qrels``, then ``test.qrels``, each plain and gzipped."""
    path = Path(run)
    parts = path.name.removesuffix(".gz").removesuffix(".run").split(".")
    stems = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    return [path.with_name(stem + suffix) for stem in stems if stem for suffix in (".qrels", ".qrels.gz")]
