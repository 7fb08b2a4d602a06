"""Runs of systems that need no training."""

from aptool.library.arguments import check_type
from aptool.library.pools import Pools
from aptool.library.run import Run
from aptool.library.systems import run_of
from aptool.scoring.baselines import BaselineLoader


def bm25_run(pools: Pools) -> Run:
    """The run of BM25 (Lucene's variant, k1 = 1.2, b = 0.75), tagged ``bm25``.

    Document frequencies are counted over the distinct answers of these pools. ``score`` with the model
    ``bm25`` writes the same run to a file.

    Raises:
        AptoolError: the pools are not what they should be.
    """
    check_type("pools", pools, Pools, "Pools")
    return run_of(pools, lambda files: BaselineLoader("bm25"))
