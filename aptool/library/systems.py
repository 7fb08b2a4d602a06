"""Runs of systems that are scored in this process and kept in memory."""

from collections.abc import Callable

from aptool.library.arguments import check_type
from aptool.library.pools import PoolFiles, Pools
from aptool.library.run import Run, run_of_scores
from aptool.scoring.baselines import BaselineLoader
from aptool.scoring.score import AnySystem, score_in_memory


def run_of(pools: Pools, system_for: Callable[[PoolFiles], AnySystem]) -> Run:
    """Score pools with the system that ``system_for`` returns for their files."""
    with pools.on_disk() as files:
        return run_of_scores(*score_in_memory(files.units, system_for(files), answers=files.answers))


def bm25_run(pools: Pools) -> Run:
    """Score pools with BM25 (Lucene's variant, k1 = 1.2, b = 0.75).

    Document frequencies are counted over the distinct answers of the pools. ``aptool.score(pools, "bm25",
    "bm25.run")`` writes the same run to a file.

    Args:
        pools: the pools to score.

    Returns:
        A run with the tag ``bm25``.

    Raises:
        AptoolError: the pools are invalid.

    Example:
        >>> pool = "who wrote it?", {"a": "Nobody knows.", "b": "She wrote it."}
        >>> aptool.bm25_run(aptool.Pools.from_dict({"q1": pool})).to_polars()["answer_id"].to_list()
        ['b', 'a']
    """
    check_type("pools", pools, Pools, "Pools")
    return run_of(pools, lambda files: BaselineLoader("bm25"))
