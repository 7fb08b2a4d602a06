"""Runs of systems that need no training."""

from aptool.formats.pools import read_answers, read_pools
from aptool.library.arguments import check_type
from aptool.library.pools import PoolFiles, Pools
from aptool.library.run import Run
from aptool.library.systems import run_of
from aptool.scoring.baselines import Bm25System


def bm25_run(pools: Pools) -> Run:
    """The run of BM25 (Lucene's variant, k1 = 1.2, b = 0.75), tagged ``bm25``.

    Document frequencies are counted over the distinct answers of these pools.

    Raises:
        AptoolError: the pools are not what they should be.
    """
    check_type("pools", pools, Pools, "Pools")
    return run_of(pools, _bm25)


def _bm25(files: PoolFiles) -> Bm25System:
    shared = read_answers(files.answers) if files.answers is not None else None
    return Bm25System([text for unit in files.units for text in read_pools(unit, shared).answers.to_pylist()])
