"""Options of commands that read runs: qrels, pools, measures and the confidence of intervals."""

from __future__ import annotations

import logging
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aptool.errors import MOST_EXAMPLES, UsageError, first_few, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aptool.evaluation.evaluation import Evaluation
    from aptool.formats.location import Location
    from aptool.library.pools import Pools

logger = logging.getLogger(__name__)

# A comma that is not one of cut-offs, or white space, outside of parentheses.
_BETWEEN_MEASURES = re.compile(r"(?:,(?!\d+(?:\.\d+)?(?:,|$))|\s+)(?![^()]*\))")
# Qrels that list only relevant answers leave more candidates unjudged than this; examples are of no use then.
_MOST_UNJUDGED = 1000


class Confidence(click.FloatRange):
    """The confidence of an interval, within `significance.LOWEST_CONFIDENCE` and `HIGHEST_CONFIDENCE`."""

    name = "confidence"

    def __init__(self) -> None:
        super().__init__(0.5, 0.999)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """A number in the range; NaN is refused."""
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


qrels_option = click.option(
    "--qrels", metavar="QRELS", help="Qrels file.  [default: DEV.qrels beside DEV.run]"
)
pools_option = click.option(
    "--pools",
    metavar="POOLS",
    multiple=True,
    help="Pools with the texts: files, folders, globs, URLs.  [default: DEV.pools.parquet beside DEV.qrels]",
)
# Defaults of the next two are in `evaluation`, which is too slow to import for --help.
measures_option = click.option(
    "--measures",
    metavar="NAMES",
    help="Measures: MAP, MRR@10, P@1, R@10, nDCG@10, MAP(rel=2), RBP(p=.8); also by their names in trec_eval "
    "(recip_rank, P_1, or a set of measures: official, set, all_trec) or in ir_measures (RR@10).  "
    "[default: MAP,MRR,P@1]",
)
level_option = click.option(
    "--level",
    metavar="N",
    type=click.IntRange(1, 1_000_000),
    default=1,
    show_default=True,
    help="Lowest relevance that counts as relevant (trec_eval -l); nDCG takes every relevance as a gain.",
)
confidence_option = click.option(
    "--confidence", type=Confidence(), help="Confidence of the intervals, 0.5 to 0.999.  [default: 0.95]"
)


def parse_measures(measures: str | None) -> tuple[str, ...]:
    """The common names of a comma-separated list; None stands for the default measures.

    A comma of cut-offs (``P.1,5``) or of parameters does not separate measures.

    Raises:
        UsageError: a measure is unknown.
    """
    from aptool.evaluation.names import DEFAULT_MEASURES, measure_names

    if measures is None:
        return DEFAULT_MEASURES
    return measure_names(name for name in _BETWEEN_MEASURES.split(measures.strip()) if name)


def qrels_beside(runs: Sequence[str], option: str = "--qrels") -> str:
    """The qrels file in the runs' folder; logs its path, and that ``option`` was not given.

    Raises:
        UsageError: there is none beside a run, or two runs have different ones.
    """
    found: dict[str, str] = {}
    for run in runs:
        candidates = _possible_qrels(run)
        existing = [path for path in candidates if path.is_file()]
        if not existing:
            tried = " or ".join(path.name for path in candidates[::2])
            raise UsageError(f"{run}: no {tried} beside it{_without_labels(run)}; pass {option} FILE")
        found[run] = str(existing[0])
    qrels = set(found.values())
    if len(qrels) > 1:
        raise UsageError(
            f"the runs have different qrels beside them, {', '.join(sorted(qrels))}; pass {option} FILE"
        )
    logger.info(f"{option} not given: {found[runs[0]]}")
    return found[runs[0]]


def report_gaps(run: str, evaluation: Evaluation) -> None:
    """Logs how many questions and candidates are not in both the run and the qrels, with examples."""
    missing, extra = evaluation.missing, evaluation.extra
    unjudged = evaluation.unjudged.height
    sample = evaluation.unjudged.head(MOST_EXAMPLES if unjudged <= _MOST_UNJUDGED else 0)
    pairs = [" ".join(pair) for pair in sample.iter_rows()]
    of_all = f" of {evaluation.per_question.height}"
    gaps = (
        ("questions missing from the run, counted as 0", len(missing), of_all, missing),
        ("questions not in the qrels, left out", len(extra), "", extra),
        ("candidates not judged, counted as not relevant", unjudged, "", pairs),
    )
    for what, count, among, names in gaps:
        if count:
            logger.info(f"{run}: {what}: {count}{among}" + (f" ({first_few(names, count)})" if names else ""))


def short_names(runs: Sequence[str]) -> dict[str, str]:
    """Short names of runs, the part in which their paths differ: ``qa-cnn`` for ``runs/qa-cnn/test.run``.

    Args:
        runs: distinct paths; a single one is named by its last component.
    """
    if len(runs) == 1:
        return {runs[0]: printable(Path(runs[0]).name)}
    words = [re.split(r"([/.])", run) for run in runs]
    for end in (-1, 0):
        while len({parts[end] for parts in words}) == 1 and min(map(len, words)) > 1:
            for parts in words:
                del parts[end]
    names = ["".join(parts).strip("/.") for parts in words]
    return dict(zip(runs, map(printable, names if all(names) else runs), strict=True))


def pools_given(pools: tuple[str, ...], qrels: str) -> Pools | None:
    """The pools of ``--pools``, else those beside the qrels, whose path is logged; None if there are none.

    Raises:
        InputError: a pattern matches no file, or a file is not a pools file.
    """
    from aptool.library.pools import Pools

    if not pools:
        beside = location_of_pools(qrels)
        if not beside.is_file():
            return None
        logger.info(f"--pools not given: {beside}")
        pools = (str(beside),)
    return Pools.load(pools)


def location_of_pools(qrels: str) -> Location:
    """Where the pools file beside the qrels would be."""
    from aptool.formats.location import location

    return location(qrels.removesuffix(".gz").removesuffix(".qrels") + ".pools.parquet")


def _without_labels(run: str) -> str:
    """Names the split of the collection beside the run, if the split has no labels."""
    from aptool.formats.collection import MANIFEST, CollectionFiles

    folder = _possible_qrels(run)[0].parent
    if not (folder / MANIFEST).is_file():
        return ""
    collection = CollectionFiles(folder)
    names = [path.name.removesuffix(".qrels") for path in _possible_qrels(run)]
    split = next((name for name in names if name in collection.splits), None)
    if split is None or collection.is_labelled(split):
        return ""
    return f", as the split {split!r} has no labels"


def _possible_qrels(run: str) -> list[Location]:
    """For ``test.ap-cnn.run``: ``test.ap-cnn.qrels``, then ``test.qrels``, each plain and gzipped."""
    from aptool.formats.location import location

    path = location(run)
    parts = path.name.removesuffix(".gz").removesuffix(".run").split(".")
    stems = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    return [path.with_name(stem + suffix) for stem in stems if stem for suffix in (".qrels", ".qrels.gz")]
