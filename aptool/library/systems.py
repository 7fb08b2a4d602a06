"""The run that a system gives of pools, through the one way to score."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import polars as pl

from aptool.formats.trec import read_run
from aptool.library.pools import PoolFiles, Pools
from aptool.library.run import Run
from aptool.scoring.score import AnySystem, score


def run_of(pools: Pools, system_for: Callable[[PoolFiles], AnySystem]) -> Run:
    """Scores pools in this process.

    Args:
        pools: what to score.
        system_for: gives the system for the pools' files.

    Raises:
        AptoolError: the pools are not what they should be, or a score is not finite.
    """
    with pools.on_disk() as files, tempfile.TemporaryDirectory(prefix="aptool-") as folder:
        path = Path(folder) / "run"
        score(files.units, system_for(files), path, answers=files.answers)
        read = read_run(path)
    # Scores are float32: rounded to that, a value that was read from decimals is the system's own again.
    exact = pl.col("score").cast(pl.Float32).cast(pl.Float64)
    return Run.from_scores(read.frame.with_columns(exact), read.tag)
