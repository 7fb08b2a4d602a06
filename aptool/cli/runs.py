"""Options of commands that evaluate runs: qrels, pools, measures and the confidence of intervals."""

from __future__ import annotations

import logging
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from typing_extensions import override

from aptool.cli.parameters import Count
from aptool.errors import MOST_EXAMPLES, UsageError, first_few, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aptool.evaluation.evaluation import Evaluation
    from aptool.formats.location import Location
    from aptool.library.pools import Pools

logger = logging.getLogger(__name__)

# White space, or a comma that does not separate cutoffs, outside parentheses.
_BETWEEN_MEASURES = re.compile(r"(?:,(?!\d+(?:\.\d+)?(?:,|$))|\s+)(?![^()]*\))")
# With more unjudged candidates, the qrels list only relevant answers, and examples do not help.
_MOST_UNJUDGED = 1000


class Confidence(click.FloatRange):
    """A confidence level within `significance.LOWEST_CONFIDENCE` and `HIGHEST_CONFIDENCE`."""

    name = "confidence"

    def __init__(self) -> None:
        super().__init__(0.5, 0.999)

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


qrels_option = click.option(
    "--qrels", metavar="QRELS", help="TREC qrels.  [default: X.qrels in the folder of X.run]"
)
pools_option = click.option(
    "--pools",
    metavar="POOLS",
    multiple=True,
    help="Pools with the texts: files, folders, globs or URLs; repeatable.  [default: X.pools.parquet in the "
    "folder of X.qrels]",
)
measures_option = click.option(
    "--measures",
    metavar="NAMES",
    help="Measures, comma-separated: MAP, MRR@10, nDCG@10, RBP(p=.8), or names of trec_eval (recip_rank, "
    "P_1, official, all_trec) and ir_measures (RR@10).  [default: MAP,MRR,P@1]",
)
level_option = click.option(
    "--level",
    metavar="N",
    type=Count(1, 1_000_000),
    default=1,
    show_default=True,
    help="Minimum relevance grade that counts as relevant (trec_eval -l); nDCG uses all grades.",
)


def parse_measures(measures: str | None) -> tuple[str, ...]:
    """Return the common names of comma-separated measures; None is the default measures.

    A comma between cutoffs (``P.1,5``) or parameters does not separate measures.
    """
    from aptool.evaluation.names import DEFAULT_MEASURES, measure_names

    if measures is None:
        return DEFAULT_MEASURES
    return measure_names(name for name in _BETWEEN_MEASURES.split(measures.strip()) if name)


def qrels_beside(runs: Sequence[str], option: str = "--qrels") -> str:
    """Return the qrels file in the folder of the runs; log its path, as ``option`` was not given."""
    qrels = set()
    for run in runs:
        candidates = _possible_qrels(run)
        path = next((path for path in candidates if path.is_file()), None)
        if path is None:
            names = " or ".join(path.name for path in candidates[::2])
            raise UsageError(f"{run}: no {names} in its folder{_without_labels(run)}; pass {option} FILE")
        qrels.add(str(path))
    if len(qrels) > 1:
        raise UsageError(f"the runs have different qrels, {', '.join(sorted(qrels))}; pass {option} FILE")
    logger.info(f"{option} not given: {min(qrels)}")
    return qrels.pop()


def report_gaps(run: str, evaluation: Evaluation) -> None:
    """Log the questions and candidates that are only in the run or only in the qrels."""
    missing, extra = evaluation.missing, evaluation.extra
    unjudged = evaluation.unjudged.height
    sample = evaluation.unjudged.head(MOST_EXAMPLES if unjudged <= _MOST_UNJUDGED else 0)
    pairs = [" ".join(pair) for pair in sample.iter_rows()]
    total = f" of {evaluation.per_question.height}"
    gaps = (
        ("questions missing from the run, counted as 0", len(missing), total, missing),
        ("questions not in the qrels, left out", len(extra), "", extra),
        ("candidates not judged, counted as not relevant", unjudged, "", pairs),
    )
    for gap, count, total, names in gaps:
        if count:
            examples = f" ({first_few(names, count)})" if names else ""
            logger.info(f"{run}: {gap}: {count}{total}{examples}")


def short_names(runs: Sequence[str]) -> dict[str, str]:
    """Name each run by the part in which the paths differ: ``qa-cnn`` for ``runs/qa-cnn/test.run``.

    A single run is named by its file name.
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
    """Load ``--pools``, else the pools in the folder of the qrels; return None if there are none."""
    from aptool.library.pools import Pools

    if not pools:
        default = location_of_pools(qrels)
        if not default.is_file():
            return None
        logger.info(f"--pools not given: {default}")
        pools = (str(default),)
    return Pools.load(pools)


def location_of_pools(qrels: str) -> Location:
    """Return the path of the pools in the folder of the qrels."""
    from aptool.formats.location import location

    return location(qrels.removesuffix(".gz").removesuffix(".qrels") + ".pools.parquet")


def _without_labels(run: str) -> str:
    """Return a hint if the run is of a collection's split that has no labels."""
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
    """Return ``test.ap-cnn.qrels``, then ``test.qrels``, each plain and gzipped, for ``test.ap-cnn.run``."""
    from aptool.formats.location import location

    path = location(run)
    parts = path.name.removesuffix(".gz").removesuffix(".run").split(".")
    stems = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    return [path.with_name(stem + suffix) for stem in stems if stem for suffix in (".qrels", ".qrels.gz")]
