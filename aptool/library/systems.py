"""Runs of systems, scored in this process and kept in memory."""

from collections.abc import Callable

from aptool.library.arguments import check_type
from aptool.library.pools import PoolFiles, Pools
from aptool.library.run import Run
from aptool.scoring.baselines import BaselineLoader
from aptool.scoring.score import AnySystem, score_in_memory


def run_of(pools: Pools, system_for: Callable[[PoolFiles], AnySystem]) -> Run:
    """Score pools in this process.

    Args:
        pools: what to score.
        system_for: returns the system for the pools' files.

    Raises:
        AptoolError: the pools are not valid, or a score is not finite.
    """
    with pools.on_disk() as files:
        return Run.from_scores(*score_in_memory(files.units, system_for(files), answers=files.answers))


def bm25_run(pools: Pools) -> Run:
    """The run of BM25 (Lucene's variant, k1 = 1.2, b = 0.75), tagged ``bm25``.

    Document frequencies are counted over the distinct answers of these pools. ``score`` with the model
    ``bm25`` writes the same run to a file.

    Raises:
        AptoolError: the pools are not what they should be.
    """
    check_type("pools", pools, Pools, "Pools")
    return run_of(pools, lambda files: BaselineLoader("bm25"))
